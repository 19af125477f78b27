# SPDX-License-Identifier: Apache-2.0
"""
The rules of an append: which groups are appended, at which indices, with which bytes. Pure: no database.

`sequence` is a generator because one question needs I/O: does a guard hold? It yields each guarded group when it is its
turn, and is sent the answer. `append/` answers from SQL, tests from a model, replay from the log. So normal work,
recovery and tests run the same rules.

Guarantee, given a locked head and `stored` groups read under that lock: indices without a gap, an unbroken chain, each
group id in the log once at most, and no group behind a newer control entry than its `as_of`. A batch has the same
effect as its groups appended one by one: a group whose id occurs earlier in the batch is treated as if it were in the
log already.

Two groups are the same if types, versions, keys, actors, data and payload parts are equal. Not compared are times, the
random salts of parts (a stored commitment is checked under its stored salt), and parts that were erased since. A
difference is an error that names it, because the caller has used one id for two things.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ledger.errors import FormatError, GroupMismatchError, GuardError, LedgerError, LimitExceededError
from ledger.format import canonical
from ledger.format.entry import FIRST_PREVIOUS, Branch, Entry, format_entry, parse_entry
from ledger.format.event import GROUP_EVENTS_MAX, GROUP_SIZE_BYTES_MAX, Part, PreparedEvent, commitment
from ledger.format.guards import GuardCall
from ledger.format.merkle import Frontier, leaf_hash
from ledger.values import value_class

NO_CONTROL = -1
"""The control index of a log without control entries."""
LOG_SIZE_MAX = canonical.INTEGER_MAX + 1
"""Entries in a log: the index of one more would lie outside canonical JSON."""
_FULL_FROM = LOG_SIZE_MAX - GROUP_EVENTS_MAX
"""The largest size at which any group fits, whichever branch is appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHead:
    """The end of a log: `last` is the leaf hash of entry `size - 1`, `recorded_at` its time (None while empty)."""

    size: int
    last: bytes
    frontier: Frontier
    control_index: int
    recorded_at: datetime | None

    @staticmethod
    def empty() -> LogHead:
        """Return the head of a log without entries."""
        return LogHead(
            size=0, last=FIRST_PREVIOUS, frontier=Frontier.empty(), control_index=NO_CONTROL, recorded_at=None
        )


@value_class
class Group:
    """
    The unit of an append: `then` is appended if every guard holds, `otherwise` (perhaps nothing) if one does not.

    `as_of` is the control index as of which the caller has decided; a newer control entry makes the group stale.
    """

    id: UUID
    then: tuple[PreparedEvent, ...]
    otherwise: tuple[PreparedEvent, ...] = ()
    guard: tuple[GuardCall, ...] = ()
    as_of: int | None = None
    size_bytes: int = field(init=False, repr=False, compare=False)
    """The larger branch: its events' canonical bytes and their payload parts."""

    def __post_init__(self) -> None:
        if not self.then:
            raise FormatError(f"group {self.id}", expected="at least one event to append", found="none")
        if self.otherwise and not self.guard:
            raise FormatError(f"group {self.id}", expected="a guard with its else branch", found="none")
        count = max(len(self.then), len(self.otherwise))
        if count > GROUP_EVENTS_MAX:
            raise LimitExceededError(f"group {self.id}, events", found=count, limit=GROUP_EVENTS_MAX)
        size_bytes = max(_size_bytes(self.then), _size_bytes(self.otherwise))
        if size_bytes > GROUP_SIZE_BYTES_MAX:
            raise LimitExceededError(f"group {self.id}, bytes", found=size_bytes, limit=GROUP_SIZE_BYTES_MAX)
        object.__setattr__(self, "size_bytes", size_bytes)

    def branch(self, branch: Branch) -> tuple[PreparedEvent, ...]:
        """Return the events of one branch."""
        return self.then if branch is Branch.THEN else self.otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A group found in the log: its entries in order, and for each the parts that still exist (name to salt)."""

    entries: tuple[bytes, ...]
    salts: tuple[Mapping[str, bytes], ...]


class Appended(NamedTuple):
    """
    The group is in the log (or has no entries: an empty else branch has an empty range of indices).

    A tuple, because one is made for every group under the lock, and a frozen class would cost twice as much.
    """

    branch: Branch
    indices: range
    recorded_at: datetime
    repeated: bool
    """True if an earlier append of the same group put it there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """Nothing was appended: a control entry newer than the group's `as_of` precedes it."""

    control_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRefused:
    """
    Nothing was appended, because of `error`: other content under the id, a guard that failed, a deadline, a stop.

    Only if `error` is an `OutcomeUnknownError` is that not known: no answer to COMMIT arrived.
    """

    error: LedgerError


