# SPDX-License-Identifier: Apache-2.0
"""The commands, one module a topic. `ledger.py` puts those of `lakeproof ledger` together."""
