"""The commands `lakeproof ledger …`: `app.py` puts them together, one module a topic."""
