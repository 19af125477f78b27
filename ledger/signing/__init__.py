"""
Who speaks for the logs: the signer, and the directory that holds its keys and last notes.

Read `signer.py` first; `rotation.py` is the life of its keys, and `format/key_history.py` what an auditor makes of it.
"""
