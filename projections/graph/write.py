# SPDX-License-Identifier: Apache-2.0
"""
Writes a graph: creates its labels, then writes vertices and edges in batches, directly into AGE's label tables.

Values are bound as JSON and become agtype. Names of graphs and labels are our own and are composed as identifiers. A
generation has one writer at a time (its cursor's transaction), so an upsert never waits. A graph is never renamed,
because its tables hold its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncCursor, sql

from ledger.errors import NotCanonicalError
from ledger.format.canonical import Json
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.entries import PrincipalsErased
from projections.graph.agtype import agtype
from projections.graph.changes import JUDGING, OF_TABLE, Edge, GraphChanges, Vertex, governing_edges, is_in_force
from projections.graph.labels import EdgeLabel, VertexLabel, vertex_key
from projections.graph.policy_scope import TableWrite
from projections.keys import bounded_key
from projections.processing.digest import GenerationDigest
from projections.processing.projection import iterate_rows

QUERIES: Final = load_queries("projections", "graph.sql")
COMPOSED_CACHED: Final = 4_096
"""Queries on labels, some ten of each graph that is written."""
ALL_VERTICES: Final = "_ag_label_vertex"
"""AGE's parent of all vertex tables."""


def graph_name(tenant: UUID, generation: int) -> str:
    """
    Return the name of a tenant's graph: g_<32 hex digits>_<generation>, under PostgreSQL's 63 bytes.
    """
    return f"g_{tenant.hex}_{generation}"


def compose(name: str, **names: sql.Composable) -> sql.Composed:
    """
    Return the query `name` of `graph.sql` with its placeholders replaced by `names`.
    """
    return sql.SQL(QUERIES[name]).format(**names)


@lru_cache(maxsize=COMPOSED_CACHED)
def _on_label(name: str, graph: str, label: str) -> str:
    """Return the query `name` of `graph.sql` on one label of a graph."""
    return compose(name, label=sql.Identifier(graph, label)).as_string(None)


async def create_graph(connection: Connection, graph: str, *, reader: str) -> None:
    """
    Create an empty graph with all labels and indexes, which the role `reader` may read.

    Some two hundred statements are sent as one message: one by one, waiting for the answers takes longer than the work.
    """
    await connection.execute(sql.SQL(";\n").join(_creation(graph, reader)))


def _creation(graph: str, reader: str) -> Iterator[sql.Composable]:
    """Yield the statements that create a graph, in order."""
    yield sql.SQL(QUERIES["settings"])
    yield compose("create_graph", graph=sql.Literal(graph))
    for vertex_label in VertexLabel:
        yield compose("create_vertex_label", graph=sql.Literal(graph), label=sql.Literal(vertex_label.value))
        yield compose("vertex_key_index", label=sql.Identifier(graph, vertex_label.value))
    for edge_label in EdgeLabel:
        yield compose("create_edge_label", graph=sql.Literal(graph), label=sql.Literal(edge_label.value))
        yield compose("edge_ends_index", label=sql.Identifier(graph, edge_label.value))
        yield compose("edge_starts_index", label=sql.Identifier(graph, edge_label.value))
        own = {each: sql.Identifier(graph, f"{edge_label.value}_{each[:-1]}_id_idx") for each in ("starts", "ends")}
        yield compose("drop_own_indexes", **own)
    write_events = sql.Identifier(graph, VertexLabel.WRITE_EVENT.value)
    yield compose("write_event_index", label=write_events)
    yield compose("no_samples", label=write_events)
    for of_table in OF_TABLE:
        yield compose("table_uuid_index", label=sql.Identifier(graph, of_table.value))
    names = {"graph": sql.Identifier(graph), "reader": sql.Identifier(reader)}
    yield compose("grant_schema", **names)
    yield compose("grant_tables", **names)


async def drop_graph(connection: Connection, graph: str) -> None:
    """
    Drop a graph with all its vertices and edges.
    """
    await connection.execute(QUERIES["drop_graph"], {"graph": graph})


