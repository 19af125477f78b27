# SPDX-License-Identifier: Apache-2.0
"""
The five answers and the two traversals, on the real database, through the tenant's reader role.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg
import pytest

from ledger.format.event import format_key
from ledger.format.events import CommitDecision, DetectionKind, FindingVerdict
from projections.errors import NotProjectedError, ProjectionError
from projections.graph import traversals
from projections.graph.answers import EACH_MAX, WRITES, ColumnFound, DataRef, GoverningPolicy, RunSummary
from projections.graph.answers_svg import draw_answers
from projections.graph.labels import EdgeLabel, VertexLabel
from projections.graph.policy_scope import Governs
from projections.graph.read import Graph, open_graph
from projections.graph.traversals import impact_analysis, pii_propagation
from projections.graph.walking import Direction
from projections.relational.finding_reviews import FindingState
from testkit.projections.eventful_table import happened
from testkit.projections.story import ADA, BOB, ORDERS, dataset

if TYPE_CHECKING:
    from ledger.store.read import Log
    from testkit.projections.story import Story, World

MART = "table:lake/mart/revenue"


async def projected(world: World, story: Story) -> Log:
    log = await world.new_log()
    await world.project(log, story)
    return log


async def test_one_query_gives_all_five_answers(world: World, story: Story) -> None:
    log = await projected(world, happened(story))
    async with world.as_reader(log) as connection:
        answers = await (await open_graph(connection)).answers(ORDERS)
    writes = [(write.principal, write.outcome or write.decision) for write in answers.writes]
    assert writes == [("ada@example.com", "accepted"), ("bob", "rejected"), ("ada@example.com", "accepted")]
    assert [by.id for by in answers.writes[1].decided_by] == ["writers"]
    assert [(snapshot.snapshot_id, snapshot.governed) for snapshot in answers.snapshots] == [
        ("13", False),
        ("12", True),
        ("11", True),
    ]
    assert [snapshot.snapshot_id for snapshot in answers.ungoverned] == ["13"]
    assert answers.made_from == (
        DataRef(label=VertexLabel.DATASET, key="dataset:kafka%3A%2F%2Fbroker/clicks"),
        DataRef(label=VertexLabel.TABLE, key="table:lake/raw/events"),
    )
    assert answers.made_by == (RunSummary(job=("airflow", "make_orders"), engine="spark 4.1.4", actor="a" * 32),)
    schema, write = (Governs.SCHEMA,), (Governs.WRITE,)
    assert answers.allowed_by == (
        GoverningPolicy(id="tenant-id", version=2, governs=schema, is_in_force=True),
        GoverningPolicy(id="writers", version=1, governs=write, is_in_force=True),
        GoverningPolicy(id="tenant-id", version=1, governs=schema, is_in_force=False),
    )
    assert answers.found == (
        ColumnFound(column="email", kind="email", confidence_percent=92, snapshots=2, state=FindingState.DISMISSED),
        ColumnFound(column="note", kind="phone", confidence_percent=55, snapshots=1),
    )
    assert answers.read_by == (RunSummary(job=("airflow", "revenue"), engine="spark 4.1.4", actor=BOB),)
    assert answers.read_into == (DataRef(label=VertexLabel.TABLE, key=MART),)


async def test_a_table_of_which_little_is_known_is_answered_too_and_one_of_which_nothing_is_refused(
    world: World, story: Story
) -> None:
    story.decided(decision=CommitDecision.CONFLICTED)
    log = await projected(world, story)
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        answers = await graph.answers(ORDERS)
        assert [write.decision for write in answers.writes] == ["conflicted"]
        for name in ("snapshots", "ungoverned", "made_from", "made_by", "allowed_by", "found", "read_by", "read_into"):
            assert getattr(answers, name) == ()
        for _ in range(8):  # psycopg prepares a statement when it comes again and again
            assert await graph.answers(ORDERS) == answers
        with pytest.raises(ProjectionError, match="no entry names it"):
            await graph.answers("table:lake/sales/none")


async def test_of_several_reviews_of_a_column_the_last_one_holds(world: World, story: Story) -> None:
    story.scanned("11", ("email", DetectionKind.EMAIL, 65), ("note", DetectionKind.PHONE, 55))
    first = story.size - 2
    story.reviewed(first, FindingVerdict.CONFIRMED, actor=BOB)
    story.scanned("12", ("email", DetectionKind.EMAIL, 65))
    story.reviewed(story.size - 1, version=2)
    log = await projected(world, story)

    async def states() -> list[str]:
        async with world.as_reader(log) as connection:
            return [each.state for each in (await (await open_graph(connection)).answers(ORDERS)).found]

    assert await states() == ["dismissed", "open"]
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        said = await graph.query(
            "MATCH (p:Person)-[r:REVIEWED]->(c:Classification) RETURN p.actor, r.verdict, c.review ORDER BY r.index",
            ("actor", "verdict", "review"),
        )
    assert said == [(BOB, "confirmed", "confirmed"), (ADA, "dismissed", "dismissed")]
    story.scanned("13", ("email", DetectionKind.EMAIL, 92))
    await world.project(log, story)
    assert await states() == ["open", "open"], "a scan is surer of it now"


async def test_each_answer_is_of_the_latest_so_many(world: World, story: Story) -> None:
    story.catalog()
    for number in range(EACH_MAX + 5):
        story.committed(snapshots=[str(number)])
        story.lineage([dataset(f"raw.t{number}")], [dataset("sales.orders")], run_id=f"made-{number}", job=f"j{number}")
        story.lineage(
            [dataset("sales.orders")], [dataset(f"mart.t{number}")], run_id=f"read-{number}", job=f"r{number}"
        )
    log = await projected(world, story)
    async with world.as_reader(log) as connection:
        answers = await (await open_graph(connection)).answers(ORDERS)
    newest = sorted((write.index for write in answers.writes), reverse=True)
    assert [write.index for write in answers.writes] == newest
    assert (len(answers.writes), newest[0]) == (WRITES, story.size - 4)
    assert len(answers.snapshots) == WRITES
    for name in ("made_from", "made_by", "read_by", "read_into"):
        assert len(getattr(answers, name)) == EACH_MAX, name
    assert "j0" not in {work.job and work.job[1] for work in answers.made_by}


HOSTILE = (
    "$$",
    "$lakeproof$",
    "'; DROP TABLE x; --",
    'a"b',
    "back\\slash",
    "表 🧊",
    "<b>&amp;</b>",
    "nul\x00",
    "x" * 900,
)


async def test_hostile_names_are_answered_and_drawn(world: World, story: Story) -> None:
    for name in HOSTILE:
        key = format_key("table", ["lake", name, name])
        story.policy(name, expression="table.exists")
        story.committed(key, principal=name, snapshots=[name], table_uuid=f"uuid {name}")
        story.scanned(name, (name, DetectionKind.EMAIL, 92), key=key, table_uuid=f"uuid {name}")
        other = dataset(name, name)
        story.lineage([other], [dataset("sales.orders")], run_id=name, job=name, engine=name, columns=[(name, name)])
    log = await projected(world, story)
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        for name in HOSTILE:
            answers = await graph.answers(format_key("table", ["lake", name, name]))
            stored = name.replace("\x00", "\ufffd")
            assert [write.principal for write in answers.writes] == [stored]
            assert [found.column for found in answers.found] == [stored]
            assert stored in {policy.id for policy in answers.allowed_by}
            assert draw_answers(answers).startswith("<svg")
            gone = await pii_propagation(graph, answers.table)
            assert [column.found.column for column in gone.found] == [stored]


async def test_a_principal_whose_part_was_erased_is_not_told(world: World, story: Story) -> None:
    story.committed(principal=None)
    log = await projected(world, story)
    async with world.as_reader(log) as connection:
        (write,) = (await (await open_graph(connection)).answers(ORDERS)).writes
    assert (write.principal, write.actor) == (None, "a" * 32)


async def test_impact_analysis_tells_the_tables_columns_and_readers_downstream(world: World, story: Story) -> None:
    happened(story)
    story.lineage(
        [dataset("mart.revenue")], [dataset("mart.report")], columns=[("contact", "who")], run_id="x", job="report"
    )
    log = await projected(world, story)
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        impact = await impact_analysis(graph, ORDERS)
        near = await impact_analysis(graph, ORDERS, hops=1)
        assert (await impact_analysis(graph, "table:lake/mart/report")).tables == ()
    assert [(each.key, each.hops) for each in impact.tables] == [(MART, 1), ("table:lake/mart/report", 2)]
    assert [(each.key.rpartition("/")[2], each.hops) for each in impact.columns] == [("contact", 1), ("who", 2)]
    assert {each.origin for each in impact.columns} == {"column:table%3Alake%2Fsales%2Forders/email"}
    jobs = {(each.key, each.origin) for each in impact.readers if each.label is VertexLabel.PIPELINE}
    assert jobs == {("pipeline:airflow/revenue", ORDERS), ("pipeline:airflow/report", MART)}
    assert [each.key for each in near.tables] == [MART]


async def test_pii_propagation_starts_where_something_was_found(world: World, story: Story) -> None:
    log = await projected(world, happened(story))
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        gone = await pii_propagation(graph, ORDERS)
        nowhere = await pii_propagation(graph, "table:lake/raw/events")
    assert [(column.found.column, column.found.confidence_percent) for column in gone.found] == [
        ("email", 92),
        ("note", 55),
    ]
    assert [each.key for each in gone.columns] == ["column:table%3Alake%2Fmart%2Frevenue/contact"]
    assert [each.key for each in gone.tables] == [MART]
    assert (nowhere.found, nowhere.columns, nowhere.tables) == ((), (), ())


async def test_traversals_are_bounded_in_length_and_follow_each_step_its_own_way(world: World, story: Story) -> None:
    story.catalog()
    for number in range(8):
        story.lineage([dataset(f"s.t{number}")], [dataset(f"s.t{number + 1}")], run_id=f"r{number}")
    log = await projected(world, story)
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        assert len((await impact_analysis(graph, "table:lake/s/t0")).tables) == 3
        assert len((await impact_analysis(graph, "table:lake/s/t0", hops=5)).tables) == 5
        for hops in (0, 6):
            for preset in (impact_analysis, pii_propagation):
                with pytest.raises(ProjectionError, match="1 to 5 hops"):
                    await preset(graph, "table:lake/s/t0", hops=hops)
        with pytest.raises(ProjectionError, match="steps"):
            await graph.walk(VertexLabel.TABLE, ["table:lake/s/t0"], [])
        both = [(EdgeLabel.LINEAGE_OF, Direction.OUT), (EdgeLabel.LINEAGE_OF, Direction.IN)]
        reached = (await graph.walk(VertexLabel.TABLE, ["table:lake/s/t4", "table:lake/s/t0"], both, hops=1)).reached
    assert [(each.origin[-2:], each.key[-2:]) for each in reached] == [("t0", "t1"), ("t4", "t3"), ("t4", "t5")]


async def test_walks_from_a_hub_are_bounded_and_say_so(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened(story)
    for number in range(6):
        story.lineage(
            [dataset("sales.orders")], [dataset(f"s.t{number}")], columns=[("email", "who")], run_id=f"r{number}"
        )
    log = await projected(world, story)
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        for walk in (impact_analysis, pii_propagation):
            whole, part = await walk(graph, ORDERS, hops=2), await walk(graph, ORDERS, hops=2, limit=3)
            assert (len(whole.tables), len(whole.columns), whole.is_cut) == (7, 7, False)
            assert (part.tables, part.columns, part.is_cut) == (whole.tables[:3], whole.columns[:3], True)
            monkeypatch.setattr(traversals, "_fan", lambda _: 5)
            hub = await walk(graph, ORDERS, hops=2)
            monkeypatch.undo()
            assert (len(hub.tables), hub.is_cut) == (5, True), "of more edges than are followed, the last are"
        monkeypatch.setattr(traversals, "READ_MAX", 8)
        assert not (await impact_analysis(graph, "table:lake/s/t0")).is_cut, "nobody has read it"
        read = await impact_analysis(graph, ORDERS, hops=2)
        assert (len(read.tables), len(read.columns), read.is_cut) == (7, 7, True), "more runs have read it"


async def test_nobody_gets_answers_from_another_tenants_graph(world: World, new_story: Callable[[], Story]) -> None:
    theirs = await projected(world, happened(new_story()))
    ours = await projected(world, new_story())
    async with world.as_reader(theirs) as connection:
        name = (await open_graph(connection)).name
    async with world.as_reader(ours) as connection:
        with pytest.raises(ProjectionError, match="no entry names it"):
            await (await open_graph(connection)).answers(ORDERS)
    asking = (lambda graph: graph.answers(ORDERS), lambda graph: impact_analysis(graph, ORDERS))
    for ask in (*asking, lambda graph: pii_propagation(graph, ORDERS)):
        async with world.as_reader(ours) as connection:
            await open_graph(connection)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await ask(Graph(connection, name))
    async with world.as_projector() as connection:
        with pytest.raises(NotProjectedError):
            await open_graph(connection)
