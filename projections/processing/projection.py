# SPDX-License-Identifier: Apache-2.0
"""
What a projection is, and the one way in which entries get into it: `apply_batch`.

Guarantee: entries and cursor move in the same transaction, so a crash at any point neither loses nor repeats an entry.
The caller holds the row lock of `projections.live` (runner), or is the only one that knows the generation (rebuild).

Entries never change, so the projections of one log may share them (`SharedEntries`). Payload parts are deleted when
they are erased, so a projection that uses them has them read under its lock: an erasure that has had the lock before
has deleted them, and one that has it later removes what was made from them. Projections whose locks one transaction
holds share them, too (`SharedParts`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from psycopg.abc import Query

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.sealing import PLAIN, Opener
from ledger.store.read import Log, read_entries, read_parts
from ledger.store.session import Connection
from projections.entries import LogEntry, read_log_entry
from projections.processing import cursors

BATCH_ENTRIES_MAX: Final = 500
"""Entries applied in one transaction: enough to amortise the commit, few enough to hold lock and event loop briefly."""

ROWS_FETCHED: Final = 2_000
"""Rows held in memory while a digest is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """An open transaction of the projector role, on one generation of one log's projection."""

    connection: Connection
    log: Log
    generation: int
    opener: Opener = PLAIN
    """Opens the payload parts that are sealed."""


class Projection(Protocol):
    """
    A read model. Each method works on the one generation that the transaction names and never commits.

    `apply` must depend on the entries alone, never on how they were cut into batches. A change of what is stored, or of
    the digest, is a new `version`.
    """

    name: str
    version: int
    part: str | None
    """The name of the payload parts that `apply` reads; entries have no others."""

    async def prepare(self, transaction: Transaction) -> None:
        """Create the empty generation."""

    async def apply(self, entries: Sequence[LogEntry], transaction: Transaction) -> None:
        """Apply `entries`, which follow those applied before without a gap."""

    async def digest(self, transaction: Transaction) -> bytes:
        """Return the digest of the generation: canonical, by natural keys (32 bytes)."""

    async def drop(self, transaction: Transaction) -> None:
        """Remove the generation, which is not live."""


class ReadEntries(Protocol):
    """Reads the entries of a log; `read_entries_alone` is one."""

    async def __call__(
        self, connection: Connection, log_id: int, /, *, from_index: int, to_index: int
    ) -> Sequence[LogEntry]:
        """Return the entries from_index … to_index - 1 that exist, in order, without payload parts."""


async def read_entries_alone(
    connection: Connection, log_id: int, /, *, from_index: int, to_index: int
) -> Sequence[LogEntry]:
    """
    Return the entries from_index … to_index - 1 that exist, in order, without payload parts.

    Raises:
        BrokenError: if one is not an entry, or is of a known event that lacks a member: that is corruption.
        UnknownControlError: see `read_log_entry`.
    """
    entries = await read_entries(connection, log_id, from_index=from_index, to_index=to_index)
    return [_read(log_id, index, data) for index, data in enumerate(entries, start=from_index)]


def _read(log_id: int, index: int, data: bytes) -> LogEntry:
    try:
        return read_log_entry(data, {})
    except FormatError as error:
        raise BrokenError(Fault.ENTRY, where=f"log {log_id}", expected="an entry", found=error, index=index) from error


class SharedEntries:
    """
    Entries that several projections apply one after the other, read and parsed once (implements `ReadEntries`).

    One batch is held at a time. One task uses it.
    """

    def __init__(self) -> None:
        self._log_id = -1
        self._from_index = 0
        self._entries: Sequence[LogEntry] = ()
        self._kinds: frozenset[type] = frozenset()

    async def __call__(
        self, connection: Connection, log_id: int, /, *, from_index: int, to_index: int
    ) -> Sequence[LogEntry]:
        """
        Return the entries from_index … to_index - 1 that exist, in order, without payload parts.

        Raises:
            BrokenError, UnknownControlError: as `read_entries_alone`.
        """
        first = from_index - self._from_index
        if log_id != self._log_id or first < 0 or to_index > self._from_index + len(self._entries):
            first, self._entries = 0, ()  # nothing is held if the read fails
            self._entries = await read_entries_alone(connection, log_id, from_index=from_index, to_index=to_index)
            self._log_id, self._from_index = log_id, from_index
            self._kinds = frozenset(type(item.event) for item in self._entries)
        return self._entries[first : first + to_index - from_index]

    def holds(self, kinds: tuple[type, ...]) -> bool:
        """Return whether there is an event of these classes among the entries that were read last."""
        return not self._kinds.isdisjoint(kinds)


class ReadParts(Protocol):
    """Reads payload parts of entries; `read_parts_alone` is one."""

    async def __call__(
        self, entries: Sequence[LogEntry], transaction: Transaction, /, *, indices: range, part: str | None
    ) -> Sequence[LogEntry]:
        """Return `entries`, which have these indices, each with the part of that name (None: all) that exists."""


