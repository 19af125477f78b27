# SPDX-License-Identifier: Apache-2.0
"""
Gathers a bundle: the entries that a scope needs, what may be disclosed of them, and the proof. Then it checks the
bundle.

Entries, parts, tiles and checkpoints come from an `EvidenceSource`: an exported directory (`DirectorySource`) or
PostgreSQL (`from_database.py`). No bundle is returned that `check_evidence` would not accept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from ledger.errors import BrokenError, Fault, LedgerError
from ledger.files.directory import CHECKPOINT_FILE, LogDirectory, bundle_addresses, parts_path
from ledger.format import canonical
from ledger.format.canonical import parse_time
from ledger.format.checkpoint import Checkpoint
from ledger.format.entry import Entry, parse_entry
from ledger.format.event import Part, is_control
from ledger.format.events import CommitDecided
from ledger.format.note import VerifierKey
from ledger.format.proof import prove_entries
from ledger.format.tiles import TILE_WIDTH, tile_hash_reader, tile_width
from ledger.format.verification import read_checkpoint
from ledger.proving.evidence.bundle import ENTRIES_MAX, Bundle, BundledEntry, Section, format_bundle
from ledger.proving.evidence.check import check_evidence
from ledger.proving.evidence.scope import DecisionScope, Period, PeriodScope, Scope, TableScope


class EvidenceRefusedError(LedgerError):
    """There is no such evidence, or too much of it; says what to request instead."""


class Rules(StrEnum):
    """Whether a decision comes with the rules that it was judged by."""

    OMITTED = "omitted"
    INCLUDED = "included"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartNames:
    """Which payload parts are disclosed, by name; None means all that still exist."""

    names: Collection[str] | None = ()

    def chosen(self, parts: Mapping[str, Part]) -> tuple[Part, ...]:
        """Return those of `parts` that are disclosed, sorted by name."""
        return tuple(parts[name] for name in sorted(parts) if self.names is None or name in self.names)


NO_PARTS: Final = PartNames()
ALL_PARTS: Final = PartNames(names=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionAt:
    """The decision at an index: of one table, if its group has several."""

    index: int
    rules: Rules = Rules.OMITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOf:
    """The decision of a group, with all its tables."""

    group_id: UUID
    rules: Rules = Rules.OMITTED


EvidenceRequest: TypeAlias = DecisionAt | DecisionOf | TableScope | PeriodScope


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceCheckpoint:
    """
    A checkpoint to prove against: its note, a time stamp over that, and the section of the system log that anchors it.
    """

    note: bytes
    checkpoint: Checkpoint
    stamp: bytes | None = None
    anchor: Section | None = None


class EvidenceSource(Protocol):
    """A log up to its newest checkpoint; `anchored` is the newest one that the system log anchors, if there is one."""

    @property
    def newest(self) -> EvidenceCheckpoint: ...

    @property
    def anchored(self) -> EvidenceCheckpoint | None: ...

    async def entries(self, first: int, end: int) -> Sequence[bytes]:
        """Return the entries `first` … `end` - 1; raises BrokenError if one is missing."""

    async def first_of_group(self, group_id: UUID) -> int | None:
        """Return the index of the first entry of a group, or None."""

    async def containing(self, texts: Collection[bytes], *, first: int, limit: int) -> Sequence[bytes]:
        """Return, in order, the first `limit` entries from `first` on that contain each of `texts`."""

    async def about(self, key: str, *, first: int, end: int, limit: int) -> Sequence[bytes]:
        """Return, in order, the first `limit` entries from `first` to `end` - 1 about a key."""

    async def control_entries(self, *, end: int) -> Sequence[bytes]:
        """Return the control entries below index `end`, in order."""

    async def parts(self, index: int) -> Mapping[str, Part]:
        """Return the payload parts of an entry that still exist."""

    async def prove(self, indexes: Sequence[int], *, size: int) -> Sequence[bytes]:
        """Return the proof of these entries in the tree of that size (`format/proof.py`)."""


async def gather(
    source: EvidenceSource, request: EvidenceRequest, *, keys: Sequence[VerifierKey], parts: PartNames = NO_PARTS
) -> bytes:
    """
    Return the requested bundle, checked with `keys`.

    It is proven against the newest anchored checkpoint, if that covers it, and otherwise against the newest.

    Raises:
        EvidenceRefusedError: if there is no such thing below the checkpoint, or more than a bundle holds.
        BrokenError: if what is stored does not prove it.
    """
    scope, entries = await _select(source, request)
    if len(entries) > ENTRIES_MAX:
        raise EvidenceRefusedError(
            f"a bundle holds at most {ENTRIES_MAX:,} entries, and these are more: name a shorter period, or export all"
        )
    bundled = [
        BundledEntry(entry=raw, parts=parts.chosen(await source.parts(entry.index)) if parts != NO_PARTS else ())
        for entry, raw in entries
    ]
    signed = _signed(source, scope, entries[-1][0])
    proof = await source.prove([entry.index for entry, _ in entries], size=signed.checkpoint.size)
    section = Section(entries=tuple(bundled), proof=tuple(proof), checkpoint=signed.note, stamp=signed.stamp)
    data = format_bundle(Bundle(scope=scope, section=section, anchor=signed.anchor))
    check_evidence(data, keys)
    return data


def _signed(source: EvidenceSource, scope: Scope, last: Entry) -> EvidenceCheckpoint:
    """Return the checkpoint to prove against; a period that the log has not outlived needs the newest."""
    anchored = source.anchored
    is_over = not isinstance(scope, PeriodScope) or canonical.format_time(last.recorded_at) >= scope.period.until
    return anchored if anchored is not None and last.index < anchored.checkpoint.size and is_over else source.newest


Selected: TypeAlias = list[tuple[Entry, bytes]]


async def _select(source: EvidenceSource, request: EvidenceRequest) -> tuple[Scope, Selected]:
    match request:
        case DecisionAt(index=index, rules=rules):
            entry = (await _read(source, index, index + 1))[0][0]
            scope = DecisionScope(group_id=entry.group_id, key=entry.key)
            return scope, await _decision(source, scope, rules)
        case DecisionOf(group_id=group_id, rules=rules):
            scope = DecisionScope(group_id=group_id)
            return scope, await _decision(source, scope, rules)
        case TableScope():
            return request, await _table(source, request)
        case PeriodScope(period=period):
            return request, await _period(source, period)


async def _decision(source: EvidenceSource, scope: DecisionScope, rules: Rules) -> Selected:
    first = await source.first_of_group(scope.group_id)
    if first is None or first >= source.newest.checkpoint.size:
        raise EvidenceRefusedError(
            f"no signed entry is of group {scope.group_id}: check the id, or wait for the next checkpoint"
        )
    of = (await _read(source, first, first + 1))[0][0].of
    group = [one for one in await _read(source, first, first + of) if scope.key in {None, one[0].key}]
    decided = [entry for entry, _ in group if entry.type == CommitDecided.TYPE]
    if not decided:
        found = ", ".join(sorted({entry.type for entry, _ in group}))
        raise EvidenceRefusedError(
            f"group {scope.group_id} is no decision on a commit: expected commit.decided, found {found}"
        )
    selected = {entry.index: (entry, raw) for entry, raw in group}
    keys = {entry.key for entry in decided}
    naming = [b'"type":"commit.settled"', b'"decision":"%b"' % str(scope.group_id).encode()]
    for raw in await source.containing(naming, first=first, limit=ENTRIES_MAX):
        entry = parse_entry(raw)
        if entry.type == "commit.settled" and entry.data.get("decision") == str(scope.group_id) and entry.key in keys:
            selected[entry.index] = (entry, raw)
    if rules is Rules.INCLUDED:
        as_of, at = decided[0].data.get("as_of"), decided[0].occurred_at
        for entry, raw in await rules_in_force(source, as_of if isinstance(as_of, int) else -1, at=at):
            selected[entry.index] = (entry, raw)
    return [selected[index] for index in sorted(selected)]


async def rules_in_force(source: EvidenceSource, as_of: int, *, at: datetime) -> Selected:
    """Return the entries that define the rules in force at a time as of a control entry."""
    in_force: dict[str, tuple[Entry, bytes]] = {}
    for raw in await source.control_entries(end=as_of + 1):
        entry = parse_entry(raw)
        family, _, verb = entry.type.partition(".")
        if family in {"policy", "access_rule"} and not _is_to_come(entry, at):
            in_force.pop(entry.key, None)
            if verb != "retired":
                in_force[entry.key] = (entry, raw)
    return list(in_force.values())


def _is_to_come(entry: Entry, at: datetime) -> bool:
    """Return whether the policy of an entry comes into force, or ends, only after a time."""
    since = entry.data.get("retired_from", entry.data.get("active_from"))
    return isinstance(since, str) and parse_time(since) > at


async def _table(source: EvidenceSource, scope: TableScope) -> Selected:
    first, end = 0, source.newest.checkpoint.size
    if scope.period is not None:
        first, end = await _bounds(source, scope.period)
    found = await source.about(scope.key, first=first, end=end, limit=ENTRIES_MAX + 1)
    selected = [(parse_entry(raw), raw) for raw in found]
    if not selected:
        raise EvidenceRefusedError(f"no signed entry is about {scope.key}, or none in that period")
    return selected


async def _period(source: EvidenceSource, period: Period) -> Selected:
    size = source.newest.checkpoint.size
    first, end = await _bounds(source, period)
    if end - first > ENTRIES_MAX - 2:
        raise EvidenceRefusedError(
            f"{end - first:,} entries were recorded in this period, and a bundle holds {ENTRIES_MAX - 2:,}: name a "
            "shorter one, or export all"
        )
    if size == 0:
        raise EvidenceRefusedError("the log is empty: there is nothing to prove")
    return await _read(source, max(first - 1, 0), min(end + 1, size))


async def _bounds(source: EvidenceSource, period: Period) -> tuple[int, int]:
    """Return the indexes between which a period lies; times never fall, so each is found by binary search."""
    return await _first_since(source, period.since), await _first_since(source, period.until)


async def _first_since(source: EvidenceSource, time: str) -> int:
    low, high = 0, source.newest.checkpoint.size
    while low < high:
        middle = (low + high) // 2
        entry, _ = (await _read(source, middle, middle + 1))[0]
        low, high = (middle + 1, high) if canonical.format_time(entry.recorded_at) < time else (low, middle)
    return low


async def _read(source: EvidenceSource, first: int, end: int) -> Selected:
    size = source.newest.checkpoint.size
    if not 0 <= first < end <= size:
        raise EvidenceRefusedError(
            f"entries {first} to {end - 1} are not all signed yet ({size:,} are): wait for the next checkpoint, "
            "or name others"
        )
    found = await source.entries(first, end)
    if len(found) != end - first:
        missing = first + len(found)
        raise BrokenError(Fault.INDEX, where="entries", expected=f"entry {missing}", found="none", index=missing)
    return [(parse_entry(raw), raw) for raw in found]


class DirectorySource:
    """
    An exported log (implements `EvidenceSource`). Entries are found by reading all of them, bundle by bundle. Owned by
    one task.
    """

    def __init__(self, path: Path, keys: Sequence[VerifierKey]) -> None:
        """
        Open the export in the directory `path`, signed with one of `keys`.

        Raises:
            BrokenError: if its checkpoint is missing, or not signed so.
            UnreadableError: if it cannot be read.
        """
        self._directory = LogDirectory(path)
        self._files = self._directory.files()
        self._read: tuple[int, list[bytes]] = (-1, [])
        note = self._directory.read_checkpoint()
        self.newest = EvidenceCheckpoint(note=note, checkpoint=read_checkpoint(note, keys, where=CHECKPOINT_FILE))
        self.anchored: EvidenceCheckpoint | None = None  # that needs the system log
        self._size = self.newest.checkpoint.size

    async def entries(self, first: int, end: int) -> Sequence[bytes]:
        """Return the entries `first` … `end` - 1."""
        found: list[bytes] = []
        for bundle in range(first // TILE_WIDTH, -(-end // TILE_WIDTH)):
            start = bundle * TILE_WIDTH
            found += self._bundle(bundle)[max(first - start, 0) : end - start]
        return found

    async def first_of_group(self, group_id: UUID) -> int | None:
        """Return the index of the first entry of a group, or None."""
        for index, raw in self._containing([f'"id":"{group_id}"'.encode()]):
            entry = parse_entry(raw)
            if entry.group_id == group_id and entry.position == 0:
                return index
        return None

    async def containing(self, texts: Collection[bytes], *, first: int, limit: int) -> Sequence[bytes]:
        """Return, in order, the first `limit` entries from `first` on that contain each of `texts`."""
        found: list[bytes] = []
        for index, raw in self._containing(texts):
            if index >= first:
                found.append(raw)
            if len(found) == limit:
                break
        return found

    async def about(self, key: str, *, first: int, end: int, limit: int) -> Sequence[bytes]:
        """Return, in order, the first `limit` entries from `first` to `end` - 1 about a key."""
        # An entry holds its key in canonical spelling, so this finds each. A string of its data may match.
        text = b'"key":%b' % canonical.encode(key)
        found = (raw for index, raw in self._containing([text]) if first <= index < end and parse_entry(raw).key == key)
        return list(islice(found, limit))

    async def control_entries(self, *, end: int) -> Sequence[bytes]:
        """Return the control entries below index `end`, in order."""
        return [raw for index, raw in self._containing([]) if index < end and is_control(parse_entry(raw).type)]

    async def parts(self, index: int) -> Mapping[str, Part]:
        """Return the payload parts of an entry that were exported."""
        if parts_path(index) not in self._files:
            return {}
        return {part.name: part for part in self._directory.read_parts(index)}

    async def prove(self, indexes: Sequence[int], *, size: int) -> Sequence[bytes]:
        """Return the proof of these entries in the tree of that size."""
        return prove_entries(indexes, size=size, read=tile_hash_reader(self._directory.read_tile, size))

    def _containing(self, texts: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
        for bundle, _ in bundle_addresses(self._size):
            for position, raw in enumerate(self._bundle(bundle)):
                if all(text in raw for text in texts):
                    yield bundle * TILE_WIDTH + position, raw

    def _bundle(self, index: int) -> list[bytes]:
        """Return the entries of a bundle; the last one read is cached, because many are read more than once."""
        if self._read[0] != index:
            width = tile_width(level=0, index=index, size=self._size)
            self._read = (index, self._directory.read_bundle(index, width))
        return self._read[1]
