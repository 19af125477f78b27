# SPDX-License-Identifier: Apache-2.0
"""
What others say of a verified log in a directory: the exported system log, witnesses, ML-DSA-44 keys. Reads files only.

The auditor has pinned a key, of any time, and has an export of the system log next to that of the log in question:

1. the entries of the system log say which keys the pinned one vouches for (`format/key_history.py`);
2. the system log itself verifies, signed by keys that may have signed it at its size;
3. so does the other log, by `verify_directory` with the same history;
4. and each continues from what it was when a key was retired: whoever finds an old key later cannot rewrite what lies
   before.

Then the log is compared with what the system log says of it. Witnesses and stamps are on the system log's checkpoint
or, without that log, on this one's own. `ledger.anchoring` decides what that proves.

A checkpoint is accepted if one trusted key has signed it, which may be one of Ed25519 alone (C2SP signed-note: "at
least one"). An auditor who also pins an ML-DSA-44 key, because Ed25519 may one day be broken, must learn where its line
is missing (`with_ml_dsa`): the checkpoint was signed before that key was added or after it was retired, or somebody has
removed the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ledger.anchoring import Pinned, Witnessing, anchors_of, check_anchors, furthest, judge_archived, judge_witnessing
from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.files.directory import CHECKPOINT_FILE, LogDirectory, bundle_addresses, exported_edge
from ledger.format.checkpoint import Checkpoint, parse_checkpoint
from ledger.format.cosignature import open_cosignatures
from ledger.format.key_history import KeyHistory, Trusted, every_key, follow_keys, follow_recorded_keys
from ledger.format.note import VerifierKey, parse_note
from ledger.format.signature import ML_DSA_44_COSIGNATURE
from ledger.format.tiles import frontier_of
from ledger.format.verification import ProgressCallback, VerificationReport
from ledger.verify.directory import verify_directory
from ledger.verify.workers import Effort


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemExport:
    """A verified export of the system log in the directory `path`, and the keys that an auditor may trust by it."""

    path: Path
    report: VerificationReport
    trusted: Trusted


def verify_system_directory(
    path: Path, pinned: Sequence[VerifierKey], *, progress: ProgressCallback = lambda _done, _of: None
) -> tuple[VerificationReport, KeyHistory]:
    """
    Verify the exported system log in `path`; return the report and which keys `pinned` vouch for.

    Raises:
        BrokenError: at the first fault; also if the log names none of the keys that are pinned.
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
    progress: ProgressCallback = lambda _done, _of: None,
) -> SystemExport:
    """
    Verify the exported system log in `path`; if it names no keys at all, those that are pinned are trusted.

    `held` are signed checkpoints of it that were kept elsewhere: it must continue from each of them.

    Raises:
        BrokenError, UnreadableError: as `verify_system_directory`.
    """
    claimed = _claimed(path)
    trusted = follow_recorded_keys(entries_of(path, claimed.size), pinned, origin=claimed.origin)  # 1
    report = verify_directory(path, trusted, held=held, effort=effort, progress=progress)  # 2, 4
    return SystemExport(path=path, report=report, trusted=trusted)


def entries_of(path: Path, size: int) -> Iterator[bytes]:
    """
    Yield the entries of the log in a directory, as they lie there.

    Raises:
        BrokenError, UnreadableError: as `LogDirectory.read_bundle`.
    """
    directory = LogDirectory(path)
    for index, width in bundle_addresses(size):
        yield from directory.read_bundle(index, width)


def _claimed(path: Path) -> Checkpoint:
    """Return what the checkpoint of a directory claims. It chooses the keys; if it lies, none of them has signed it."""
    try:
        return parse_checkpoint(parse_note(LogDirectory(path).read_checkpoint())[0])
    except FormatError as error:
        raise BrokenError(Fault.CHECKPOINT, where=CHECKPOINT_FILE, expected="a checkpoint", found=error) from error


