# SPDX-License-Identifier: Apache-2.0
"""
Read models kept as plain rows: catalogs, commits, findings, metrics; and the names of tables, which others use as well.
"""
