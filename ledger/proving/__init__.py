# SPDX-License-Identifier: Apache-2.0
"""
What a log hands out: proofs, receipts, exports, published files, search results and evidence.

`prove.py` makes one proof, `receipts.py` makes thousands for callers who have just appended. `export.py` writes a log
as a directory, or serves the same files one by one. `search.py` finds entries, and `evidence/` puts what is proven
about a decision, a table or a period into one file.
"""
