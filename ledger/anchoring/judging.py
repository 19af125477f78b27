"""
Whether a root is WITNESSED: vouched for by others than the installation itself. Pure.

Guarantee: `judge_witnessing` calls a log witnessed only up to a size whose root follows from a checkpoint of the system
log that somebody outside has seen: the witnesses of a policy, or a time-stamping authority, that the auditor pinned;
`judge_kept` does so by checkpoints that the auditor has kept, or has taken from a place that others cannot rewrite.
A log is ANCHORED as far as the system log has recorded it (`anchors.py`); that alone is no witness, because both are
the installation's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from cryptography import x509

from ledger.anchoring.anchors import Anchor
from ledger.anchoring.timestamp import check_stamp
from ledger.checkpoint import Checkpoint, open_checkpoint
from ledger.errors import BrokenError, Fault
from ledger.note import VerifierKey, format_note, parse_note
from ledger.witness.policy import Policy, UnwitnessedError


class WitnessKind(StrEnum):
    """How others vouch for a root."""

    COSIGNED = "cosigned"
    STAMPED = "stamped"
    KEPT = "kept outside"


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessing:
    """
    What others vouch for: the first `size` entries of a log, which existed at `time` (None if that is not known).

    `kinds` says how, and is empty if nobody does; `by` names them. Entries from `size` on are not witnessed.
    """

    kinds: tuple[WitnessKind, ...]
    size: int
    time: datetime | None
    by: tuple[str, ...] = ()


NOT_WITNESSED = Witnessing(kinds=(), size=0, time=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """
    Whom an auditor believes, chosen beforehand and elsewhere: a witness policy, or roots of time-stamping authorities.

    With nothing pinned nothing is witnessed.
    """

    policy: Policy | None = None
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
    Return up to which size others vouch for the log `origin`, by a checkpoint of the system log.

    Before: the system log was verified to be that of `note` (its root at that size, by its `keys`), and `anchors`,
    those of `origin` that stand in it, were checked against the log (`check_anchors`). `token` is a stamp over `note`.

    The note of the system log vouches for the system log itself, and for other logs by the anchors that it covers. What
    is not there is not vouched for: no cosignatures enough, no token. What is there and false is an error.

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
            vouched_at.append(max(witnessed.values()))  # by then the whole quorum had seen it
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


def judge_kept(kept: Iterable[tuple[str, Checkpoint]], *, origin: str, anchors: Sequence[Anchor]) -> Witnessing:
    """
    Return up to which size the log `origin` is witnessed by checkpoints that are kept outside, each with where it lies.

    Before: the log, or the system log, in which `anchors` stand, was verified to go on from each of them, and the log
    was checked against the anchors. When they came to be where they lie is not known.
    """
    covered: dict[str, int] = {}
    for where, checkpoint in kept:
        covered[where] = max(_covered(checkpoint, origin, anchors), covered.get(where, 0))
    size = max(covered.values(), default=0)
    if not size:
        return NOT_WITNESSED
    by = tuple(where for where, up_to in covered.items() if up_to == size)
    return Witnessing(kinds=(WitnessKind.KEPT,), size=size, time=None, by=by)


def furthest(*judged: Witnessing) -> Witnessing:
    """
    Return the one that reaches furthest; those that reach as far as each other, as one.
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
    Return what time stamps on a checkpoint are over: the note with the signature lines of its own log alone.

    Lines of witnesses come and go; those of the log, whose key names are its origin, are written once.

    Raises:
        FormatError: if `note` is no signed note, or none of its lines is by its log.
    """
    text, lines = parse_note(note)
    origin = text.partition("\n")[0]
    return format_note(text, [line for line in lines if line.name == origin])


def _witnessed(note: bytes, keys: Sequence[VerifierKey], policy: Policy) -> dict[str, datetime]:
    """Return when the witnesses of a policy have cosigned, or nothing if they are too few."""
    try:
        seen = policy.check(note, logs=keys)
    except UnwitnessedError:
        return {}
    return {name: _time(time_s, name) for name, time_s in seen.cosignatures.items()}


def _time(time_s: int, name: str) -> datetime:
    try:
        return datetime.fromtimestamp(time_s, UTC)
    except (OverflowError, ValueError, OSError) as error:  # beyond the year 9999, or what the machine can count
        expected = "a time before the year 10000"
        raise BrokenError(
            Fault.SIGNATURE, where=f"cosignature of {name}", expected=expected, found=f"{time_s} s"
        ) from error


def _covered(checkpoint: Checkpoint, origin: str, anchors: Sequence[Anchor]) -> int:
    if checkpoint.origin == origin:
        return checkpoint.size
    return max((one.size for one in anchors if one.origin == origin and one.index < checkpoint.size), default=0)
