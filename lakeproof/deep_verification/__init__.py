# SPDX-License-Identifier: Apache-2.0
"""
Deep verification: compares everything that is derived from a log with the log (`lakeproof ledger verify --deep`).
"""
