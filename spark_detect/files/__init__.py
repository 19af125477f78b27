"""
Reads the lake: Iceberg metadata files and manifests, and the columns of Parquet files.
"""
