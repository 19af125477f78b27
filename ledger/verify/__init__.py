"""
Verification: the rules are in `format/verification.py`, those of the tree in `tree.py`. This package fetches for them.

`directory.py` verifies an exported log, `database.py` one in PostgreSQL, `anchored.py` what others say of it.
`effort.py` decides how much work goes into it: large logs are checked by compiled code (`fast.py`, `kernel.py`,
`hashing.py`).
"""
