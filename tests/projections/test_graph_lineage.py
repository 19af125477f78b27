"""
The graph draws what the lineage projection draws: decided by the same code, on rows of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from projections.generations import prune, rebuild
from projections.graph.projection import GRAPH_VERSION
from projections.graph.read import open_graph
from projections.lineage.projection import LINEAGE_VERSION
from tests.projections.conftest import dataset

if TYPE_CHECKING:
    from ledger.read import Log
    from tests.projections.conftest import Story, World

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
    # Whoever raises one of the two raises the other, and both numbers here: the graph draws what lineage decides.
    assert (LINEAGE_VERSION, GRAPH_VERSION) == (1, 2)
