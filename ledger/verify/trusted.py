"""
Whom verification trusts to have signed a log: keys as somebody has pinned them, or the history of a signer's keys.

Pinned keys have no end: what one of them has signed is signed. In a history a retired key vouches for nothing newer
than what it had signed when it was retired, and that the log must still begin with (`signing/key_history.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from ledger.checkpoint import Checkpoint, open_checkpoint
from ledger.errors import BrokenError, Fault, FormatError
from ledger.note import VerifierKey
from ledger.signing.key_history import KeyHistory, follow_keys

Trusted: TypeAlias = Sequence[VerifierKey] | KeyHistory

_TELLING: Final = b'"type":"signer.'


def tells_of_keys(entry: bytes) -> bool:
    """Tell whether an entry of the system log may be about the signer's keys; of any other entry it is not."""
    return _TELLING in entry


def follow_told(entries: Iterable[bytes], pinned: Sequence[VerifierKey], *, origin: str) -> Trusted:
    """
    Return the history of the keys that `pinned` vouch for, or `pinned` if the system log `origin` tells of no keys.

    `entries` are those of the system log, or of them those that tell of keys; the log is to be verified besides, with
    what is returned.

    Raises:
        BrokenError: as `follow_keys`; `Fault.ENTRY` if one of the entries is none.
    """
    told = [entry for entry in entries if tells_of_keys(entry)]
    if not told:
        return pinned
    try:
        return follow_keys(told, pinned, origin=origin)
    except FormatError as error:
        where = f"entries of {origin}"
        raise BrokenError(Fault.ENTRY, where=where, expected="entries about the signer's keys", found=error) from error


def open_signed(note: bytes, trusted: Trusted, *, origin: str | None = None) -> Checkpoint:
    """
    Return the checkpoint in `note`, if its log has signed it with a key that is trusted for it.

    Raises:
        FormatError, BrokenError: as `open_checkpoint` and `KeyHistory.open`.
    """
    if isinstance(trusted, KeyHistory):
        return trusted.open(note, origin=origin)
    return open_checkpoint(note, trusted, origin=origin)


def last_trees(trusted: Trusted, origin: str) -> Sequence[Checkpoint]:
    """
    Return what the log was when each key retired, smallest first: it must go on from each of these.
    """
    return trusted.last_trees(origin) if isinstance(trusted, KeyHistory) else ()


def every_key(trusted: Trusted, origin: str) -> Sequence[VerifierKey]:
    """
    Return all keys of that log that are trusted, for checkpoints of whatever size: for notes already opened with them.
    """
    if isinstance(trusted, KeyHistory):
        return [VerifierKey.ed25519(name=origin, public=term.public) for term in trusted.terms]
    return trusted