async def write_changes(connection: Connection, graph: str, changes: GraphChanges) -> None:
    """
    Write `changes` to a graph: upsert vertices and edges, then erase principals.

    Properties of a vertex or edge that exists already are merged: those in `changes` replace those of the same name.
    """
    known = await _if_there(connection, graph, changes)
    ids = await _write_vertices(connection, graph, {**changes.vertices, **known})
    edges: dict[EdgeLabel, list[Json]] = {}
    for edge, end in (await _in_force(connection, graph, changes)).items():
        edges.setdefault(edge.label, []).append([ids[edge.start], end, {}])
    for edge, start in (await _governing(connection, graph, changes)).items():
        edges.setdefault(edge.label, []).append([start, ids[edge.end], {}])
    for edge, properties in changes.edges.items():
        edges.setdefault(edge.label, []).append([ids[edge.start], ids[edge.end], properties])
    async with connection.pipeline():
        for label, between in edges.items():
            await connection.execute(_on_label("upsert_edges", graph, label), {"edges": agtype(between)})
    if changes.erased:
        await _erase_principals(connection, graph, changes.erased)


async def _erase_principals(connection: Connection, graph: str, erased: Iterable[PrincipalsErased]) -> None:
    """Remove the principal from every selected WriteEvent. Erasures are rare, so they may scan the table."""
    tables = {
        "write_events": sql.Identifier(graph, VertexLabel.WRITE_EVENT.value),
        "wrote": sql.Identifier(graph, EdgeLabel.WROTE.value),
        "people": sql.Identifier(graph, VertexLabel.PERSON.value),
    }
    rows: list[Json] = [
        {**each.row(), "person": each.actor and vertex_key(VertexLabel.PERSON, each.actor)} for each in erased
    ]
    await connection.execute(compose("erase_principals", **tables), {"rows": agtype(rows)})


async def _write_vertices(
    connection: Connection, graph: str, changed: Mapping[Vertex, Mapping[str, Json]]
) -> dict[Vertex, str]:
    """Upsert vertices, one statement per label in one pipeline; return their graph ids."""
    by_label: dict[VertexLabel, list[Vertex]] = {}
    for vertex in changed:
        by_label.setdefault(vertex.label, []).append(vertex)
    written: list[tuple[list[Vertex], AsyncCursor[Any]]] = []
    async with connection.pipeline():
        for label, vertices in by_label.items():
            query = _on_label("upsert_vertices", graph, label)
            rows = agtype([{**changed[vertex], "key": vertex.key} for vertex in vertices])
            written.append((vertices, await connection.execute(query, {"properties": rows})))
    return {vertices[place - 1]: id_ for vertices, cursor in written for place, id_ in await cursor.fetchall()}


async def _if_there(connection: Connection, graph: str, changes: GraphChanges) -> dict[Vertex, Mapping[str, Json]]:
    """Return those of `changes.if_there` that the graph has."""
    found: dict[Vertex, Mapping[str, Json]] = {}
    for label in dict.fromkeys(vertex.label for vertex in changes.if_there):
        vertices = [vertex for vertex in changes.if_there if vertex.label is label]
        keys = agtype([vertex.key for vertex in vertices])
        rows = await connection.execute(_on_label("versions", graph, label), {"keys": keys})
        found |= {vertices[place - 1]: changes.if_there[vertices[place - 1]] for place, *_ in await rows.fetchall()}
    return found


async def _in_force(connection: Connection, graph: str, changes: GraphChanges) -> dict[Edge, str]:
    """Return the edges whose end vertex was in force at the index of the edge, each with the graph id of that end."""
    by_label: dict[VertexLabel, list[Edge]] = {}
    for edge in changes.edges_if_in_force:
        by_label.setdefault(edge.end.label, []).append(edge)
    ends: dict[Edge, str] = {}
    for label, edges in by_label.items():
        keys = agtype([edge.end.key for edge in edges])
        rows = await connection.execute(_on_label("versions", graph, label), {"keys": keys})
        for place, id_, from_index, to_index in await rows.fetchall():
            edge = edges[place - 1]
            if is_in_force(from_index, to_index, as_of=changes.edges_if_in_force[edge]):
                ends[edge] = id_
    return ends


