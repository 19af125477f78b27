# SPDX-License-Identifier: Apache-2.0
"""
The log: append, read, sign, prove, verify, export, erase.

Folders import downwards only; `pyproject.toml` holds the contract. From the bottom:

- `errors.py`: all errors
- `format/`: every format, rule and proof. Pure: no database, no files, no network
- `files/`: an exported log as a directory, files that survive a crash, and HTTP requests to other servers
- `store/`: the log in PostgreSQL: its SQL, reading it, sessions
- `append/` writes entries, `witness/` cosigns checkpoints, `anchoring/` has others confirm them, `erasing/` erases
  personal data. None of the four imports another
- `verify/`: whether a log is what was signed, from a directory or a database
- `signing/` signs checkpoints and holds the keys; `proving/` makes proofs, receipts, exports and evidence
- `recovering/`: repairs a log whose database has lost signed entries

Read `format/sequence.py` first: the rules of an append, in one file. Then `append/appender.py`: the same on PostgreSQL.
The bytes are in `format/canonical.py`, `format/event.py` and `format/entry.py`, the vocabulary is in `format/events/`.
`format/verification.py` defines what "verified" means. The commands are in `lakeproof/commands/`.

Only pure names are re-exported here: importing them loads no database driver.
"""

from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.format.canonical import decode, encode
from ledger.format.entry import Branch, Entry, parse_entry
from ledger.format.event import Event, Part, PreparedEvent, prepare
from ledger.format.merkle import leaf_hash, node_hash, root_of

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
