# SPDX-License-Identifier: Apache-2.0
"""
Logs that continue under another origin: their names, and the first entry that links the new log to the old one.

If a log's signer has signed more than any database or export still holds, the log can never be signed again: its
checkpoints are published, and the entries they cover are lost. The log is closed, and a log of another origin succeeds
it: `<origin>/2`, then `/3`. The first entry of the successor is a `log.continued`, which holds the old log's last
signed note. So anyone with the key of the old log can check that this note was signed, and how much of the old log was
lost.

A log is closed as soon as a log of its successor's origin exists in the same database. The name alone says so,
permanently.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.checkpoint import Checkpoint
from ledger.format.entry import parse_entry
from ledger.format.events import LogContinued, from_data
from ledger.format.note import VerifierKey, open_checkpoint

_CONTINUED: Final = re.compile(r"(?P<first>.+/(?:[0-9a-f]{32}|system))/(?P<number>[2-9]|[1-9][0-9]{1,8})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """
    What a new log says of the old one: what was signed last, and how much of it was still stored, with which root.
    """

    signed: Checkpoint
    size: int
    root: bytes

    @property
    def lost(self) -> int:
        """The minimum number of signed entries that no database holds any more."""
        return max(self.signed.size - self.size, 0)


def successor_origin(origin: str) -> str:
    """
    Return the origin of the successor of the log `origin`: `<origin>/2`; for `<origin>/2`, `<origin>/3`.
    """
    found = _CONTINUED.fullmatch(origin)
    return f"{origin}/2" if found is None else f"{found['first']}/{int(found['number']) + 1}"


def predecessor_origin(origin: str) -> str | None:
    """
    Return the origin of the predecessor of the log `origin`, or None if it has none.
    """
    found = _CONTINUED.fullmatch(origin)
    if found is None:
        return None
    number = int(found["number"]) - 1
    return found["first"] if number == 1 else f"{found['first']}/{number}"


def system_origin_of(origin: str) -> str:
    """
    Return the origin of the system log of the installation that has a log of `origin`, derived from the name.
    """
    return f"{_first(origin).rpartition('/')[0]}/system"


def is_or_succeeds(origin: str, *, first: str) -> bool:
    """
    Return whether `origin` is that of the log `first`, or of one of its successors.
    """
    return _first(origin) == first


def _first(origin: str) -> str:
    """Return the origin of the first log in a chain of successors."""
    found = _CONTINUED.fullmatch(origin)
    return origin if found is None else found["first"]


def check_continuation(first_entry: bytes, keys: Sequence[VerifierKey]) -> Continuation | None:
    """
    Check what the first entry of a log says of its predecessor; None if its origin says that there is none.

    `keys` are verifier keys that the caller trusts, of the new log or of the old one. A key of the new log counts for
    the old one, too, because both have one signer, under a name each. If the key has changed in between, the old one is
    needed.

    Raises:
        FormatError: if `first_entry` is not an entry, or not of its form.
        BrokenError: `Fault.ORIGIN` if the origin has a predecessor and the entry does not name it (or the other way
            round); `Fault.SIGNATURE` or `Fault.CHECKPOINT` if the old log has not signed the note.
    """
    entry = parse_entry(first_entry)
    before = predecessor_origin(entry.log)
    expected = "no log before this one" if before is None else f"a {LogContinued.TYPE} of {before}"
    if (entry.type == LogContinued.TYPE) != (before is not None):
        raise BrokenError(Fault.ORIGIN, where="first entry", expected=expected, found=entry.type, index=0)
    if before is None:
        return None
    continued = from_data(LogContinued, entry.data)
    if continued.origin != before:
        raise BrokenError(Fault.ORIGIN, where="first entry", expected=expected, found=continued.origin, index=0)
    root = _parse_root(continued.root)
    renamed = [VerifierKey.of(key.algorithm, name=before, public=key.public) for key in keys if key.name == entry.log]
    known = {key.key_id: key for key in (*keys, *renamed)}
    signed = open_checkpoint(continued.note.encode(), list(known.values()), origin=before)
    return Continuation(signed=signed, size=continued.size, root=root)


def _parse_root(text: str) -> bytes:
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise FormatError(LogContinued.TYPE, expected="a root of 64 hex digits", found=text)
    return bytes.fromhex(text)


def check_closed_by(continuation: Continuation, checkpoint: Checkpoint) -> None:
    """
    Check that a checkpoint of the old log, from another source, is not newer than the one that its successor names.

    Raises:
        BrokenError: (`Fault.CHECKPOINT`) if it is, or if it is of the same size with another root.
    """
    signed = continuation.signed
    if checkpoint.origin != signed.origin:
        raise FormatError("checkpoint", expected=f"one of {signed.origin}", found=checkpoint.origin)
    if checkpoint.size > signed.size or (checkpoint.size == signed.size and checkpoint.root != signed.root):
        raise BrokenError(
            Fault.CHECKPOINT,
            where=f"checkpoint of {checkpoint.origin}",
            expected=f"size {signed.size} with root {signed.root.hex()}, or a smaller one",
            found=f"size {checkpoint.size} with root {checkpoint.root.hex()}",
        )
