# SPDX-License-Identifier: Apache-2.0
"""
Reads lineage: what is upstream and downstream of a table, what was refused, and what other read models need of it.

Every function reads the live generation of one log, over a connection whose role may see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from ledger.store.session import Connection
from projections.keys import bounded_key
from projections.lineage.edges import QUERIES
from projections.lineage.runs import Omitted

HOPS: Final = 3
HOPS_MAX: Final = 5
ROWS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEdge:
    """
    `target` was made from `source`; `hops` is the distance from the table in question. `count` complete runs and static
    events reported it; `job`, run and versions are those of the last one. If `is_kept`, it closes a cycle and holds
    between versions.
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
    source_version: str | None
    target_version: str | None
    is_kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLineage:
    """A column edge; an empty `target_column` stands for every column of the target."""

    source: str
    source_column: str
    target: str
    target_column: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """
    A refused edge, and the path from its target to its source. The first of `count` events that reported it is at
    `index`, the last at `last_index`; the entry at `told_index` records the refusal in the log (None: not yet).
    """

    source: str
    target: str
    path: tuple[str, ...]
    group_id: UUID
    index: int
    last_index: int
    count: int
    told_index: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventOutcome:
    """What of one event is not drawn: its refused edges, and how much was omitted."""

    cycles: tuple[Cycle, ...]
    omitted: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """
    The lineage around one table or data set. If it `is_cut`, a list has as many as were asked for: there may be more.

    `omitted` is what was reported and is not drawn, for this one and what was reached, by key.
    """

    key: str
    upstream: tuple[LineageEdge, ...]
    downstream: tuple[LineageEdge, ...]
    columns: tuple[ColumnLineage, ...]
    cycles: tuple[Cycle, ...]
    omitted: Mapping[str, Omitted]
    is_cut: bool

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of it."""
        return not (self.upstream or self.downstream or self.columns or self.cycles or self.omitted)


async def read_lineage(
    connection: Connection, log_id: int, key: str, *, hops: int = HOPS, limit: int = ROWS_MAX
) -> Lineage:
    """
    Return what is within `hops` (1 to 5) of a table or data set, nearest first; empty if no event names it.

    Each list has at most `limit` edges, and never more than 1,000.
    """
    limit = min(limit, ROWS_MAX)
    parameters = {"log_id": log_id, "key": bounded_key(key), "limit": limit}

    async def rows(query: str) -> list[tuple[Any, ...]]:
        return await (await connection.execute(QUERIES[query], parameters)).fetchall()

    upstream = await _walk(connection, log_id, key, "upstream", hops=hops, limit=limit)
    downstream = await _walk(connection, log_id, key, "downstream", hops=hops, limit=limit)
    columns, cycles = await rows("columns_of"), await rows("cycles_of")
    reached = {bounded_key(key), *(end for edge in (*upstream, *downstream) for end in (edge.source, edge.target))}
    return Lineage(
        key=key,
        upstream=tuple(upstream),
        downstream=tuple(downstream),
        columns=tuple(column_of(row) for row in columns),
        cycles=tuple(cycle_of(row) for row in cycles),
        omitted=await read_omitted(connection, reached, projection="lineage", log_id=log_id),
        is_cut=any(len(each) >= limit for each in (upstream, downstream, columns, cycles)),
    )


async def read_upstream(connection: Connection, log_id: int, key: str) -> tuple[LineageEdge, ...]:
    """
    Return what a table or data set was made from directly: the edges of `read_lineage` with one hop that end at it.
    """
    return tuple(await _walk(connection, log_id, key, "upstream", hops=1, limit=ROWS_MAX))


async def _walk(
    connection: Connection, log_id: int, key: str, query: str, *, hops: int, limit: int
) -> list[LineageEdge]:
    """
    Return the edges within so many hops, level by level: once there are as many as may be, nothing farther is read.
    """
    found: list[LineageEdge] = []
    seen = level = {bounded_key(key)}
    for distance in range(1, max(1, min(hops, HOPS_MAX)) + 1):
        parameters = {"log_id": log_id, "keys": sorted(level), "limit": limit - len(found)}
        rows = await (await connection.execute(QUERIES[query], parameters)).fetchall()
        edges = [edge_of((distance, *row)) for row in rows]
        found += edges
        level = {edge.source if query == "upstream" else edge.target for edge in edges} - seen
        seen = seen | level
        if not level or len(found) >= limit:
            break
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeen:
    """
    A run as its events have reported it: by which job and engine, its state, and what it reads and writes, by key.

    `state` and `event_time` are of its latest event. The first of its entries is at `first_index`.
    """

    run_id: str
    job: str | None
    engine: str | None
    state: str | None
    event_time: str | None
    is_complete: bool
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    first_index: int
    last_index: int


async def read_runs(
    connection: Connection, log_id: int, *, before: str | None = None, limit: int = 100
) -> list[RunSeen]:
    """
    Return runs by their ids, from the highest one down, or from below `before` on.
    """
    parameters = {"log_id": log_id, "before": before, "limit": min(limit, ROWS_MAX)}
    rows = await (await connection.execute(QUERIES["runs"], parameters)).fetchall()
    names = RunSeen.__dataclass_fields__
    return [
        RunSeen(**dict(zip(names, (*row[:6], _keys(row[6]), _keys(row[7]), *row[8:]), strict=True))) for row in rows
    ]


def _keys(named: Sequence[Sequence[Any]]) -> tuple[str, ...]:
    """Return the keys of pairs of key and version."""
    return tuple(str(key) for key, _ in named)


async def read_omitted(
    connection: Connection, keys: Iterable[str], *, projection: str, log_id: int | None = None
) -> dict[str, Omitted]:
    """
    Return how much was reported of these tables and data sets (bounded keys) and is not drawn; without a row, all is.

    `projection` says whose live generation is read: `lineage`, or `graph`, which has lineage of its own. Without
    `log_id`, the connection's role must be able to see one log only.
    """
    parameters = {"log_id": log_id, "projection": projection, "keys": sorted(keys)}
    rows = await (await connection.execute(QUERIES["omitted_at"], parameters)).fetchall()
    names = Omitted.__dataclass_fields__
    return {key: Omitted(**dict(zip(names, counts, strict=True))) for key, *counts in rows}


async def is_known(connection: Connection, log_id: int, key: str) -> bool:
    """
    Return whether any entry names a table or data set. If none does, empty lineage does not mean that nothing was made
    from it.
    """
    row = await (await connection.execute(QUERIES["is_known"], {"log_id": log_id, "whole_key": key})).fetchone()
    return row is not None and bool(row[0])


async def is_known_table(connection: Connection, log_id: int, key: str) -> bool:
    """
    Return whether any entry is about a table or view itself. Unlike `is_known`, it looks through no events.
    """
    row = await (await connection.execute(QUERIES["is_table"], {"log_id": log_id, "whole_key": key})).fetchone()
    return row is not None and bool(row[0])


async def read_next_index(connection: Connection, log_id: int) -> int:
    """
    Return how many entries of the log the live generation holds; 0 before a runner has processed the log.
    """
    row = await (await connection.execute(QUERIES["next_index"], {"log_id": log_id})).fetchone()
    return 0 if row is None else int(row[0])


async def read_outcomes(connection: Connection, log_id: int, indices: Iterable[int]) -> dict[int, EventOutcome]:
    """
    Return what is not drawn of the events at `indices`, by index; events that are not projected yet are missing.
    """
    parameters = {"log_id": log_id, "indices": list(indices)}
    rows = await (await connection.execute(QUERIES["outcomes_of_events"], parameters)).fetchall()
    cycles: dict[int, list[Cycle]] = {index: [] for index, *_ in rows}
    omitted: dict[int, Mapping[str, int]] = {}
    for index, counts, *refused in rows:
        omitted[index] = counts
        if refused[0] is not None:  # an edge was refused, and has not been drawn since
            cycles[index].append(cycle_of(refused))
    return {index: EventOutcome(cycles=tuple(found), omitted=omitted[index]) for index, found in cycles.items()}


async def find_group(connection: Connection, log_id: int, group_id: UUID) -> int | None:
    """
    Return the index at which a group begins in the log; None if it is not in the log.
    """
    row = await (
        await connection.execute(QUERIES["index_of_group"], {"log_id": log_id, "group_id": group_id})
    ).fetchone()
    return None if row is None else int(row[0])


def edge_of(row: Sequence[Any]) -> LineageEdge:
    """Return the edge of a row of the query `upstream` or `downstream`, behind its hops."""
    return LineageEdge(**dict(zip(LineageEdge.__dataclass_fields__, row, strict=True)))


def column_of(row: Sequence[Any]) -> ColumnLineage:
    """Return the column edge of a row of the query `columns_of`."""
    return ColumnLineage(**dict(zip(ColumnLineage.__dataclass_fields__, row, strict=True)))


def cycle_of(row: Sequence[Any]) -> Cycle:
    """Return the refused edge of a row of the query `cycles_of`."""
    values = dict(zip(Cycle.__dataclass_fields__, row, strict=True))
    return Cycle(**values | {"path": tuple(values["path"])})
