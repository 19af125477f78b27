# SPDX-License-Identifier: Apache-2.0
"""
Reads a tenant's graph, always as that tenant's reader role.

`open_graph` finds the graph from the role of the connection, so no caller can name another tenant's graph. That role
may read the tables of its own graph and nothing more, so it cannot write. Queries are files of `sql/`; values are one
bind parameter. Traversals go 3 hops by default, and 5 at most.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast

from psycopg import sql

from ledger.errors import FormatError
from ledger.format.canonical import Json
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.errors import NotProjectedError, ProjectionError, UnknownTableError
from projections.graph.answers import COLUMNS, EACH_MAX, WRITES, PolicyVersion, TableAnswers, answers_of, versions_of
from projections.graph.labels import VERTICES, EdgeLabel, VertexLabel
from projections.graph.projection import GRAPH
from projections.graph.scan_coverage import SCANS_MAX, ScanCoverage, coverage_of
from projections.graph.write import ALL_VERTICES, QUERIES, agtype, compose, graph_name
from projections.keys import bounded_key, bounded_name
from projections.lineage.read import read_omitted
from projections.lineage.runs import Omitted
from projections.relational.table_names import QUERIES as NAMES

CYPHER: Final = load_queries("projections", "graph.cypher")

HOPS: Final = 3
HOPS_MAX: Final = 5
ROWS_MAX: Final = 1_000
INDEX_END: Final = 2**53 - 1
"""Above every index."""

_QUOTE: Final = "$lakeproof$"
_COLUMN: Final = re.compile(r"[a-z][a-z_]{0,62}")
_STRING_OR_SUFFIX: Final = re.compile(r'"(?:[^"\\]|\\.)*"|::[a-z]+')
_LABEL_OF_KEY: Final = {kind.key: label for label, kind in VERTICES.items()}


class Direction(StrEnum):
    """Which way edges are followed."""

    OUT = "out"
    IN = "in"


_PART: Final = {Direction.OUT: "edges_out", Direction.IN: "edges_in"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """
    Who wrote what, under which policy.

    `target` is the event key of the table, view or namespace; `decided_by` the policy or rule that was the reason (two
    if one of each has that id and version); `in_force` all it was judged by. `outcome` is None until it is settled, and
    for what was not approved; `principal` where its payload part was erased.
    """

    index: int
    recorded_at: str
    actor: str
    principal: str | None
    operation: str
    target: str
    decision: str
    outcome: str | None
    decided_by: tuple[PolicyVersion, ...]
    in_force: tuple[PolicyVersion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A vertex that a traversal came to, with its least distance from the start `origin` (a key)."""

    label: VertexLabel
    key: str
    hops: int
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTable:
    """
    What the graph knows of a table; `renamed_to` is the key of what it is called now, if that is another one.

    `is_dropped` if the last that is known of it is that it was dropped, or that another table has its name.
    """

    table_uuid: str | None
    renamed_to: str | None
    is_dropped: bool


