# SPDX-License-Identifier: Apache-2.0
"""
Replays lost groups into a log: entries byte for byte, payload parts, tiles, the head and guarded rows.

Guarantee: each transaction adds whole groups behind the head that it has locked, and makes the guarded rows that their
guards made before. Nothing is added behind any other head, and no erased part is written. Each package says which
guards its groups ran (`GuardsOfGroup`). The guards run again, and the replay stops at rows that do not fit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import psycopg

from ledger.anchoring.anchor_log import ANCHORS_KEY
from ledger.erasing.rerun import ErasedParts
from ledger.errors import BrokenError, Fault, LedgerError
from ledger.files.directory import LogDirectory, bundle_addresses, parse_parts_path
from ledger.format import canonical
from ledger.format.aggregates import HasEntry, recorded_guards
from ledger.format.entry import Branch, Entry, parse_entry
from ledger.format.event import Part, PreparedEvent, is_control
from ledger.format.events import LogsAnchored, PayloadErased, from_data
from ledger.format.guards import GuardCall, GuardRegistry
from ledger.format.merkle import leaf_hash
from ledger.format.sealing import key_id_of, stored_bytes
from ledger.format.sequence import Group, LogHead, SequencedEntry
from ledger.format.tiles import TILE_WIDTH, Pending, Tile, complete_tiles
from ledger.store.queries import load_queries
from ledger.store.read import Log, parse_head
from ledger.store.session import Connection

_QUERIES: Final = load_queries("ledger.store", "recover.sql")

BATCH_ENTRIES: Final = 1_024
"""A transaction ends with the group that reaches this many entries."""


class RecoveryError(LedgerError):
    """
    The log cannot be recovered in this way; says why, and what to do. What was replayed stays, and a repeated call
    resumes.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedEntry:
    """One entry of a group to replay, and those of its payload parts that the export has."""

    entry: Entry
    data: bytes
    parts: tuple[Part, ...]

    def part(self, name: str) -> bytes:
        """
        Return the payload part of that name, from which a guarded row is made.

        Raises:
            RecoveryError: if the export does not have it.
        """
        for part in self.parts:
            if part.name == name:
                return part.payload
        raise RecoveryError(
            f"entry {self.entry.index} ({self.entry.type}): expected its payload part {name}, from which rows outside "
            "the log are made, found none in the export: name one that was made with --parts"
        )


