"""The fault table: each operation, with a fault at each of its steps."""
