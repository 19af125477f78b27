"""
What makes personal payload parts erasable, and erases them without touching one proof.

Read `erase.py` first: the entry, then the key, then the rows. `sealing.py` is how a part is encrypted under the key of
the person it is about; `subject_keys.py` keeps those keys, outside the database. `retention.py` erases by age, and
`rerun.py` does everything again that a restored backup has forgotten.
"""
