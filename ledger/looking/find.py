"""
Finds the entries of a log that somebody wants to see: by type, key, actor and time.

Guarantee: what is found is what is stored, in index order, and nothing is left out of the stretch that was searched.

Type, key and actor are compared in the database, stretch by stretch, so that a search of a large log can be watched and
interrupted. Times need no search: `recorded_at` never falls, so the first entry of a time is found by halving.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ledger import canonical
from ledger.doorbell import CHANNEL
from ledger.entry import parse_entry
from ledger.queries import load_queries
from ledger.read import Connection, Log, read_entry, read_head
from ledger.verify.rules import Progress

QUERIES: Final = load_queries("ledger", "look.sql")

STRETCH_MAX: Final = 50_000
"""Indices searched by one statement: some 50 MB, well below a second."""
POLL_S: Final = 1.0
"""How often a follower looks; the doorbell wakes it before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
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
class Found:
    """An entry that was found: its index, and its bytes as stored."""

    index: int
    entry: bytes


async def find_newest(
    connection: Connection,
    log: Log,
    wanted: Wanted,
    *,
    count_max: int,
    from_index: int = 0,
    progress: Progress = lambda _done, _of: None,
) -> tuple[list[Found], int]:
    """
    Return the newest entries that are wanted, at most `count_max`, oldest first, and the size the log had.

    Nothing before `from_index` is looked at.

    Raises:
        NoSuchLogError: if this role can see no such log.
        FormatError: if an entry that times are compared with is corrupt.
    """
    size = (await read_head(connection, log.log_id)).size
    first, end = await _bounds(connection, log, wanted, from_index=min(from_index, size), size=size)
    found: list[Found] = []
    at = end
    while at > first and len(found) < count_max:
        start = max(first, at - STRETCH_MAX)
        found += await _matching(connection, log, wanted, start, at, limit=count_max - len(found))
        at = start
        progress(end - at, end - first)
    return found[::-1], size


async def follow(connection: Connection, log: Log, wanted: Wanted, *, from_index: int) -> AsyncGenerator[Found, None]:
    """
    Yield the wanted entries from `from_index` on, and go on as the log grows, until closed or past `wanted.before`.

    `connection` listens to the doorbell meanwhile, and is used by nobody else.

    Raises:
        FormatError: if an entry that times are compared with is corrupt.
    """
    await connection.execute(f"LISTEN {CHANNEL}")
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


async def _bounds(connection: Connection, log: Log, wanted: Wanted, *, from_index: int, size: int) -> tuple[int, int]:
    """Return the stretch of indices whose times are wanted."""
    first, end = from_index, size
    if wanted.after is not None:
        first = max(first, await first_index_at(connection, log.log_id, wanted.after, size=size))
    if wanted.before is not None:
        end = await first_index_at(connection, log.log_id, wanted.before, size=size)
    return first, max(first, end)


async def _matching(
    connection: Connection, log: Log, wanted: Wanted, first: int, end: int, *, limit: int
) -> list[Found]:
    """Return what matches between two indices, the newest first."""
    parameters = {"log_id": log.log_id, "from_index": first, "to_index": end, "limit": limit} | wanted.parameters()
    cursor = await connection.execute(QUERIES["entries_found"], parameters, binary=True)
    return [Found(index=index, entry=bytes(entry)) for index, entry in await cursor.fetchall()]


def _begins(actor: str) -> bytes:
    return canonical.encode({"event": {"actor": actor}})[: -len(b"}}")]


def _split(pattern: str | None) -> tuple[str | None, str | None]:
    """Return (the whole, None) or (None, what it begins with)."""
    if pattern is not None and pattern.endswith("*"):
        return None, pattern[:-1]
    return pattern, None
