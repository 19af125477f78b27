"""
Verifies the exported system log through changes of the signer's keys, from files and pinned keys. No database.

The auditor has pinned a key, of any time, and holds an export of the system log beside that of the log in question:

1. the entries of the system log tell which keys the pinned one vouches for (`signing/key_history.py`);
2. the system log itself verifies, signed by keys that may have signed it at its size;
3. so does the other log, by `verify_directory` with the same history;
4. and each goes on from what it was when a key was retired: whoever finds an old key later cannot rewrite what lies
   before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger.checkpoint import Checkpoint, parse_checkpoint
from ledger.directory import CHECKPOINT_FILE, LogDirectory, bundle_places
from ledger.errors import BrokenError, Fault, FormatError
from ledger.note import VerifierKey, parse_note
from ledger.signing.key_history import KeyHistory, follow_keys
from ledger.verify.directory import verify_directory
from ledger.verify.effort import Effort
from ledger.verify.rules import Progress, Report
from ledger.verify.trusted import Trusted, follow_told


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemExport:
    """An export of the system log in the directory `path`, verified, and whom it makes an auditor trust."""

    path: Path
    report: Report
    trusted: Trusted


def verify_system_directory(
    path: Path, pinned: Sequence[VerifierKey], *, progress: Progress = lambda _done, _of: None
) -> tuple[Report, KeyHistory]:
    """
    Verify the exported system log in `path`, and return with the report which keys `pinned` vouch for.

    Raises:
        BrokenError: at the first fault; also if the log tells of none of the keys that are pinned.
        UnreadableError: if there is no exported log there, or a file cannot be read.
    """
    claimed = _claimed(path)
    history = follow_keys(entries_of(path, claimed.size), pinned, origin=claimed.origin)  # 1
    return verify_directory(path, history, progress=progress), history  # 2, 4


def verify_system_export(
    path: Path,
    pinned: Sequence[VerifierKey],
    *,
    held: Sequence[bytes] = (),
    effort: Effort | None = None,
    progress: Progress = lambda _done, _of: None,
) -> SystemExport:
    """
    Verify the exported system log in `path`; if it tells of no keys at all, those that are pinned are trusted.

    `held` are signed checkpoints of it that were kept elsewhere: it must go on from each of them.

    Raises:
        BrokenError, UnreadableError: as `verify_system_directory`.
    """
    claimed = _claimed(path)
    trusted = follow_told(entries_of(path, claimed.size), pinned, origin=claimed.origin)  # 1
    report = verify_directory(path, trusted, held=held, effort=effort, progress=progress)  # 2, 4
    return SystemExport(path=path, report=report, trusted=trusted)


def entries_of(path: Path, size: int) -> Iterator[bytes]:
    """
    Yield the entries of the log in a directory, as they lie there.

    Raises:
        BrokenError, UnreadableError: as `LogDirectory.read_bundle`.
    """
    directory = LogDirectory(path)
    for index, width in bundle_places(size):
        yield from directory.read_bundle(index, width)


def _claimed(path: Path) -> Checkpoint:
    """Return what the checkpoint of a directory says: it chooses the keys; if it lies, none of them has signed it."""
    try:
        return parse_checkpoint(parse_note(LogDirectory(path).read_checkpoint())[0])
    except FormatError as error:
        raise BrokenError(Fault.CHECKPOINT, where=CHECKPOINT_FILE, expected="a checkpoint", found=error) from error
