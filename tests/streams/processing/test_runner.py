# SPDX-License-Identifier: Apache-2.0
"""
The runner on the real database: every handler is given every entry of its types once, in order, whatever comes between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from ledger.errors import BrokenError, Fault
from ledger.store.session import Connection
from streams.errors import StreamError, TransientError
from streams.execution import HandledBatch
from streams.handler import EVERY_TYPE, Effects, Message
from streams.state.cursors import LOOK_ENTRIES
from testkit.streams.answering import ANSWERED, ASKED, OTHER, Answering, data_of, happened, told
from testkit.streams.world import World, check_answers, running, until


async def test_every_entry_of_its_types_is_handled_once_in_order(world: World) -> None:
    log = await world.new_log()
    await world.ask(log, 10)
    handler = Answering()
    await world.catch_up(log, handler, batch_max=3)
    assert handler.handled == [f"{log.origin}/{2 * number + 1}" for number in range(10)]
    await world.catch_up(log, handler)
    assert len(handler.handled) == 10
    await check_answers(world, log)


async def test_the_lag_is_told_before_and_after(world: World) -> None:
    log = await world.new_log()
    await world.ask(log, 2)
    runner = world.runner(Answering())
    before = await runner.progress()
    assert [(each.handler, each.log, each.lag_entries, each.handled) for each in before] == [("answering", log, 4, 0)]
    await runner.catch_up(log.log_id, 4)
    await runner.catch_up(log.log_id, await world.size(log))
    assert [(each.lag_entries, each.handled, each.failures) for each in await runner.progress()] == [(0, 2, 0)]


async def test_a_running_runner_wakes_at_the_doorbell_for_logs_old_and_new(world: World) -> None:
    handler, wake, turns = Answering(), asyncio.Event(), list[HandledBatch]()
    logs = [await world.new_log()]
    # So slow a poll that only the doorbell can be what wakes it.
    runner = world.runner(handler, workers=3, poll_s=3_600, on_batch=turns.append)
    async with running(runner, wake):
        await until(lambda: world.has_row("SELECT FROM streams.cursors"))
        await world.ask(logs[0], 5)
        wake.set()
        await until(lambda: sum(turn.messages for turn in turns) == 5)
    logs.append(await world.new_log())
    await world.ask(logs[1], 5)
    async with running(runner, wake):
        await until(lambda: sum(turn.messages for turn in turns) == 10)
    assert sum(turn.groups for turn in turns) == sum(turn.outbox for turn in turns) == 10
    for log in logs:
        await check_answers(world, log)


def has_handled(handler: Answering, messages: int) -> bool:
    return len(handler.handled) == messages


async def test_what_comes_in_the_pause_after_a_poll_that_found_nothing_is_handled_after_it(world: World) -> None:
    log = await world.new_log()
    handler, wake = Answering(), asyncio.Event()
    runner = world.runner(handler, workers=1, poll_s=3_600)
    async with running(runner, wake):
        for number in range(1, 6):
            await world.ask(log, 1)
            wake.set()  # once: nothing else wakes the runner, whether it pauses or rests
            await until(partial(has_handled, handler, number))
    await check_answers(world, log)


async def test_a_running_runner_looks_for_itself_when_no_doorbell_rings(world: World) -> None:
    log = await world.new_log()
    runner = world.runner(Answering(), poll_s=0.02)
    async with running(runner):
        await world.ask(log, 3)
        await until(lambda: world.has_row("SELECT FROM streams.cursors WHERE handled = 3"))
        # What nobody is to handle is passed over, too: the last answer is no question.
        await until(lambda: world.has_row("SELECT FROM streams.cursors WHERE next_index = 9"))
    await check_answers(world, log)


async def test_a_log_that_is_made_while_cursors_are_entered_is_handled(world: World) -> None:
    await world.new_log()
    runner = world.runner(Answering(), poll_s=0.02)
    async with await AsyncConnection.connect(world.database) as holding:
        await holding.execute("LOCK TABLE streams.cursors IN SHARE MODE")
        async with running(runner):
            # It has entered the leases of the logs that it saw, and waits before it looks for cursors.
            waiting = "SELECT FROM pg_locks WHERE NOT granted AND relation = 'streams.cursors'::regclass"
            await until(lambda: world.has_row(waiting))
            log = await world.new_log()
            await world.ask(log, 1)
            await holding.rollback()
            await until(lambda: world.has_row("SELECT FROM streams.cursors WHERE handled = 1"))
    await check_answers(world, log)


async def test_each_handler_has_a_position_of_its_own(world: World) -> None:
    log = await world.new_log()
    await world.ask(log, 4)
    first, second = Answering("first"), Answering("second", frozenset({OTHER}))
    await world.catch_up(log, first)
    await world.catch_up(log, first, second)
    assert len(first.handled) == len(second.handled) == 4
    assert len(await world.entries(log, ANSWERED)) == 8


async def test_two_handlers_of_one_name_are_refused(world: World) -> None:
    with pytest.raises(StreamError, match="names that differ"):
        world.runner(Answering(), Answering())


async def test_the_logs_of_different_tenants_do_not_mix(world: World) -> None:
    logs = [await world.new_log() for _ in range(3)]
    for number, log in enumerate(logs):
        await world.ask(log, number + 1)
    batches: list[set[int]] = []

    class Watching(Answering):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
            batches.append({message.log.log_id for message in batch})
            return await super().handle(batch, reading)

    for log in logs:
        await world.catch_up(log, Watching())
    assert batches == [{log.log_id} for log in logs]
    for number, log in enumerate(logs):
        await check_answers(world, log)
        answers = await world.entries(log, ANSWERED)
        assert len(answers) == number + 1
        assert all(str(answer.data["question"]).startswith(log.origin) for answer in answers)


async def test_a_handler_of_every_type_is_given_unknown_ones_and_its_own_answers_no_further(world: World) -> None:
    log = await world.new_log()
    await world.tell(log, told("test.dreamt"), told("policy.dreamt"), told(ASKED))

    class Listening(Answering):
        types = EVERY_TYPE

        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:  # noqa: ARG002 - a handler's shape
            self.handled += [message.id for message in batch]
            return Effects()

    handler = Listening(types=EVERY_TYPE)
    # A control entry of an unknown type stops projections; it is nothing to a handler.
    await world.catch_up(log, handler, batch_max=2)
    assert handler.handled == [f"{log.origin}/{index}" for index in range(3)]


async def test_many_entries_of_other_types_are_passed_in_few_steps(world: World) -> None:
    log = await world.new_log()
    foreign = [told(OTHER, number=number) for number in range(1_000)]
    for at in range(3):
        await world.tell_as_one(log, *foreign[: LOOK_ENTRIES // 2], key=at)
    await world.ask(log, 1)
    turns: list[HandledBatch] = []
    handler = Answering()
    runner = world.runner(handler, on_batch=turns.append)
    await runner.catch_up(log.log_id, await world.size(log))
    assert len(handler.handled) == 1
    assert [turn.messages for turn in turns] == [1]
    await check_answers(world, log)


async def test_a_batch_that_is_put_off_comes_again_whole_and_nothing_overtakes_it(world: World) -> None:
    log = await world.new_log()
    await world.ask(log, 5)
    seen: list[list[str]] = []

    class Waiting(Answering):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
            seen.append([message.id for message in batch])
            if len(seen) <= 2:
                raise TransientError("the storage does not answer")
            return await super().handle(batch, reading)

    handler = Waiting()
    await world.catch_up(log, handler, batch_max=2)
    assert seen[0] == seen[1] == seen[2]
    assert handler.handled == [f"{log.origin}/{2 * number + 1}" for number in range(5)]
    await check_answers(world, log)


async def test_another_log_goes_on_while_one_is_put_off(world: World) -> None:
    logs = [await world.new_log(), await world.new_log()]

    class Picky(Answering):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
            if batch[0].log == logs[0]:
                raise TransientError("this tenant's storage does not answer")
            return await super().handle(batch, reading)

    for log in logs:
        await world.ask(log, 2)
    runner = world.runner(Picky(), poll_s=0.02)
    async with running(runner):
        await until(lambda: world.has_row("SELECT FROM streams.cursors WHERE handled = 2"))
        await until(lambda: world.has_row("SELECT FROM streams.leases WHERE failures >= 2"))
    await check_answers(world, logs[1])
    (behind, _) = await runner.progress()
    assert (behind.log, behind.next_index) == (logs[0], 0)


async def test_a_handler_that_hangs_is_put_off(world: World) -> None:
    log = await world.new_log()
    await world.ask(log, 1)

    class Hanging(Answering):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
            if not self.handled:
                self.handled.append("nothing")
                await asyncio.Event().wait()
            return await super().handle(batch, reading)

    await world.catch_up(log, Hanging(), handle_timeout_s=0.05)
    await check_answers(world, log)


async def test_a_handler_cannot_write_and_sees_no_payload_parts(world: World) -> None:
    log = await world.new_log()
    await world.ask(log, 1)
    refused: list[Any] = []

    class Prying(Answering):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
            for query in ("DELETE FROM streams.outbox", "SELECT * FROM ledger.parts"):
                with pytest.raises(psycopg.Error) as caught:
                    await reading.execute(query)
                refused.append(type(caught.value))
            return await super().handle(batch, reading)

    await world.catch_up(log, Prying())
    assert refused == [psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.InsufficientPrivilege]


async def test_a_corrupt_entry_ends_the_run(world: World) -> None:
    log = await world.new_log()
    await world.ask(log, 1)
    await world.rows("UPDATE ledger.entries SET entry = '{}'")
    with pytest.raises(ExceptionGroup) as caught:
        await world.runner(Answering(), poll_s=0.02).run(asyncio.Event())
    (error,) = caught.value.exceptions
    assert isinstance(error, BrokenError)
    assert (error.fault, error.index, error.where) == (Fault.ENTRY, 1, f"log {log.origin}")


async def test_a_log_that_is_broken_where_a_group_is_looked_up_ends_the_run(world: World) -> None:
    log = await world.new_log()
    await world.ask(log, 1)

    async def broken(*_: object) -> Any:
        raise BrokenError(Fault.HEAD, where="ledger.heads", expected=1, found=2)

    with pytest.raises(BrokenError):
        await world.catch_up(log, Answering(), append=broken)


async def test_catching_up_beyond_the_end_or_in_no_tenant_s_log_is_refused(world: World) -> None:
    log = await world.new_log()
    with pytest.raises(StreamError, match="of 1 or more entries"):
        await world.runner(Answering()).catch_up(log.log_id, 1)
    with pytest.raises(StreamError, match="a tenant's log"):
        await world.runner(Answering()).catch_up(10_000, 0)


async def test_events_of_the_vocabulary_arrive_parsed(world: World, finding: Any) -> None:
    log = await world.new_log()
    await world.tell(log, happened(finding))
    events: list[object] = []

    class Reading(Answering):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:  # noqa: ARG002 - a handler's shape
            events.extend(message.value.event for message in batch if not isinstance(message.value, bytes))
            assert data_of(batch[0])["column"] == finding.column
            return Effects()

    await world.catch_up(log, Reading(types=frozenset({finding.TYPE})))
    assert events == [finding]