def judge_directory(
    path: Path,
    report: VerificationReport,
    *,
    trusted: Trusted,
    pinned: Pinned,
    system: SystemExport | None = None,
    token: bytes | None = None,
    kept: Sequence[tuple[str, Checkpoint]] = (),
) -> VerificationReport:
    """
    Return `report`, of the log in the directory `path`, with how far it is anchored and witnessed.

    `trusted` are the keys that the log was verified with. `system` is an export of the system log; without it only the
    log's own note can be witnessed. `token` is a time stamp over the checkpoint of the log that is witnessed. `kept`
    are checkpoints of either that lie outside, each with where; both logs were verified to continue from theirs.

    Raises:
        BrokenError: if what the system log says of this log is not so, or a line or stamp is bad.
        FormatError: if a note or the token is malformed.
        UnreadableError: if a directory cannot be read.
        LedgerError: if the log is the system log itself.
    """
    if system is None:
        note = LogDirectory(path).read_checkpoint()
        keys = every_key(trusted, report.origin)
        judged = judge_witnessing(note, origin=report.origin, anchors=(), keys=keys, pinned=pinned, token=token)
        own = judge_archived(kept, origin=report.origin, anchors=())
        return with_witnessing(report, furthest(judged, own))
    verified = system.report
    if report.origin == verified.origin:
        raise LedgerError(
            f"{path} is itself an export of the system log {verified.origin}: name the export of the log that it "
            "vouches for"
        )
    anchors = anchors_of(entries_of(system.path, verified.size)).get(report.origin, ())
    directory = LogDirectory(path)

    def root_at(size: int) -> bytes:
        return frontier_of(exported_edge(directory, size=size, of=report.size)).root()

    newest = check_anchors(anchors, origin=report.origin, size=report.size, root_at=root_at)
    note = LogDirectory(system.path).read_checkpoint()
    keys = every_key(system.trusted, verified.origin)
    judged = judge_witnessing(note, origin=report.origin, anchors=anchors, keys=keys, pinned=pinned, token=token)
    checked = f"{len(anchors):,} anchors in {verified.origin}, a log of {verified.size:,} entries"
    anchored_size = newest.size if newest else 0
    judged = furthest(judged, judge_archived(kept, origin=report.origin, anchors=anchors))
    return with_witnessing(replace(report, checked=(*report.checked, checked), anchored_size=anchored_size), judged)


def with_witnessing(report: VerificationReport, judged: Witnessing) -> VerificationReport:
    """Return the report with how far the log is witnessed, and by whom."""
    if not judged.kinds:
        return report
    time = f", {judged.time:%Y-%m-%d %H:%M:%S} UTC" if judged.time else ""
    by = (f"{' and '.join(judged.kinds)}{time}", *judged.by)
    return replace(report, witnessed_size=min(judged.size, report.size), witnessed_by=by)


def with_ml_dsa(report: VerificationReport, note: bytes, keys: Sequence[VerifierKey]) -> VerificationReport:
    """
    Return `report` with whether those of `keys` that are ML-DSA-44 keys of a log have signed its checkpoint `note`.

    Precondition: `note` was verified to be a checkpoint of the reported log, or of the one that anchors it.

    Raises:
        FormatError: if `note` is no checkpoint.
        BrokenError: (`Fault.SIGNATURE`) if a line of one of them does not verify.
    """
    text, lines = parse_note(note)
    checkpoint = parse_checkpoint(text)
    expected = [key for key in keys if key.algorithm == ML_DSA_44_COSIGNATURE and key.name == checkpoint.origin]
    signed = open_cosignatures(text, lines, expected)
    present = (f"ML-DSA-44 signature of {_short(key)}" for key in expected if key in signed)
    absent = (
        f"an ML-DSA-44 signature of {_short(key)}: the checkpoint of size {checkpoint.size:,} has none"
        for key in expected
        if key not in signed
    )
    return replace(report, checked=(*report.checked, *present), unchecked=(*report.unchecked, *absent))


def _short(key: VerifierKey) -> str:
    return f"{key.name}+{key.key_id.hex()}"
