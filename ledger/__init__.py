"""
The log: append, read, sign, prove, verify, export, erase.

Read `sequence.py` first: the rules of an append, pure, in one file. Then the same on PostgreSQL: `append.py` (callers
and retries), then `appending/` (transactions, and how rows reach the server). The bytes are `canonical.py`, `event.py`
and `entry.py`, the vocabulary `events/`; aggregates live in `recorder.py`. RFC 6962 and C2SP, each format beside its
parser: `merkle.py`, `tiles.py`, `note.py`, `checkpoint.py`, `proof.py`. Then:

- `signing/signer.py` signs checkpoints; `signing/key_history.py` says which of its keys may have signed what
- `verify/rules.py` is what "verified" means; files beside it fetch from a directory or a database
- `witness/rules.py` is when others cosign, `anchoring/judging.py` how far others vouch for a log
- `evidence/bundle.py` is one decision, proven in one file; `looking/find.py` searches the log
- `commands/app.py` lists the commands of all this

`erasing/` makes what is personal erasable, `receipts.py` gives a writer the proof of its entry, and `recovering/` puts
right what a restored backup has lost.

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
