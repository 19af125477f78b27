# SPDX-License-Identifier: Apache-2.0
"""
Reads the log from PostgreSQL: entries, parts, heads, tiles, in index order.

The head assigns indices, so a reader that continues after its last index sees every entry exactly once: there are no
gaps that fill later. Each function takes an open connection and reads what that connection's role may see.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncCursor
from psycopg.types.numeric import Int4, Int8

from ledger.errors import BrokenError, Fault, NoSuchLogError
from ledger.format.entry import parse_entry
from ledger.format.event import Part
from ledger.format.merkle import HASH_SIZE_BYTES, Frontier, root_of, split_hashes
from ledger.format.sealing import PLAIN, KeyOpener, Opener, StoredPart
from ledger.format.sequence import LogHead
from ledger.format.tiles import TILE_WIDTH, Tile
from ledger.store.queries import load_queries
from ledger.store.session import Connection

QUERIES: Final = load_queries("ledger.store")
TILE_QUERIES: Final = load_queries("ledger.store", "tiles.sql")

READ_ENTRIES_MAX: Final = 1_000
"""Entries fetched at a time: at most 64 MiB in memory, usually about 1 MiB."""
SEARCHED_MAX: Final = 63
"""Entries of which one step of a search by time knows when they were recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One log: `log_id` is internal to this database; the origin is its permanent name."""

    log_id: int
    origin: str
    tenant: UUID | None
    reader: str | None


async def read_logs(connection: Connection) -> list[Log]:
    """
    Return the logs that this role may see, by log_id.
    """
    rows = await (await connection.execute(QUERIES["logs"])).fetchall()
    return [Log(log_id=row[0], origin=row[1], tenant=row[2], reader=row[3]) for row in rows]


async def find_log(connection: Connection, origin: str) -> Log:
    """
    Return the log of that origin.

    Raises:
        NoSuchLogError: if there is none that this role may see.
    """
    row = await (await connection.execute(QUERIES["log_by_origin"], {"origin": origin})).fetchone()
    if row is None:
        raise NoSuchLogError(f"log {origin}: expected a log of this origin, found none")
    return Log(log_id=row[0], origin=row[1], tenant=row[2], reader=row[3])


def parse_head(row: Sequence[Any]) -> tuple[int, LogHead]:
    """
    Return (log_id, head) of a row of `ledger.heads`.

    Raises:
        FormatError: if the frontier is not of the size's shape.
    """
    log_id, size, last, frontier, control_index, recorded_at = row
    return log_id, LogHead(
        size=size,
        last=bytes(last),
        frontier=Frontier.parse(size, bytes(frontier)),
        control_index=control_index,
        recorded_at=recorded_at,
    )


async def read_head(connection: Connection, log_id: int) -> LogHead:
    """
    Return the end of a log as of now, without a lock.

    Raises:
        NoSuchLogError: if there is none that this role may see.
    """
    row = await (await connection.execute(QUERIES["head"], {"log_id": log_id})).fetchone()
    if row is None:
        raise NoSuchLogError(f"log {log_id}: expected a head, found none")
    return parse_head(row)[1]


async def read_entries(connection: Connection, log_id: int, *, from_index: int, to_index: int) -> list[bytes]:
    """
    Return the entries from_index … to_index - 1 that exist, in order.

    Raises:
        BrokenError: if an entry is missing between two others, or NULL stands in its place.
    """
    cursor = await request_entries(connection, log_id, from_index=from_index, to_index=to_index)
    return await fetch_entries(cursor, from_index)


async def read_entry(connection: Connection, log_id: int, index: int) -> bytes:
    """
    Return the entry at `index`, which is below the log's size.

    Raises:
        BrokenError: if it is missing, or NULL stands in its place.
    """
    return await fetch_entry(await request_entries(connection, log_id, from_index=index, to_index=index + 1), index)


async def request_entries(
    connection: Connection, log_id: int, *, from_index: int, to_index: int
) -> AsyncCursor[tuple[int, Any]]:
    """
    Request the entries from_index … to_index - 1 that exist; their indices and bytes arrive, in order, when fetched.
    """
    bounds = {"log_id": Int4(log_id), "from_index": Int8(from_index), "to_index": Int8(to_index)}
    return await connection.execute(QUERIES["entries_between"], bounds, binary=True)


async def fetch_entries(cursor: AsyncCursor[tuple[int, Any]], from_index: int) -> list[bytes]:
    """
    Return the requested entries; raises as `read_entries`.
    """
    rows = await cursor.fetchall()
    for expected, (index, _) in enumerate(rows, start=from_index):
        if index != expected:
            raise BrokenError(Fault.INDEX, where="ledger.entries", expected=expected, found=index, index=expected)
    return [_stored(index, entry) for index, entry in rows]


def _stored(index: int, entry: Any) -> bytes:
    if entry is None:  # the owner of a database can drop NOT NULL
        raise BrokenError(Fault.ENTRY, where="ledger.entries", expected="an entry", found="NULL", index=index)
    return bytes(entry)


async def fetch_entry(cursor: AsyncCursor[tuple[int, Any]], index: int) -> bytes:
    """
    Return the one requested entry; raises as `read_entry`.
    """
    entries = await fetch_entries(cursor, index)
    if not entries:
        raise BrokenError(Fault.INDEX, where="ledger.entries", expected=f"entry {index}", found="none", index=index)
    return entries[0]


async def read_entries_at(connection: Connection, log_id: int, indices: Iterable[int]) -> dict[int, bytes]:
    """
    Return the entries at some indices, by index; those that do not exist are missing.

    Raises:
        BrokenError: if NULL stands in the place of one.
    """
    parameters = {"log_id": log_id, "indices": list(indices)}
    cursor = await connection.execute(QUERIES["entries_at"], parameters, binary=True)
    return {index: _stored(index, entry) for index, entry in await cursor.fetchall()}


async def first_index_since(connection: Connection, log_id: int, time: datetime, *, size: int) -> int:
    """
    Return the index of the first entry recorded at `time` or later, `size` if there is none below it.

    Times never fall in a log. So entries at even distances are read, `SEARCHED_MAX` at once, and then those between two
    of them: in ten million entries four times.

    Raises:
        FormatError: if an entry on the way is corrupt.
        BrokenError: if one is missing.
    """
    low, high = 0, size
    while low < high:
        places = _between(low, high)
        stored = await read_entries_at(connection, log_id, places)
        if missing := [index for index in places if index not in stored]:
            index = missing[0]
            raise BrokenError(Fault.INDEX, where="ledger.entries", expected=f"entry {index}", found="none", index=index)
        earlier = bisect_left(places, time, key=lambda index: parse_entry(stored[index]).recorded_at)
        low = places[earlier - 1] + 1 if earlier else low
        high = places[earlier] if earlier < len(places) else high
    return low


def _between(low: int, high: int) -> Sequence[int]:
    """Return at most `SEARCHED_MAX` indices from low to high - 1, at even distances: all, if there are no more."""
    if high - low <= SEARCHED_MAX:
        return range(low, high)
    return [low + (high - low) * place // (SEARCHED_MAX + 1) for place in range(1, SEARCHED_MAX + 1)]


async def iterate_entries(
    connection: Connection, log_id: int, *, from_index: int, to_index: int
) -> AsyncIterator[list[bytes]]:
    """
    Yield the entries from_index … to_index - 1 in order, in lists of at most 1,000.

    Raises:
        BrokenError: if one is missing.
    """
    at = from_index
    while at < to_index:
        entries = await read_entries(connection, log_id, from_index=at, to_index=min(at + READ_ENTRIES_MAX, to_index))
        if not entries:
            raise BrokenError(Fault.INDEX, where="ledger.entries", expected=f"entry {at}", found="none", index=at)
        yield entries
        at += len(entries)


async def read_parts(
    connection: Connection,
    log_id: int,
    *,
    from_index: int,
    to_index: int,
    opener: Opener = PLAIN,
    name: str | None = None,
) -> Mapping[int, Mapping[str, Part]]:
    """
    Return the payload parts that still exist of entries from_index … to_index - 1, by index and name: those of one
    name, or all.

    Raises:
        BrokenError: if one is corrupt.
        SubjectKeysError: if one is sealed and `opener` cannot tell whether it is erased.
    """
    bounds: dict[str, object] = {"log_id": log_id, "from_index": from_index, "to_index": to_index}
    if name is None:
        return await _opened(connection, "parts_between", bounds, opener)
    return await _opened(connection, "parts_named_between", {**bounds, "name": name}, opener)


async def read_parts_of(
    connection: Connection, log_id: int, indices: Collection[int], *, names: Collection[str], opener: Opener = PLAIN
) -> Mapping[int, Mapping[str, Part]]:
    """
    Return those payload parts of some entries that have one of `names`, and still exist, by index and name. Raises as
    `read_parts` does.
    """
    which = {"log_id": log_id, "indices": list(indices), "names": list(names)}
    return await _opened(connection, "parts_of", which, opener)


async def _opened(
    connection: Connection, query: str, which: Mapping[str, object], opener: Opener
) -> Mapping[int, Mapping[str, Part]]:
    """Return the parts that a query finds, by index and name."""
    cursor = await connection.execute(QUERIES[query], which, binary=True)
    rows = await cursor.fetchall()
    opens = opener.for_page() if isinstance(opener, KeyOpener) else opener  # they are opened at once
    parts: dict[int, dict[str, Part]] = {}
    for index, name, subject, key_id, sealed in rows:
        part = opens.open(StoredPart(index, name, subject, key_id, bytes(sealed)))
        if part is not None:
            parts.setdefault(index, {})[name] = part
    return parts


async def read_leaves(connection: Connection, log_id: int, *, from_index: int, to_index: int) -> list[bytes]:
    """
    Return the leaf hashes from_index … to_index - 1, from the derived column.
    """
    bounds = {"log_id": log_id, "from_index": from_index, "to_index": to_index}
    rows = await (await connection.execute(QUERIES["leaves_between"], bounds, binary=True)).fetchall()
    return [bytes(row[0]) for row in rows]


async def read_tile(connection: Connection, log_id: int, *, level: int, index: int, width: int = TILE_WIDTH) -> Tile:
    """
    Return one tile; a partial one is computed from what lies below it (C2SP tlog-tiles: a partial tile is a prefix).

    Raises:
        BrokenError: if it is not stored, or its hashes are not all there.
    """
    where = f"ledger.tiles level {level} tile {index}"
    if width == TILE_WIDTH:
        bounds = {"log_id": log_id, "level": level, "from_tile": index, "to_tile": index + 1}
        row = await (await connection.execute(QUERIES["tiles_between"], bounds, binary=True)).fetchone()
        if row is None:
            raise BrokenError(Fault.TILE, where=where, expected="a complete tile", found="none")
        return Tile(level=level, index=index, hashes=tuple(split_hashes(bytes(row[1]))))
    first = index * TILE_WIDTH
    if level == 0:
        hashes = await read_leaves(connection, log_id, from_index=first, to_index=first + width)
    else:
        hashes = await read_tile_roots(connection, log_id, level=level - 1, from_tile=first, to_tile=first + width)
    if len(hashes) != width:
        raise BrokenError(Fault.TILE, where=where, expected=f"{width} hashes", found=f"{len(hashes)} hashes")
    return Tile(level=level, index=index, hashes=tuple(hashes))


async def read_tile_roots(
    connection: Connection, log_id: int, *, level: int, from_tile: int, to_tile: int
) -> list[bytes]:
    """
    Return the roots of complete tiles from_tile … to_tile - 1 of one level: the hashes of the level above.
    """
    bounds = {"log_id": log_id, "level": level, "from_tile": from_tile, "to_tile": to_tile}
    rows = await (await connection.execute(TILE_QUERIES["tile_roots_between"], bounds, binary=True)).fetchall()
    return [parse_tile_root(bytes(stored)) for _, stored in rows]


def parse_tile_root(stored: bytes) -> bytes:
    """
    Return the root of a complete tile of which either that or all its hashes are stored.
    """
    return stored if len(stored) == HASH_SIZE_BYTES else root_of(split_hashes(stored))
