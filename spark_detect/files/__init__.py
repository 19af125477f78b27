# SPDX-License-Identifier: Apache-2.0
"""
Reads the lake: Iceberg metadata files and manifests, and the columns of Parquet files.
"""
