# SPDX-License-Identifier: Apache-2.0
"""
Vertices and edges of a large graph are found by its indexes: a query reads what it returns, and little more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql

from ledger.store.session import Connection
from projections.graph.labels import EdgeLabel, VertexLabel
from projections.graph.neighbours import Start, read_edges, read_vertices, read_vertices_of_label
from projections.graph.read import open_graph
from projections.graph.walking import Direction
from testkit.gateway.two_views import project
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

TABLES: Final = 3_000
READ_MAX: Final = 1_000
READ_OF_A_PAGE_MAX: Final = 50


def fill(gateway: Gateway, graph: str) -> None:
    """Put tables into a graph, each made from the ten before it, the last one with many names; gather statistics."""
    with psycopg.connect(gateway.services.installation.admin_dsn, autocommit=True) as owner:
        table, edge, name = (sql.Identifier(graph, name) for name in ("Table", "LINEAGE_OF", "RENAMED_TO"))
        owner.execute(
            sql.SQL(
                "INSERT INTO {} (properties) "
                "SELECT json_build_object('key', 'table:far/a/t' || n)::text::ag_catalog.agtype "
                "FROM generate_series(1, %s) AS n"
            ).format(table),
            (TABLES,),
        )
        owner.execute(
            sql.SQL(
                "WITH v AS (SELECT id, row_number() OVER () AS n FROM {table}) "
                "INSERT INTO {edge} (start_id, end_id, properties) SELECT a.id, b.id, '{{}}' FROM v AS a JOIN v AS b "
                "ON b.n BETWEEN a.n + 1 AND a.n + 10"
            ).format(table=table, edge=edge)
        )
        owner.execute(
            sql.SQL(
                "INSERT INTO {name} (start_id, end_id, properties) SELECT a.id, last_value(a.id) OVER (), '{{}}' "
                "FROM (SELECT id FROM {table} ORDER BY id OFFSET 2100) AS a"
            ).format(table=table, name=name)
        )
        owner.execute(sql.SQL("ANALYZE {}, {}, {}").format(table, edge, name))


async def test_vertices_and_edges_of_a_large_graph_are_read_by_index(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await project(sales)
    gateway = sales.services.gateway
    async with gateway.database.as_role(gateway.roles.tenant(sales.acme.tenant)) as connection:
        name = (await open_graph(connection)).name
    fill(sales, name)
    async with gateway.database.as_role(gateway.roles.tenant(sales.acme.tenant)) as connection:
        graph = await open_graph(connection)
        explained = Explained(connection)
        asked = ["table:far/a/t7", "table:far/a/t2000", "table:far/a/none"]
        seven, far, none = await read_vertices(connection, graph.name, asked)
        assert seven is not None is not far
        assert none is None
        starts = [
            Start(id=seven.id, label=seven.label, after=""),
            Start(id=far.id, label=far.label, after="LINEAGE_OF out table:far/a/t2005"),
        ]
        every: dict[str, Any] = {"labels": tuple(EdgeLabel), "directions": tuple(Direction), "limit": 20}
        edges = await read_edges(connection, graph.name, starts, **every)
        assert [len(each) for each in edges] == [17, 5]
        page = await read_vertices_of_label(
            connection, graph.name, VertexLabel.TABLE, after="table:far/a/t2000", limit=20
        )
        assert [each.key for each in page][:2] == ["table:far/a/t2001", "table:far/a/t2002"]
        await read_vertices(explained, graph.name, asked)  # type: ignore[arg-type]  # it has the one method
        await read_edges(explained, graph.name, starts, **every)  # type: ignore[arg-type]
        await read_vertices_of_label(explained, graph.name, VertexLabel.TABLE, after="table:far", limit=20)  # type: ignore[arg-type]
        assert len(explained.read) == 4
        assert max(explained.read) <= READ_MAX, explained.read
        explained.read.clear()
        (last,) = await read_vertices(connection, graph.name, [f"table:far/a/t{TABLES}"])
        assert last is not None
        many = Start(id=last.id, label=last.label, after="")
        (found,) = await read_edges(explained, graph.name, [many], **{**every, "limit": 10})  # type: ignore[arg-type]
    assert {each.label for each in found} == {EdgeLabel.LINEAGE_OF}
    assert max(explained.read) <= READ_OF_A_PAGE_MAX, "names come behind the page, and are none of it"


class Explained:
    """A connection that runs each query twice: first to count the rows that it reads of all tables."""

    def __init__(self, connection: Connection) -> None:
        self.read: list[int] = []
        self._connection = connection

    async def execute(self, query: sql.Composed, parameters: Mapping[str, Any]) -> Any:
        cursor = await self._connection.execute(sql.SQL("EXPLAIN (ANALYZE, FORMAT JSON) ") + query, parameters)
        ((found,),) = await cursor.fetchall()
        plan = found if isinstance(found, list) else json.loads(found)
        self.read.append(_read(plan[0]["Plan"]))
        return await self._connection.execute(query, parameters)


def _read(node: Mapping[str, Any]) -> int:
    own = 0
    if "Relation Name" in node:
        own = int(node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)))
    return own + sum(_read(each) for each in node.get("Plans", ()))