class Graph:
    """The live graph of one tenant, for the rest of the transaction it was opened in."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name

    async def query(
        self, cypher: str, columns: Sequence[str], parameters: Mapping[str, Json] | None = None
    ) -> list[tuple[Json, ...]]:
        """
        Return the rows of an openCypher query of ours; its text is trusted, its `$parameters` need not be.

        Vertices, edges and paths come as the objects and lists that AGE shows.

        Raises:
            ProjectionError: if a column's name is not a plain word.
            psycopg.Error: if the query is wrong, or would write.
        """
        if _QUOTE in cypher or not all(_COLUMN.fullmatch(column) for column in columns):
            raise ProjectionError(f"openCypher query: expected plain column names and no {_QUOTE}, found {columns}")
        query = compose(
            "cypher",
            graph=sql.Literal(self.name),
            # AGE takes the query as a dollar-quoted constant and nothing else.
            cypher=sql.SQL(f"{_QUOTE} {cypher} {_QUOTE}".replace("%", "%%")),
            columns=sql.SQL(", ").join(
                sql.SQL("{} ag_catalog.agtype").format(sql.Identifier(column)) for column in columns
            ),
        )
        cursor = await self._connection.execute(query, {"parameters": agtype(dict(parameters or {}))})
        return [tuple(parse_agtype(value) for value in row) for row in await cursor.fetchall()]

    async def writes(self, *, target: str | None = None, before: int = INDEX_END, limit: int = 100) -> list[Write]:
        """
        Return the last writes before index `before`, newest first: of one event key `target`, or of all.
        """
        query, parameters = "writes", dict[str, Json](before=before, limit=min(limit, ROWS_MAX))
        if target is not None:
            query, parameters["key"] = "writes_of_target", bounded_key(target)
        rows = await self.query(CYPHER[query], _WRITE_COLUMNS, parameters)
        return [_write(row) for row in rows]

    async def answers(self, table_key: str) -> TableAnswers:
        """
        Return who wrote a table, from what it was made, which policy allowed it, what was found in it, who reads it.

        `table_key` is its event key. One openCypher query; each answer is of the latest so many (`graph/answers.py`).

        Raises:
            UnknownTableError: if the graph has no such table.
        """
        table = await self.table(table_key)
        parameters: dict[str, Json] = {"key": bounded_key(table_key), "writes": WRITES, "limit": EACH_MAX}
        (row,) = await self.query(CYPHER["answers"], COLUMNS, parameters)
        omitted = await self.omitted([table_key])
        return answers_of(row, await self.evidence(table_key, table), omitted.get(bounded_key(table_key)))

    async def table(self, table_key: str) -> KnownTable:
        """
        Return the table of an event key.

        Raises:
            UnknownTableError: if the graph has no such table.
        """
        rows = await self.query(CYPHER["table"], ["key", "table_uuid"], {"key": bounded_key(table_key)})
        if not rows:
            raise await self._unknown(table_key)
        table_uuid = rows[0][1]
        called, is_current = table_key, True
        if isinstance(table_uuid, str):
            parameters = {"projection": GRAPH, "table_uuid": bounded_name(table_uuid)}
            row = await (await self._connection.execute(NAMES["called"], parameters)).fetchone()
            called, is_current = (table_key, True) if row is None or row[0] is None else row
        return KnownTable(
            table_uuid=table_uuid if isinstance(table_uuid, str) else None,
            renamed_to=None if called == table_key else called,
            is_dropped=not is_current,
        )

    async def evidence(self, table_key: str, table: KnownTable) -> ScanCoverage:
        """
        Return what is known of the scans of a table, on which "nothing was found" rests.
        """
        query = compose(
            "scanned",
            tables=sql.Identifier(self.name, VertexLabel.TABLE.value),
            has_snapshot=sql.Identifier(self.name, EdgeLabel.HAS_SNAPSHOT.value),
            snapshots=sql.Identifier(self.name, VertexLabel.SNAPSHOT.value),
            scanned=sql.Identifier(self.name, EdgeLabel.SCANNED.value),
            runs=sql.Identifier(self.name, VertexLabel.DETECTION_RUN.value),
        )
        key = bounded_key(table_key)
        cursor = await self._connection.execute(query, {"key": agtype(key), "table_uuid": table.table_uuid})
        parameters: dict[str, Json] = {"key": key, "table_uuid": table.table_uuid, "limit": SCANS_MAX}
        unread = await self.query(CYPHER["unread_columns"], ["count", "unread"], parameters)
        return coverage_of(await cursor.fetchall(), unread)

    async def _unknown(self, table_key: str) -> UnknownTableError:
        row = await (await self._connection.execute(NAMES["nameless"], {"projection": GRAPH})).fetchone()
        return UnknownTableError(table_key, nameless=0 if row is None else int(row[0]))

    async def reach(
        self,
        start: VertexLabel,
        key: str,
        edges: Sequence[EdgeLabel],
        *,
        direction: Direction = Direction.OUT,
        hops: int = HOPS,
        limit: int = ROWS_MAX,
    ) -> list[Reached]:
        """
        Return what lies within `hops` (at most 5) edges of the given labels from the vertex `key`, nearest first.

        Raises:
            ProjectionError: if `hops` is not 1 to 5, or no edge label is given.
        """
        return await self.walk(start, [key], [(edge, direction) for edge in edges], hops=hops, limit=limit)

    async def walk(
        self,
        start: VertexLabel | None,
        keys: Sequence[str],
        steps: Sequence[tuple[EdgeLabel, Direction]],
        *,
        ends: Sequence[VertexLabel] = tuple(VertexLabel),
        hops: int = HOPS,
        limit: int = ROWS_MAX,
    ) -> list[Reached]:
        """
        Return the vertices of labels `ends` within `hops` (at most 5) steps from each of the vertices `keys`.

        `start` is their label, None for several. A step follows edges of one label in one direction. Nearest first.

        Raises:
            ProjectionError: if `hops` is not 1 to 5, or no step is given.
        """
        check_hops(hops)
        if not steps:
            raise ProjectionError("traversal: expected steps over one edge label or more, found none")
        query = compose(
            "walk",
            label=sql.Identifier(self.name, ALL_VERTICES if start is None else start.value),
            vertices=sql.Identifier(self.name, ALL_VERTICES),
            edges=sql.SQL(" UNION ALL ").join(
                compose(
                    _PART[direction],
                    label=sql.Identifier(self.name, edge.value),
                    cost=sql.Literal(0 if edge is EdgeLabel.RENAMED_TO else 1),
                )
                for edge, direction in steps
            ),
        )
        parameters = {
            "keys": agtype([bounded_key(key) for key in keys]),
            "kinds": [VERTICES[label].key for label in ends],
            "hops": hops,
            "limit": min(limit, ROWS_MAX),
        }
        rows = await (await self._connection.execute(query, parameters)).fetchall()
        return [
            Reached(label=_LABEL_OF_KEY[key.partition(":")[0]], key=key, hops=hops, origin=origin)
            for origin, key, hops in rows
        ]

    async def omitted(self, keys: Sequence[str]) -> dict[str, Omitted]:
        """
        Return what lineage events reported of these tables and data sets and is not drawn, by key.
        """
        return await read_omitted(self._connection, {bounded_key(key) for key in keys}, projection=GRAPH)


def check_hops(hops: int) -> None:
    """
    Check that a traversal is bounded.

    Raises:
        ProjectionError: if `hops` is not 1 to 5.
    """
    if not 1 <= hops <= HOPS_MAX:
        raise ProjectionError(f"traversal: expected 1 to {HOPS_MAX} hops, found {hops}")


async def open_graph(connection: Connection) -> Graph:
    """
    Return the live graph of the tenant whose reader role `connection` works as, in an open transaction.

    Raises:
        NotProjectedError: if the role is no tenant's reader, or its graph has not been made yet.
    """
    row = await (await connection.execute(QUERIES["live_graph"], {"projection": GRAPH})).fetchone()
    if row is None:
        raise NotProjectedError("expected to work as a tenant's reader role, found another: take that role first")
    tenant, generation = row
    if generation is None:
        raise NotProjectedError(f"graph of tenant {tenant}: expected one, no runner has seen this log yet")
    await connection.execute(QUERIES["settings"])
    return Graph(connection, graph_name(tenant, generation))


def parse_agtype(text: str | None) -> Json:
    """
    Return the value that AGE shows as `text`; the suffixes of vertices, edges and paths are left out.

    Raises:
        FormatError: if it is none.
    """
    if text is None:
        return None
    bare = _STRING_OR_SUFFIX.sub(lambda match: match[0] if match[0].startswith('"') else "", text)
    try:
        return cast("Json", json.loads(bare))
    except (ValueError, RecursionError) as error:
        raise FormatError("agtype", expected="JSON with type suffixes", found=text) from error


_WRITE_COLUMNS: Final = (
    *("index", "recorded_at", "actor", "principal", "operation", "target", "decision", "outcome"),
    *("decided_by", "policies", "rules"),
)


def _write(row: tuple[Any, ...]) -> Write:
    values = dict(zip(_WRITE_COLUMNS, row, strict=True))
    in_force = versions_of(values.pop("policies")) + versions_of(values.pop("rules"))
    return Write(**{**values, "decided_by": versions_of(values["decided_by"]), "in_force": in_force})
