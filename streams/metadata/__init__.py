# SPDX-License-Identifier: Apache-2.0
"""
Metadata files of Iceberg tables: parsed here, and read in child processes that can be killed.
"""
