"""
Metadata files of Iceberg tables: parsed here, and read in child processes that can be killed.
"""
