# SPDX-License-Identifier: Apache-2.0
"""
Dead letters: kept with their reason, replayed through what they died of, removed with the effects of a success.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ledger.errors import LogUnavailableError
from ledger.store.read import Log
from ledger.store.session import Connection
from streams.connections import connect_storing
from streams.errors import PoisonError, TransientError
from streams.handler import DeadLetter, Effects, Message
from streams.processing.replay import ReplayResult, replay
from streams.processing.sender import Sender
from streams.sinks.webhook import WEBHOOK
from streams.state import dead_letters
from streams.state.dead_letters import READ_MAX, count_letters, read_letters
from streams.state.leases import handler_duty
from streams.state.outbox import Delivered, Rejected
from testkit.streams.answering import ASKED, POISON, Answering, told
from testkit.streams.outbox import Box, put
from testkit.streams.replaying import replayed
from testkit.streams.world import World, check_answers


class Cured(Answering):
    """Answers what was poison, too: the handler has been mended."""

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:  # noqa: ARG002 - a handler's shape
        """Answer everything."""
        self.handled += [message.id for message in batch]
        effects = [self.answer(message) for message in batch]
        return Effects(
            groups=tuple(group for each in effects for group in each.groups),
            outbox=tuple(message for each in effects for message in each.outbox),
        )


async def poisoned(world: World, *reasons: str) -> Log:
    """Return a log with as many dead letters."""
    log = await world.new_log()
    await world.tell(log, told(number=0), *(told(**{POISON: reason}) for reason in reasons))
    await world.catch_up(log, Answering())
    return log


async def test_a_dead_entry_stays_in_the_log_and_its_letter_says_why(world: World) -> None:
    log = await poisoned(world, "arsenic")
    async with connect_storing(world.dsn) as connection:
        (letter,) = await read_letters(connection)
        (count,) = await count_letters(connection)
    assert (letter.log, letter.source, letter.id, letter.index) == (log, "handler:answering", f"{log.origin}/1", 1)
    assert letter.payload is None
    assert letter.reason.endswith("is poison: arsenic")
    assert (letter.attempts, count.count, count.source) == (1, 1, "handler:answering")


async def test_what_is_still_poison_stays_dead(world: World) -> None:
    await poisoned(world, "arsenic")
    ((result, reason),) = [(each.result, each.reason) for each in await replayed(world, Answering())]
    assert result is ReplayResult.DEAD
    assert reason.endswith("arsenic")
    assert await world.rows("SELECT attempts FROM streams.dead_letters") == [(2,)]


async def test_what_is_handled_at_last_has_its_effects_and_is_removed(world: World) -> None:
    log = await poisoned(world, "arsenic", "lead")
    assert [each.result for each in await replayed(world, Cured())] == [ReplayResult.HANDLED, ReplayResult.HANDLED]
    assert await replayed(world, Cured()) == []
    assert await world.rows("SELECT id FROM streams.dead_letters") == []
    answers = await world.entries(log, "test.answered")
    assert [answer.data["question"] for answer in answers] == [f"{log.origin}/{index}" for index in (0, 1, 2)]
    assert len(await world.rows("SELECT id FROM streams.outbox")) == 3


async def test_only_the_chosen_letters_are_replayed(world: World) -> None:
    logs = [await poisoned(world, "arsenic", "lead") for _ in range(2)]
    chosen = f"{logs[0].origin}/2"
    assert [each.letter.id for each in await replayed(world, Cured(), id=chosen)] == [chosen]
    assert len(await replayed(world, Cured(), log_id=logs[1].log_id)) == 2
    assert await replayed(world, Cured(), source="handler:other") == []
    assert [each.letter.id for each in await replayed(world, Cured(), source="handler:answering")] == [
        f"{logs[0].origin}/1"
    ]


async def test_a_replay_that_cannot_be_done_now_changes_nothing(world: World) -> None:
    await poisoned(world, "arsenic")

    class Away(Cured):
        def answer(self, message: Message) -> Effects:
            raise TransientError(f"the storage of {message.log.origin} is away")

    ((result, reason),) = [(each.result, each.reason) for each in await replayed(world, Away())]
    assert result is ReplayResult.POSTPONED
    assert reason.endswith("is away")
    assert await world.rows("SELECT attempts FROM streams.dead_letters") == [(1,)]


async def test_a_replay_whose_append_lost_its_answer_can_be_repeated(world: World) -> None:
    log = await poisoned(world, "arsenic")

    async def append(log_id: int, group: Any) -> Any:
        await world.append(log_id, group)
        raise LogUnavailableError("no answer")

    assert [each.result async for each in replay(world.dsn, [Cured()], append)] == [ReplayResult.POSTPONED]
    assert [each.result for each in await replayed(world, Cured())] == [ReplayResult.HANDLED]
    assert len(await world.entries(log, "test.answered")) == 2


async def test_two_replays_at_once_handle_a_letter_once(world: World) -> None:
    log = await poisoned(world, "arsenic")
    both = asyncio.Barrier(2)

    class Together(Cured):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
            await both.wait()
            return await super().handle(batch, reading)

    results = await asyncio.gather(replayed(world, Together()), replayed(world, Together()))
    assert sorted(each.result for result in results for each in result) == [ReplayResult.GONE, ReplayResult.HANDLED]
    assert len(await world.entries(log, "test.answered")) == 2
    assert len(await world.rows("SELECT id FROM streams.outbox")) == 2


async def test_the_letters_of_a_handler_that_does_not_run_here_are_left(world: World) -> None:
    await poisoned(world, "arsenic")
    assert [each.result for each in await replayed(world, Cured("other"))] == [ReplayResult.UNKNOWN]
    assert await world.has_row("SELECT FROM streams.dead_letters")


async def test_a_message_of_a_topic_is_kept_and_replayed_as_it_came(world: World) -> None:
    log = await world.new_log()
    body = b"\x00\xff{not json"
    letter = DeadLetter(message=Message(id="topic/0/7", log=log, value=body), reason="no JSON")
    for _ in range(2):
        async with connect_storing(world.dsn) as connection, connection.transaction():
            await dead_letters.put(connection, handler_duty("topical"), [letter])
    assert await world.rows("SELECT payload, attempts FROM streams.dead_letters") == [(body, 2)]
    seen: list[object] = []

    class Topical(Answering):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:  # noqa: ARG002 - a handler's shape
            seen.extend(message.value for message in batch)
            return Effects()

    assert [each.result for each in await replayed(world, Topical("topical"))] == [ReplayResult.HANDLED]
    assert seen == [body]


async def test_what_a_sink_refused_is_sent_again(world: World) -> None:
    log = await world.new_log()
    box = Box(lambda _: Rejected("no such channel"), name=WEBHOOK)
    await put(world, log, "a-1", sink=WEBHOOK)
    sending = Sender(world.dsn, [box], world.append)
    await sending.drain()
    assert [each.result for each in await replayed(world)] == [ReplayResult.SENT_AGAIN]
    box.judge = lambda _: Delivered()
    await sending.drain()
    assert box.taken == ["a-1"]
    assert not await world.has_row("SELECT FROM streams.dead_letters")


async def test_many_letters_are_replayed_page_by_page(world: World) -> None:
    log = await world.new_log()
    count = READ_MAX + 3
    messages = [Message(id=f"topic/0/{number}", log=log, value=b"x") for number in range(count)]
    letters = [DeadLetter(message=message, reason="bad") for message in messages]
    async with connect_storing(world.dsn) as connection, connection.transaction():
        await dead_letters.put(connection, handler_duty("topical"), letters)

    class Still(Answering):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:  # noqa: ARG002 - a handler's shape
            self.handled += [message.id for message in batch]
            raise PoisonError("still bad")

    handler = Still("topical")
    assert [each.result for each in await replayed(world, handler)] == [ReplayResult.DEAD] * count
    assert sorted(handler.handled) == sorted(letter.message.id for letter in letters)


@pytest.mark.parametrize("reason", ["", "x" * 10_000, "nul \x00", "\ud800 alone", "ünï-𝄞"])
async def test_any_reason_can_be_stored(world: World, reason: str) -> None:
    log = await world.new_log()
    letter = DeadLetter(message=Message(id="\x00", log=log, value=b""), reason=reason)
    async with connect_storing(world.dsn) as connection, connection.transaction():
        await dead_letters.put(connection, handler_duty("topical"), [letter])
    ((stored,),) = await world.rows("SELECT reason FROM streams.dead_letters")
    assert 0 < len(stored) <= 2_000


async def test_a_dead_letter_and_its_position_are_one_transaction(world: World) -> None:
    log = await world.new_log()
    await world.tell(log, told(poison="arsenic"))
    await world.rows("ALTER TABLE streams.cursors ADD CHECK (next_index = 0)")
    with pytest.raises(Exception, match="check constraint"):
        await world.catch_up(log, Answering())
    assert not await world.has_row("SELECT FROM streams.dead_letters")
    await world.rows("ALTER TABLE streams.cursors DROP CONSTRAINT cursors_next_index_check1")
    await world.rows("UPDATE streams.leases SET free_at = '-infinity'")
    await world.catch_up(log, Answering())
    await check_answers(world, log)
    assert len(await world.entries(log, ASKED)) == 1
