# SPDX-License-Identifier: Apache-2.0
"""
Reads from a graph what `answers.py` makes answers about a table of: the latest items of each kind.

Each is a statement of its own that follows the indexes of edges. One openCypher query would say the same, but AGE joins
whole tables of labels: its cost grows with the graph, and to plan it alone takes longer than all statements here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from psycopg import AsyncCursor, sql

from ledger.store.session import Connection
from projections.graph.agtype import agtype, parse_agtype
from projections.graph.answers import EACH_MAX, SNAPSHOTS_MAX, WRITES
from projections.graph.labels import EdgeLabel, VertexLabel
from projections.graph.write import compose

_V: Final = VertexLabel
_E: Final = EdgeLabel
_DATA: Final = (_V.TABLE, _V.VIEW, _V.DATASET)
_OF_RUNS: Final[Mapping[str, VertexLabel | EdgeLabel]] = {
    "runs": _V.RUN,
    "run_of": _E.RUN_OF,
    "pipelines": _V.PIPELINE,
    "ran_on": _E.RAN_ON,
    "engines": _V.ENGINE,
    "submitted": _E.SUBMITTED,
    "people": _V.PERSON,
}
_QUERIES: Final[Mapping[str, tuple[str, Mapping[str, VertexLabel | EdgeLabel]]]] = {
    "writes": (
        "last_writes",
        {
            "intended": _E.INTENDED_WRITE,
            "write_events": _V.WRITE_EVENT,
            "wrote": _E.WROTE,
            "people": _V.PERSON,
            "decided_by": _E.DECIDED_BY,
            "policies": _V.POLICY,
            "rules": _V.ACCESS_RULE,
        },
    ),
    "snapshots": ("last_snapshots", {"has_snapshot": _E.HAS_SNAPSHOT, "snapshots": _V.SNAPSHOT}),
    "sources": ("last_sources", {"lineage_of": _E.LINEAGE_OF}),
    "targets": ("last_targets", {"lineage_of": _E.LINEAGE_OF}),
    "made_by": ("last_runs", {**_OF_RUNS, "of_runs": _E.PRODUCED}),
    "read_by": ("last_runs", {**_OF_RUNS, "of_runs": _E.READ_FROM}),
    "schema_policies": ("last_policies", {"governs": _E.SCHEMA_GOVERNS, "policies": _V.POLICY}),
    "write_policies": ("last_policies", {"governs": _E.WRITE_GOVERNS, "policies": _V.POLICY}),
}
"""The query of each part, and the tables of the graph that it names."""
_FOUND: Final = "found"
"""The part that has a query of its own."""
_IN_COLUMNS: Final = {
    "has_column": _E.HAS_COLUMN,
    "columns": _V.COLUMN,
    "classified_as": _E.CLASSIFIED_AS,
    "classifications": _V.CLASSIFICATION,
}
FOUND_OF_COLUMN_MAX: Final = 1_000
FOUND_MAX: Final = 10_000
"""Findings that are counted: the last ones of each column, and as many of a table."""


async def ask_answers(
    connection: Connection, graph: str, *, id_: str, table_uuid: str | None
) -> dict[str, AsyncCursor[Any]]:
    """
    Ask for each part of the answers about the table whose vertex has this id: in a pipeline, all parts at once.
    """
    data = sql.SQL(" UNION ALL ").join(
        compose("data_of_id", kind=sql.Literal(agtype(label.value)), label=sql.Identifier(graph, label.value))
        for label in _DATA
    )
    parameters = {"id": id_, "writes": WRITES, "snapshots": SNAPSHOTS_MAX, "limit": EACH_MAX}
    parts = {_FOUND: await _ask_found(connection, graph, id_=id_, table_uuid=table_uuid, limit=EACH_MAX)}
    for part, (name, labels) in _QUERIES.items():
        tables = {of: sql.Identifier(graph, label.value) for of, label in labels.items()}
        parts[part] = await connection.execute(compose(name, **tables, data=data), parameters)
    return parts


async def rows_of_answers(parts: Mapping[str, AsyncCursor[Any]]) -> dict[str, list[Sequence[Any]]]:
    """
    Return the rows of each part that `ask_answers` has asked for.
    """
    rows: dict[str, list[Sequence[Any]]] = {}
    for part, cursor in parts.items():
        found = await cursor.fetchall()
        rows[part] = [row[1:] for row in found] if part == _FOUND else [[_value(each) for each in row] for row in found]
    return rows


async def read_found(
    connection: Connection, graph: str, key: str, *, table_uuid: str | None, limit: int
) -> list[tuple[Any, ...]]:
    """
    Return what was found in the columns of the table with this key: key and path of the column, kind, highest
    confidence, in how many snapshots, and reviews as `column_found` takes them; the most certain first.
    """
    query = compose("vertices_of_keys", label=sql.Identifier(graph, _V.TABLE.value))
    row = await (await connection.execute(query, {"keys": agtype([key])})).fetchone()
    if row is None:
        return []
    return await (await _ask_found(connection, graph, id_=str(row[0]), table_uuid=table_uuid, limit=limit)).fetchall()


async def _ask_found(
    connection: Connection, graph: str, *, id_: str, table_uuid: str | None, limit: int
) -> AsyncCursor[Any]:
    query = compose("found_in_columns", **{of: sql.Identifier(graph, label.value) for of, label in _IN_COLUMNS.items()})
    bounds = {"each": FOUND_OF_COLUMN_MAX, "all": FOUND_MAX, "limit": limit}
    return await connection.execute(query, {"id": id_, "table_uuid": table_uuid, **bounds})


def _value(value: Any) -> Any:
    """Return what a column holds: agtype is text here, and all else is as the driver has it."""
    return parse_agtype(value) if isinstance(value, str) else value
