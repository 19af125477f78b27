# SPDX-License-Identifier: Apache-2.0
"""
Cursors and the live pointer: how far each generation is, and which generation is read.

The row in `projections.live` is also the lock: only its holder applies entries to the live generation or switches it.
Readers never wait for that lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ledger.store.queries import load_queries
from ledger.store.read import Log
from ledger.store.session import Connection
from projections.errors import NotProjectedError

QUERIES: Final = load_queries("projections", "cursors.sql")
FIRST_GENERATION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a projection of a log is; `generation` and `version` are None before a runner has processed the log."""

    projection: str
    log: Log
    generation: int | None
    version: int | None
    next_index: int
    size: int

    @property
    def lag_entries(self) -> int:
        """Entries of the log that are not in the live generation yet."""
        return self.size - self.next_index


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The generation that is read."""

    generation: int
    version: int
    next_index: int


async def read_progress(
    connection: Connection, projections: Iterable[str], *, log_id: int | None = None
) -> list[Progress]:
    """
    Return how far each of `projections` is, for every tenant's log that the connection's role may see, or for one.

    The system log belongs to no tenant and is not projected.
    """
    rows = await connection.execute(QUERIES["progress"], {"projections": list(projections), "log_id": log_id})
    return [
        Progress(
            projection=projection,
            log=Log(log_id=log_id, origin=origin, tenant=tenant, reader=reader),
            generation=generation,
            version=version,
            next_index=next_index,
            size=size,
        )
        for projection, log_id, origin, tenant, reader, size, generation, version, next_index in await rows.fetchall()
    ]


async def read_live(connection: Connection, projection: str, log_id: int) -> Live | None:
    """
    Return the live generation of a log's projection, or None if there is none yet.
    """
    row = await _one(connection, "live", projection, log_id)
    return None if row is None else _live(row)


async def lock_live(connection: Connection, projection: str, log_id: int) -> int:
    """
    Lock the live generation until the transaction ends, waiting for its current holder; return its number.

    Raises:
        NotProjectedError: if there is none yet.
    """
    row = await _one(connection, "lock_live", projection, log_id)
    if row is None:
        raise NotProjectedError(f"projection {projection} of log {log_id}: expected a live generation, found none")
    return int(row[0])


async def hold_live(connection: Connection, projection: str, log_id: int) -> Live:
    """
    Lock the live generation until the transaction ends, waiting for its current holder; return it.

    Raises:
        NotProjectedError: if there is none yet.
    """
    await lock_live(connection, projection, log_id)
    live = await read_live(connection, projection, log_id)
    if live is None:
        raise NotProjectedError(f"projection {projection} of log {log_id}: expected a live generation, found none")
    return live


async def try_hold_live(connection: Connection, projections: Iterable[str], log_id: int) -> Mapping[str, Live]:
    """
    Lock the live generations of a log until the transaction ends, without those that another process holds; return them
    by projection.
    """
    at = {"projections": list(projections), "log_id": log_id}
    # Two statements, so that the second sees what the last holder has committed, in one round trip.
    async with connection.pipeline():
        locked = await connection.execute(QUERIES["try_lock_live"], at)
        live = await connection.execute(QUERIES["live_of_log"], at)
        held = {projection for (projection,) in await locked.fetchall()}
        return {projection: _live(row) for projection, *row in await live.fetchall() if projection in held}


async def read_next_index(connection: Connection, projection: str, log_id: int, generation: int) -> int:
    """
    Return the cursor of one generation.

    Raises:
        NotProjectedError: if there is no such generation.
    """
    row = await _one(connection, "next_index", projection, log_id, generation=generation)
    if row is None:
        raise NotProjectedError(
            f"projection {projection} of log {log_id}: expected generation {generation}, found none"
        )
    return int(row[0])


async def move(connection: Connection, projection: str, log_id: int, generation: int, *, next_index: int) -> None:
    """
    Store the cursor of one generation.
    """
    at = {"projection": projection, "log_id": log_id, "generation": generation, "next_index": next_index}
    await connection.execute(QUERIES["move"], at)


async def move_together(
    connection: Connection, log_id: int, generations: Mapping[str, int], *, next_index: int
) -> None:
    """
    Store the cursors of generations of a log's projections, which are at the same place.
    """
    at = {"log_id": log_id, "next_index": next_index}
    named = {"projections": list(generations), "generations": list(generations.values())}
    await connection.execute(QUERIES["move_together"], {**at, **named})


async def insert(connection: Connection, projection: str, log_id: int, generation: int, *, version: int) -> bool:
    """
    Insert a generation at index 0; return False if it exists already.
    """
    row = {"projection": projection, "log_id": log_id, "generation": generation, "version": version}
    return (await connection.execute(QUERIES["insert_cursor"], row)).rowcount == 1


async def insert_live(connection: Connection, projection: str, log_id: int, generation: int) -> None:
    """
    Make the first generation the live one.
    """
    row = {"projection": projection, "log_id": log_id, "generation": generation}
    await connection.execute(QUERIES["insert_live"], row)


async def next_generation(connection: Connection, projection: str, log_id: int) -> int:
    """
    Return a generation number that was never used.

    Raises:
        NotProjectedError: if there is no live generation.
    """
    row = await _one(connection, "next_generation", projection, log_id)
    if row is None:
        raise NotProjectedError(f"projection {projection} of log {log_id}: expected a live generation, found none")
    return int(row[0])


async def switch(connection: Connection, projection: str, log_id: int, generation: int) -> None:
    """
    Make `generation` the live one.
    """
    row = {"projection": projection, "log_id": log_id, "generation": generation}
    await connection.execute(QUERIES["switch"], row)


async def other_generations(connection: Connection, projection: str, log_id: int) -> list[int]:
    """
    Return the numbers of the generations that are not live.
    """
    row = {"projection": projection, "log_id": log_id}
    return [
        generation for (generation,) in await (await connection.execute(QUERIES["other_generations"], row)).fetchall()
    ]


async def behind_erasure(connection: Connection, projections: Sequence[str]) -> list[tuple[str, Log]]:
    """
    Return the (projection, log) pairs that have a generation which is not live and behind the log's newest erasure.
    """
    rows = await connection.execute(QUERIES["behind_erasure"], {"projections": list(projections)})
    return [
        (projection, Log(log_id=log_id, origin=origin, tenant=tenant, reader=reader))
        for projection, log_id, origin, tenant, reader in await rows.fetchall()
    ]


async def delete(connection: Connection, projection: str, log_id: int, generation: int) -> None:
    """
    Delete the cursor of a generation that is not live.
    """
    row = {"projection": projection, "log_id": log_id, "generation": generation}
    await connection.execute(QUERIES["delete_cursor"], row)


async def try_lock_rebuild(connection: Connection, projection: str, log_id: int) -> bool:
    """
    Take the lock of rebuilds of this projection and log for the session; return False if another session has it.
    """
    row = await _one(connection, "try_lock_rebuild", projection, log_id)
    return row is not None and bool(row[0])


async def unlock_rebuild(connection: Connection, projection: str, log_id: int) -> None:
    """Release the lock of rebuilds that this session has taken."""
    await _one(connection, "unlock_rebuild", projection, log_id)


def _live(row: Sequence[Any]) -> Live:
    return Live(generation=row[0], version=row[1], next_index=row[2])


async def _one(connection: Connection, query: str, projection: str, log_id: int, **more: object) -> Any | None:
    parameters = {"projection": projection, "log_id": log_id, **more}
    return await (await connection.execute(QUERIES[query], parameters)).fetchone()
