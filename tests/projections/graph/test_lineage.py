# SPDX-License-Identifier: Apache-2.0
"""
The graph draws what the lineage projection draws: decided by the same code, on rows of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from projections.graph.answers_text import format_impact, format_propagation
from projections.graph.projection import GRAPH_VERSION
from projections.graph.read import open_graph
from projections.graph.traversals import impact_analysis, pii_propagation
from projections.lineage.projection import LINEAGE_VERSION
from projections.lineage.runs import Omitted
from projections.processing.generations import prune, rebuild
from testkit.projections.story import dataset

if TYPE_CHECKING:
    from ledger.store.read import Log
    from testkit.projections.story import Story, World

NAMES = [f"s.t{number}" for number in range(5)]


async def edges_of_both(world: World, log: Log) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """The edges that the graph draws, and those of the lineage projection."""
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        rows = await graph.query("MATCH (a)-[:LINEAGE_OF]->(b) RETURN a.key, b.key", ["a", "b"])
        told = await connection.execute(
            "SELECT e.source, e.target FROM projections.live AS l JOIN projections.lineage_edges AS e"
            " USING (log_id, generation) WHERE l.projection = 'lineage'"
        )
        return {(str(a), str(b)) for a, b in rows}, set(await told.fetchall())


async def test_an_edge_that_closes_a_cycle_is_in_neither(world: World, story: Story) -> None:
    story.catalog()
    for source, target in (("s.a", "s.b"), ("s.b", "s.c"), ("s.c", "s.a"), ("s.a", "s.c")):
        story.lineage([dataset(source)], [dataset(target)], run_id=source + target)
    log = await world.new_log()
    await world.project(log, story)
    drawn, told = await edges_of_both(world, log)
    assert drawn == told == {(f"table:lake/s/{a}", f"table:lake/s/{b}") for a, b in ("ab", "bc", "ac")}


async def test_what_a_run_told_in_an_earlier_batch_is_drawn_when_it_is_complete(world: World, story: Story) -> None:
    story.catalog()
    story.lineage([dataset("s.a")], [dataset("s.b")], columns=[("id", "id")], event_type="START")
    story.lineage([], [], event_type="COMPLETE")
    log = await world.new_log()
    await world.project(log, story, batch_max=1)
    drawn, told = await edges_of_both(world, log)
    assert drawn == told == {("table:lake/s/a", "table:lake/s/b")}


async def test_what_is_not_drawn_is_said_in_the_graph_and_every_traversal(world: World, story: Story) -> None:
    story.catalog()
    story.lineage([dataset("s.a")], [dataset("s.b")], run_id="1")
    story.lineage([dataset("s.b"), dataset("s.c")], [dataset("s.b"), dataset("s.c")], run_id="2")
    story.lineage([dataset("s.b")], [dataset("s.a")], run_id="3")
    log = await world.new_log()
    await world.project(log, story)
    a, b, c = (f"table:lake/s/{name}" for name in "abc")
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        drawn = await graph.query("MATCH (t:Table) RETURN t.key, t.omitted", ["key", "omitted"])
        impact = await impact_analysis(graph, a)
        gone = await pii_propagation(graph, c)
        answers = await graph.answers(b)
    assert {str(table): omitted for table, omitted in drawn} == {a: 1, b: 3, c: 2}
    assert impact.omitted == {a: Omitted(refused=1), b: Omitted(refused=1, ambiguous=2)}
    assert gone.omitted == {c: Omitted(ambiguous=2)}
    assert answers.omitted == Omitted(refused=1, ambiguous=2)
    assert any("2 ambiguous, 1 refused" in line for line in format_impact(impact))
    assert any("2 ambiguous" in line for line in format_propagation(gone))


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    told=st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), min_size=1, max_size=14),
    cut=st.integers(1, 6),
)
def test_whatever_is_told_both_draw_the_same_and_a_rebuild_does_too(
    world: World, new_story: Callable[[], Story], told: list[tuple[str, str]], cut: int
) -> None:
    story = new_story()
    for number, (source, target) in enumerate(told):
        if number == len(told) // 2:
            story.catalog()  # names before it are data sets, and tables behind it
        story.lineage([dataset(source)], [dataset(target)], run_id=str(number))

    async def play() -> None:
        log = await world.new_log()
        await world.project(log, story, batch_max=cut)
        drawn, decided = await edges_of_both(world, log)
        assert drawn == decided
        await rebuild(world.dsn, world.graph, log, append=world.attest)
        assert await edges_of_both(world, log) == (drawn, decided)

    asyncio.run(play())


async def test_a_graphs_lineage_is_its_own_and_goes_with_it(world: World, story: Story) -> None:
    story.lineage([dataset("a")], [dataset("b")])
    log = await world.new_log()
    await world.project(log, story)
    await rebuild(world.dsn, world.graph, log, append=world.attest)

    async def generations() -> set[int]:
        async with world.as_projector() as connection:
            rows = await connection.execute("SELECT DISTINCT generation FROM projections.lineage_edges")
            return {generation for (generation,) in await rows.fetchall()}

    assert await generations() == {1, -1, -2}
    await prune(world.dsn, world.graph, log)
    assert await generations() == {1, -2}


def test_a_new_version_of_lineage_is_one_of_the_graph() -> None:
    # Whoever raises that of lineage raises that of the graph, too, and both numbers here: the graph draws what lineage
    # decides. What the graph alone means takes a new version of the graph alone.
    assert (LINEAGE_VERSION, GRAPH_VERSION) == (2, 5)