AppendOutcome: TypeAlias = Appended | Stale | AppendRefused


@dataclass(slots=True, kw_only=True)  # not frozen: that would be a tenth of what an entry costs under the lock
class SequencedEntry:
    """One entry to insert, with its derived columns; `group_id` only on the first entry of a group."""

    index: int
    entry: bytes
    leaf: bytes
    type: str
    key: str
    is_control: bool
    group_id: UUID | None
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequenced:
    """The effect of one batch on one log: rows to insert, the head to store, an outcome for every group in order."""

    rows: list[SequencedEntry]
    head: LogHead
    outcomes: list[AppendOutcome]


GuardResult: TypeAlias = bool | GuardError
Sequencing: TypeAlias = Generator[Group, GuardResult, Sequenced]


def sequence(
    head: LogHead, groups: Sequence[Group], *, log: str, stored: Mapping[UUID, StoredGroup], clock: datetime
) -> Sequencing:
    """
    Sequence `groups` behind `head`, in order.

    `log` is the origin, `stored` the groups of this batch that the log already holds, `clock` the database's time when
    the head was locked, or up to a second before. Yields every guarded group when it is its turn and expects to be sent
    True (the guard held, its rows are changed), False (it did not, nothing is changed) or a GuardError (its SQL failed,
    nothing is changed).

    Raises:
        FormatError: if a stored entry is not an entry; that is corruption.
    """
    # recorded_at never falls, even where the database's clock does.
    recorded_at = clock if head.recorded_at is None else max(clock, head.recorded_at)
    batch = _Batch(log=log, head=head, recorded_at=recorded_at)
    outcomes: list[AppendOutcome] = []
    placed: dict[int, tuple[Group, Appended]] = {}  # by the id as a number, which hashes faster
    for group in groups:
        outcome: AppendOutcome
        if stored and (found := stored.get(group.id)) is not None:
            outcome = _stored_outcome(group, found)
        elif (twin := placed.get(group.id.int)) is not None:
            outcome = _twin_outcome(group, *twin)
        elif group.as_of is not None and batch.control_index > group.as_of:
            outcome = Stale(control_index=batch.control_index)
        elif batch.size > _FULL_FROM:  # before a guard runs and changes rows for a group that cannot be appended
            outcome = AppendRefused(error=LimitExceededError(f"size of log {log}", found=batch.size, limit=_FULL_FROM))
        elif group.guard:
            answer = yield group
            outcome = AppendRefused(error=answer) if isinstance(answer, GuardError) else batch.place(group, held=answer)
        else:
            outcome = batch.place(group, held=True)
        if isinstance(outcome, Appended) and outcome.indices:
            placed[group.id.int] = (group, outcome)
        outcomes.append(outcome)
    return Sequenced(rows=batch.rows, head=batch.new_head(head), outcomes=outcomes)


def sequence_as_if_held(rules: Sequencing) -> tuple[Sequenced, list[Group]]:
    """
    Run the rules as if every guard held; returns also the groups that they have asked for, in order.
    """
    asked: list[Group] = []
    held: GuardResult = True
    try:
        asked.append(next(rules))
        while True:
            asked.append(rules.send(held))
    except StopIteration as done:
        result: Sequenced = done.value
        return result, asked


