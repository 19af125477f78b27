# SPDX-License-Identifier: Apache-2.0
"""
Reads a tenant's graph, always as that tenant's reader role.

`open_graph` finds the graph from the role of the connection, so no caller can name another tenant's graph. That role
may read the tables of its own graph and nothing more, so it cannot write. Queries are files of `sql/`; values are one
bind parameter. Traversals go 3 hops by default, and 5 at most.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import AsyncCursor, sql

from ledger.format.canonical import Json
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.errors import NotProjectedError, ProjectionError, UnknownTableError
from projections.graph.agtype import agtype, parse_agtype
from projections.graph.answering import ask_answers, read_found, rows_of_answers
from projections.graph.answers import PolicyVersion, TableAnswers, answers_of, versions_of
from projections.graph.labels import VERTICES, EdgeLabel, VertexLabel
from projections.graph.projection import GRAPH
from projections.graph.scan_coverage import SCANS_MAX, SNAPSHOTS_MAX, ScanCoverage, coverage_of
from projections.graph.walking import FAN_MAX, Direction, Reached, Walk
from projections.graph.write import QUERIES, compose, graph_name
from projections.keys import bounded_key, bounded_name
from projections.lineage.read import read_omitted
from projections.lineage.runs import Omitted
from projections.relational.table_names import QUERIES as NAMES

CYPHER: Final = load_queries("projections", "graph.cypher")

HOPS: Final = 3
HOPS_MAX: Final = 5
ROWS_MAX: Final = 1_000
INDEX_END: Final = 2**53 - 1
"""Larger than every index."""

_QUOTE: Final = "$lakeproof$"
_COLUMN: Final = re.compile(r"[a-z][a-z_]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """
    A decision on a request to write: who requested which write, which policies decided, and what came of it.

    `target` is the event key of the table, view or namespace. `decided_by` is the policy or access rule that decided
    (both, if a policy and a rule have that id and version); `in_force` are all that were applied. `outcome` is None
    until the write is settled, and for a write that was not approved. `principal` is None if its payload part was
    erased.
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
class KnownTable:
    """
    A table, looked up by an event key.

    `renamed_to` is its present key if that is another one, else None. `is_dropped` is True if it was dropped, or if
    another table has its name now. `table_uuid` is None if no event named it.
    """

    id: str
    """AGE's id of its vertex."""
    table_uuid: str | None
    renamed_to: str | None
    is_dropped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """What a walk reached, nearest first. `is_cut`: there may be more."""

    reached: list[Reached]
    is_cut: bool


