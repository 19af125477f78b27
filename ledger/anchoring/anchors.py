# SPDX-License-Identifier: Apache-2.0
"""
Anchors: what the system log has recorded of the other logs, whether they still agree, and who has witnessed it. Pure.

At intervals the system log records size and root of every log that was signed since (`logs.anchored`). A checkpoint of
the system log therefore commits to every log: one that is removed, cut off or rewritten contradicts an anchor, even if
its checkpoints and signatures were replaced, too.

Guarantee: if `check_anchors` returns, the log's tree has the recorded root at the size of each of its anchors, and
those sizes grow. Entries after the newest anchor are not covered. The system log must have been verified before: an
anchor proves no more than the tree that contains it.

A log is ANCHORED as far as the system log has recorded it. That alone is no witness, because both logs are the
installation's. A root is WITNESSED if others vouch for it. Guarantee: `judge_witnessing` calls a log witnessed only up
to a size whose root follows from a checkpoint of the system log that the auditor's pinned witnesses have cosigned or a
pinned time-stamping authority has stamped; `judge_archived`, from a checkpoint that the auditor has kept, or has read
from an archive that others cannot rewrite.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from cryptography import x509

from ledger.anchoring.timestamp import check_stamp
from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.checkpoint import Checkpoint
from ledger.format.encoding import SIZE_MAX
from ledger.format.entry import Entry, check_origin, parse_entry
from ledger.format.event import format_key
from ledger.format.events import LogsAnchored, from_data
from ledger.format.note import VerifierKey, format_note, open_checkpoint, parse_note
from ledger.format.witness_policy import UnwitnessedError, WitnessPolicy

_ROOT: Final = re.compile("[0-9a-f]{64}")
_MARK: Final = b'"type":"logs.anchored"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The log `origin` had this root at `size`, according to the system log's entry at `index`."""

    origin: str
    size: int
    root: bytes
    index: int
    recorded_at: datetime


def anchor_key(origin: str) -> str:
    """
    Return the event key of a log: `log:` and its origin.

    Raises:
        FormatError: if a segment of the origin is empty.
    """
    return format_key("log", origin.split("/"))


def parse_anchor(entry: Entry) -> Anchor:
    """
    Return the anchor that an entry of the system log is.

    Raises:
        FormatError: if it is none, or not of the version that is known here.
    """
    if (entry.type, entry.version) != (LogsAnchored.TYPE, LogsAnchored.VERSION):
        found = f"{entry.type} {entry.version}"
        raise FormatError("anchor", expected=f"{LogsAnchored.TYPE} {LogsAnchored.VERSION}", found=found)
    data = from_data(LogsAnchored, dict(entry.data))
    check_origin(data.origin)
    if entry.key != anchor_key(data.origin):
        raise FormatError("anchor", expected=f"the key {anchor_key(data.origin)}", found=entry.key)
    if not 0 < data.size <= SIZE_MAX:
        raise FormatError("anchor", expected="a size from 1", found=data.size)
    if not _ROOT.fullmatch(data.root):
        raise FormatError("anchor", expected="a root of 64 lower-case hex digits", found=data.root)
    root = bytes.fromhex(data.root)
    return Anchor(origin=data.origin, size=data.size, root=root, index=entry.index, recorded_at=entry.recorded_at)


def anchors_of(entries: Iterable[bytes]) -> Mapping[str, Sequence[Anchor]]:
    """
    Return the anchors among entries of the system log, in order, by the origin of the anchored log.

    Only anchors are parsed; the other entries are checked by verifying the system log.

    Raises:
        BrokenError: (`Fault.ANCHOR`) if one is malformed; carries its index in the system log.
    """
    anchors: dict[str, list[Anchor]] = {}
    for entry in entries:
        # Canonical JSON writes the type of an entry in one way only. A string in `data` can contain these bytes only
        # with escaped quotes, but an object in `data` can contain them: hence the type is compared, too.
        if _MARK not in entry or (parsed := parse_entry(entry)).type != LogsAnchored.TYPE:
            continue
        try:
            anchor = parse_anchor(parsed)
        except FormatError as error:
            raise BrokenError(
                Fault.ANCHOR, where=parsed.log, expected="an anchor", found=error, index=parsed.index
            ) from error
        anchors.setdefault(anchor.origin, []).append(anchor)
    return anchors


