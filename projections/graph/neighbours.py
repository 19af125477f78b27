# SPDX-License-Identifier: Apache-2.0
"""
Vertices of a tenant's graph and their edges, of many vertices in one statement; always as that tenant's reader role.

Edges are in the order of their label, their direction, and the key at their other end, for which there is no index: of
a table that has thousands of snapshots, all of these are read for one page. So edges are counted first, which an index
does, and then those labels alone are read that make the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import sql

from ledger.format.canonical import Json
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.graph.agtype import agtype
from projections.graph.labels import VERTICES, EdgeLabel, VertexLabel
from projections.graph.walking import Direction, Step, far, near
from projections.keys import bounded_key

QUERIES: Final = load_queries("projections", "neighbours.sql")
ROWS_MAX: Final = 1_000
_LABEL_OF_KIND: Final = {kind.key: label for label, kind in VERTICES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVertex:
    """A vertex: its key, what else it holds, and its id, which is good for this graph alone."""

    id: str
    label: VertexLabel
    key: str
    properties: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEdge:
    """
    An edge of a vertex, and the vertex at its other end: `OUT` if it begins at the first one.

    `place` is where it stands in the order of the first one's edges; it holds in every graph of the tenant.
    """

    label: EdgeLabel
    direction: Direction
    vertex: FoundVertex
    place: str


async def read_vertices(connection: Connection, graph: str, keys: Sequence[str]) -> list[FoundVertex | None]:
    """
    Return the vertices of some keys, in their order; None for each that the graph does not have.
    """
    by_label: dict[VertexLabel, list[Json]] = {}
    for key in dict.fromkeys(map(bounded_key, keys)):
        if (label := _LABEL_OF_KIND.get(key.partition(":")[0])) is not None:
            by_label.setdefault(label, []).append(key)
    if not by_label:
        return [None] * len(keys)
    parts = [
        _compose("vertices_of_keys", label=sql.Identifier(graph, label.value), keys=sql.Placeholder(label.value))
        for label in by_label
    ]
    given = {label.value: agtype(of_label) for label, of_label in by_label.items()}
    rows = await (await connection.execute(sql.SQL(" UNION ALL ").join(parts), given)).fetchall()
    found = {key: _vertex(id_, properties) for key, id_, properties in rows}
    return [found.get(bounded_key(key)) for key in keys]


async def read_vertices_of_label(
    connection: Connection, graph: str, label: VertexLabel, *, after: str, limit: int
) -> list[FoundVertex]:
    """
    Return vertices of one label in the order of their keys, from behind the key `after` on.
    """
    query = _compose("vertices_of_label", label=sql.Identifier(graph, label.value))
    rows = await connection.execute(query, {"after": agtype(after), "limit": min(limit, ROWS_MAX)})
    return [_vertex(id_, properties) for id_, properties in await rows.fetchall()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A vertex whose edges are asked for: those that stand behind the place `after`."""

    id: str
    label: VertexLabel
    after: str


async def read_edges(
    connection: Connection,
    graph: str,
    starts: Sequence[Start],
    *,
    labels: Sequence[EdgeLabel],
    directions: Sequence[Direction],
    limit: int,
) -> list[list[FoundEdge]]:
    """
    Return the edges of some vertices, each at most `limit`, in the order of their places.
    """
    limit = min(limit, ROWS_MAX)
    every = ((label, direction) for label in labels for direction in directions)
    steps = sorted((step for step in every if any(each.label in near(*step) for each in starts)), key=_prefix)
    found: list[list[FoundEdge]] = [[] for _ in starts]
    counted = await _count(connection, graph, starts, steps, limit=limit)
    steps = [step for step in steps if step in counted]
    while steps and any(len(each) < limit for each in found):
        enough = _enough(steps, counted, [limit - len(each) for each in found])
        for number, edge in await _read(connection, graph, starts, steps[:enough], limit=limit):
            if len(found[number]) < limit:
                found[number].append(edge)
        steps = steps[enough:]
    return found


def _prefix(step: Step) -> str:
    """Return how the places of edges begin: no such text begins another one."""
    label, direction = step
    return f"{label.value} {direction.value} "


async def _count(
    connection: Connection, graph: str, starts: Sequence[Start], steps: Sequence[Step], *, limit: int
) -> dict[Step, dict[int, int]]:
    """
    Return how many edges are certainly behind the places of the starts, by step and number of the start, each up to
    `limit`; 0 where there may be some.
    """
    if not steps:
        return {}
    parts = [
        _compose(f"counted_{direction.value}", label=sql.Identifier(graph, label.value), step=sql.Literal(number))
        for number, (label, direction) in enumerate(steps)
    ]
    query = _compose("edges_counted", counts=sql.SQL(" UNION ALL ").join(parts))
    rows = await connection.execute(query, {"ids": [each.id for each in starts], "limit": limit})
    found: dict[Step, dict[int, int]] = {}
    for place, number, count in await rows.fetchall():
        prefix, after = _prefix(steps[number]), starts[place - 1].after
        if after.startswith(prefix):
            found.setdefault(steps[number], {})[place - 1] = 0
        elif prefix > after:
            found.setdefault(steps[number], {})[place - 1] = count
    return found


def _enough(steps: Sequence[Step], counted: Mapping[Step, Mapping[int, int]], rooms: Sequence[int]) -> int:
    """Return how many of the first steps lead to as many edges of each start as there is room for; all, if not."""
    left = list(rooms)
    for place, step in enumerate(steps, start=1):
        for number, count in counted[step].items():
            left[number] -= count
        if max(left) <= 0:
            return place
    return len(steps)


async def _read(
    connection: Connection, graph: str, starts: Sequence[Start], steps: Sequence[Step], *, limit: int
) -> list[tuple[int, FoundEdge]]:
    """Return edges along `steps`, each with the number of its start."""
    parts: list[sql.Composed] = []
    for number, (label, direction) in enumerate(steps):
        ends = [
            _compose("vertex_of_end", label=sql.Identifier(graph, end.value)) for end in sorted(far(label, direction))
        ]
        parts.append(
            _compose(
                f"edges_{direction.value}",
                label=sql.Identifier(graph, label.value),
                step=sql.Literal(number),
                prefix=sql.Literal(_prefix((label, direction))),
                vertices=sql.SQL(" UNION ALL ").join(ends),
            )
        )
    query = _compose("neighbours", edges=sql.SQL(" UNION ALL ").join(parts))
    where = {"ids": [each.id for each in starts], "afters": [each.after for each in starts], "limit": limit}
    rows = await connection.execute(query, where)
    found: list[tuple[int, FoundEdge]] = []
    for place, number, id_, properties, at in await rows.fetchall():
        label, direction = steps[number]
        found.append(
            (place - 1, FoundEdge(label=label, direction=direction, vertex=_vertex(id_, properties), place=at))
        )
    return found


def _compose(name: str, **names: sql.Composable) -> sql.Composed:
    return sql.SQL(QUERIES[name]).format(**names)


def _vertex(id_: str, properties: str) -> FoundVertex:
    read: dict[str, Any] = json.loads(properties)
    key = str(read.pop("key"))
    return FoundVertex(id=id_, label=_LABEL_OF_KIND[key.partition(":")[0]], key=key, properties=read)
