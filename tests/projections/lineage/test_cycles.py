# SPDX-License-Identifier: Apache-2.0
"""
Which edges are drawn and which are not, and that the log is told of each that is not, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.append.appender import Appender
from ledger.errors import LogUnavailableError
from ledger.format.entry import parse_entry
from ledger.format.events import LineageCycleFound, OnCycle, from_data
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.read import Log, read_entries, read_head
from projections.lineage.cycle_events import append_cycles, keep_appending_cycles
from projections.lineage.edges import LEFT_OUT, PATH_SIZE_BYTES_MAX, shortened
from projections.lineage.projection import LineageProjection
from projections.lineage.read import read_lineage, read_outcomes
from projections.lineage.runs import Omitted
from projections.processing.generations import rebuild
from testkit.projections.lineage_stories import (
    NOON,
    NOON_TEXT,
    Oracle,
    TopicsRead,
    dataset,
    key,
    run_event,
    set_cycles,
    tell,
    topics_event,
)

if TYPE_CHECKING:
    from testkit.projections.story import Story, World


@pytest.fixture
def world(world: World) -> World:
    """The test's database, with lineage as its only projection."""
    world.projections = (LineageProjection(),)
    return world


async def project(world: World, story: Story, told: Iterable[TopicsRead]) -> Log:
    """Tell of all of it in a new log and project it."""
    log = await world.new_log()
    for number, each in enumerate(told):
        tell(story, topics_event(each, number=number))
    await world.project(log, story)
    return log


async def stored(world: World, log: Log) -> Oracle:
    """What the live generation holds, in the oracle's form."""
    found = Oracle()
    async with world.as_reader(log) as connection:
        rows = await connection.execute(
            "SELECT source, target, count FROM projections.live"
            " JOIN projections.lineage_edges USING (log_id, generation) WHERE projection = 'lineage'"
        )
        found.edges = {(source, target): count for source, target, count in await rows.fetchall()}
        rows = await connection.execute(
            "SELECT source, target, index, path, count FROM projections.live"
            " JOIN projections.lineage_cycles USING (log_id, generation) WHERE projection = 'lineage'"
        )
        found.cycles = {
            (source, target): (index, tuple(path), count)
            for source, target, index, path, count in await rows.fetchall()
        }
    return found


async def test_start_and_complete_are_one_edge_of_one_run(world: World, story: Story) -> None:
    log = await world.new_log()
    for event_type in ("START", "COMPLETE", "START"):
        tell(story, topics_event((["raw"], ["clean"]), eventType=event_type))
    await world.project(log, story)
    assert (await stored(world, log)).edges == {(key("raw"), key("clean")): 1}
    async with world.as_reader(log) as connection:
        lineage = await read_lineage(connection, log.log_id, key("clean"))
    (edge,) = lineage.upstream
    assert (edge.hops, edge.source, edge.job) == (1, key("raw"), "pipeline:etl/job0")
    assert (edge.run_id, edge.state, edge.event_time) == (str(UUID(int=0)), "COMPLETE", NOON_TEXT)
    assert (lineage.downstream, lineage.cycles, lineage.omitted) == ((), (), {})


async def test_what_failed_or_was_only_begun_is_no_fact_and_refuses_nothing(world: World, story: Story) -> None:
    log = await world.new_log()
    for number, event_type in enumerate(("START", "RUNNING", "OTHER", "FAIL", "ABORT")):
        tell(story, topics_event((["a"], ["b"]), number=number, eventType=event_type))
    tell(story, topics_event((["b"], ["a"]), number=9))
    await world.project(log, story)
    found = await stored(world, log)
    assert (found.edges, found.cycles) == ({(key("b"), key("a")): 1}, {})


@pytest.mark.parametrize("length", [2, 3, 7, 40])
async def test_an_edge_that_closes_a_cycle_of_any_length_is_not_drawn(world: World, story: Story, length: int) -> None:
    names = [f"t{number:03}" for number in range(length)]
    chain: list[TopicsRead] = [([source], [target]) for source, target in pairwise(names)]
    log = await project(world, story, [*chain, ([names[-1]], [names[0]])])
    found = await stored(world, log)
    assert len(found.edges) == length - 1
    assert found.cycles == {(key(names[-1]), key(names[0])): (length - 1, tuple(map(key, names)), 1)}