async def read_parts_alone(
    entries: Sequence[LogEntry], transaction: Transaction, /, *, indices: range, part: str | None
) -> Sequence[LogEntry]:
    """
    Return `entries`, which have these indices, each with the payload part of that name (None: all) if it still exists.

    Raises:
        SubjectKeysError: if a part is sealed and the transaction's opener has no keys.
    """
    connection, log_id, opener = transaction.connection, transaction.log.log_id, transaction.opener
    return await _with_parts(entries, connection, log_id, indices, opener, name=part)


class SharedParts:
    """
    Payload parts that several projections of a log apply in one transaction, read and opened once (implements
    `ReadParts`). The transaction holds the locks of all of them before the first one is read.
    """

    def __init__(self) -> None:
        self._of: tuple[range, str | None] | None = None
        self._entries: Sequence[LogEntry] = ()

    async def __call__(
        self, entries: Sequence[LogEntry], transaction: Transaction, /, *, indices: range, part: str | None
    ) -> Sequence[LogEntry]:
        """
        Return `entries`, which have these indices, each with the payload part of that name if it still exists.

        Raises:
            SubjectKeysError: see `read_parts_alone`.
        """
        if self._of != (indices, part):
            self._entries = await read_parts_alone(entries, transaction, indices=indices, part=part)
            self._of = indices, part
        return self._entries


async def apply_batch(
    projection: Projection, transaction: Transaction, *, to_index: int, batch_max: int = BATCH_ENTRIES_MAX
) -> range:
    """
    Apply the next entries below `to_index`, at most `batch_max`, and move the cursor; return their indices.

    Raises:
        FormatError: if an entry is corrupt; nothing is applied.
        UnknownControlError: if a control entry is not known here; nothing is applied.
    """
    at = await cursors.read_next_index(
        transaction.connection, projection.name, transaction.log.log_id, transaction.generation
    )
    return await apply_from(at, projection, transaction, to_index=min(to_index, at + batch_max))


async def apply_from(
    from_index: int,
    projection: Projection,
    transaction: Transaction,
    *,
    to_index: int,
    read: ReadEntries = read_entries_alone,
) -> range:
    """
    Apply the entries from the cursor, which is `from_index`, to `to_index` - 1, and move it; return their indices.

    Raises:
        FormatError, UnknownControlError: see `apply_unmoved`.
    """
    applied = await apply_unmoved(from_index, projection, transaction, to_index=to_index, read=read)
    if applied:
        connection, log_id = transaction.connection, transaction.log.log_id
        await cursors.move(connection, projection.name, log_id, transaction.generation, next_index=applied.stop)
    return applied


async def apply_unmoved(
    from_index: int,
    projection: Projection,
    transaction: Transaction,
    *,
    to_index: int,
    read: ReadEntries = read_entries_alone,
    read_parts_of: ReadParts = read_parts_alone,
) -> range:
    """
    Apply the entries from the cursor, which is `from_index`, to `to_index` - 1, without moving it; return their
    indices. The caller moves it, in the same transaction.

    Raises:
        FormatError: if an entry is corrupt; nothing is applied.
        UnknownControlError: if a control entry is not known here; nothing is applied.
    """
    connection, log_id = transaction.connection, transaction.log.log_id
    entries = await read(connection, log_id, from_index=from_index, to_index=to_index)
    if not entries:
        return range(from_index, from_index)
    applied = range(from_index, from_index + len(entries))
    if projection.part is not None:
        entries = await read_parts_of(entries, transaction, indices=applied, part=projection.part)
    await projection.apply(entries, transaction)
    return applied


async def read_log_entries(
    connection: Connection, log_id: int, *, from_index: int, to_index: int, opener: Opener = PLAIN
) -> list[LogEntry]:
    """
    Return the entries from_index … to_index - 1 that exist, in order, each with the payload parts that still exist.

    Raises:
        FormatError, UnknownControlError: see `read_log_entry`.
        SubjectKeysError: if a part is sealed and `opener` has no keys.
    """
    entries = await read_entries_alone(connection, log_id, from_index=from_index, to_index=to_index)
    return await _with_parts(entries, connection, log_id, range(from_index, to_index), opener)


async def _with_parts(
    entries: Sequence[LogEntry],
    connection: Connection,
    log_id: int,
    indices: range,
    opener: Opener,
    *,
    name: str | None = None,
) -> list[LogEntry]:
    """Return `entries`, which have these indices, each with the payload parts that still exist: of a name, or all."""
    parts = await read_parts(
        connection, log_id, from_index=indices.start, to_index=indices.stop, opener=opener, name=name
    )
    return [
        item if index not in parts else LogEntry(entry=item.entry, event=item.event, parts=parts[index])
        for index, item in zip(indices, entries, strict=False)
    ]


async def iterate_rows(
    connection: Connection, query: Query, parameters: Mapping[str, object] | None = None
) -> AsyncIterator[list[tuple[Any, ...]]]:
    """
    Yield the rows of a query, in lists of at most 2,000, through a server-side cursor; needs an open transaction.
    """
    async with connection.cursor("lakeproof_rows") as cursor:
        await cursor.execute(query, parameters)
        while rows := await cursor.fetchmany(ROWS_FETCHED):
            yield rows
