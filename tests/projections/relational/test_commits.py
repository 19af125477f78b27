# SPDX-License-Identifier: Apache-2.0
"""
The table of commits on the real database.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ledger.format.events import CommitDecision, CommitOutcome, DetectionKind, Reason
from projections.errors import DigestMismatchError
from projections.processing.generations import rebuild
from projections.relational.belonging import read_belonging
from projections.relational.commits import read_commits, read_commits_of_group
from testkit.projections.story import ORDERS_UUID

if TYPE_CHECKING:
    from testkit.projections.story import Story, World

ITEMS = "table:lake/sales/items"
ORDERS = "table:lake/sales/orders"


async def test_a_commit_is_a_row_with_its_outcome(world: World, story: Story) -> None:
    group = story.decided(snapshots=["1", "2"], reason=Reason(id="p1", version=3))
    story.settled(group, snapshots=["1", "2"])
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        (commit,) = await read_commits(connection)
    assert (commit.index, commit.settled_index, commit.group_id, commit.key) == (0, 1, group, ORDERS)
    assert (commit.alias, commit.namespace, commit.name) == ("lake", ("sales",), "orders")
    assert (commit.actor, commit.principal) == ("a" * 32, "ada@example.com")
    assert (commit.decision, commit.outcome, commit.evidence) == ("approved", "accepted", "answer")
    assert (commit.reason_id, commit.reason_version, commit.snapshots) == ("p1", 3, ("1", "2"))
    assert commit.recorded_at.utcoffset() == timedelta(0)
    assert commit.metadata_location is not None


async def test_what_a_decision_did_not_add_does_not_belong_to_it_whoever_has_added_it(
    world: World, story: Story
) -> None:
    """All of them name one snapshot, which somebody has added: detection has found something in it."""
    named: dict[str, Any] = {"snapshots": ["1"], "table_uuid": ORDERS_UUID}
    story.decided(decision=CommitDecision.REJECTED, **named)
    story.decided(**named)
    for outcome in CommitOutcome:
        story.settled(story.decided(**named), outcome=outcome, **named)
    story.scanned("1", ("email", DetectionKind.EMAIL, 92))
    log = await world.new_log()
    await world.project(log, story)
    belongs: dict[tuple[str, str | None], tuple[int, int]] = {}
    async with world.as_reader(log) as connection:
        for commit in await read_commits(connection):
            belonging = await read_belonging(connection, [commit])
            assert commit.snapshots == ("1",)
            assert bool(belonging.findings) == bool(commit.added)
            belongs[commit.decision, commit.outcome] = len(belonging.scans), len(belonging.findings)
    made = {("approved", None), ("approved", "accepted"), ("approved", "unknown")}
    assert len(belongs) == 2 + len(CommitOutcome)
    assert belongs == {each: ((1, 1) if each in made else (0, 0)) for each in belongs}


async def test_a_transaction_is_several_rows_settled_each_by_its_key(world: World, story: Story) -> None:
    group = story.add(story.decision(ORDERS), story.decision(ITEMS))
    story.add(story.outcome(group, ITEMS), story.outcome(group, ORDERS, CommitOutcome.CONFLICTED))
    log = await world.new_log()
    await world.project(log, story, batch_max=3)
    async with world.as_reader(log) as connection:
        commits = await read_commits_of_group(connection, group)
    assert [(commit.key, commit.outcome) for commit in commits] == [(ORDERS, "conflicted"), (ITEMS, "accepted")]


async def test_commits_are_paged_and_filtered(world: World, story: Story) -> None:
    for number in range(4):
        story.decided(
            ORDERS if number % 2 else ITEMS, CommitDecision.REJECTED if number == 3 else CommitDecision.APPROVED
        )
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        assert [commit.index for commit in await read_commits(connection, limit=3)] == [3, 2, 1]
        assert [commit.index for commit in await read_commits(connection, before=1)] == [0]
        assert [commit.index for commit in await read_commits(connection, key=ORDERS)] == [3, 1]
        assert [commit.index for commit in await read_commits(connection, decision="rejected")] == [3]
        assert [commit.index for commit in await read_commits(connection, key=ITEMS, decision="rejected")] == []


async def test_an_outcome_settles_its_decision_only_and_the_last_one_counts(world: World, story: Story) -> None:
    first, second = story.decided(), story.decided()
    story.settled(second, ITEMS)  # another key: not its outcome
    story.settled(first, outcome=CommitOutcome.UNKNOWN)
    story.settled(first, outcome=CommitOutcome.ACCEPTED)
    log = await world.new_log()
    await world.project(log, story, batch_max=4)
    async with world.as_reader(log) as connection:
        newest, oldest = await read_commits(connection)
    assert (newest.outcome, newest.settled_index) == (None, None)
    assert (oldest.outcome, oldest.settled_index) == ("accepted", 4)


async def test_an_outcome_settles_the_same_rows_wherever_entries_are_cut(world: World, story: Story) -> None:
    # Decisions of one group and key, cut apart or not; outcomes in their batch or later, more than one of them.
    group = story.add(story.decision(ORDERS), story.decision(ITEMS), story.decision(ORDERS, operation="table.drop"))
    story.settled(group, ORDERS, CommitOutcome.UNKNOWN)
    story.settled(group, ORDERS, table_uuid=None)
    story.settled(group, ITEMS, CommitOutcome.CONFLICTED)
    story.committed(ITEMS)
    log = await world.new_log()
    await world.project(log, story, batch_max=1)
    async with world.as_reader(log) as connection:
        commits = await read_commits_of_group(connection, group)
    assert [(commit.key, commit.outcome, commit.settled_index) for commit in commits] == [
        (ORDERS, "accepted", 4),
        (ITEMS, "conflicted", 5),
        (ORDERS, "accepted", 4),
    ]
    for batch_max in range(2, story.size + 1):
        built = await rebuild(world.dsn, world.commits, log, append=world.attest, batch_max=batch_max)
        assert built.compared
    async with world.as_admin() as connection:
        await connection.execute("UPDATE projections.commits SET settled_index = 3 WHERE settled_index = 4")
    with pytest.raises(DigestMismatchError):
        await rebuild(world.dsn, world.commits, log, append=world.attest)


async def test_erased_principals_are_not_there_after_a_rebuild_of_a_log_without_the_parts(
    world: World, story: Story
) -> None:
    story.committed(principal=None)
    log = await world.new_log()
    await world.project(log, story)
    await rebuild(world.dsn, world.commits, log, append=world.attest)
    async with world.as_reader(log) as connection:
        (commit,) = await read_commits(connection)
    assert commit.principal is None
