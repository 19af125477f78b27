# SPDX-License-Identifier: Apache-2.0
"""
The outbox: each message leaves at least once, in order within its key, and holds up no other key, log or sink.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from ledger.errors import LogUnavailableError
from ledger.format.event import derived_group_id
from ledger.format.sequence import Appended, Group, Stale
from streams.errors import StreamError, TransientError
from streams.processing.sender import Sender, SentBatch
from streams.state.outbox import Delivered, QueuedMessage, Rejected, RetryLater, Sink, SinkResult
from testkit.streams.answering import told
from testkit.streams.outbox import Box, put
from testkit.streams.world import World, running, until

LEASE_S = 0.3


async def left(world: World) -> list[str]:
    """Return the ids of what is still in the outbox."""
    return [id_ for (id_,) in await world.rows("SELECT id FROM streams.outbox ORDER BY position")]


def sender(world: World, *sinks: Sink, **options: Any) -> Sender:
    return Sender(world.dsn, sinks, world.append, lease_s=LEASE_S, **options)


async def test_messages_leave_in_order_and_are_removed(world: World) -> None:
    log, box, sent = await world.new_log(), Box(), list[SentBatch]()
    ids = [f"{key}-{number}" for number in range(5) for key in "ab"]
    await put(world, log, *ids)
    await sender(world, box, on_sent=sent.append).drain()
    assert box.taken == ids
    assert await left(world) == []
    assert [each.taken for each in sent] == [4, 4, 2]


async def test_a_message_put_twice_leaves_once(world: World) -> None:
    log, box = await world.new_log(), Box()
    await put(world, log, "a-1", "a-1")
    await put(world, log, "a-1")
    await sender(world, box).drain()
    assert box.taken == ["a-1"]


async def test_one_id_in_two_logs_and_for_two_sinks_is_four_messages(world: World) -> None:
    logs = [await world.new_log(), await world.new_log()]
    boxes = [Box(name="first"), Box(name="second")]
    for log in logs:
        for box in boxes:
            await put(world, log, "a-1", sink=box.name)
    await sender(world, *boxes).drain()
    assert [box.taken for box in boxes] == [["a-1", "a-1"]] * 2


async def test_what_is_postponed_holds_up_its_key_alone(world: World) -> None:
    log = await world.new_log()
    box = Box(lambda each: RetryLater("not now", 3_600) if each.message.id == "a-1" else Delivered())
    await put(world, log, "a-1", "b-1", "a-2", "b-2", "a-3", "c-1")
    await sender(world, box).drain()
    assert box.taken == ["b-1", "b-2", "c-1"]
    assert await left(world) == ["a-1", "a-2", "a-3"]
    attempts = await world.rows("SELECT id, attempts FROM streams.outbox ORDER BY position")
    assert attempts == [("a-1", 1), ("a-2", 0), ("a-3", 0)]
    box.judge = lambda _: Delivered()
    await world.rows("UPDATE streams.outbox SET due_at = '-infinity'")
    await sender(world, box).drain()
    assert box.taken == ["b-1", "b-2", "c-1", "a-1", "a-2", "a-3"]


async def test_the_pause_grows_with_the_attempts_unless_the_sink_says_how_long(world: World) -> None:
    log, box = await world.new_log(), Box(lambda _: RetryLater("not now"))
    await put(world, log, "a-1")
    pauses = []
    for _ in range(12):
        await sender(world, box).drain()
        ((pause_s,),) = await world.rows(
            "SELECT extract(epoch FROM due_at - clock_timestamp())::float8 FROM streams.outbox"
        )
        pauses.append(pause_s)
        await world.rows("UPDATE streams.outbox SET due_at = '-infinity'")
    assert all(later > earlier for earlier, later in pairwise(pauses[:9]))
    assert max(pauses) <= 300
    box.judge = lambda _: RetryLater("not now", 1_000)
    await sender(world, box).drain()
    ((pause_s,),) = await world.rows(
        "SELECT extract(epoch FROM due_at - clock_timestamp())::float8 FROM streams.outbox"
    )
    assert 900 < pause_s <= 1_000


async def test_what_is_refused_is_a_dead_letter_and_the_next_of_its_key_leaves(world: World) -> None:
    log = await world.new_log()
    box = Box(lambda each: Rejected("no such channel\x00") if each.message.id == "a-1" else Delivered())
    await put(world, log, "a-1", "a-2")
    await sender(world, box).drain()
    assert box.taken == ["a-2"]
    assert await left(world) == []
    dead = await world.rows("SELECT source, id, key, payload, reason, attempts FROM streams.dead_letters")
    assert dead == [("sink:test", "a-1", "a", b"{}", "no such channel\ufffd", 1)]


async def test_a_sink_that_is_away_is_tried_again_and_holds_up_no_other(world: World) -> None:
    log = await world.new_log()
    attempts = 0

    class Away(Box):
        async def send(self, messages: Sequence[QueuedMessage]) -> Sequence[SinkResult]:
            nonlocal attempts
            attempts += 1
            if attempts < 3:
                raise TransientError("no broker answers")
            return await super().send(messages)

    away, other = Away(name="away"), Box(name="other")
    await put(world, log, "a-1", sink="away")
    async with running(sender(world, away, other, poll_s=0.02)):
        await put(world, log, "a-1", sink="other")
        await until(lambda: bool(other.taken))
        await until(lambda: bool(away.taken))
    assert await left(world) == []


async def test_the_log_is_told_before_the_message_is_removed(world: World) -> None:
    log, box = await world.new_log(), Box()
    await put(world, log, "a-1")
    failures = [LogUnavailableError("away")]

    def receipt(taken: QueuedMessage) -> Group:
        content = told("test.delivered", id=taken.message.id, attempt=taken.attempts + 1)
        return Group(id=derived_group_id("test.delivered", taken.message.id), then=(content,))

    async def append(log_id: int, group: Group) -> Appended | Stale:
        assert await left(world) == ["a-1"]
        if failures:
            raise failures.pop()
        return await world.append(log_id, group)

    sending = Sender(world.dsn, [box], append, receipts={"test": receipt}, poll_s=0.02)
    async with running(sending):
        await until(lambda: world.has_row("SELECT FROM streams.leases WHERE failures = 0 AND lease IS NULL"))
        await until(lambda: len(box.taken) == 2)
        await until(lambda: world.has_row("SELECT FROM ledger.entries"))
    # Told once, though it was taken twice; and the row is gone.
    assert [entry.data["id"] for entry in await world.entries(log, "test.delivered")] == ["a-1"]
    assert await left(world) == []


async def test_a_later_attempt_s_receipt_is_none_if_the_log_knows_an_earlier_one(world: World) -> None:
    log, box = await world.new_log(), Box()

    def receipt(taken: QueuedMessage) -> Group:
        content = told("test.delivered", attempt=taken.attempts + 1)
        return Group(id=derived_group_id("test.delivered", taken.message.id), then=(content,))

    for attempts in range(2):
        await put(world, log, "a-1")
        await world.rows("UPDATE streams.outbox SET attempts = %s", attempts)
        await sender(world, box, receipts={"test": receipt}).drain()
    assert len(await world.entries(log, "test.delivered")) == 1
    assert await left(world) == []


async def test_what_a_killed_sender_held_is_sent_again_by_another(world: World) -> None:
    log = await world.new_log()
    await put(world, log, "a-1", "a-2")
    begun = asyncio.Event()

    class Dying(Box):
        async def send(self, messages: Sequence[QueuedMessage]) -> Sequence[SinkResult]:
            await super().send(messages)
            begun.set()
            await asyncio.Event().wait()
            return ()

    dying = Dying()
    dead = asyncio.create_task(sender(world, dying).run(asyncio.Event()))
    await begun.wait()
    dead.cancel()
    with suppress(asyncio.CancelledError):
        await dead
    box = Box()
    async with running(sender(world, box, poll_s=0.02)):
        await until(lambda: box.taken == ["a-1", "a-2"])
    assert dying.taken == box.taken  # at least once: it may be twice, under the same ids
    assert await left(world) == []


async def test_two_senders_keep_the_order_of_a_key(world: World) -> None:
    log, box = await world.new_log(), Box()
    ids = [f"a-{number}" for number in range(20)]
    first, second = (sender(world, box, poll_s=0.01) for _ in range(2))
    async with running(first), running(second):
        for id_ in ids:
            await put(world, log, id_)
        await until(lambda: len(box.taken) >= 20)
    assert box.taken == ids


async def test_a_sender_survives_the_loss_of_its_connection(world: World) -> None:
    log, box = await world.new_log(), Box()
    async with running(sender(world, box, poll_s=0.02)):
        await put(world, log, "a-1")
        await until(lambda: box.taken == ["a-1"])
        await world.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lakeproof streams'"
        )
        await put(world, log, "a-2")
        await until(lambda: "a-2" in box.taken)
    assert await left(world) == []


async def test_two_sinks_of_one_name_are_refused(world: World) -> None:
    with pytest.raises(StreamError, match="names that differ"):
        sender(world, Box(), Box())