async def test_an_edge_that_closes_no_cycle_is_drawn_however_many_ways_lead_there(world: World, story: Story) -> None:
    diamond: list[TopicsRead] = [(["a"], ["b", "c"]), (["b", "c"], ["d"]), (["a"], ["d"]), (["x"], ["a"])]
    found = await stored(world, await project(world, story, diamond))
    assert (len(found.edges), found.cycles) == (6, {})


async def test_what_one_event_reads_and_writes_is_neither_an_edge_nor_a_cycle(world: World, story: Story) -> None:
    found = await stored(world, await project(world, story, [(["orders", "customers"], ["customers"])]))
    assert (found.edges, found.cycles) == ({(key("orders"), key("customers")): 1}, {})


async def test_the_same_refusal_is_recorded_once_and_counted(world: World, story: Story) -> None:
    log = await project(world, story, [(["a"], ["b"]), (["b"], ["a"]), (["b"], ["a"])])
    found = await stored(world, log)
    refused = (key("b"), key("a"))
    assert found.cycles == {refused: (1, (key("a"), key("b")), 2)}
    assert found.edges.keys() == {(key("a"), key("b"))}
    async with world.as_reader(log) as connection:
        lineage = await read_lineage(connection, log.log_id, key("a"))
        outcomes = await read_outcomes(connection, log.log_id, range(3))
    (cycle,) = lineage.cycles
    assert (cycle.index, cycle.last_index, cycle.count) == (1, 2, 2)
    assert {index: outcome.cycles for index, outcome in outcomes.items()} == {0: (), 1: (cycle,), 2: (cycle,)}
    assert lineage.omitted == {key(name): Omitted(refused=1) for name in "ab"}


async def test_a_tenant_that_keeps_cycles_has_both_directions_as_versions(world: World, story: Story) -> None:
    """dim -> dim_hist -> dim, every night, and a direction that was refused before."""
    log = await world.new_log()
    forth = [dataset("kafka://prod", "dim", version="1")], [dataset("kafka://prod", "hist", version="7")]
    back = [dataset("kafka://prod", "hist", version="7")], [dataset("kafka://prod", "dim", version="2")]
    tell(story, run_event(*forth, number=0))
    tell(story, run_event(*back, number=1))
    set_cycles(story, OnCycle.KEEP)
    await world.project(log, story)
    assert (await stored(world, log)).cycles.keys() == {(key("hist"), key("dim"))}, "it was told of before"
    for number in range(2, 6):
        tell(story, run_event(*(back if number % 2 else forth), number=number))
    set_cycles(story, OnCycle.REFUSE, version=2)
    tell(story, run_event(*back, number=6))  # what is drawn stays
    tell(story, topics_event((["hist"], ["report"]), number=7))
    tell(story, topics_event((["report"], ["dim"]), number=8))
    await world.project(log, story)
    found = await stored(world, log)
    both = {(key("dim"), key("hist")): 3, (key("hist"), key("dim")): 3}
    assert found.edges == {**both, (key("hist"), key("report")): 1}
    assert found.cycles.keys() == {(key("report"), key("dim"))}
    async with world.as_reader(log) as connection:
        lineage = await read_lineage(connection, log.log_id, key("dim"))
    kept = {(edge.source, edge.source_version, edge.target_version): edge.is_kept for edge in lineage.upstream}
    assert kept == {(key("hist"), "7", "2"): True, (key("dim"), "1", "7"): False}
    assert lineage.omitted == {key(name): Omitted(refused=1) for name in ("dim", "report")}
    await rebuild(world.dsn, world.projections[0], log, append=world.attest, batch_max=1)