def check_anchors(
    anchors: Sequence[Anchor], *, origin: str, size: int, root_at: Callable[[int], bytes]
) -> Anchor | None:
    """
    Check that the log `origin`, verified and of this size, agrees with its `anchors`; return the newest one, if any.

    `root_at` returns the root that the verified log had at a size from 1 to `size`; it is called with growing sizes. If
    the log does not exist, `size` is 0.

    Raises:
        BrokenError: (`Fault.ANCHOR`) if the log is shorter than an anchor, with the index of the first entry that is
            missing, or has another root at its size; then the bad entry lies between that size and the anchor before.
    """
    held: Anchor | None = None
    for anchor in anchors:
        where = f"anchor at index {anchor.index} of the system log"
        if anchor.origin != origin:
            raise BrokenError(Fault.ANCHOR, where=where, expected=f"the log {origin}", found=anchor.origin)
        if held is not None and anchor.size <= held.size:
            expected = f"a size over {held.size}, as in the anchor at index {held.index}"
            raise BrokenError(Fault.ANCHOR, where=where, expected=expected, found=anchor.size)
        if anchor.size > size:
            expected = f"log {origin} of {anchor.size} entries or more"
            found = f"{size} entries" if size else "no such log, or an empty one: it was removed whole"
            raise BrokenError(Fault.ANCHOR, where=where, expected=expected, found=found, index=size)
        if (root := root_at(anchor.size)) != anchor.root:
            expected = f"the root {anchor.root.hex()} of {origin} at size {anchor.size}"
            since = f"entries from {held.size} on" if held else "entries"
            raise BrokenError(Fault.ANCHOR, where=where, expected=expected, found=f"{root.hex()}: {since} were changed")
        held = anchor
    return held


def check_all_present(anchors: Mapping[str, Sequence[Anchor]], *, origins: Collection[str]) -> None:
    """
    Check that each log that the system log has anchored is among `origins`, the existing logs.

    Raises:
        BrokenError: (`Fault.ANCHOR`) if one is missing; names the first by name.
    """
    for origin in sorted(anchors):
        if origin not in origins:
            check_anchors(anchors[origin], origin=origin, size=0, root_at=lambda _: b"")


class WitnessKind(StrEnum):
    """How others have witnessed a root."""

    COSIGNED = "cosigned"
    STAMPED = "stamped"
    ARCHIVED = "kept outside"


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessing:
    """
    What others have witnessed: the first `size` entries of a log, which existed at `time` (None if not known).

    `kinds` says how, and is empty if nobody has; `by` names the witnesses. Entries from `size` on are not witnessed.
    """

    kinds: tuple[WitnessKind, ...]
    size: int
    time: datetime | None
    by: tuple[str, ...] = ()