class _Batch:
    """The entries of one batch as they are made. Owned by one call of `sequence`."""

    def __init__(self, *, log: str, head: LogHead, recorded_at: datetime) -> None:
        self.rows: list[SequencedEntry] = []
        self.control_index = head.control_index
        self._log = log
        self.size = head.size
        self._last = head.last
        self._recorded_at = recorded_at
        self._recorded_at_text = canonical.format_time(recorded_at)

    def place(self, group: Group, *, held: bool) -> Appended:
        branch = Branch.THEN if held else Branch.ELSE
        events = group.branch(branch)
        first = self.size
        for position, event in enumerate(events):
            self._append(event, group=group, branch=branch, of=len(events), position=position)
        return Appended(branch=branch, indices=range(first, self.size), recorded_at=self._recorded_at, repeated=False)

    def _append(self, event: PreparedEvent, *, group: Group, branch: Branch, of: int, position: int) -> None:
        entry = format_entry(
            event.event,
            log=self._log,
            index=self.size,
            previous=self._last,
            recorded_at=self._recorded_at_text,
            group_id=group.id,
            branch=branch,
            of=of,
            position=position,
        )
        leaf = leaf_hash(entry)
        self.rows.append(
            SequencedEntry(
                index=self.size,
                entry=entry,
                leaf=leaf,
                type=event.type,
                key=event.key,
                is_control=event.is_control,
                group_id=group.id if position == 0 else None,
                parts=event.parts,
            )
        )
        if event.is_control:
            self.control_index = self.size
        self._last = leaf
        self.size += 1

    def new_head(self, before: LogHead) -> LogHead:
        if not self.rows:
            return before
        return LogHead(
            size=self.size,
            last=self._last,
            frontier=before.frontier.extended(row.leaf for row in self.rows),
            control_index=self.control_index,
            recorded_at=self._recorded_at,
        )


def _size_bytes(events: Sequence[PreparedEvent]) -> int:
    size = 0
    for event in events:
        size += len(event.event)
        for part in event.parts:
            size += len(part.payload)
    return size


def _twin_outcome(group: Group, first: Group, outcome: Appended) -> AppendOutcome:
    """
    Return the outcome of a group whose id occurred earlier in the batch: the first one's, if it is the same group.
    """
    if differs := difference(group.branch(outcome.branch), first.branch(outcome.branch)):
        return AppendRefused(error=_mismatch(group.id, differs))
    return outcome._replace(repeated=True)


def _stored_outcome(group: Group, found: StoredGroup) -> AppendOutcome:
    """Return the outcome of a group that the log already holds: its stored branch and indices; no guard runs again."""
    entries = [parse_entry(entry) for entry in found.entries]
    branch = entries[0].branch
    if differs := difference_from_stored(group.branch(branch), entries, found.salts):
        return AppendRefused(error=_mismatch(group.id, differs))
    first = entries[0].index
    return Appended(
        branch=branch,
        indices=range(first, first + len(entries)),
        recorded_at=entries[0].recorded_at,
        repeated=True,
    )


def _mismatch(group_id: UUID, differs: str) -> GroupMismatchError:
    return GroupMismatchError(f"group {group_id}: other content stands under this id in the log; differs in {differs}")


def difference(events: Sequence[PreparedEvent], others: Sequence[PreparedEvent]) -> str | None:
    """
    Return in words the first difference between the events of a group and `others`, those of the same id, or None.
    """
    if differs := _count_difference(events, len(others)):
        return differs
    for position, (event, other) in enumerate(zip(events, others, strict=True)):
        if differs := _member_difference(_members(event), _members(other), position):
            return differs
        if [(part.name, part.payload) for part in event.parts] != [(part.name, part.payload) for part in other.parts]:
            return f"event {position}: parts"
    return None


def difference_from_stored(
    events: Sequence[PreparedEvent], entries: Sequence[Entry], salts: Sequence[Mapping[str, bytes]]
) -> str | None:
    """
    Return in words the first difference between the events of a group and its stored entries, or None.

    `salts` holds, for each entry, those of the parts that still exist, by name.
    """
    if differs := _count_difference(events, len(entries)):
        return differs
    for position, (event, entry, known) in enumerate(zip(events, entries, salts, strict=True)):
        stored = (entry.type, entry.version, entry.key, entry.actor, canonical.encode(entry.data))
        if differs := _member_difference(_members(event), stored, position):
            return differs
        if [part.name for part in event.parts] != list(entry.parts):
            return f"event {position}: names of parts"
        for part in event.parts:
            salt = known.get(part.name)
            if salt is not None and commitment(salt=salt, payload=part.payload) != entry.parts[part.name]:
                return f"event {position}: part {part.name}"
    return None


_MEMBERS = ("type", "version", "key", "actor", "data")


def _members(event: PreparedEvent) -> tuple[object, ...]:
    return (event.type, event.version, event.key, event.actor, event.data)


def _count_difference(events: Sequence[PreparedEvent], others: int) -> str | None:
    return None if len(events) == others else f"{others} events, now {len(events)}"


def _member_difference(ours: tuple[object, ...], others: tuple[object, ...], position: int) -> str | None:
    for name, one, other in zip(_MEMBERS, ours, others, strict=True):
        if one != other:
            return f"event {position}: {name}"
    return None