NAMES = st.lists(st.sampled_from("abcdef"), max_size=3)
CUTS = st.tuples(st.integers(1, 9), st.integers(1, 9))
EVENTS = st.tuples(NAMES, NAMES, st.integers(0, 9), st.sampled_from(["START", "COMPLETE", "COMPLETE", "FAIL"]))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(told=st.lists(EVENTS | st.sampled_from(OnCycle), min_size=1, max_size=25), cuts=CUTS)
def test_however_entries_are_cut_edges_and_cycles_are_those_of_the_rule(
    world: World,
    new_story: Callable[[], Story],
    told: list[tuple[list[str], list[str], int, str] | OnCycle],
    cuts: tuple[int, int],
) -> None:
    story, oracle = new_story(), Oracle()
    for version, each in enumerate(told, start=1):
        if isinstance(each, OnCycle):
            set_cycles(story, each, version=version)
            oracle.keeps_cycles = each is OnCycle.KEEP
            continue
        read, written, run, event_type = each
        index = tell(story, topics_event((read, written), number=run, eventType=event_type))
        oracle.tell(index, (read, written), run=run, event_type=event_type)

    async def play() -> None:
        log = await world.new_log()
        await world.project(log, story, batch_max=cuts[0])
        found = await stored(world, log)
        assert found.edges == oracle.edges
        assert found.cycles == oracle.cycles
        await rebuild(world.dsn, world.projections[0], log, append=world.attest, batch_max=cuts[1])

    asyncio.run(play())


async def events_of(world: World, log: Log) -> list[LineageCycleFound]:
    """What the log tells of cycles."""
    async with world.as_projector() as connection:
        size = (await read_head(connection, log.log_id)).size
        entries = map(parse_entry, await read_entries(connection, log.log_id, from_index=0, to_index=size))
        return [from_data(LineageCycleFound, each.data) for each in entries if each.type == LineageCycleFound.TYPE]


async def test_a_cycle_is_told_in_the_log_once_however_many_tell_it(world: World, story: Story) -> None:
    log = await project(world, story, [(["a"], ["b"]), (["b"], ["c"]), (["c"], ["a"]), (["c"], ["a"])])
    lineage = story.groups[-2].id
    async with Appender(world.installation.as_role(world.roles.appender), GuardRegistry([])) as appender:

        async def tell_once() -> int:
            async with world.as_projector() as connection:
                return await append_cycles(connection, appender.append, log, clock=lambda: NOON)

        assert await asyncio.gather(*(tell_once() for _ in range(3))) == [1, 1, 1]
        path = (key("a"), key("b"), key("c"))
        expected = LineageCycleFound(lineage=str(lineage), path=path, source=key("c"), target=key("a"))
        assert await events_of(world, log) == [expected]
        await world.runner().catch_up(log.log_id, 5)
        assert await tell_once() == 0
    async with world.as_reader(log) as connection:
        (cycle,) = (await read_lineage(connection, log.log_id, key("a"))).cycles
    assert (cycle.index, cycle.told_index, cycle.group_id, cycle.count) == (2, 4, lineage, 2)
    await rebuild(world.dsn, world.projections[0], log, append=world.attest, batch_max=1)


async def test_cycles_of_all_logs_are_told_while_it_runs(world: World, new_story: Callable[[], Story]) -> None:
    logs = [await project(world, new_story(), [(["a"], ["b"]), (["b"], ["a"])]) for _ in range(2)]
    stop, failed = asyncio.Event(), asyncio.Event()
    told: list[int] = []
    async with Appender(world.installation.as_role(world.roles.appender), GuardRegistry([])) as appender:

        async def append(log_id: int, group: Group) -> Appended | Stale:
            if not failed.is_set():
                failed.set()
                raise LogUnavailableError("the database cannot be reached")
            outcome = await appender.append(log_id, group)
            told.append(log_id)
            if {log.log_id for log in logs} <= set(told):
                stop.set()
            return outcome

        await keep_appending_cycles(world.dsn, append, stop, clock=lambda: NOON)
    assert failed.is_set()
    assert [len(await events_of(world, log)) for log in logs] == [1, 1]


def test_a_path_that_no_entry_could_hold_keeps_its_two_ends() -> None:
    path = [f"dataset:{number:0>992}" for number in range(100)]
    shown = shortened(path)
    kept = (len(shown) - 1) // 2
    assert (shown[:kept], shown[-kept:]) == (tuple(path[:kept]), tuple(path[-kept:]))
    assert shown[kept] == LEFT_OUT
    assert PATH_SIZE_BYTES_MAX - 2_000 < sum(map(len, shown)) <= PATH_SIZE_BYTES_MAX + len(LEFT_OUT)
    assert shortened(path[:10]) == tuple(path[:10])
    assert shortened(shown) == shown
