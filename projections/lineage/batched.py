# SPDX-License-Identifier: Apache-2.0
"""
Lineage around many tables, in as many statements as around one: for answers that nest.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from ledger.format.canonical import Json
from ledger.store.session import Connection
from projections.entries import encode_json
from projections.keys import bounded_key
from projections.lineage.edges import QUERIES
from projections.lineage.read import HOPS_MAX, ROWS_MAX, ColumnLineage, Cycle, LineageEdge, column_of, cycle_of, edge_of
from projections.relational.batched import by_place


class Way(StrEnum):
    """Which way a walk goes: to what something was made from, or to what was made from it."""

    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"


async def read_edges_of_each(
    connection: Connection, log_id: int, keys: Sequence[str], way: Way, *, hops: int, limit: int
) -> list[list[LineageEdge]]:
    """
    Return the edges within `hops` (1 to 5) of some tables, one way: of each the nearest `limit`, as `read_lineage` has
    them. One statement a hop takes all of them a hop farther.
    """
    hops, limit = max(1, min(hops, HOPS_MAX)), min(limit, ROWS_MAX)
    found: list[list[LineageEdge]] = [[] for _ in keys]
    seen = [{bounded_key(key)} for key in keys]
    levels = list(seen)
    for distance in range(1, hops + 1):
        walks: list[Json] = [
            {"place": place, "keys": sorted(level)}
            for place, level in enumerate(levels)
            if level and len(found[place]) < limit
        ]
        if not walks:
            break
        where = {"log_id": log_id, "walks": encode_json(walks), "limit": limit}
        rows = await (await connection.execute(QUERIES[f"{way}_of_each"], where)).fetchall()
        reached: list[set[str]] = [set() for _ in keys]
        for place, *row in rows:
            if len(found[place]) == limit:
                continue
            edge = edge_of((distance, *row))
            found[place].append(edge)
            reached[place].add(edge.source if way is Way.UPSTREAM else edge.target)
        levels = [each - known for each, known in zip(reached, seen, strict=True)]
        seen = [known | level for known, level in zip(seen, levels, strict=True)]
    return found


async def read_columns_of_each(
    connection: Connection, log_id: int, keys: Sequence[str], *, limit: int
) -> list[list[ColumnLineage]]:
    """
    Return the column edges into and out of some tables, of each the first `limit`.
    """
    rows = await _rows(connection, "columns_of_each", log_id, keys, limit)
    return by_place(len(keys), [(place, column_of(row)) for place, *row in rows])


async def read_cycles_of_each(
    connection: Connection, log_id: int, keys: Sequence[str], *, limit: int
) -> list[list[Cycle]]:
    """
    Return the edges from and to some tables that were not drawn, of each the last `limit`.
    """
    rows = await _rows(connection, "cycles_of_each", log_id, keys, limit)
    return by_place(len(keys), [(place, cycle_of(row)) for place, *row in rows])


async def _rows(
    connection: Connection, query: str, log_id: int, keys: Sequence[str], limit: int
) -> list[tuple[Any, ...]]:
    where = {"log_id": log_id, "keys": [bounded_key(key) for key in keys], "limit": min(limit, ROWS_MAX)}
    return await (await connection.execute(QUERIES[query], where)).fetchall()
