"""
What puts a log right whose database has lost what was signed.

Read `recover.py` first: the lost entries are replayed from an export (`replay.py`). Where there is none,
`continuing.py` closes the log and begins the one that goes on from it; `format/continuation.py` says, from names and
first entries alone, which goes on from which. `adoption.py` is for a signer that has lost its notes.
"""
