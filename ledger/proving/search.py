"""
For people who look at a log: the entries that match what they ask for, and what the log holds, in figures.

Guarantee: what is found is what is stored, in index order, and nothing is left out of the stretch that was searched.

Type, key and actor are compared in the database, stretch by stretch, so that a search of a large log can be watched and
interrupted. Times need no search: `recorded_at` never falls, so the first entry of a time is found by halving.

Statistics (entries and bytes by type, groups, checkpoints, how fast the log grows) are counted from the rows in one
snapshot, so the figures agree with each other. Counting reads the whole log once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from ledger.format import canonical
from ledger.format.entry import parse_entry
from ledger.format.verification import ProgressCallback
from ledger.store.notifications import LOG_GROWN
from ledger.store.queries import load_queries
from ledger.store.read import Log, read_entries, read_entry, read_head
from ledger.store.session import Connection

QUERIES: Final = load_queries("ledger.store", "look.sql")
STRETCH_MAX: Final = 50_000
"""Indices searched by one statement: some 50 MB, well below a second."""
POLL_S: Final = 1.0
"""How often a follower looks; the doorbell wakes it before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """
    Which entries are wanted; None leaves a member open.

    `type` and `key` are exact, or end in `*` and name what they begin with. `actors` are equally long: `system` alone,
    or any number of 32 hex digits.
    `after` is the earliest `recorded_at`, `before` the first that is too late.
    """

    type: str | None = None
    key: str | None = None
    actors: tuple[str, ...] | None = None
    after: datetime | None = None
    before: datetime | None = None

    def parameters(self) -> dict[str, object]:
        """Return the parameters that the look-up of matching entries takes."""
        whole_type, family = _split(self.type)
        whole_key, prefix = _split(self.key)
        begins = None if self.actors is None else [_begins(actor) for actor in self.actors]
        return {"type": whole_type, "family": family, "key": whole_key, "key_prefix": prefix, "begins": begins}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEntry:
    """An entry that was found: its index, and its bytes as stored."""

    index: int
    entry: bytes


async def find_newest(
    connection: Connection,
    log: Log,
    wanted: EntryFilter,
    *,
    count_max: int,
    from_index: int = 0,
    progress: ProgressCallback = lambda _done, _of: None,
) -> tuple[list[FoundEntry], int]:
    """
    Return the newest entries that are wanted, at most `count_max`, oldest first, and the size the log had.

    Nothing before `from_index` is looked at.

    Raises:
        NoSuchLogError: if this role can see no such log.
        FormatError: if an entry that times are compared with is corrupt.
    """
    size = (await read_head(connection, log.log_id)).size
    first, end = await _bounds(connection, log, wanted, from_index=min(from_index, size), size=size)
    found: list[FoundEntry] = []
    at = end
    while at > first and len(found) < count_max:
        start = max(first, at - STRETCH_MAX)
        found += await _matching(connection, log, wanted, start, at, limit=count_max - len(found))
        at = start
        progress(end - at, end - first)
    return found[::-1], size


async def follow(
    connection: Connection, log: Log, wanted: EntryFilter, *, from_index: int
) -> AsyncGenerator[FoundEntry, None]:
    """
    Yield the wanted entries from `from_index` on, and go on as the log grows, until closed or past `wanted.before`.

    `connection` listens to the doorbell meanwhile, and is used by nobody else.

    Raises:
        FormatError: if an entry that times are compared with is corrupt.
    """
    await connection.execute(f"LISTEN {LOG_GROWN}")
    at = from_index
    while True:
        size = (await read_head(connection, log.log_id)).size
        first, end = await _bounds(connection, log, wanted, from_index=at, size=size)
        for start in range(first, end, STRETCH_MAX):
            stretch = min(start + STRETCH_MAX, end)
            for found in reversed(await _matching(connection, log, wanted, start, stretch, limit=STRETCH_MAX)):
                yield found
        if end < size:
            return  # what comes now is too late
        at = max(at, size)  # the caller may wait for what is not there yet
        async for _ in connection.notifies(timeout=POLL_S, stop_after=1):
            pass


async def first_index_at(connection: Connection, log_id: int, time: datetime, *, size: int) -> int:
    """
    Return the index of the first entry recorded at `time` or later, `size` if there is none below it.

    Raises:
        FormatError: if an entry on the way is corrupt.
        BrokenError: if one is missing.
    """
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        entry = await read_entry(connection, log_id, middle)
        if parse_entry(entry).recorded_at < time:
            low = middle + 1
        else:
            high = middle
    return low


async def _bounds(
    connection: Connection, log: Log, wanted: EntryFilter, *, from_index: int, size: int
) -> tuple[int, int]:
    """Return the stretch of indices whose times are wanted."""
    first, end = from_index, size
    if wanted.after is not None:
        first = max(first, await first_index_at(connection, log.log_id, wanted.after, size=size))
    if wanted.before is not None:
        end = await first_index_at(connection, log.log_id, wanted.before, size=size)
    return first, max(first, end)


async def _matching(
    connection: Connection, log: Log, wanted: EntryFilter, first: int, end: int, *, limit: int
) -> list[FoundEntry]:
    """Return what matches between two indices, the newest first."""
    parameters = {"log_id": log.log_id, "from_index": first, "to_index": end, "limit": limit} | wanted.parameters()
    cursor = await connection.execute(QUERIES["entries_found"], parameters, binary=True)
    return [FoundEntry(index=index, entry=bytes(entry)) for index, entry in await cursor.fetchall()]


def _begins(actor: str) -> bytes:
    return canonical.encode({"event": {"actor": actor}})[: -len(b"}}")]


def _split(pattern: str | None) -> tuple[str | None, str | None]:
    """Return (the whole, None) or (None, what it begins with)."""
    if pattern is not None and pattern.endswith("*"):
        return None, pattern[:-1]
    return pattern, None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeFigures:
    """Of one type of entry: how many, how many bytes, and between which indices they lie."""

    type: str
    entries: int
    size_bytes: int
    first_index: int
    last_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """
    The figures of one log at `size`.

    `first_recorded_at` and `last_recorded_at` are None while it is empty. `last_hour` and `last_day` count the entries
    recorded in the hour and the day before `at`, the database's time. `parts_held` counts the payload parts that still
    exist, None if that is not known to who asks.
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
    Return the figures of a log; `connection` works as the auditor, in autocommit mode.

    Raises:
        NoSuchLogError: if this role can see no such log.
        FormatError, BrokenError: if an entry whose time is asked for is corrupt, or missing.
    """
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        head = await read_head(connection, log.log_id)
        bounds = {"log_id": log.log_id, "size": head.size}
        rows = await (await connection.execute(QUERIES["entries_by_type"], bounds)).fetchall()
        cursor = await connection.execute(QUERIES["checkpoints_signed"], bounds)
        ((checkpoints, signed_size, at),) = await cursor.fetchall()
        last_hour, last_day = [
            head.size - await first_index_at(connection, log.log_id, at - age, size=head.size)
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
    Return the figures with how many payload parts still exist; `connection` works as a role that may see parts.
    """
    cursor = await connection.execute(QUERIES["parts_held"], {"log_id": log.log_id, "size": figures.size})
    ((parts, size_bytes),) = await cursor.fetchall()
    return replace(figures, parts_held=parts, parts_size_bytes=size_bytes)
