# SPDX-License-Identifier: Apache-2.0
"""
The runner on the real database: nothing lost, nothing twice, whatever dies and however many run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import psycopg
import pytest
from psycopg import sql

from ledger.format.events import CommitDecision, ProjectionAttested
from projections.entries import LogEntry
from projections.errors import ProjectionError, StaleGenerationError, UnknownControlError
from projections.processing import cursors
from projections.processing.generations import rebuild
from projections.processing.projection import Projection, SharedEntries, Transaction
from projections.processing.runner import ProjectionRunner, ensure
from projections.relational.commits import CommitsProjection, read_commits
from projections.relational.metrics import MetricsProjection
from testkit.projections.story import dataset

if TYPE_CHECKING:
    from ledger.store.read import Log
    from testkit.projections.story import Story, World

TIMEOUT_S = 20


def told(story: Story, commits: int) -> Story:
    for number in range(commits):
        if number % 3 == 2:
            story.decided(decision=CommitDecision.REJECTED)
        else:
            story.committed(f"table:lake/sales/t{number % 4}", snapshots=[str(number)])
    return story


async def until(world: World, projections: Sequence[Projection], condition: Callable[[dict[str, int]], bool]) -> None:
    """Return when the lag of the projections, summed by name, meets the condition."""
    async with asyncio.timeout(TIMEOUT_S), world.as_projector() as connection:
        while True:
            lag: dict[str, int] = {}
            for each in await cursors.read_progress(connection, [projection.name for projection in projections]):
                lag[each.projection] = lag.get(each.projection, 0) + each.lag_entries
            if condition(lag):
                return


def caught_up(lag: dict[str, int]) -> bool:
    return not any(lag.values())


async def test_entries_are_applied_in_batches_and_the_lag_is_told(world: World, story: Story) -> None:
    log = await world.untouched_log()
    await world.append(log, told(story, 10))
    runner = world.runner(batch_max=3)
    before = [each for each in await runner.progress() if each.log == log]
    assert {(each.projection, each.generation, each.lag_entries) for each in before} == {
        (name, None, story.size) for name in (projection.name for projection in world.projections)
    }
    await runner.catch_up(log.log_id, story.size)
    after = [each for each in await runner.progress() if each.log == log]
    assert {(each.projection, each.generation, each.lag_entries) for each in after} == {
        (name, 1, 0) for name in (projection.name for projection in world.projections)
    }
    async with world.as_reader(log) as connection:
        assert len(await read_commits(connection)) == 10


async def test_several_logs_are_projected_and_the_doorbell_wakes_the_runner(
    world: World, new_story: Callable[[], Story]
) -> None:
    stories = [told(new_story(), 5) for _ in range(3)]
    logs = [await world.new_log() for _ in stories]
    stop, wake = asyncio.Event(), asyncio.Event()
    applied: list[tuple[str, int]] = []
    # So slow a poll that only the doorbell can be what wakes it.
    runner = ProjectionRunner(
        world.dsn,
        world.without_graph,
        poll_s=3_600,
        on_applied=lambda name, entries: applied.append((name, entries)),
    )
    running = asyncio.create_task(runner.run(stop, wake))
    for log, story in zip(logs, stories, strict=True):
        await world.append(log, story)
        wake.set()
        await until(world, world.without_graph, caught_up)
    stop.set()
    await asyncio.wait_for(running, TIMEOUT_S)
    assert sum(entries for _, entries in applied) == len(world.without_graph) * sum(story.size for story in stories)


async def test_the_runner_looks_for_itself_when_no_doorbell_rings(world: World, story: Story) -> None:
    log = await world.new_log()
    stop = asyncio.Event()
    runner = world.runner(poll_s=0.05)
    running = asyncio.create_task(runner.run(stop))
    await until(world, world.projections, lambda lag: bool(lag))
    await world.append(log, told(story, 3))
    await until(world, world.projections, caught_up)
    stop.set()
    await asyncio.wait_for(running, TIMEOUT_S)


class Bell(asyncio.Event):
    """A doorbell that shows when the runner rests."""

    def __init__(self) -> None:
        super().__init__()
        self.is_awaited = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self.is_awaited.set()
        return await super().wait()


async def test_the_first_change_after_a_rest_is_applied_at_once_and_the_next_waits_for_the_pause(
    world: World, story: Story
) -> None:
    log = await world.new_log()
    stop, wake = asyncio.Event(), Bell()
    runner = ProjectionRunner(world.dsn, world.without_graph, poll_s=3_600, pace_s=3_600)
    running = asyncio.create_task(runner.run(stop, wake))
    await asyncio.wait_for(wake.is_awaited.wait(), TIMEOUT_S)
    await world.append(log, told(story, 2))
    wake.set()
    await until(world, world.without_graph, caught_up)
    size = story.size
    await world.append(log, told(story, 1))
    wake.set()
    stop.set()  # does not wait for the pause
    await asyncio.wait_for(running, TIMEOUT_S)
    assert {each.next_index for each in await runner.progress()} == {size}


async def test_what_comes_during_a_pause_is_applied_after_it(world: World, story: Story) -> None:
    log = await world.new_log()
    stop, wake = asyncio.Event(), asyncio.Event()
    runner = ProjectionRunner(world.dsn, world.without_graph, poll_s=3_600, pace_s=0.05)
    running = asyncio.create_task(runner.run(stop, wake))
    for _ in range(5):
        await world.append(log, told(story, 2))
        wake.set()
        await until(world, world.without_graph, caught_up)
    stop.set()
    await asyncio.wait_for(running, TIMEOUT_S)
    async with world.as_reader(log) as connection:
        assert len(await read_commits(connection)) == 10


async def test_a_backlog_is_applied_without_a_pause(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.append(log, told(story, 10))
    stop = asyncio.Event()
    runner = ProjectionRunner(world.dsn, world.without_graph, batch_max=3, poll_s=3_600, pace_s=3_600)
    running = asyncio.create_task(runner.run(stop))
    await until(world, world.without_graph, caught_up)
    stop.set()
    await asyncio.wait_for(running, TIMEOUT_S)


async def test_no_pause_follows_lineage_whose_sender_waits_for_it(world: World, story: Story) -> None:
    log = await world.new_log()
    stop, wake = asyncio.Event(), asyncio.Event()
    runner = ProjectionRunner(world.dsn, world.without_graph, poll_s=3_600, pace_s=3_600)
    running = asyncio.create_task(runner.run(stop, wake))
    for number in range(3):
        story.lineage([dataset(f"sales.in{number}")], [dataset(f"sales.out{number}")])
        await world.append(log, story)
        wake.set()
        await until(world, world.without_graph, caught_up)
    stop.set()
    await asyncio.wait_for(running, TIMEOUT_S)


async def test_two_runners_at_once_apply_every_entry_once(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.append(log, told(story, 30))
    stop = asyncio.Event()
    applied = [0, 0]

    def count(place: int) -> Callable[[str, int], None]:
        def add(_name: str, entries: int) -> None:
            applied[place] += entries

        return add

    runners = [world.runner(batch_max=2, poll_s=0.01, on_applied=count(place)) for place in (0, 1)]
    running = [asyncio.create_task(runner.run(stop)) for runner in runners]
    await until(world, world.projections, caught_up)
    stop.set()
    await asyncio.wait_for(asyncio.gather(*running), TIMEOUT_S)
    assert sum(applied) == len(world.projections) * story.size
    async with world.as_reader(log) as connection:
        assert len(await read_commits(connection)) == 30


async def test_projections_share_entries_that_were_read_once(world: World, new_story: Callable[[], Story]) -> None:
    log, other = await world.new_log(), await world.new_log()
    for each in (log, other):
        await world.append(each, told(new_story(), 6))
    shared = SharedEntries()
    async with world.as_projector() as connection:
        first = await shared(connection, log.log_id, from_index=2, to_index=8)
        again = await shared(connection, log.log_id, from_index=2, to_index=8)
        some = await shared(connection, log.log_id, from_index=3, to_index=5)
        assert [id(item) for item in again] == [id(item) for item in first]
        assert [id(item) for item in some] == [id(item) for item in first[1:3]]
        # Whatever is not held is read: before, behind, in another log.
        for indices in (range(1, 5), range(4, 9)):
            read = await shared(connection, log.log_id, from_index=indices.start, to_index=indices.stop)
            assert [item.entry.index for item in read] == [*indices]
        (theirs,) = await shared(connection, other.log_id, from_index=4, to_index=5)
        assert theirs.entry.log == other.origin


async def test_entries_that_cannot_be_read_are_not_shared(world: World, story: Story) -> None:
    log = await world.new_log()
    told(story, 1)
    story.raw("policy.bent")
    await world.append(log, story)
    shared = SharedEntries()
    async with world.as_projector() as connection:
        await shared(connection, log.log_id, from_index=0, to_index=1)
        for _ in range(2):
            with pytest.raises(UnknownControlError):
                await shared(connection, log.log_id, from_index=0, to_index=story.size)
        assert len(await shared(connection, log.log_id, from_index=0, to_index=1)) == 1


class DyingProjection(CommitsProjection):
    """Applies, and then its connection is gone: the batch is in the transaction, which cannot commit any more."""

    def __init__(self, database: str, deaths: int) -> None:
        self.database = database
        self.deaths = deaths

    async def apply(self, entries: Sequence[LogEntry], transaction: Transaction) -> None:
        await super().apply(entries, transaction)
        if self.deaths:
            self.deaths -= 1
            with psycopg.connect(self.database, autocommit=True) as admin:
                admin.execute("SELECT pg_terminate_backend(%s)", (transaction.connection.info.backend_pid,))


async def test_a_death_between_apply_and_commit_loses_and_repeats_nothing(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.append(log, told(story, 9))
    projection = DyingProjection(world.database, deaths=2)
    runner = ProjectionRunner(world.dsn, [projection], batch_max=4, poll_s=0.01)
    stop = asyncio.Event()
    running = asyncio.create_task(runner.run(stop))
    await until(world, [projection], caught_up)
    stop.set()
    await asyncio.wait_for(running, TIMEOUT_S)
    assert projection.deaths == 0
    async with world.as_reader(log) as connection:
        commits = await read_commits(connection)
    assert len(commits) == 9
    assert all(commit.outcome == "accepted" for commit in commits if commit.decision == "approved")


async def run_once(world: World, projections: Sequence[Projection], *, batch_max: int = 250) -> None:
    """Run until all are caught up."""
    runner = ProjectionRunner(world.dsn, projections, batch_max=batch_max, poll_s=0.01)
    stop = asyncio.Event()
    running = asyncio.create_task(runner.run(stop))
    await until(world, projections, caught_up)
    stop.set()
    await asyncio.wait_for(running, TIMEOUT_S)


async def transactions_of(world: World, log: Log) -> list[int]:
    """Return the transactions that have moved the cursors last."""
    async with world.as_admin() as connection:
        query = "SELECT DISTINCT xmin::text::bigint FROM projections.cursors WHERE log_id = %s AND next_index > 0"
        return [xmin for (xmin,) in await (await connection.execute(query, (log.log_id,))).fetchall()]


async def test_projections_near_the_end_share_a_transaction(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.append(log, told(story, 3))
    await run_once(world, world.without_graph)
    assert len(await transactions_of(world, log)) == 1
    await world.append(log, told(story, 3))
    await run_once(world, world.without_graph, batch_max=story.size)
    assert len(await transactions_of(world, log)) == 1
    size = story.size
    await world.append(log, told(story, 6))
    await run_once(world, world.without_graph, batch_max=(story.size - size) // 2)
    async with world.as_reader(log) as connection:
        assert len(await read_commits(connection)) == 12
    for projection in world.without_graph:
        assert (await rebuild(world.dsn, projection, log, append=world.attest)).compared


class FailingMetrics(MetricsProjection):
    """Writes what it should, and then a statement of its own is refused."""

    async def apply(self, entries: Sequence[LogEntry], transaction: Transaction) -> None:
        await super().apply(entries, transaction)
        await transaction.connection.execute("SELECT 1 / 0")


async def test_a_projection_that_fails_takes_nothing_from_those_it_shares_a_transaction_with(
    world: World, story: Story
) -> None:
    log = await world.new_log()
    await world.append(log, told(story, 3))
    projections: list[Projection] = [FailingMetrics(), world.commits, world.findings, world.lineage]
    with pytest.raises(psycopg.errors.DivisionByZero):
        await ProjectionRunner(world.dsn, projections).run(asyncio.Event())
    at = {each.projection: each.next_index for each in await world.runner().progress() if each.log == log}
    assert at == {"commits": story.size, "findings": story.size, "graph": 0, "lineage": story.size, "metrics": 0}
    await run_once(world, world.without_graph)
    for projection in world.without_graph:
        assert (await rebuild(world.dsn, projection, log, append=world.attest)).compared


async def test_a_death_in_a_shared_transaction_loses_and_repeats_nothing(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.append(log, told(story, 9))
    dying = DyingProjection(world.database, deaths=2)
    await run_once(world, [dying, world.metrics, world.findings, world.lineage])
    assert dying.deaths == 0
    for projection in world.without_graph:
        assert (await rebuild(world.dsn, projection, log, append=world.attest)).compared


async def test_catch_up_tells_of_a_lost_connection_and_a_second_one_goes_on(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.append(log, told(story, 4))
    runner = ProjectionRunner(world.dsn, [DyingProjection(world.database, deaths=1)])
    with pytest.raises(psycopg.OperationalError):
        await runner.catch_up(log.log_id, story.size)
    assert [each.next_index for each in await runner.progress()] == [0]
    await runner.catch_up(log.log_id, story.size)
    async with world.as_reader(log) as connection:
        assert len(await read_commits(connection)) == 4


async def test_unknown_types_are_skipped_outside_the_control_plane(world: World, story: Story) -> None:
    story.committed()
    story.raw("commit.dreamt")
    story.raw("commit.decided", version=99)
    story.add(
        story.event(
            ProjectionAttested(projection="graph", projection_version=1, generation=1, size=2, digest="0" * 64),
            key="projection:graph",
        )
    )
    story.committed()
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        assert [commit.index for commit in await read_commits(connection)] == [5, 0]


@pytest.mark.parametrize(
    ("event_type", "version"), [("policy.bent", 1), ("policy.created", 99), ("contract.created", 1)]
)
async def test_an_unknown_control_entry_holds_its_own_log_back_and_no_other(
    world: World, story: Story, event_type: str, version: int
) -> None:
    story.committed()
    log = await world.new_log()
    runner, stop = ProjectionRunner(world.dsn, world.without_graph), asyncio.Event()
    await world.append(log, story)
    await runner.catch_up(log.log_id, story.size)
    story.raw(event_type, version)
    await world.append(log, story)
    with pytest.raises(UnknownControlError, match="newer"):
        await runner.catch_up(log.log_id, story.size)
    other_story, other = type(story)(), await world.new_log()
    other_story.committed()
    await world.append(other, other_story)
    running = asyncio.create_task(runner.run(stop))
    # The other log's entries, and the one of this log that is held back.
    await until(world, world.without_graph, lambda lag: set(lag.values()) == {1})
    stop.set()
    await running
    assert {each.next_index for each in await runner.progress() if each.log == log} == {2}
    assert list(runner.too_old_for) == [log.log_id]


async def test_a_generation_of_another_version_is_left_alone(world: World, story: Story) -> None:
    story.committed()
    log = await world.new_log()
    await world.project(log, story)

    class NextCommits(CommitsProjection):
        version = 2

    story.committed()
    await world.append(log, story)
    runner = ProjectionRunner(world.dsn, [NextCommits()], poll_s=0.01)
    with pytest.raises(StaleGenerationError, match="version 2, found 1"):
        await runner.catch_up(log.log_id, story.size)
    assert [each.next_index for each in await runner.progress()] == [2]


async def test_catching_up_past_the_end_is_refused(world: World, story: Story) -> None:
    log = await world.untouched_log()
    await world.append(log, told(story, 1))
    with pytest.raises(ProjectionError, match="or more entries"):
        await world.runner().catch_up(log.log_id, story.size + 1)
    with pytest.raises(ProjectionError, match="or more entries"):
        await world.runner().catch_up(999, 0)


async def test_the_first_generation_is_made_once_by_many_at_once(world: World) -> None:
    log = await world.untouched_log()
    assert log.tenant is not None

    async def once() -> None:
        async with world.as_projector() as connection:
            for projection in world.projections:
                await ensure(connection, projection, log)

    await asyncio.gather(*(once() for _ in range(4)))
    async with world.as_admin() as connection:
        graphs = await (
            await connection.execute("SELECT FROM ag_catalog.ag_graph WHERE name LIKE %s", (f"g_{log.tenant.hex}%",))
        ).fetchall()
        cursor_rows = await (
            await connection.execute("SELECT count(*) FROM projections.cursors WHERE log_id = %s", (log.log_id,))
        ).fetchone()
    assert len(graphs) == 1
    assert cursor_rows == (len(world.projections),)


async def test_a_held_generation_is_passed_over_and_the_others_go_on(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.project(log, told(story, 1))
    told(story, 2)
    await world.append(log, story)
    stop = asyncio.Event()
    runner = world.runner(poll_s=0.01)
    async with world.as_projector() as holder:
        async with holder.transaction():
            await cursors.lock_live(holder, "graph", log.log_id)
            running = asyncio.create_task(runner.run(stop))
            await until(world, world.projections, lambda lag: not lag["commits"] and not lag["metrics"])
            lag = {each.projection: each.lag_entries for each in await runner.progress()}
            assert lag["graph"] > 0
        await until(world, world.projections, caught_up)
    stop.set()
    await asyncio.wait_for(running, TIMEOUT_S)


async def test_a_runner_outlives_a_refusing_database(world: World, story: Story) -> None:
    log = await world.new_log()
    await world.append(log, told(story, 2))
    name = psycopg.conninfo.conninfo_to_dict(world.database)["dbname"]
    refuse = sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {}")
    runner, stop = world.runner(poll_s=0.01), asyncio.Event()
    postgres = psycopg.conninfo.make_conninfo(world.database, dbname="postgres")
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(refuse.format(sql.Identifier(str(name)), sql.SQL("false")))
        running = asyncio.create_task(runner.run(stop))
        with pytest.raises(psycopg.OperationalError):
            await runner.progress()
        admin.execute(refuse.format(sql.Identifier(str(name)), sql.SQL("true")))
    await until(world, world.projections, caught_up)
    stop.set()
    await asyncio.wait_for(running, TIMEOUT_S)
