"""
What puts a log right whose database has lost what was signed.

Read `recover.py` first: the lost entries are replayed from an export. Where there is none, `continuing.py` closes the
log and begins the one that goes on from it; `continuation.py` says, from names and first entries alone, which goes on
from which.
"""
