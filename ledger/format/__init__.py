# SPDX-License-Identifier: Apache-2.0
"""
The formats of the log and the rules over them. Pure: nothing here reads a file, a database, a clock or the network.

Bytes and trees: `canonical.py`, `event.py`, `entry.py`, `events/` (the vocabulary), `merkle.py`, `tiles.py`. Signed
texts of C2SP: `checkpoint.py`, `signature.py`, `note.py`, `cosignature.py`, `witness_policy.py`, `proof.py`. Rules:
`sequence.py` (which groups are appended), `verification.py` (what a verified log is), `key_history.py` (which key may
have signed what), `continuation.py` (which log continues which).
"""
