# SPDX-License-Identifier: Apache-2.0
"""
Verification of a log: the rules are in `format/verification.py` and `tree.py`, this package reads what they judge.

In two sentences: `directory.py` (an export) or `database.py` (PostgreSQL) reads the log page by page, 256 entries each,
checks every entry against the rules, in order, and adds its leaf hash to a Merkle tree. Each tile of that tree must be
the stored one, and the tree must have the signed root at the size of every known checkpoint.

Around that: `starting.py` begins behind a checkpoint that was verified before, `resuming.py` saves progress,
`workers.py` shares the work among processes. Large logs are checked by compiled code (`fast.py`, `kernel.py`,
`hashing.py`), which accepts sound pages and leaves all others to the rules. `anchored.py` judges what the system log,
witnesses and time stamps say of a directory; `parts.py` and `indexes.py` check what the rules do not cover in a
database; `second_opinion.py` compares the tree with pymerkle's.
"""
