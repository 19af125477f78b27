# SPDX-License-Identifier: Apache-2.0
"""
No tenant reads or writes another's data, in SQL or in openCypher, and no reader writes anything at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from ledger.format.events import DetectionKind
from ledger.store.session import Connection
from projections.graph.labels import EdgeLabel, VertexLabel
from projections.graph.read import Graph, open_graph
from projections.graph.write import graph_name
from projections.relational.commits import read_commits
from projections.relational.metrics import read_metrics

if TYPE_CHECKING:
    from ledger.store.read import Log
    from testkit.projections.story import Story, World

TABLES = (
    *("cursors", "live", "commits", "commit_counts", "commit_totals", "open_commits", "access_refusals"),
    *("scans", "findings", "alerts", "alert_deliveries", "trigger_counts", "ungoverned", "event_totals"),
    "commit_hours",
)


async def two_tenants(world: World, new_story: Callable[[], Story]) -> tuple[Log, Log]:
    """Two tenants with the same table names, and one commit each."""
    logs = []
    for principal in ("ada", "eve"):
        story = new_story()
        story.committed(principal=principal, snapshots=[principal])
        story.decided()
        finding = story.scanned(principal, ("email", DetectionKind.EMAIL, 92))
        story.delivered(story.alerted(finding, principal))
        story.triggered()
        story.observed("7")
        log = await world.new_log()
        await world.project(log, story)
        logs.append(log)
    return logs[0], logs[1]


async def test_each_reader_sees_its_own_rows_and_no_others(world: World, new_story: Callable[[], Story]) -> None:
    for log, principal in zip(await two_tenants(world, new_story), ("ada", "eve"), strict=True):
        async with world.as_reader(log) as connection:
            for table in TABLES:
                rows = await connection.execute(f"SELECT DISTINCT log_id FROM projections.{table}")  # noqa: S608 - ours
                empty = table == "access_refusals"
                assert await rows.fetchall() == ([] if empty else [(log.log_id,)]), table
            assert {commit.principal for commit in await read_commits(connection)} == {principal, "ada@example.com"}
            graph = await open_graph(connection)
            assert {write.principal for write in await graph.writes()} == {principal, "ada@example.com"}
            tenants = {
                sample.labels["tenant"]
                for metric in await read_metrics(connection, ["graph"])
                for sample in metric.samples
            }
            assert log.tenant is not None
            assert tenants == {log.tenant.hex}


async def test_a_reader_cannot_query_another_tenants_graph(world: World, new_story: Callable[[], Story]) -> None:
    ours, theirs = await two_tenants(world, new_story)
    assert theirs.tenant is not None
    graph = graph_name(theirs.tenant, 1)
    for cypher in (
        "MATCH (v) RETURN v",
        "MATCH (v:WriteEvent) RETURN v.principal",
        "MATCH (v)-[e]->(w) RETURN e",
        "MATCH (v)-[*1..3]->(w) RETURN w",
        "MATCH p = (v:Person)-[:WROTE*1..2]->(w) RETURN p",
        "CREATE (v:Person {key: 'x'}) RETURN v",
    ):
        async with world.as_reader(ours) as connection:
            await open_graph(connection)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await Graph(connection, graph).query(cypher, ["v"])
    for table in (VertexLabel.WRITE_EVENT, EdgeLabel.WROTE, "_ag_label_vertex", "_ag_label_edge"):
        async with world.as_reader(ours) as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute(f'SELECT * FROM {graph}."{table}"')  # noqa: S608 - names of ours


FUNCTIONS_BY_NAME = (
    # Each takes a graph by name; most read its tables without asking whether the caller may (Apache AGE 1.8.0).
    """SELECT ag_catalog.age_materialize_vle_path(edges) FROM ag_catalog.age_vle(
           '"{graph}"', '{start}', NULL,
           ag_catalog.age_build_vle_match_edge('"WROTE"', '{{}}'), '1', '3', '1', '1') AS x (edges, s, t)""",
    """SELECT ag_catalog.age_materialize_vle_path(edges) FROM ag_catalog.age_vle(
           '"{graph}"', '{start}', NULL,
           ag_catalog.age_build_vle_match_edge('"WROTE"', '{{}}'), '1', '3', '1') AS x (edges, s, t)""",
    """SELECT ag_catalog.age_vertex_stats(
           '"{graph}"', '{{"id": {start}, "label": "Person", "properties": {{}}}}::vertex')""",
    """SELECT ag_catalog.age_startnode(
           '"{graph}"',
           '{{"id": 1, "label": "WROTE", "start_id": {start}, "end_id": {start}, "properties": {{}}}}::edge')""",
    """SELECT ag_catalog._get_vertex_by_graphid('{graph}', '{start}')""",
    """SELECT ag_catalog.age_graph_stats('"{graph}"')""",
    """SELECT ag_catalog.age_shortest_path('"{graph}"', '{start}', '{start}')""",
    """SELECT ag_catalog.age_all_shortest_paths('"{graph}"', '{start}', '{start}')""",
)


async def test_no_function_of_age_reads_a_graph_past_its_grants(world: World, new_story: Callable[[], Story]) -> None:
    ours, theirs = await two_tenants(world, new_story)
    assert theirs.tenant is not None
    graph = graph_name(theirs.tenant, 1)
    async with world.as_admin() as connection:
        row = await (await connection.execute(f'SELECT id::text FROM {graph}."Person"')).fetchone()  # noqa: S608 - ours
        assert row is not None
    leaked = []
    for function in FUNCTIONS_BY_NAME:
        async with world.as_reader(ours) as connection:
            await connection.execute("SET LOCAL search_path = public, ag_catalog")
            try:
                await connection.execute(function.format(graph=graph, start=row[0]))
            except psycopg.errors.InsufficientPrivilege:
                continue
            leaked.append(function)
    assert leaked == []


async def test_no_query_calls_those_functions_on_its_own_graph_either(
    world: World, new_story: Callable[[], Story]
) -> None:
    ours, theirs = await two_tenants(world, new_story)
    assert theirs.tenant is not None
    name = graph_name(theirs.tenant, 1)
    for call in (f"graph_stats('{name}')", f"vle('{name}', 1, 1, 1, 1, 1, 1)"):
        async with world.as_reader(ours) as connection:
            graph = await open_graph(connection)
            with pytest.raises(psycopg.Error):
                await graph.query(f"RETURN {call}", ["v"])


WRITES = (
    "CREATE (v:Person {key: 'x'}) RETURN v",
    "CREATE (v:Stranger {key: 'x'}) RETURN v",
    "MERGE (v:Person {key: 'x'}) RETURN v",
    "MATCH (v:Person) SET v.actor = 'x' RETURN v",
    "MATCH (v:Person) REMOVE v.actor RETURN v",
    "MATCH (v:Person) DETACH DELETE v RETURN v",
    "MATCH (v)-[e:WROTE]->() DELETE e RETURN v",
)


async def test_a_reader_cannot_change_its_own_graph(world: World, story: Story) -> None:
    story.committed()
    log = await world.new_log()
    await world.project(log, story)
    for cypher in WRITES:
        async with world.as_reader(log) as connection:
            graph = await open_graph(connection)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await graph.query(cypher, ["v"])


async def test_a_reader_cannot_change_rows_or_graphs_in_sql(world: World, story: Story) -> None:
    story.committed()
    log = await world.new_log()
    await world.project(log, story)
    assert log.tenant is not None
    graph = graph_name(log.tenant, 1)
    statements = [
        *(f"DELETE FROM projections.{table}" for table in TABLES),  # noqa: S608 - ours
        *(f"UPDATE projections.{table} SET log_id = log_id" for table in TABLES),  # noqa: S608 - ours
        "INSERT INTO projections.live VALUES ('x', 1, 1, 1)",
        f'DELETE FROM {graph}."Person"',  # noqa: S608 - ours
        f"SELECT ag_catalog.drop_graph('{graph}', true)",
        f"SELECT ag_catalog.alter_graph('{graph}', 'RENAME', 'g_mine')",
        f"SELECT ag_catalog.create_vlabel('{graph}', 'Mine')",
        "SELECT ag_catalog.create_graph('g_mine')",
        f"SELECT ag_catalog.drop_label('{graph}', 'Person')",
    ]
    for statement in statements:
        async with world.as_reader(log) as connection:
            await connection.execute("SET LOCAL search_path = public, ag_catalog")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute(statement)
    async with world.as_reader(log) as connection:
        assert len(await (await open_graph(connection)).writes()) == 1


async def test_the_login_role_by_itself_sees_nothing(world: World, story: Story) -> None:
    story.committed()
    log = await world.new_log()
    await world.project(log, story)
    assert log.tenant is not None
    for statement in ("SELECT * FROM projections.commits", f'SELECT * FROM {graph_name(log.tenant, 1)}."Person"'):  # noqa: S608 - ours
        async with await psycopg.AsyncConnection.connect(world.installation.dsn) as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute(statement)
            await connection.rollback()


async def test_an_auditor_sees_every_total_and_no_commit(world: World, new_story: Callable[[], Story]) -> None:
    logs = await two_tenants(world, new_story)
    async with world.as_role(world.roles.auditor) as connection:
        (commits, *_) = await read_metrics(connection, ["graph", "commits", "metrics"])
        assert {sample.labels["tenant"] for sample in commits.samples} == {log.tenant.hex for log in logs if log.tenant}
        assert {row[0] for row in await every_source(connection)} == {log.log_id for log in logs}
    for table in ("commits", "scans", "findings", "alerts", "alert_deliveries", "ungoverned"):
        async with world.as_role(world.roles.auditor) as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute(f"TABLE projections.{table}")


async def test_streams_and_detection_read_the_findings_of_all_and_write_none(
    world: World, new_story: Callable[[], Story]
) -> None:
    logs = await two_tenants(world, new_story)
    for role in (world.roles.streams, world.roles.detector):
        for table in ("scans", "findings", "alerts", "alert_deliveries", "trigger_counts", "ungoverned"):
            async with world.as_role(role) as connection:
                rows = await connection.execute(f"SELECT DISTINCT log_id FROM projections.{table}")  # noqa: S608 - ours
                assert {row[0] for row in await rows.fetchall()} == {log.log_id for log in logs}
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    await connection.execute(f"DELETE FROM projections.{table}")  # noqa: S608 - ours


async def every_source(connection: Connection) -> list[tuple[Any, ...]]:
    """The counts of triggers that a role may see."""
    return await (
        await connection.execute("SELECT log_id, source, triggers FROM projections.trigger_counts")
    ).fetchall()
