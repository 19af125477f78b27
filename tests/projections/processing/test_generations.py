# SPDX-License-Identifier: Apache-2.0
"""
Rebuilding beside the live generation: equal or not switched, and no reader sees a gap.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledger.errors import LedgerError
from ledger.format.events import CommitDecision, CommitOutcome, ProjectionAttested, Reason
from ledger.store.read import Log
from ledger.store.session import Connection
from projections.errors import (
    DigestMismatchError,
    NotProjectedError,
    RebuildRunningError,
    StaleGenerationError,
)
from projections.graph.read import open_graph
from projections.processing import cursors
from projections.processing.generations import prune, rebuild, replace
from projections.processing.projection import Transaction
from projections.processing.runner import ProjectionRunner
from projections.relational.commits import CommitsProjection, read_commits

if TYPE_CHECKING:
    from testkit.projections.story import Story, World

ITEMS = "table:lake/sales/items"


def told(story: Story, commits: int = 3) -> Story:
    story.rule("all")
    for version in range(1, 4):
        story.policy("p1", version)
        for _ in range(commits):
            story.committed(snapshots=["1", "2"])
        story.decided(decision=CommitDecision.REJECTED, reason=Reason(id="p1", version=version))
    story.policy_retired("p1", 4)
    story.settled(story.decided(ITEMS), ITEMS, CommitOutcome.UNKNOWN)
    return story


async def test_a_rebuild_equals_the_live_generation_and_is_switched_to(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.project(log, told(story), batch_max=7)
    seen: list[tuple[int, int]] = []
    for projection in world.projections:
        done = await rebuild(
            world.dsn, projection, log, append=world.attest, report=lambda at, of: seen.append((at, of)), batch_max=5
        )
        assert (done.replaced, done.attested.generation, done.attested.size) == (1, 2, story.size)
        assert done.compared
        assert (log, done.attested) in world.attested
    assert seen[-1] == (story.size, story.size)
    assert seen[0] == (5, story.size)
    progress = await world.runner().progress()
    assert {(each.generation, each.next_index) for each in progress} == {(2, story.size)}
    async with world.as_reader(log) as connection:
        assert len(await read_commits(connection)) == 13
        graph = await open_graph(connection)
        assert graph.name.endswith("_2")
        assert len(await graph.writes()) == 13


async def test_an_attestation_in_the_log_changes_no_digest(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.project(log, told(story))
    digests: dict[str, set[str]] = {}

    async def append(log: Log, attested: ProjectionAttested) -> None:
        story.add(story.event(attested, key=f"projection:{attested.projection}"))
        await world.project(log, story)
        digests.setdefault(attested.projection, set()).add(attested.digest)

    for _ in range(2):
        for projection in world.projections:
            await rebuild(world.dsn, projection, log, append=append)
    assert {name: len(found) for name, found in digests.items()} == {
        projection.name: 1 for projection in world.projections
    }


CORRUPTIONS = {
    "commits": "UPDATE projections.commits SET decision = 'approved' WHERE decision = 'rejected'",
    "metrics": "UPDATE projections.commit_totals SET count = count + 1 WHERE decision = 'rejected'",
    "graph": """UPDATE {graph}."WriteEvent" SET properties = properties || '{"decision": "approved"}'::agtype""",
}
CORRUPTIONS_OF_A_GRAPH = (
    CORRUPTIONS["graph"],
    'DELETE FROM {graph}."DECIDED_BY"',
    'DELETE FROM {graph}."Snapshot"',
    """UPDATE {graph}."Person" SET properties = properties || '{"share": 0.5}'::agtype""",
    """UPDATE {graph}."Person" SET properties = properties || '{"share": 5::numeric}'::agtype""",
)


async def corrupt(connection: Connection, log: Log, corruption: str) -> None:
    assert log.tenant is not None
    await connection.execute("SET search_path = public, ag_catalog")
    changed = await connection.execute(corruption.replace("{graph}", f"g_{log.tenant.hex}_1").encode())
    assert changed.rowcount > 0


async def test_whatever_is_corrupted_in_a_graph_changes_its_digest(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.append(log, told(story, 2))
    await ProjectionRunner(world.dsn, [world.graph]).catch_up(log.log_id, story.size)
    digests = []
    async with world.as_admin() as connection:
        generation = Transaction(connection=connection, log=log, generation=1)
        async with connection.transaction():
            honest = await world.graph.digest(generation)
        for corruption in CORRUPTIONS_OF_A_GRAPH:
            async with connection.transaction(force_rollback=True):
                await corrupt(connection, log, corruption)
                digests.append(await world.graph.digest(generation))
        async with connection.transaction():
            assert await world.graph.digest(generation) == honest
    assert len({honest, *digests}) == 1 + len(CORRUPTIONS_OF_A_GRAPH)


@pytest.mark.parametrize("name", CORRUPTIONS)
async def test_a_corrupted_live_generation_is_never_switched_from_by_rebuild(
    world: World, story: Story, name: str
) -> None:
    log = await world.new_log()
    await world.append(log, told(story, 2))
    (projection,) = (each for each in world.projections if each.name == name)
    await ProjectionRunner(world.dsn, [projection]).catch_up(log.log_id, story.size)
    async with world.as_admin() as connection:
        await corrupt(connection, log, CORRUPTIONS[name])
    with pytest.raises(DigestMismatchError) as caught:
        await rebuild(world.dsn, projection, log, append=world.attest)
    error = caught.value
    assert (error.live, error.built, error.size) == (1, 2, story.size)
    assert error.live_digest != error.built_digest
    assert error.live_digest.hex() in str(error)
    assert error.built_digest.hex() in str(error)
    assert world.attested == []
    async with world.as_projector() as connection:
        live = await cursors.read_live(connection, projection.name, log.log_id)
        assert live is not None
        assert live.generation == 1
        # Both are kept, to be looked at.
        assert await cursors.other_generations(connection, projection.name, log.log_id) == [2]
    # The operator gives the live one up; nothing was lost with it.
    done = await replace(world.dsn, projection, log, append=world.attest)
    assert (done.replaced, done.attested.generation, done.compared) == (1, 3, False)
    assert done.attested.digest == error.built_digest.hex()
    await rebuild(world.dsn, projection, log, append=world.attest)


async def test_readers_see_no_gap_while_generations_are_switched(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.project(log, told(story))
    first, stop = asyncio.Event(), asyncio.Event()
    seen: set[tuple[int, int, int]] = set()
    generations: set[str] = set()

    async def read() -> None:
        is_last = False
        while not is_last:
            is_last = stop.is_set()
            async with world.as_reader(log) as connection:
                graph = await open_graph(connection)
                ((vertices,),) = await graph.query("MATCH (w:WriteEvent) RETURN count(w)", ["n"])
                ((edges,),) = await graph.query("MATCH (:Person)-[e:WROTE]->(:WriteEvent) RETURN count(e)", ["n"])
                assert isinstance(vertices, int)
                assert isinstance(edges, int)
                seen.add((len(await read_commits(connection)), vertices, edges))
                generations.add(graph.name)
            first.set()

    reading = asyncio.create_task(read())
    await first.wait()
    for projection in (world.graph, world.commits):
        await rebuild(world.dsn, projection, log, append=world.attest, batch_max=9)
    stop.set()
    await reading
    assert seen == {(13, 13, 13)}
    assert len(generations) >= 2


async def test_a_rebuild_catches_up_with_a_log_that_grows(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.project(log, told(story))
    stop = asyncio.Event()
    runner = world.runner(poll_s=0.01, batch_max=3)
    running = asyncio.create_task(runner.run(stop))
    grown = asyncio.Event()

    async def grow() -> None:
        for _ in range(4):
            story.committed()
            await world.append(log, story)
        grown.set()

    growing = asyncio.create_task(grow())
    while not grown.is_set():
        for projection in world.projections:
            await rebuild(world.dsn, projection, log, append=world.attest, batch_max=4)
    await growing
    stop.set()
    await running
    await world.runner().catch_up(log.log_id, story.size)
    for projection in world.projections:
        done = await rebuild(world.dsn, projection, log, append=world.attest)
        assert done.attested.size == story.size


async def test_the_old_generation_stays_until_it_is_pruned_and_no_number_is_given_twice(
    world: World, story: Story
) -> None:
    log = await world.new_log()
    await world.project(log, told(story, 1))
    assert log.tenant is not None

    async def graphs() -> list[str]:
        async with world.as_admin() as connection:
            rows = await connection.execute("SELECT name FROM ag_catalog.ag_graph ORDER BY name")
            return [name.rpartition("_")[2] for (name,) in await rows.fetchall()]

    await rebuild(world.dsn, world.graph, log, append=world.attest)
    assert await graphs() == ["1", "2"]
    assert await prune(world.dsn, world.graph, log) == [1]
    assert await graphs() == ["2"]
    assert await prune(world.dsn, world.graph, log) == []
    await rebuild(world.dsn, world.graph, log, append=world.attest)
    assert await graphs() == ["2", "3"]
    await rebuild(world.dsn, world.graph, log, append=world.attest)
    assert await graphs() == ["3", "4"]
    for projection in (world.commits, world.metrics):
        await rebuild(world.dsn, projection, log, append=world.attest)
        assert await prune(world.dsn, projection, log) == [1]
    async with world.as_admin() as connection:
        for table in ("commits", "commit_counts", "commit_hours", "commit_totals", "open_commits"):
            rows = await connection.execute(f"SELECT DISTINCT generation FROM projections.{table}")  # noqa: S608 - a table of ours
            assert await rows.fetchall() == [(2,)]


async def test_a_rebuild_that_dies_leaves_the_live_generation_and_the_next_one_cleans_up(
    world: World, story: Story
) -> None:
    log = await world.new_log()
    await world.project(log, told(story))

    class PlugPulledError(Exception):
        pass

    def die(at: int, _of: int) -> None:
        if at >= 10:
            raise PlugPulledError

    for projection in world.projections:
        with pytest.raises(PlugPulledError):
            await rebuild(world.dsn, projection, log, append=world.attest, report=die, batch_max=5)
        done = await rebuild(world.dsn, projection, log, append=world.attest)
        assert (done.replaced, done.attested.generation) == (1, 3)
        async with world.as_projector() as connection:
            assert await cursors.other_generations(connection, projection.name, log.log_id) == [1]


async def test_an_attestation_that_cannot_be_appended_is_told_and_the_switch_stands(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.project(log, told(story, 1))

    async def refuse(_log: Log, _attested: ProjectionAttested) -> None:
        raise LedgerError("the log is not reached")

    with pytest.raises(LedgerError, match="not reached"):
        await rebuild(world.dsn, world.commits, log, append=refuse)
    async with world.as_projector() as connection:
        live = await cursors.read_live(connection, "commits", log.log_id)
    assert live is not None
    assert live.generation == 2


async def test_one_rebuild_at_a_time(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.project(log, told(story, 1))

    async def inner(_log: Log, _attested: ProjectionAttested) -> None:
        await rebuild(world.dsn, world.commits, log, append=world.attest)

    async with world.as_projector() as holder:
        assert await cursors.try_lock_rebuild(holder, "commits", log.log_id)
        for refused in (
            rebuild(world.dsn, world.commits, log, append=world.attest),
            prune(world.dsn, world.commits, log),
        ):
            with pytest.raises(RebuildRunningError, match="under way"):
                await refused
        # Of another projection there may be one.
        await rebuild(world.dsn, world.metrics, log, append=world.attest)
    # The lock is gone with its session, before the attestation is appended.
    await rebuild(world.dsn, world.commits, log, append=inner)


async def test_a_log_that_no_runner_has_seen_cannot_be_rebuilt(world: World) -> None:
    for change in (rebuild, replace):
        log = await world.untouched_log()  # each its own: a session's lock may outlive its connection by a moment
        for projection in world.projections:
            with pytest.raises(NotProjectedError):
                await change(world.dsn, projection, log, append=world.attest)


async def test_a_new_version_replaces_the_old_one_and_is_not_compared(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.project(log, told(story, 1))

    class NextCommits(CommitsProjection):
        version = 2

    story.committed()
    await world.append(log, story)
    with pytest.raises(StaleGenerationError, match="version 2"):
        await rebuild(world.dsn, NextCommits(), log, append=world.attest)
    done = await replace(world.dsn, NextCommits(), log, append=world.attest)
    assert done.attested.projection_version == 2
    assert done.attested.size == story.size
    runner = ProjectionRunner(world.dsn, [NextCommits()])
    story.committed()
    await world.append(log, story)
    await runner.catch_up(log.log_id, story.size)
    # The old version's process leaves it alone from here on.
    with pytest.raises(StaleGenerationError):
        await ProjectionRunner(world.dsn, [world.commits]).catch_up(log.log_id, story.size)
