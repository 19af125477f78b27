"""
What makes personal payload parts erasable, and erases them without touching one proof.

Read `erase.py` first: the entry, then the key, then the rows; it also erases by age. `format/sealing.py` is how a part
is encrypted under the key of the person it is about, `sealer.py` does so before an append, and `subject_keys.py` keeps
the keys, outside the database.
`rerun.py` does everything again that a restored backup has forgotten.
"""
