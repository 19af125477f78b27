# SPDX-License-Identifier: Apache-2.0
"""
Searches a log for entries by type, key, actor and time, and counts what it holds.

Guarantee: what is returned is what is stored, in index order, and nothing in the searched range is left out.

Type, key and actor are compared in the database, range by range, so that a search of a large log can show its progress
and be interrupted. Times need no scan: `recorded_at` never falls, so a binary search finds the first entry of a time.

Statistics (entries and bytes by type, groups, checkpoints, growth) are counted from the rows in one snapshot, so the
numbers are consistent. Counting reads the whole log once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from ledger.format import canonical
from ledger.format.entry import parse_entry
from ledger.format.verification import ProgressCallback
from ledger.store.notifications import LOG_GROWN
from ledger.store.queries import load_queries
from ledger.store.read import Log, first_index_since, read_entries, read_head
from ledger.store.session import Connection

QUERIES: Final = load_queries("ledger.store", "search.sql")
RANGE_MAX: Final = 50_000
"""Indices searched by one statement: some 50 MB, well below a second."""
POLL_S: Final = 1.0
"""How often a follower polls; a notification wakes it earlier."""


class Order(StrEnum):
    """From which end entries are read."""

    NEWEST = "newest"
    OLDEST = "oldest"


_IN_ORDER: Final = {Order.NEWEST: "entries_found", Order.OLDEST: "entries_found_oldest_first"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """
    Which entries match; a member that is None matches all.

    `type` and `key` are exact, or end in `*` and match a prefix. `actors` are equally long: `system` alone, or any
    number of 32 hex digits. `after` is the earliest `recorded_at`, `before` the first that is too late.
    """

    type: str | None = None
    key: str | None = None
    actors: tuple[str, ...] | None = None
    after: datetime | None = None
    before: datetime | None = None

    def parameters(self) -> dict[str, object]:
        """Return the parameters of the query for matching entries."""
        whole_type, family = _split(self.type)
        whole_key, prefix = _split(self.key)
        begins = None if self.actors is None else [_begins(actor) for actor in self.actors]
        return {"type": whole_type, "family": family, "key": whole_key, "key_prefix": prefix, "begins": begins}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEntry:
    """A matching entry: its index, and its bytes as stored."""

    index: int
    entry: bytes


async def find_newest(
    connection: Connection,
    log: Log,
    entry_filter: EntryFilter,
    *,
    count_max: int,
    from_index: int = 0,
    progress: ProgressCallback = lambda _done, _of: None,
) -> tuple[list[FoundEntry], int]:
    """
    Return the newest matching entries, at most `count_max`, oldest first, and the size that the log had.

    Entries before `from_index` are not searched.

    Raises:
        NoSuchLogError: if this role can see no such log.
        FormatError: if an entry whose time is read is corrupt.
    """
    size = (await read_head(connection, log.log_id)).size
    first, end = await find_bounds(connection, log, entry_filter, from_index=min(from_index, size), size=size)
    found: list[FoundEntry] = []
    at = end
    while at > first and len(found) < count_max:
        start = max(first, at - RANGE_MAX)
        found += await find_between(
            connection, log, entry_filter, start, at, order=Order.NEWEST, limit=count_max - len(found)
        )
        at = start
        progress(end - at, end - first)
    return found[::-1], size


async def follow(
    connection: Connection, log: Log, entry_filter: EntryFilter, *, from_index: int
) -> AsyncGenerator[FoundEntry, None]:
    """
    Yield the matching entries from `from_index` on, and continue as the log grows, until closed or past
    `entry_filter.before`.

    `connection` listens for notifications meanwhile, and must not be used otherwise.

    Raises:
        FormatError: if an entry whose time is read is corrupt.
    """
    await connection.execute(f"LISTEN {LOG_GROWN}")
    at = from_index
    while True:
        size = (await read_head(connection, log.log_id)).size
        first, end = await find_bounds(connection, log, entry_filter, from_index=at, size=size)
        for start in range(first, end, RANGE_MAX):
            range_end = min(start + RANGE_MAX, end)
            for found in await find_between(
                connection, log, entry_filter, start, range_end, order=Order.OLDEST, limit=RANGE_MAX
            ):
                yield found
        if end < size:
            return  # all later entries are too late
        at = max(at, size)  # the caller may wait for entries that do not exist yet
        async for _ in connection.notifies(timeout=POLL_S, stop_after=1):
            pass


async def find_bounds(
    connection: Connection, log: Log, entry_filter: EntryFilter, *, from_index: int, size: int
) -> tuple[int, int]:
    """
    Return the first index from `from_index` on whose time matches, and the one behind the last, in a log of `size`.

    Raises:
        FormatError: if an entry whose time is read is corrupt.
    """
    first, end = from_index, size
    if entry_filter.after is not None:
        first = max(first, await first_index_since(connection, log.log_id, entry_filter.after, size=size))
    if entry_filter.before is not None:
        end = await first_index_since(connection, log.log_id, entry_filter.before, size=size)
    return first, max(first, end)


async def find_between(
    connection: Connection, log: Log, entry_filter: EntryFilter, first: int, end: int, *, order: Order, limit: int
) -> list[FoundEntry]:
    """
    Return what matches from index `first` up to, not including, `end`: at most `limit`, from one end of the range.

    Times are not compared: `find_bounds` has made indices of them.
    """
    parameters = {
        "log_id": log.log_id,
        "from_index": first,
        "to_index": end,
        "limit": limit,
    } | entry_filter.parameters()
    cursor = await connection.execute(QUERIES[_IN_ORDER[order]], parameters, binary=True)
    return [FoundEntry(index=index, entry=bytes(entry)) for index, entry in await cursor.fetchall()]


def _begins(actor: str) -> bytes:
    return canonical.encode({"event": {"actor": actor}})[: -len(b"}}")]


def _split(pattern: str | None) -> tuple[str | None, str | None]:
    """Return (exact text, None) or (None, prefix)."""
    if pattern is not None and pattern.endswith("*"):
        return None, pattern[:-1]
    return pattern, None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeFigures:
    """Numbers of one type of entry: how many, how many bytes, the first and the last index."""

    type: str
    entries: int
    size_bytes: int
    first_index: int
    last_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """
    The numbers of one log at `size`.

    `first_recorded_at` and `last_recorded_at` are None while it is empty. `last_hour` and `last_day` count the entries
    recorded in the hour and the day before `at`, the database's time. `parts_held` counts the payload parts that still
    exist, None if the caller may not see that.
    """

    origin: str
    size: int
    groups: int
    size_bytes: int
    control_index: int
    checkpoints: int
    signed_size: int
    first_recorded_at: datetime | None
    last_recorded_at: datetime | None
    at: datetime
    last_hour: int
    last_day: int
    types: tuple[TypeFigures, ...]
    parts_held: int | None = None
    parts_size_bytes: int = 0


async def read_statistics(connection: Connection, log: Log) -> Statistics:
    """
    Return the numbers of a log; `connection` works as the auditor, in autocommit mode.

    Raises:
        NoSuchLogError: if this role can see no such log.
        FormatError, BrokenError: if an entry whose time is read is corrupt, or missing.
    """
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        head = await read_head(connection, log.log_id)
        bounds = {"log_id": log.log_id, "from_index": 0, "size": head.size}
        rows = await (await connection.execute(QUERIES["entries_by_type"], bounds)).fetchall()
        cursor = await connection.execute(QUERIES["checkpoints_signed"], bounds)
        ((checkpoints, signed_size, at),) = await cursor.fetchall()
        last_hour, last_day = [
            head.size - await first_index_since(connection, log.log_id, at - age, size=head.size)
            for age in (timedelta(hours=1), timedelta(days=1))
        ]
        first = await read_entries(connection, log.log_id, from_index=0, to_index=min(1, head.size))
    types = tuple(
        TypeFigures(type=name, entries=entries, size_bytes=size_bytes, first_index=low, last_index=high)
        for name, entries, _, size_bytes, low, high in rows
    )
    return Statistics(
        origin=log.origin,
        size=head.size,
        groups=sum(row[2] for row in rows),
        size_bytes=sum(figures.size_bytes for figures in types),
        control_index=head.control_index,
        checkpoints=checkpoints,
        signed_size=signed_size,
        first_recorded_at=parse_entry(first[0]).recorded_at if first else None,
        last_recorded_at=head.recorded_at and head.recorded_at.astimezone(UTC),
        at=at,
        last_hour=last_hour,
        last_day=last_day,
        types=types,
    )


async def with_parts(connection: Connection, log: Log, figures: Statistics) -> Statistics:
    """
    Return the numbers with the payload parts that still exist; `connection` works as a role that may see parts.
    """
    cursor = await connection.execute(QUERIES["parts_held"], {"log_id": log.log_id, "size": figures.size})
    ((parts, size_bytes),) = await cursor.fetchall()
    return replace(figures, parts_held=parts, parts_size_bytes=size_bytes)
