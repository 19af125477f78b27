# SPDX-License-Identifier: Apache-2.0
"""
The graph on the real database: what is written is found again, through the tenant's reader role.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from ledger.format.events import CommitDecision, CommitOutcome, Reason
from projections.errors import NotProjectedError, ProjectionError
from projections.graph.agtype import parse_agtype
from projections.graph.answers import PolicyVersion
from projections.graph.labels import EDGES, VERTICES, EdgeLabel, VertexLabel, vertex_key
from projections.graph.read import Write, open_graph
from projections.graph.walking import Direction
from testkit.projections.story import dataset
from testkit.statements import note_statements

if TYPE_CHECKING:
    from testkit.projections.story import Story, World

ADA, BOB = "a" * 32, "b" * 32


async def test_who_wrote_what_under_which_policy(world: World, story: Story) -> None:
    story.rule("all")
    story.policy("p1")
    story.committed(snapshots=["11"])
    story.policy("p1", 2)
    story.decided(
        "table:lake/sales/orders",
        CommitDecision.REJECTED,
        actor=BOB,
        principal="bob",
        reason=Reason(id="p1", version=2),
    )
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        writes = await (await open_graph(connection)).writes()
    rejected, accepted = writes
    everyone = PolicyVersion(label=VertexLabel.ACCESS_RULE, id="all", version=1)
    first, second = (PolicyVersion(label=VertexLabel.POLICY, id="p1", version=version) for version in (1, 2))
    assert accepted == Write(
        index=2,
        recorded_at=accepted.recorded_at,
        actor=ADA,
        principal="ada@example.com",
        operation="table.commit",
        target="table:lake/sales/orders",
        decision="approved",
        outcome="accepted",
        decided_by=(),
        in_force=(first, everyone),
    )
    assert (rejected.actor, rejected.principal, rejected.decision, rejected.outcome) == (BOB, "bob", "rejected", None)
    assert rejected.decided_by == (second,)
    assert rejected.in_force == (second, everyone)


async def test_writes_are_paged_and_filtered_by_table(world: World, story: Story) -> None:
    for name in ("a", "b", "a", "a"):
        story.committed(f"table:lake/sales/{name}")
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        assert [write.index for write in await graph.writes(limit=2)] == [6, 4]
        assert [write.index for write in await graph.writes(before=4)] == [2, 0]
        assert [write.index for write in await graph.writes(target="table:lake/sales/a")] == [6, 4, 0]
        assert await graph.writes(target="table:lake/sales/c") == []
        for _ in range(8):  # psycopg prepares a statement when it comes again and again
            assert [write.index for write in await graph.writes(limit=1)] == [6]


async def test_every_label_of_the_inventory_is_there_and_can_be_named_in_cypher(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.project(log, story)
    await world.runner().catch_up(log.log_id, 0)
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        for label in VertexLabel:
            assert await graph.query(f"MATCH (v:{label}) RETURN v.key", ["key"]) == []
        for edge in EdgeLabel:
            assert await graph.query(f"MATCH (v)-[e:{edge}]->() RETURN v.key", ["key"]) == []
    assert set(VERTICES) == set(VertexLabel)
    assert set(EDGES) == set(EdgeLabel)


async def test_a_walk_ends_where_enough_was_found_and_follows_the_last_edges(world: World, story: Story) -> None:
    tables = [f"table:lake/s/t{number}" for number in range(6)]
    for table in tables:
        story.committed(table)
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        down = [(EdgeLabel.IN_NAMESPACE, Direction.IN), (EdgeLabel.IN_CATALOG, Direction.IN)]
        everything = (await graph.walk(VertexLabel.CATALOG, ["catalog:lake"], down)).reached
        assert [(each.key, each.hops) for each in everything] == [
            ("namespace:lake/s", 1),
            *((table, 2) for table in tables),
        ]
        first = (await graph.walk(VertexLabel.CATALOG, ["catalog:lake"], down, limit=1)).reached
        assert first == everything[:1]
        last = (await graph.walk(VertexLabel.CATALOG, ["catalog:lake"], down, ends=[VertexLabel.TABLE], fan=2)).reached
        assert [each.key for each in last] == tables[-2:]
        assert (await graph.walk(VertexLabel.TABLE, ["catalog:lake"], down)).reached == []


async def test_a_walk_takes_one_statement_for_each_step_and_two_more(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.catalog()
    chain = [f"s.t{number}" for number in range(6)]
    for source, target in pairwise(chain):
        story.lineage([dataset(source)], [dataset(target)], run_id=target)
    log = await world.new_log()
    await world.project(log, story)
    steps = [
        (EdgeLabel.LINEAGE_OF, Direction.OUT),
        (EdgeLabel.RENAMED_TO, Direction.OUT),
        (EdgeLabel.RENAMED_TO, Direction.IN),
    ]
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        statements = note_statements(monkeypatch)
        found = (await graph.walk(VertexLabel.TABLE, ["table:lake/s/t0"], steps, hops=5)).reached
        assert [(each.key, each.hops) for each in found] == [(f"table:lake/s/t{hops}", hops) for hops in range(1, 6)]
        assert len(statements) == 1 + 6 + 1, "where it begins, five steps and a look for other names, and all keys"
        statements.clear()
        assert (await graph.walk(VertexLabel.TABLE, ["table:lake/s/t0"], steps, hops=5, limit=2)).reached == found[:2]
        assert len(statements) < 1 + 6 + 1, "it ends where it has found enough"


async def test_a_walk_looks_for_edges_and_keys_where_they_may_be(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.catalog()
    story.lineage([dataset("s.a")], [dataset("raw", "s3://elsewhere")], run_id="1")
    story.lineage([dataset("raw", "s3://elsewhere")], [dataset("s.b")], run_id="2")
    log = await world.new_log()
    await world.project(log, story)
    made_from = [(EdgeLabel.LINEAGE_OF, Direction.OUT), (EdgeLabel.RENAMED_TO, Direction.OUT)]
    of_runs = [(EdgeLabel.READ_FROM, Direction.IN), (EdgeLabel.RUN_OF, Direction.OUT)]
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        found = (await graph.walk(VertexLabel.TABLE, ["table:lake/s/a"], made_from)).reached
        assert [(each.label, each.key, each.hops) for each in found] == [
            (VertexLabel.DATASET, vertex_key(VertexLabel.DATASET, "s3://elsewhere", "raw"), 1),
            (VertexLabel.TABLE, "table:lake/s/b", 2),
        ]
        statements = note_statements(monkeypatch)
        found = (await graph.walk(None, ["table:lake/s/a"], of_runs, ends=[VertexLabel.PIPELINE], hops=2)).reached
        assert [(each.label, each.hops) for each in found] == [(VertexLabel.PIPELINE, 2)]
        _, of_table, of_run, keys = statements
        assert '"READ_FROM"' in of_table
        assert '"RUN_OF"' not in of_table
        assert '"RUN_OF"' in of_run
        assert '"READ_FROM"' not in of_run
        assert keys.count("UNION ALL") == 0


async def test_traversals_are_bounded(world: World, story: Story) -> None:
    story.committed("table:lake/a/b/c/d/e/f/t")
    log = await world.new_log()
    await world.project(log, story)
    table = "table:lake/a/b/c/d/e/f/t"
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        up = [EdgeLabel.IN_NAMESPACE, EdgeLabel.IN_CATALOG]
        reached = await graph.reach(VertexLabel.TABLE, table, up)
        assert [(each.key, each.hops) for each in reached] == [
            ("namespace:lake/a/b/c/d/e/f", 1),
            ("namespace:lake/a/b/c/d/e", 2),
            ("namespace:lake/a/b/c/d", 3),
        ]
        assert {each.label for each in reached} == {VertexLabel.NAMESPACE}
        assert len(await graph.reach(VertexLabel.TABLE, table, up, hops=5)) == 5
        down = await graph.reach(VertexLabel.CATALOG, "catalog:lake", up, direction=Direction.IN, hops=2)
        assert [each.key for each in down] == ["namespace:lake/a", "namespace:lake/a/b"]
        assert await graph.reach(VertexLabel.TABLE, "table:lake/none", up) == []
        for hops in (0, 6, -1):
            with pytest.raises(ProjectionError, match="1 to 5 hops"):
                await graph.reach(VertexLabel.TABLE, table, up, hops=hops)


async def test_values_are_bound_never_spliced(world: World, story: Story) -> None:
    story.committed()
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        for hostile in ("$$", "$lakeproof$", "'; DROP TABLE x; --", '"', "\\", "{}::vertex", "%s", "é😀"):
            assert await graph.query("RETURN $value", ["v"], {"value": hostile}) == [(hostile,)]
        with pytest.raises(ProjectionError, match="plain column names"):
            await graph.query("RETURN '$lakeproof$'", ["v"])
        with pytest.raises(ProjectionError, match="plain column names"):
            await graph.query("RETURN 1", ["v agtype); SELECT (1"])


async def test_a_graph_that_was_not_made_yet_is_said_so(world: World) -> None:
    log = await world.untouched_log()
    async with world.as_reader(log) as connection:
        with pytest.raises(NotProjectedError, match="no runner has seen"):
            await open_graph(connection)
    async with world.as_projector() as connection:
        with pytest.raises(NotProjectedError, match="reader role"):
            await open_graph(connection)


async def test_keys_are_found_through_their_index(world: World, story: Story) -> None:
    for number in range(300):
        story.committed(f"table:lake/sales/t{number}")
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_admin() as connection:
        name = (await (await connection.execute("SELECT name FROM ag_catalog.ag_graph")).fetchone() or ("",))[0]
        await connection.execute("SET search_path = public, ag_catalog")
        await connection.execute("ANALYZE")
        cursor = await connection.execute(
            f"EXPLAIN SELECT * FROM cypher('{name}', $$ MATCH (t:Table) WHERE t.key = 'x' RETURN t $$) AS (t agtype)"  # noqa: S608 - a name of ours
        )
        assert "Index" in str(await cursor.fetchall())


def test_agtype_is_read_with_and_without_suffixes() -> None:
    assert parse_agtype(None) is None
    assert parse_agtype('"a::vertex \\" ::edge"') == 'a::vertex " ::edge'
    assert parse_agtype('{"id": 1, "label": "T", "properties": {"k": "::path"}}::vertex') == {
        "id": 1,
        "label": "T",
        "properties": {"k": "::path"},
    }
    assert parse_agtype("[1, 2.5, null, true]") == [1, 2.5, None, True]


def test_vertex_keys_are_event_keys() -> None:
    assert vertex_key(VertexLabel.TABLE, "lake", "a.b", "c/d") == "table:lake/a.b/c%2Fd"


async def test_an_outcome_that_supersedes_unknown_is_shown(world: World, story: Story) -> None:
    group = story.decided()
    story.settled(group, outcome=CommitOutcome.UNKNOWN)
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        (write,) = await (await open_graph(connection)).writes()
        assert write.outcome == "unknown"
    story.settled(group, outcome=CommitOutcome.ACCEPTED, snapshots=["7"])
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        (write,) = await graph.writes()
        assert write.outcome == "accepted"
        query = (
            "MATCH (w:WriteEvent)-[:ACTUAL_WRITE]->(s:Snapshot)<-[:HAS_SNAPSHOT]-(t:Table) RETURN s.snapshot_id, t.name"
        )
        assert await graph.query(query, ["s", "t"]) == [("7", "orders")]
