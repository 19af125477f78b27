"""
The log: append, read, prove, verify, export, sign.

Read `sequence.py` first: the rules, pure, in one file. Then `append.py` and `batch.py` (the same rules on PostgreSQL),
`verify.py` (what an auditor checks) and `entry.py`, `event.py`, `canonical.py` (the bytes). `merkle.py`, `tiles.py`,
`note.py`, `checkpoint.py` and `proof.py` are RFC 6962 and C2SP, each format beside its parser. `events/` is the
vocabulary, `recorder.py` the home of event-sourced aggregates.

Only pure names are re-exported here: importing them loads no database driver.
"""

from ledger.canonical import decode, encode
from ledger.entry import Branch, Entry, parse_entry
from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.event import Event, Part, PreparedEvent, prepare
from ledger.merkle import leaf_hash, node_hash, root_of

__all__ = [
    "Branch",
    "BrokenError",
    "Entry",
    "Event",
    "Fault",
    "FormatError",
    "LedgerError",
    "Part",
    "PreparedEvent",
    "decode",
    "encode",
    "leaf_hash",
    "node_hash",
    "parse_entry",
    "prepare",
    "root_of",
]