class Graph:
    """The live graph of one tenant. Use it only within the transaction in which `open_graph` returned it."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name

    async def query(
        self, cypher: str, columns: Sequence[str], parameters: Mapping[str, Json] | None = None
    ) -> list[tuple[Json, ...]]:
        """
        Run an openCypher query and return its rows, one value per name in `columns`.

        The text of the query is trusted: never compose it from input. Its `$parameters` need not be. Vertices, edges
        and paths are returned as the JSON objects and lists in which AGE writes them.

        Raises:
            ProjectionError: if a column name is not a plain word, or the query contains the quote that encloses it.
            psycopg.Error: if the query is invalid, or would write.
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

    async def bound_time(self, timeout_s: int) -> None:
        """Let each statement from here to the end of the transaction take so many seconds."""
        await self._connection.execute(QUERIES["bound_time"], {"timeout": f"{timeout_s}s"})

    async def writes(self, *, target: str | None = None, before: int = INDEX_END, limit: int = 100) -> list[Write]:
        """
        Return the last writes with an index below `before`, newest first: of the event key `target`, or of all keys.

        At most `limit` are returned, and never more than 1,000.
        """
        query, parameters = "writes", dict[str, Json](before=before, limit=min(limit, ROWS_MAX))
        if target is not None:
            query, parameters["key"] = "writes_of_target", bounded_key(target)
        rows = await self.query(CYPHER[query], _WRITE_COLUMNS, parameters)
        return [_write(row) for row in rows]

    async def answers(self, table_key: str, *, known: KnownTable | None = None) -> TableAnswers:
        """
        Return who wrote a table, from what it was made, which policy allowed it, what was found in it, who reads it.

        `table_key` is its event key, `known` what `table` has returned for it, if it was asked. Each answer is limited
        to the latest items (`WRITES` and `EACH_MAX` of `graph/answers.py`), to which the indexes of edges lead.

        Raises:
            UnknownTableError: if the graph has no such table.
        """
        table, key = known or await self.table(table_key), bounded_key(table_key)
        async with self._connection.pipeline():
            parts = await ask_answers(self._connection, self.name, id_=table.id, table_uuid=table.table_uuid)
            scanned = await self._ask_scanned(table)
            omitted = await self.omitted([table_key])
        return answers_of(
            table=key,
            table_uuid=table.table_uuid,
            rows=await rows_of_answers(parts),
            evidence=await _coverage(scanned),
            omitted=omitted.get(key),
        )

    async def table(self, table_key: str) -> KnownTable:
        """
        Return the table with this event key, with its present name and state.

        Raises:
            UnknownTableError: if the graph has no such table.
        """
        query = compose("table", label=sql.Identifier(self.name, VertexLabel.TABLE.value))
        rows = await (await self._connection.execute(query, {"key": agtype(bounded_key(table_key))})).fetchall()
        if not rows:
            raise await self._unknown(table_key)
        ((id_, table_uuid),) = rows
        called, is_current = table_key, True
        if table_uuid is not None:
            parameters = {"projection": GRAPH, "table_uuid": bounded_name(table_uuid)}
            row = await (await self._connection.execute(NAMES["called"], parameters)).fetchone()
            called, is_current = (table_key, True) if row is None or row[0] is None else row
        return KnownTable(
            id=id_,
            table_uuid=table_uuid,
            renamed_to=None if called == table_key else called,
            is_dropped=not is_current,
        )

    async def columns(self, table_keys: Sequence[str]) -> list[str]:
        """
        Return the keys of the columns of some tables that anything is known of, at most 1,000 for each table.
        """
        labels = {"tables": VertexLabel.TABLE, "has_column": EdgeLabel.HAS_COLUMN, "columns": VertexLabel.COLUMN}
        query = compose("columns", **{of: sql.Identifier(self.name, label.value) for of, label in labels.items()})
        parameters = {"keys": agtype([bounded_key(key) for key in table_keys]), "limit": ROWS_MAX * len(table_keys)}
        return [key for (key,) in await (await self._connection.execute(query, parameters)).fetchall()]

    async def evidence(self, table: KnownTable) -> ScanCoverage:
        """
        Return which snapshots and columns of a table were scanned: without scans, "nothing was found" means nothing.
        """
        return await _coverage(await self._ask_scanned(table))

    async def _ask_scanned(self, table: KnownTable) -> AsyncCursor[Any]:
        query = compose(
            "scanned",
            has_snapshot=sql.Identifier(self.name, EdgeLabel.HAS_SNAPSHOT.value),
            snapshots=sql.Identifier(self.name, VertexLabel.SNAPSHOT.value),
            scanned=sql.Identifier(self.name, EdgeLabel.SCANNED.value),
            runs=sql.Identifier(self.name, VertexLabel.DETECTION_RUN.value),
        )
        where = {"id": table.id, "table_uuid": table.table_uuid, "snapshots": SNAPSHOTS_MAX, "scans": SCANS_MAX}
        return await self._connection.execute(query, where)

    async def found(self, table_key: str, table_uuid: str | None, *, limit: int = ROWS_MAX) -> list[tuple[Any, ...]]:
        """
        Return what was found in the columns of a table: key and path of the column, kind, confidence, snapshots,
        reviews.
        """
        return await read_found(
            self._connection, self.name, bounded_key(table_key), table_uuid=table_uuid, limit=min(limit, ROWS_MAX)
        )

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
        Return the vertices within `hops` edges of the vertex with label `start` and key `key`, nearest first.

        Only edges with one of the labels `edges` are followed, all in the same direction. At most `limit` vertices are
        returned, and never more than 1,000.

        Raises:
            ProjectionError: if `hops` is not 1 to 5, or `edges` is empty.
        """
        steps = [(edge, direction) for edge in edges]
        return (await self.walk(start, [key], steps, hops=hops, limit=limit)).reached

    async def walk(
        self,
        start: VertexLabel | None,
        keys: Sequence[str],
        steps: Sequence[tuple[EdgeLabel, Direction]],
        *,
        ends: Sequence[VertexLabel] = tuple(VertexLabel),
        hops: int = HOPS,
        limit: int = ROWS_MAX,
        fan: int = FAN_MAX,
    ) -> Walked:
        """
        Return the vertices with a label in `ends` within `hops` steps of any vertex in `keys`, nearest first.

        `start` is the label of the vertices `keys`, or None if they have several. A step follows one edge of a label
        and direction in `steps`; of each vertex the last `fan` edges of a label are followed. At most `limit` vertices
        are returned, and never more than 1,000: once there are as many, nothing farther is looked for.

        Raises:
            ProjectionError: if `hops` is not 1 to 5, or `steps` is empty.
        """
        check_hops(hops)
        if not steps:
            raise ProjectionError("traversal: expected steps over one edge label or more, found none")
        kind = "" if start is None else f"{VERTICES[start].key}:"
        keys = [bounded_key(key) for key in keys if key.startswith(kind)]
        walk = Walk(connection=self._connection, graph=self.name, steps=steps, ends=ends, fan=fan)
        reached = await walk.reached(keys, hops=hops, limit=min(limit, ROWS_MAX))
        return Walked(reached=reached, is_cut=walk.is_cut)

    async def omitted(self, keys: Sequence[str]) -> dict[str, Omitted]:
        """
        Return, by key, the lineage that events reported of these tables and data sets and that is not in the graph.
        """
        return await read_omitted(self._connection, {bounded_key(key) for key in keys}, projection=GRAPH)


def check_hops(hops: int) -> None:
    """
    Check the number of hops of a traversal.

    Raises:
        ProjectionError: if `hops` is not 1 to 5.
    """
    if not 1 <= hops <= HOPS_MAX:
        raise ProjectionError(f"traversal: expected 1 to {HOPS_MAX} hops, found {hops}")


async def open_graph(connection: Connection) -> Graph:
    """
    Return the live graph of the tenant whose reader role `connection` has taken; a transaction must be open.

    Raises:
        NotProjectedError: if the role is not a tenant's reader, or the tenant's graph does not exist yet.
    """
    async with connection.pipeline():
        found = await connection.execute(QUERIES["live_graph"], {"projection": GRAPH})
        await connection.execute(QUERIES["settings"])
    row = await found.fetchone()
    if row is None:
        raise NotProjectedError("expected to work as a tenant's reader role, found another: take that role first")
    tenant, generation = row
    if generation is None:
        raise NotProjectedError(f"graph of tenant {tenant}: expected one, no runner has seen this log yet")
    return Graph(connection, graph_name(tenant, generation))


async def _coverage(scanned: AsyncCursor[Any]) -> ScanCoverage:
    return coverage_of([(*row, parse_agtype(unread)) for *row, unread in await scanned.fetchall()])


_WRITE_COLUMNS: Final = (
    *("index", "recorded_at", "actor", "principal", "operation", "target", "decision", "outcome"),
    *("decided_by", "policies", "rules"),
)


def _write(row: tuple[Any, ...]) -> Write:
    values = dict(zip(_WRITE_COLUMNS, row, strict=True))
    in_force = versions_of(values.pop("policies")) + versions_of(values.pop("rules"))
    return Write(**{**values, "decided_by": versions_of(values["decided_by"]), "in_force": in_force})
