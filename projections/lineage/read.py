"""
Reading lineage: what led to a table and what comes of it, what was refused, and what other read models need of it.

Every function reads the live generation of one log, with a connection whose role may see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection

from projections.graph.labels import bounded_key
from projections.lineage.drawing import QUERIES

HOPS: Final = 3
HOPS_MAX: Final = 5
ROWS_MAX: Final = 1_000

Connection = AsyncConnection[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """
    `target` was made from `source`, so many `hops` from what was asked for; `count` events told of it, `job` and the
    run are those of the last one.
    """

    hops: int
    source: str
    target: str
    job: str | None
    run_id: str | None
    engine: str | None
    state: str | None
    event_time: str | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column edge; an empty `target_column` stands for every column of the target."""

    source: str
    source_column: str
    target: str
    target_column: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """
    An edge that was not drawn, told of by the event at `index`, and the path from its target to its source; the entry
    at `told_index` says so in the log (None: not yet).
    """

    index: int
    group_id: UUID
    source: str
    target: str
    path: tuple[str, ...]
    told_index: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What was made from what around one table or data set; each list holds at most 1,000."""

    key: str
    upstream: tuple[Edge, ...]
    downstream: tuple[Edge, ...]
    columns: tuple[Column, ...]
    cycles: tuple[Cycle, ...]


async def read_lineage(connection: Connection, log_id: int, key: str, *, hops: int = HOPS) -> Lineage:
    """
    Return what is within `hops` (1 to 5) of a table or data set, nearest first; nothing of one that nobody told of.
    """
    asked = {"log_id": log_id, "key": bounded_key(key), "hops": max(1, min(hops, HOPS_MAX)), "limit": ROWS_MAX}

    async def rows(query: str) -> list[tuple[Any, ...]]:
        return await (await connection.execute(QUERIES[query], asked)).fetchall()

    return Lineage(
        key=key,
        upstream=tuple(_edge(row) for row in await rows("upstream")),
        downstream=tuple(_edge(row) for row in await rows("downstream")),
        columns=tuple(_column(row) for row in await rows("columns_of")),
        cycles=tuple(_cycle(row) for row in await rows("cycles_of")),
    )


async def read_next_index(connection: Connection, log_id: int) -> int:
    """
    Return how many entries of the log the live generation holds; 0 before a runner has seen the log.
    """
    row = await (await connection.execute(QUERIES["next_index"], {"log_id": log_id})).fetchone()
    return 0 if row is None else int(row[0])


async def read_cycles(connection: Connection, log_id: int, indices: Iterable[int]) -> list[Cycle]:
    """
    Return the edges that were not drawn of the events at `indices`, in the order of the log.
    """
    parameters = {"log_id": log_id, "indices": list(indices)}
    return [_cycle(row) for row in await (await connection.execute(QUERIES["cycles_of_events"], parameters)).fetchall()]


async def find_group(connection: Connection, log_id: int, group_id: UUID) -> int | None:
    """
    Return the index at which a group begins in the log; None if it is not there.
    """
    row = await (
        await connection.execute(QUERIES["index_of_group"], {"log_id": log_id, "group_id": group_id})
    ).fetchone()
    return None if row is None else int(row[0])


def _edge(row: Sequence[Any]) -> Edge:
    return Edge(**dict(zip(Edge.__dataclass_fields__, row, strict=True)))


def _column(row: Sequence[Any]) -> Column:
    return Column(**dict(zip(Column.__dataclass_fields__, row, strict=True)))


def _cycle(row: Sequence[Any]) -> Cycle:
    index, group_id, source, target, path, told_index = row
    return Cycle(index=index, group_id=group_id, source=source, target=target, path=tuple(path), told_index=told_index)
