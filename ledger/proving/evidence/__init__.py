# SPDX-License-Identifier: Apache-2.0
"""
Evidence: what is proven about a decision, a table or a period, in one file that a third party checks without us.

Read `bundle.py` first, the format, and `check.py`, what it proves. `scope.py` defines what a bundle claims to be about
and how complete that is; the proof over several entries is in `format/proof.py`. `gather.py` makes bundles, from an
exported directory or from PostgreSQL (`from_database.py`). `verify_lakeproof.py`, in the project's root, checks the
same without any of this code.
"""
