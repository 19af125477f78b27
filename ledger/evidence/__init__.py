"""
Evidence: what a third party holds in hand about a decision, a table or a period, in one file that needs none of us.

Read `bundle.py` first, the format, and `check.py`, what it proves. `multiproof.py` is the proof over several entries,
`scope.py` what a bundle claims to be about and how complete that is. `gather.py` makes bundles, from an exported
directory (`from_directory.py`) or from PostgreSQL (`from_database.py`). `verify_lakeproof.py`, in the project's root,
checks the same with the standard library alone.
"""
