# SPDX-License-Identifier: Apache-2.0
"""
Vertices of a tenant's graph and their edges, of many vertices in one statement; always as that tenant's reader role.
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
from projections.graph.walking import Direction
from projections.graph.write import ALL_VERTICES
from projections.keys import bounded_key

QUERIES: Final = load_queries("projections", "neighbours.sql")
ROWS_MAX: Final = 1_000
_LABEL_OF_KIND: Final = {kind.key: label for label, kind in VERTICES.items()}
_PARTS: Final = {Direction.OUT: "edges_from", Direction.IN: "edges_to"}


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


async def read_edges(
    connection: Connection,
    graph: str,
    starts: Sequence[tuple[str, str]],
    *,
    labels: Sequence[EdgeLabel],
    directions: Sequence[Direction],
    limit: int,
) -> list[list[FoundEdge]]:
    """
    Return the edges of some vertices, each at most `limit`: `starts` are their ids, each with the place behind which
    its edges begin.
    """
    parts = [
        _compose(_PARTS[direction], label=sql.Identifier(graph, label.value), text=sql.Literal(label.value))
        for label in labels
        for direction in directions
    ]
    query = _compose(
        "neighbours", edges=sql.SQL(" UNION ALL ").join(parts), vertices=sql.Identifier(graph, ALL_VERTICES)
    )
    where = {
        "ids": [id_ for id_, _ in starts],
        "afters": [after for _, after in starts],
        "limit": min(limit, ROWS_MAX),
    }
    found: list[list[FoundEdge]] = [[] for _ in starts]
    rows = await connection.execute(query, where)
    for place, label, direction, id_, properties, at in await rows.fetchall():
        edge = FoundEdge(
            label=EdgeLabel(label), direction=Direction(direction), vertex=_vertex(id_, properties), place=at
        )
        found[place - 1].append(edge)
    return found


def _compose(name: str, **names: sql.Composable) -> sql.Composed:
    return sql.SQL(QUERIES[name]).format(**names)


def _vertex(id_: str, properties: str) -> FoundVertex:
    read: dict[str, Any] = json.loads(properties)
    key = str(read.pop("key"))
    return FoundVertex(id=id_, label=_LABEL_OF_KIND[key.partition(":")[0]], key=key, properties=read)
