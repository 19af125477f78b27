# SPDX-License-Identifier: Apache-2.0
"""
Makes personal payload parts erasable, and erases them without changing a proof.

Read `erase.py` first: it records the erasure, destroys the key and deletes the rows; it also erases by age.
`format/sealing.py` defines how a part is encrypted under the key of the person it is about, `sealer.py` does that
before an append, and `subject_keys.py` keeps the keys, outside the database. `execution.py` does what an entry says,
and `rerun.py` repeats what a restored backup has forgotten. `redaction.py` finds a person's login in what is kept
outside the log.
"""