async def _governing(connection: Connection, graph: str, changes: GraphChanges) -> dict[Edge, str]:
    """Return the edges from policies that governed a table as of its index, each with the graph id of the policy."""
    if not changes.governed:
        return {}
    tables: dict[int, list[tuple[Vertex, TableWrite]]] = {}
    for table, as_of, write in changes.governed:
        tables.setdefault(as_of, []).append((table, write))
    edges: dict[Edge, str] = {}
    for label in JUDGING:
        query = _on_label("policies_in_force", graph, label)
        rows = await connection.execute(query, {"as_of": sorted(tables)})
        for as_of, id_, key, governs, scope in await rows.fetchall():
            policy = Vertex(label, key)
            for table, write in tables[as_of]:
                for edge in governing_edges(policy, _json(governs), _json(scope), table, write):
                    edges[edge] = id_
    return edges


def _json(text: str | None) -> Json:
    """Return a property, null if the vertex has none of that name."""
    value: Json = None if text is None else json.loads(text)
    return value


async def read_table_uuids(connection: Connection, graph: str, keys: Iterable[str]) -> dict[str, str]:
    """
    Return the uuids of the tables `keys`, by bounded key; tables without a uuid in the graph are left out.
    """
    bounded = sorted({bounded_key(key) for key in keys})
    if not bounded:
        return {}
    query = compose("table_uuids", label=sql.Identifier(graph, VertexLabel.TABLE.value))
    rows = await connection.execute(query, {"keys": agtype(list(bounded))})
    return {bounded[place - 1]: table_uuid for place, table_uuid in await rows.fetchall() if table_uuid is not None}


async def read_things(
    connection: Connection, graph: str, table_uuids: Iterable[str]
) -> dict[str, dict[Vertex, Mapping[str, Json]]]:
    """
    Return the snapshots and classifications of tables: by table uuid, each vertex with its properties.
    """
    uuids = sorted(table_uuids)
    things: dict[str, dict[Vertex, Mapping[str, Json]]] = {table_uuid: {} for table_uuid in uuids}
    if not uuids:
        return things
    for label in OF_TABLE:
        query = compose("things_of_tables", label=sql.Identifier(graph, label.value))
        rows = await connection.execute(query, {"table_uuids": agtype(list(uuids))})
        for place, properties in await rows.fetchall():
            read = json.loads(properties)
            things[uuids[place - 1]][Vertex(label, read.pop("key"))] = read
    return things


async def digest_graph(connection: Connection, graph: str, digest: GenerationDigest) -> None:
    """
    Add every vertex and edge of a graph to `digest`, ordered by label and natural key; AGE's ids do not count.
    """
    vertices = sql.Identifier(graph, ALL_VERTICES)
    for vertex_label in VertexLabel:
        query = compose("digest_vertices", label=sql.Identifier(graph, vertex_label.value))
        async for rows in iterate_rows(connection, query):
            for (properties,) in rows:
                _add(digest, vertex_label, (), properties)
    for edge_label in EdgeLabel:
        query = compose("digest_edges", label=sql.Identifier(graph, edge_label.value), vertices=vertices)
        async for rows in iterate_rows(connection, query):
            for start, end, properties in rows:
                _add(digest, edge_label, (start, end), properties)


def digest_changes(changes: GraphChanges, digest: GenerationDigest) -> None:
    """
    Add to `digest` what `digest_graph` would add for a graph that holds exactly `changes`; needs no database.
    """
    for vertex_label in VertexLabel:
        for vertex in _sorted(vertex for vertex in changes.vertices if vertex.label is vertex_label):
            digest.add(vertex_label, {**changes.vertices[vertex], "key": vertex.key})
    edges: dict[Edge, Mapping[str, Json]] = {**{edge: {} for edge in changes.edges_in_force()}, **changes.edges}
    for edge_label in EdgeLabel:
        labelled = (edge for edge in edges if edge.label is edge_label)
        for edge in sorted(labelled, key=lambda edge: (edge.start.key, edge.end.key)):
            digest.add(edge_label, edge.start.key, edge.end.key, edges[edge])


def _sorted(vertices: Iterable[Vertex]) -> list[Vertex]:
    return sorted(vertices, key=lambda vertex: vertex.key)


def _add(digest: GenerationDigest, label: str, ends: tuple[str | None, ...], properties: str) -> None:
    try:
        members: Mapping[str, Json] = json.loads(properties)
        digest.add(label, *ends, members)
    except (ValueError, NotCanonicalError):
        # Nothing of ours wrote that; it counts as the text that AGE shows, so that the digests differ.
        digest.add(label, *ends, properties)