GuardsOfGroup: TypeAlias = Callable[[Sequence[ReplayedEntry]], Iterable[GuardCall]]
"""Returns the guards that a group ran whose guards held. Each package gives one for its own events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRules:
    """
    How groups become rows again: `guards` by name, which of them a group ran (`guarded`, one function for each
    package), whom a payload part is about (`subject_of` entry and name), and how it is sealed (`seal`, as before an
    append).
    """

    guards: GuardRegistry
    guarded: Sequence[GuardsOfGroup]
    subject_of: Callable[[Entry, str], str | None]
    seal: Callable[[Group], Awaitable[Group]]


def core_guards(group: Sequence[HasEntry]) -> Iterator[GuardCall]:
    """
    Yield the guards of the log's own rows that a group ran: versions of control aggregates, erased people, the count of
    anchor groups, and recorded events of applications.
    """
    yield from recorded_guards(group)
    if any(replayed.entry.type == LogsAnchored.TYPE for replayed in group):
        yield GuardCall("aggregate.count", {"key": ANCHORS_KEY})
    for replayed in group:
        if (replayed.entry.type, replayed.entry.version) == (PayloadErased.TYPE, PayloadErased.VERSION):
            erased = from_data(PayloadErased, replayed.entry.data)
            if erased.subject is not None:
                yield GuardCall("subject.erase", {"subject": erased.subject})
        version = replayed.entry.data.get("version")
        if is_control(replayed.entry.type) and isinstance(version, int):
            key = {"key": replayed.entry.key}
            yield (
                GuardCall("aggregate.create", key)
                if version == 1
                else GuardCall("aggregate.change", {**key, "version": version})
            )


def read_groups(directory: LogDirectory, start: int, size: int) -> Iterator[list[ReplayedEntry]]:
    """
    Yield the groups of an exported log from index `start` on, each with the parts that the export has.

    The export must have been verified, and a group must begin at `start`.

    Raises:
        BrokenError, UnreadableError: if it has changed since.
    """
    disclosed = {index for file in directory.files() if (index := parse_parts_path(file)) is not None}
    group: list[ReplayedEntry] = []
    for bundle, width in list(bundle_addresses(size))[start // TILE_WIDTH :]:
        for position, data in enumerate(directory.read_bundle(bundle, width)):
            if (index := bundle * TILE_WIDTH + position) < start:
                continue
            entry = parse_entry(data)
            parts = tuple(directory.read_parts(index)) if index in disclosed else ()
            group.append(ReplayedEntry(entry=entry, data=data, parts=parts))
            if entry.position == entry.of - 1:
                yield group
                group = []


def batches(groups: Iterable[list[ReplayedEntry]]) -> Iterator[list[list[ReplayedEntry]]]:
    """
    Yield the groups in lists, one for each transaction.
    """
    batch: list[list[ReplayedEntry]] = []
    entries = 0
    for group in groups:
        batch.append(group)
        entries += len(group)
        if entries >= BATCH_ENTRIES:
            yield batch
            batch, entries = [], 0
    if batch:
        yield batch


class Replayer:
    """
    Adds groups to one log, over a connection of the appender's role in autocommit mode; `edge` is the right edge of its
    tree.

    Guarded rows are made from all parts that the export has, but `erased` parts are not written.
    """

    def __init__(
        self, connection: Connection, log: Log, replay: ReplayRules, *, edge: Pending, erased: ErasedParts
    ) -> None:
        # Owned by one task; `_edge` and `parts` change after each COMMIT.
        self.parts = 0
        self._erased = erased
        self._connection = connection
        self._log = log
        self._replay = replay
        self._edge = edge

    async def add(self, batch: Sequence[Sequence[ReplayedEntry]], head: LogHead) -> LogHead:
        """
        Write whole groups behind `head`, in one transaction, and return the new head.

        Raises:
            RecoveryError: if the head is another, or another process holds it; nothing is written then.
            BrokenError: if the guarded rows do not follow from the log before these groups.
        """
        rows = [row for group in batch for row in await self._rows(group)]
        tiles, edge = complete_tiles(size=head.size, pending=self._edge, leaves=[row.leaf for row in rows])
        new_head = LogHead(
            size=head.size + len(rows),
            last=rows[-1].leaf,
            frontier=head.frontier.extended(row.leaf for row in rows),
            control_index=max((row.index for row in rows if row.is_control), default=head.control_index),
            recorded_at=batch[-1][-1].entry.recorded_at,
        )
        try:
            async with self._connection.transaction():
                await self._lock(head)
                await self._write(rows, tiles, new_head)
                for group in batch:
                    await self._make_guarded_rows(group)
        except psycopg.errors.LockNotAvailable as error:
            raise RecoveryError(
                f"another process holds the head of {self._log.origin}: stop what appends to it, and run this again"
            ) from error
        self._edge = edge
        self.parts += sum(len(row.parts) for row in rows)
        return new_head

    async def _lock(self, head: LogHead) -> None:
        await self._connection.execute(_QUERIES["bound_waits"])
        row = await (await self._execute("lock_head")).fetchone()
        if row is None or parse_head(row)[1] != head:
            found = "none" if row is None else f"another, of {row[1]}"
            raise RecoveryError(
                f"log {self._log.origin}: expected the head of {head.size} entries, found {found}: another "
                "process appends; stop it, and run this again"
            )

    async def _write(self, rows: Sequence[SequencedEntry], tiles: Sequence[Tile], head: LogHead) -> None:
        await self._execute(
            "replay_entries",
            indices=[row.index for row in rows],
            entries=[row.entry for row in rows],
            leaves=[row.leaf for row in rows],
            types=[row.type for row in rows],
            keys=[row.key for row in rows],
            controls=[row.is_control for row in rows],
            group_ids=[row.group_id for row in rows],
        )
        parts = [(row.index, part) for row in rows for part in row.parts]
        await self._execute(
            "replay_parts",
            indices=[index for index, _ in parts],
            names=[part.name for _, part in parts],
            subjects=[part.subject for _, part in parts],
            key_ids=[key_id_of(part) for _, part in parts],
            sealed=[stored_bytes(part) for _, part in parts],
        )
        await self._execute(
            "replay_tiles",
            levels=[tile.level for tile in tiles],
            tiles=[tile.index for tile in tiles],
            hashes=[tile.pack() for tile in tiles],
            roots=[tile.root() for tile in tiles],
        )
        await self._execute(
            "replay_head",
            size=head.size,
            last=head.last,
            frontier=head.frontier.pack(),
            control=head.control_index,
            recorded=head.recorded_at,
        )

    async def _execute(self, query: str, **columns: object) -> psycopg.AsyncCursor[Any]:
        return await self._connection.execute(_QUERIES[query], {"log_id": self._log.log_id, **columns})

    async def _rows(self, group: Sequence[ReplayedEntry]) -> list[SequencedEntry]:
        """Return the rows of a group as its append made them, with parts about people sealed."""
        sealed = await self._replay.seal(Group(id=group[0].entry.group_id, then=tuple(map(self._prepared, group))))
        return [
            SequencedEntry(
                index=replayed.entry.index,
                entry=replayed.data,
                leaf=leaf_hash(replayed.data),
                type=replayed.entry.type,
                key=replayed.entry.key,
                is_control=is_control(replayed.entry.type),
                group_id=replayed.entry.group_id if replayed.entry.position == 0 else None,
                parts=event.parts,
            )
            for replayed, event in zip(group, sealed.then, strict=True)
        ]

    def _prepared(self, replayed: ReplayedEntry) -> PreparedEvent:
        entry = replayed.entry
        return PreparedEvent(
            type=entry.type,
            version=entry.version,
            key=entry.key,
            actor=entry.actor,
            data=canonical.encode(entry.data),
            event=b"",  # the entry, which is written as it is, holds it already
            parts=tuple(self._kept(replayed)),
            is_control=is_control(entry.type),
        )

    def _kept(self, replayed: ReplayedEntry) -> Iterator[Part]:
        """Yield the parts of an entry that are not erased, with their subjects."""
        entry = replayed.entry
        for part in replayed.parts:
            subject = self._replay.subject_of(entry, part.name)
            if not self._erased.covers(index=entry.index, type=entry.type, part=part.name, subject=subject):
                yield replace(part, subject=subject)

    async def _make_guarded_rows(self, group: Sequence[ReplayedEntry]) -> None:
        if group[0].entry.branch is not Branch.THEN:
            return  # its guards did not hold, so no row was changed
        for call in (call for guarded in self._replay.guarded for call in guarded(group)):
            for statement, parameters in self._replay.guards.statements(call, log_id=self._log.log_id):
                if (await self._connection.execute(statement, parameters)).rowcount != 1:
                    index = group[0].entry.index
                    raise BrokenError(
                        Fault.GROUP,
                        where=f"rows derived from {self._log.origin}",
                        expected=f"rows that guard {call.guard} of entry {index} fits, as it did before",
                        found="others, which do not follow from the log before it",
                        index=index,
                    )
