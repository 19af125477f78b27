"""
Checkpoints: what a log signs about itself, origin, size and root hash (C2SP tlog-checkpoint).

Guarantee: `open_checkpoint` returns a checkpoint only if a key of the very log that it speaks of has signed it.

The last part matters because one caller may know the keys of many logs and witnesses: a note of log A signed by the key
of log B, or by a witness alone, says nothing about A. A key belongs to the log whose origin is its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledger.checkpoint_text import Checkpoint, format_checkpoint, parse_checkpoint
from ledger.encoding import SIZE_MAX, parse_decimal
from ledger.errors import BrokenError, Fault
from ledger.note import VerifierKey, open_note

__all__ = ["SIZE_MAX", "Checkpoint", "format_checkpoint", "open_checkpoint", "parse_checkpoint", "parse_decimal"]


def open_checkpoint(note: bytes, keys: Sequence[VerifierKey], *, origin: str | None = None) -> Checkpoint:
    """
    Return the checkpoint in `note`, if a key of its own log is among `keys` and has signed it.

    Other `keys` (witnesses, other logs) may be among them: their lines must verify, but do not stand in for the log's.
    With `origin`, the checkpoint must be of that log.

    Raises:
        FormatError: if `note` is not a signed note, or its text is not a checkpoint.
        BrokenError: `Fault.SIGNATURE` if a known key's signature is bad or no key of the log signed; `Fault.CHECKPOINT`
            if it is another log's than `origin`.
    """
    opened = open_note(note, keys)
    checkpoint = parse_checkpoint(opened.text)
    if origin is not None and checkpoint.origin != origin:
        raise BrokenError(Fault.CHECKPOINT, where="checkpoint", expected=origin, found=checkpoint.origin)
    names = [key.name for key in opened.verified]
    if checkpoint.origin not in names:
        expected = f"a signature by a key named {checkpoint.origin}"
        raise BrokenError(Fault.SIGNATURE, where="checkpoint", expected=expected, found=", ".join(names))
    return checkpoint
