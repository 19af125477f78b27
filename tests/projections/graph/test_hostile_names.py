# SPDX-License-Identifier: Apache-2.0
"""
Names that users choose are values everywhere: stored and found again, whatever is in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families
from psycopg import sql

from ledger.format.event import format_key
from ledger.format.events import CatalogCreated, CommitDecision, Reason
from ledger.store.session import Connection
from projections.exposition import format_metrics
from projections.graph.labels import EdgeLabel, VertexLabel
from projections.graph.read import open_graph
from projections.processing.generations import rebuild
from projections.relational.commits import read_commits
from projections.relational.metrics import EVENTS, read_metrics

if TYPE_CHECKING:
    from testkit.projections.story import Story, World

NAMES = (
    "$$",
    "$lakeproof$",
    "'; DROP TABLE projections.commits; --",
    'a"b',
    "back\\slash",
    "\\u0000",
    "a.b",
    "a/b",
    "100%s %(key)s",
    "{}::vertex",
    '"}::edge, {"',
    "naïve 表 🧊",
    "combining e\u0301",
    "\u202eright to left",
    "\u2028line\u2029",
    "tab\there",
    "control\x01\x1f\x7f",
    "nul\x00inside",
    "null",
    " ",
    "x" * 900,
    "表" * 100,
)


async def test_hostile_names_are_stored_and_found(world: World, story: Story) -> None:
    for name in NAMES:
        key = format_key("table", ["lake", name, name])
        catalog = CatalogCreated(id=name, version=1, kind="builtin", options={})
        story.add(story.event(catalog, key=format_key("catalog", [name])))
        story.policy(name)
        story.committed(key, snapshots=[name], principal=name, table_uuid=f"uuid {name}")
        story.decided(key, CommitDecision.REJECTED, reason=Reason(id=name, version=1))
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        for name in NAMES:
            await check_found(connection, name)
        text = format_metrics(await read_metrics(connection, ["graph"]))
        assert len(list(text_string_to_metric_families(text))) == 4 + len(EVENTS)
    for projection in world.projections:
        await rebuild(world.dsn, projection, log, append=world.attest)


async def check_found(connection: Connection, name: str) -> None:
    """Check that the accepted and the rejected commit of a table of that name are found, in SQL and in openCypher."""
    key = format_key("table", ["lake", name, name])
    stored = name.replace("\x00", "\ufffd")
    (newest, oldest) = await read_commits(connection, key=key)
    assert (oldest.name, oldest.namespace, oldest.principal) == (stored, (stored,), stored)
    assert (newest.reason_id, oldest.snapshots) == (stored, (stored,))
    graph = await open_graph(connection)
    rejected, accepted = await graph.writes(target=key)
    assert accepted.principal == stored
    assert [(by.id, by.version) for by in rejected.decided_by] == [(stored, 1)]
    query = "MATCH (t:Table)-[:IN_NAMESPACE]->(n:Namespace) WHERE t.name = $name RETURN t.name, n.levels, t.key"
    assert await graph.query(query, ["name", "levels", "key"], {"name": stored}) == [
        (stored, [stored], accepted.target)
    ]
    reached = await graph.reach(VertexLabel.TABLE, key, [EdgeLabel.HAS_SNAPSHOT])
    assert [each.label for each in reached] == [VertexLabel.SNAPSHOT]


async def test_names_that_differ_only_in_what_cannot_be_stored_stay_two(world: World, story: Story) -> None:
    keys = [format_key("table", ["lake", "s", name]) for name in ("a\x00b", "a\ufffdb")]
    for key in keys:
        story.committed(key)
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        assert len(await graph.query("MATCH (t:Table) RETURN t.key", ["key"])) == 2
        assert [len(await graph.writes(target=key)) for key in keys] == [1, 1]
        assert [len(await read_commits(connection, key=key)) for key in keys] == [1, 1]


async def test_graphs_names_are_under_the_limit_and_no_name_of_a_user_is_an_identifier(
    world: World, story: Story
) -> None:
    story.committed(format_key("table", ["lake", "s", "x" * 200]))
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_admin() as connection:
        rows = await connection.execute(
            sql.SQL("SELECT max(length(nspname)) FROM pg_namespace UNION SELECT max(length(relname)) FROM pg_class")
        )
        assert all(length <= 63 for (length,) in await rows.fetchall())
        rows = await connection.execute("SELECT count(*) FROM pg_class WHERE relname LIKE '%xxxx%'")
        assert await rows.fetchone() == (0,)
