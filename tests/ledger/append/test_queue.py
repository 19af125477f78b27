# SPDX-License-Identifier: Apache-2.0
"""Who is in the next batch: order within a log, fairness between logs, and the limits of one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.append.appender import APPEND_QUEUE_BYTES_MAX, APPEND_QUEUE_MAX
from ledger.append.queue import BATCH_SIZE_BYTES_MAX, GUARDED_GROUPS_MAX, Submission, SubmissionBatch, SubmissionQueue
from ledger.errors import QueueFullError
from ledger.format.event import Event, Part, prepare
from ledger.format.guards import GuardCall
from ledger.format.sequence import Group


def submission(log_id: int = 1, *, guarded: bool = False, size_bytes: int = 0, deadline_s: float = 10) -> Submission:
    part = Part(name="inputs", payload=bytes(size_bytes), salt=bytes(32))
    event = Event(
        type="a.b",
        version=1,
        key="k",
        actor="system",
        occurred_at=datetime(2026, 3, 1, tzinfo=UTC),
        data={},
        parts=(part,),
    )
    guard = (GuardCall("g", {}),) if guarded else ()
    group = Group(id=uuid4(), then=(prepare(event),), guard=guard)
    return Submission(log_id, group, asyncio.get_running_loop().create_future(), deadline_s)


def filled(*submissions: Submission) -> SubmissionQueue:
    intake = SubmissionQueue(groups_max=10_000, size_bytes_max=2**30)
    for one in submissions:
        intake.add(one)
    return intake


def sizes(batch: SubmissionBatch) -> dict[int, int]:
    return {log_id: len(line) for log_id, line in batch.items()}


async def test_a_log_s_groups_are_taken_in_their_order() -> None:
    waiting = [submission() for _ in range(5)]
    intake = filled(*waiting)
    assert intake.take(3) == {1: waiting[:3]}
    assert intake.take(3) == {1: waiting[3:]}
    assert intake.take(3) == {}
    assert len(intake) == 0


async def test_what_is_given_back_comes_first_again_and_in_its_order() -> None:
    waiting = [submission() for _ in range(5)]
    intake = filled(*waiting)
    batch = intake.take(3)
    intake.requeue(batch[1])
    assert len(intake) == 5
    assert intake.take(5) == {1: waiting}


async def test_a_busy_log_leaves_room_for_the_others() -> None:
    intake = filled(*[submission(1) for _ in range(1000)], submission(2), submission(3), submission(4))
    assert sizes(intake.take(256)) == {1: 253, 2: 1, 3: 1, 4: 1}


async def test_busy_logs_share_a_batch_evenly() -> None:
    intake = filled(*[submission(log_id) for log_id in (1, 2) for _ in range(1000)])
    assert sizes(intake.take(256)) == {1: 128, 2: 128}


async def test_with_more_logs_than_room_every_log_has_its_turn() -> None:
    intake = filled(*[submission(log_id) for log_id in range(10) for _ in range(3)])
    turns = [log_id for _ in range(5) for log_id in intake.take(4)]
    assert sorted(turns) == sorted(2 * list(range(10)))


async def test_a_log_that_gives_everything_back_keeps_nobody_waiting() -> None:
    intake = filled(*[submission(1) for _ in range(1000)])
    for number in range(5):
        late = submission(2)
        intake.add(late)
        batch = intake.take(256)
        assert batch[2] == [late], number
        intake.requeue(batch[1])


async def test_a_batch_holds_at_most_fifty_guarded_groups() -> None:
    waiting = [submission(guarded=True) for _ in range(GUARDED_GROUPS_MAX + 1)]
    intake = filled(*waiting, submission(), submission(2))
    assert sizes(intake.take(256)) == {1: 50, 2: 1}
    # The 51st waits, and what stands behind it in its log does not overtake it.
    assert intake.take(256)[1][0] is waiting[-1]


async def test_a_batch_holds_at_most_so_many_bytes_but_always_something() -> None:
    heavy = [submission(size_bytes=2_000_000) for _ in range(5)]
    intake = filled(*heavy, submission(2))
    batch = intake.take(256)
    assert sizes(batch) == {1: 2, 2: 1}
    assert sum(s.group.size_bytes for line in batch.values() for s in line) <= BATCH_SIZE_BYTES_MAX
    assert sizes(intake.take(256)) == {1: 2}
    assert sizes(intake.take(256)) == {1: 1}


async def test_one_that_must_go_alone_does_when_its_turn_comes() -> None:
    alone = submission(2)
    alone.alone = True
    intake = filled(submission(1), submission(1), alone, submission(2))
    assert sizes(intake.take(256)) == {1: 2}
    intake.add(submission(1))
    assert intake.take(256) == {2: [alone]}
    assert sizes(intake.take(256)) == {1: 1, 2: 1}


async def test_nothing_is_taken_for_whom_nobody_waits_any_more() -> None:
    gone, waits = submission(), submission()
    gone.answer.cancel()
    intake = filled(gone, waits)
    assert intake.take(256) == {1: [waits]}
    assert len(intake) == 0
    only = submission()
    intake.add(only)
    only.answer.cancel()
    assert intake.take(256) == {}
    assert len(intake) == 0


async def test_expired_groups_are_taken_out_and_the_others_stay() -> None:
    early, late, gone = submission(deadline_s=1), submission(deadline_s=3), submission(2)
    gone.answer.cancel()
    intake = filled(early, late, gone)
    assert intake.remove_expired(2) == [early]
    assert intake.waiting() == [late]
    assert intake.remove_expired(2) == []
    assert intake.remove_expired(3) == [late]
    assert len(intake) == 0


async def test_a_full_intake_refuses_and_takes_again_when_there_is_room() -> None:
    intake = SubmissionQueue(groups_max=2, size_bytes_max=2**30)
    intake.add(submission())
    intake.add(submission(2))
    assert not intake.has_room_for(submission(3).group)
    with pytest.raises(QueueFullError, match="2 groups wait"):
        intake.add(submission(3))
    intake.take(1)
    intake.add(submission(3))


async def test_an_intake_is_full_of_bytes_as_of_groups() -> None:
    intake = SubmissionQueue(groups_max=10_000, size_bytes_max=3_000_000)
    first, second = submission(size_bytes=1_400_000), submission(2, size_bytes=1_400_000)
    intake.add(first)
    intake.add(second)
    assert intake.size_bytes == first.group.size_bytes + second.group.size_bytes
    with pytest.raises(QueueFullError, match="try again later") as refused:
        intake.add(submission(size_bytes=1_400_000))
    assert str(intake.size_bytes) in str(refused.value)
    intake.add(submission(3, size_bytes=1_000))  # what still fits is taken


async def test_what_leaves_the_intake_leaves_room_however_it_leaves() -> None:
    def taken(intake: SubmissionQueue) -> object:
        return intake.take(10)

    def given_up(intake: SubmissionQueue) -> object:
        intake.waiting()[0].answer.cancel()
        return intake.take(10)

    leave: list[Callable[[SubmissionQueue], object]] = [
        taken,
        given_up,
        lambda i: i.remove_expired(99),
        SubmissionQueue.take_all,
    ]
    for leaves in leave:
        intake = SubmissionQueue(groups_max=10, size_bytes_max=100_000)
        intake.add(submission(size_bytes=90_000))
        assert not intake.has_room_for(submission(size_bytes=90_000).group)
        leaves(intake)
        assert (len(intake), intake.size_bytes) == (0, 0)
        intake.add(submission(size_bytes=90_000))


async def test_what_is_given_back_takes_its_room_again() -> None:
    intake = SubmissionQueue(groups_max=10, size_bytes_max=100_000)
    intake.add(submission(size_bytes=90_000))
    intake.requeue(intake.take(1)[1])
    with pytest.raises(QueueFullError):
        intake.add(submission(size_bytes=90_000))


async def test_a_group_that_is_larger_than_all_room_is_taken_when_nothing_waits() -> None:
    intake = SubmissionQueue(groups_max=10, size_bytes_max=1_000)
    intake.add(submission(size_bytes=2_000))
    with pytest.raises(QueueFullError):
        intake.add(submission())


async def test_ten_thousand_ordinary_groups_have_room_and_memory_is_bounded() -> None:
    one = submission(size_bytes=2_000).group
    assert APPEND_QUEUE_MAX * one.size_bytes < APPEND_QUEUE_BYTES_MAX <= 128 * 1024 * 1024


@settings(max_examples=50, deadline=None)
@given(
    lines=st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.sampled_from([0, 0, 1_500_000])), max_size=40),
    room=st.integers(1, 8),
)
def test_everyone_is_taken_once_and_in_order_whatever_waits(lines: list[tuple[int, bool, int]], room: int) -> None:
    async def taken() -> tuple[list[Submission], list[Submission]]:
        waiting = [submission(log_id, guarded=guarded, size_bytes=size) for log_id, guarded, size in lines]
        intake = filled(*waiting)
        order: list[Submission] = []
        while batch := intake.take(room):
            assert sum(map(len, batch.values())) <= room
            order += [s for line in batch.values() for s in line]
        return waiting, order

    waiting, order = asyncio.run(taken())
    for log_id in range(1, 5):
        assert [s for s in order if s.log_id == log_id] == [s for s in waiting if s.log_id == log_id]
    assert len(order) == len(waiting)