NOT_WITNESSED = Witnessing(kinds=(), size=0, time=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """
    Whom an auditor trusts, chosen beforehand and elsewhere: a witness policy, or roots of time-stamping authorities.

    With nothing pinned nothing is witnessed.
    """

    policy: WitnessPolicy | None = None
    stamp_roots: Sequence[x509.Certificate] = ()
    stamp_policy: str | None = None


def judge_witnessing(
    note: bytes,
    *,
    origin: str,
    anchors: Sequence[Anchor],
    keys: Sequence[VerifierKey],
    pinned: Pinned,
    token: bytes | None = None,
) -> Witnessing:
    """
    Return up to which size the log `origin` is witnessed, by a checkpoint of the system log.

    Precondition: the system log was verified to be that of `note` (its root at that size, by its `keys`), and
    `anchors`, those of `origin` in it, were checked against the log (`check_anchors`). `token` is a stamp over `note`.

    The note of the system log covers the system log itself, and other logs by their anchors in it. Too few
    cosignatures, or no token, means not witnessed; a bad cosignature or a bad token is an error.

    Raises:
        FormatError, LimitExceededError: if `note` or `token` is not of its form.
        BrokenError: if a signature of a known key or the time stamp is bad.
    """
    checkpoint = open_checkpoint(note, keys)
    times: dict[str, datetime] = {}
    kinds: list[WitnessKind] = []
    vouched_at: list[datetime] = []
    if pinned.policy is not None:
        witnessed = _witnessed(note, keys, pinned.policy)
        if witnessed:
            kinds.append(WitnessKind.COSIGNED)
            vouched_at.append(max(witnessed.values()))  # by then the whole quorum had cosigned
            times |= witnessed
    if pinned.stamp_roots and token is not None:
        stamp = check_stamp(token, stamped_note(note), roots=pinned.stamp_roots, policy=pinned.stamp_policy)
        kinds.append(WitnessKind.STAMPED)
        vouched_at.append(stamp.not_later_than)
        times[stamp.authority] = stamp.not_later_than
    if not kinds:
        return NOT_WITNESSED
    return Witnessing(
        kinds=tuple(kinds),
        size=_covered(checkpoint, origin, anchors),
        time=min(vouched_at),
        by=tuple(times),
    )


def judge_archived(kept: Iterable[tuple[str, Checkpoint]], *, origin: str, anchors: Sequence[Anchor]) -> Witnessing:
    """
    Return up to which size the log `origin` is witnessed by archived checkpoints, each with where it was read.

    Precondition: the log, or the system log, which contains `anchors`, was verified to continue from each of them, and
    the log was checked against the anchors. It is not known when they were archived.
    """
    covered: dict[str, int] = {}
    for where, checkpoint in kept:
        covered[where] = max(_covered(checkpoint, origin, anchors), covered.get(where, 0))
    size = max(covered.values(), default=0)
    if not size:
        return NOT_WITNESSED
    by = tuple(where for where, up_to in covered.items() if up_to == size)
    return Witnessing(kinds=(WitnessKind.ARCHIVED,), size=size, time=None, by=by)


def furthest(*judged: Witnessing) -> Witnessing:
    """
    Return the one with the largest size; those with the same largest size are joined.
    """
    size = max(one.size for one in judged)
    equal = [one for one in judged if one.size == size and one.kinds]
    if not equal:
        return NOT_WITNESSED
    return Witnessing(
        kinds=tuple(kind for one in equal for kind in one.kinds),
        size=size,
        time=min((one.time for one in equal if one.time is not None), default=None),
        by=tuple(by for one in equal for by in one.by),
    )


def stamped_note(note: bytes) -> bytes:
    """
    Return what time stamps on a checkpoint cover: the note with the signature lines of its own log alone.

    Lines of witnesses are added later; those of the log, whose key names are its origin, are written once.

    Raises:
        FormatError: if `note` is no signed note, or none of its lines is by its log.
    """
    text, lines = parse_note(note)
    origin = text.partition("\n")[0]
    return format_note(text, [line for line in lines if line.name == origin])


def _witnessed(note: bytes, keys: Sequence[VerifierKey], policy: WitnessPolicy) -> dict[str, datetime]:
    """Return when the witnesses of a policy have cosigned; empty if they are too few."""
    try:
        seen = policy.check(note, logs=keys)
    except UnwitnessedError:
        return {}
    return {name: _time(time_s, name) for name, time_s in seen.cosignatures.items()}


def _time(time_s: int, name: str) -> datetime:
    try:
        return datetime.fromtimestamp(time_s, UTC)
    except (OverflowError, ValueError, OSError) as error:  # beyond the year 9999, or what the platform supports
        expected = "a time before the year 10000"
        raise BrokenError(
            Fault.SIGNATURE, where=f"cosignature of {name}", expected=expected, found=f"{time_s} s"
        ) from error


def _covered(checkpoint: Checkpoint, origin: str, anchors: Sequence[Anchor]) -> int:
    if checkpoint.origin == origin:
        return checkpoint.size
    return max((one.size for one in anchors if one.origin == origin and one.index < checkpoint.size), default=0)
