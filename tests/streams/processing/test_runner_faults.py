# SPDX-License-Identifier: Apache-2.0
"""
Faults at every step of a turn: handling, appending, storing, committing; each fails, loses its answer, or kills.

Whatever happened, in the end each question has one answer in the log and one message in the outbox, what is poison is a
dead letter, and no lease is left.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, product
from typing import TypeAlias

import psycopg
import pytest

from ledger.errors import (
    FormatError,
    GroupMismatchError,
    GuardError,
    LedgerError,
    LimitExceededError,
    LogUnavailableError,
    NotCanonicalError,
    OutcomeUnknownError,
    QueueFullError,
)
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.read import Log
from ledger.store.session import Connection
from streams.errors import PoisonError, TransientError
from streams.handler import Effects, Message
from streams.processing.runner import HandlerRunner
from testkit.environment import PROJECT
from testkit.ledger.cutting_proxy import Cut, Plan
from testkit.streams.answering import POISON, Answering, told
from testkit.streams.wire import LEASE_S, Wire
from testkit.streams.world import TIMEOUT_S, World, check_answers, running, until

STEPS = {
    "claim": b"SET lease = gen_random_uuid()",
    "find the place": b"SELECT c.next_index, h.size",
    "read": b"type = ANY",
    "keep the lease": b"interval '1 second', failures = 0",
    "give the lease back": b"SET lease = NULL, free_at = clock_timestamp(), failures = 0",
    "outbox": b"INSERT INTO streams.outbox",
    "dead letters": b"INSERT INTO streams.dead_letters",
    "cursor": b"UPDATE streams.cursors SET next_index = $",
    "commit": b"COMMIT",
}


VICTIMS = 2
NewWire: TypeAlias = Callable[[], AbstractAsyncContextManager[Wire]]


async def ask_with_poison(world: World, log: Log) -> None:
    """Ask five questions, the third of which is poison."""
    await world.ask(log, 2)
    await world.tell(log, told(poison="arsenic"))
    await world.ask(log, 2)


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
async def test_a_wire_cut_at_any_step_loses_and_repeats_nothing(world: World, new_wire: NewWire, cut: Cut) -> None:
    """Each step has a runner, a handler and a wire: most of the time it waits for a lease to end."""
    log = await world.new_log()
    are_ready = asyncio.Barrier(len(STEPS) + 1)

    async def cut_at(step: str) -> None:
        wake, handler = asyncio.Event(), Answering(step)
        async with new_wire() as wire:
            runner = HandlerRunner(wire.dsn, [handler], world.append, batch_max=3, poll_s=3_600, lease_s=LEASE_S)
            async with running(runner, wake):
                # Its first look is over, so that what is cut below belongs to a batch.
                await until(lambda: world.has_row(f"SELECT FROM streams.cursors WHERE handler = '{step}'"))
                plan = wire.proxy.plan = Plan(STEPS[step], cut)
                await are_ready.wait()
                await are_ready.wait()
                wake.set()
                await plan.hit.wait()
                await until(partial(has_handled, world, log, step, wake))

    async with asyncio.TaskGroup() as steps:
        for step in STEPS:
            steps.create_task(cut_at(step))
        await are_ready.wait()
        await ask_with_poison(world, log)
        await are_ready.wait()
    for step in STEPS:
        await check_answers(world, log, step)


async def has_handled(world: World, log: Log, handler: str, wake: asyncio.Event) -> bool:
    """Wake a runner, and tell whether its handler has handled the five questions of a log."""
    wake.set()
    return await world.has_row(
        f"SELECT FROM streams.cursors WHERE log_id = {log.log_id} AND handler = '{handler}' AND handled = 5"
    )


@dataclass
class Failing(Answering):
    """Raises once what it is told to, then answers."""

    error: Exception | None = None

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
        """Raise, or answer."""
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return await super().handle(batch, reading)


async def test_a_handler_that_fails_once_loses_and_repeats_nothing(world: World) -> None:
    for error in (
        TransientError("the storage is away"),
        PoisonError("one of them is bad"),
        TimeoutError("too slow"),
        ConnectionResetError("gone"),
        KeyError("what its author did not think of"),
        FormatError("key", expected="a key", found=""),
        NotCanonicalError("a float"),
        LimitExceededError("event", found=2, limit=1),
        psycopg.DataError("a NUL in a text"),
    ):
        log = await world.new_log()
        await ask_with_poison(world, log)
        failing = Failing(error)
        await world.catch_up(log, failing)
        assert failing.error is None
        await check_answers(world, log)


async def test_a_handler_whose_connection_is_lost_is_given_another(world: World) -> None:
    log = await world.new_log()
    await ask_with_poison(world, log)
    lost = 0

    class Cutting(Answering):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
            nonlocal lost
            if not lost:
                lost += 1
                await world.rows("SELECT pg_terminate_backend(%s)", reading.info.backend_pid)
                await reading.execute("SELECT 1")
            return await super().handle(batch, reading)

    async with running(world.runner(Cutting(), poll_s=0.02, lease_s=LEASE_S)):
        await until(lambda: world.has_row("SELECT FROM streams.cursors WHERE handled = 5"))
    assert lost == 1
    await check_answers(world, log)


@pytest.mark.parametrize("error", [LogUnavailableError, OutcomeUnknownError, QueueFullError])
async def test_an_append_that_fails_or_loses_its_answer_is_made_up_for(world: World, error: type[LedgerError]) -> None:
    for nth, is_in in product([1, 3], [False, True]):
        log = await world.new_log()
        await ask_with_poison(world, log)
        numbers = count(1)

        async def append(
            log_id: int, group: Group, *, numbers: Iterator[int] = numbers, nth: int = nth, is_in: bool = is_in
        ) -> Appended | Stale:
            if next(numbers) == nth:
                if is_in:
                    await world.append(log_id, group)
                raise error("no answer")
            return await world.append(log_id, group)

        await world.catch_up(log, Answering(), append=append)
        assert next(numbers) > nth + 1
        await check_answers(world, log)


async def test_a_stale_group_is_judged_anew(world: World) -> None:
    log = await world.new_log()
    await world.ask(log, 2)
    answers: list[Appended | Stale] = [Stale(control_index=7)]

    async def append(log_id: int, group: Group) -> Appended | Stale:
        return answers.pop() if answers else await world.append(log_id, group)

    await world.catch_up(log, Answering(), append=append)
    await check_answers(world, log)


@pytest.mark.parametrize("error", [GroupMismatchError, GuardError, LedgerError])
async def test_what_the_log_refuses_for_good_is_a_dead_letter_and_the_rest_goes_on(
    world: World, error: type[LedgerError]
) -> None:
    log = await world.new_log()
    await world.ask(log, 4)

    async def append(log_id: int, group: Group) -> Appended | Stale:
        if b'/3"' in group.then[0].data:  # not the origin of a log that begins with 3
            raise error("refused for good")
        return await world.append(log_id, group)

    await world.catch_up(log, Answering(), append=append)
    assert await world.rows("SELECT index, reason FROM streams.dead_letters") == [(3, "refused for good")]
    assert len(await world.entries(log, "test.answered")) == 3


@pytest.mark.parametrize("count", [1, 2, 7])
async def test_poison_is_found_wherever_it_stands_and_holds_nobody_up(world: World, count: int) -> None:
    for bad in range(count):
        log = await world.new_log()
        for number in range(count):
            data = {POISON: "arsenic"} if number == bad else {"number": number}
            await world.tell(log, told(**data))
        handler = Answering()
        await world.catch_up(log, handler)
        # Halved, not tried one by one.
        assert len(handler.handled) <= count * (count.bit_length() + 1)
        await check_answers(world, log)


async def test_nothing_but_poison_is_nothing_but_dead_letters(world: World) -> None:
    log = await world.new_log()
    for number in range(5):
        await world.tell(log, told(poison=f"number {number}\x00"))
    await world.catch_up(log, Answering(), batch_max=2)
    await check_answers(world, log)
    reasons = await world.rows("SELECT reason FROM streams.dead_letters ORDER BY index")
    assert [reason for (reason,) in reasons] == [
        f"{log.origin}/{number} is poison: number {number}\ufffd" for number in range(5)
    ]


async def test_what_a_handler_breaks_on_is_not_quoted_in_its_dead_letter(world: World) -> None:
    log = await world.new_log()
    await world.tell(log, told(secret="4111 1111 1111 1111"))

    class Broken(Answering):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:  # noqa: ARG002 - a handler's shape
            raise ValueError(f"cannot read {batch}")

    await world.catch_up(log, Broken())
    ((reason,),) = await world.rows("SELECT reason FROM streams.dead_letters")
    assert "ValueError" in reason
    assert "4111" not in reason


async def test_a_killed_task_s_lease_runs_out_and_another_takes_over(world: World) -> None:
    log = await world.new_log()
    await ask_with_poison(world, log)
    begun = asyncio.Event()

    class Stuck(Answering):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
            begun.set()
            await asyncio.Event().wait()
            return await super().handle(batch, reading)

    dead = asyncio.create_task(world.runner(Stuck(), lease_s=LEASE_S).run(asyncio.Event()))
    await begun.wait()
    dead.cancel()
    with suppress(asyncio.CancelledError):
        await dead
    assert await world.has_row("SELECT FROM streams.leases WHERE lease IS NOT NULL")
    await world.catch_up(log, Answering())
    await check_answers(world, log)


async def test_whoever_has_lost_its_lease_stores_nothing(world: World) -> None:
    log = await world.new_log()
    await ask_with_poison(world, log)
    taken_over = Answering()

    class Slow(Answering):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
            effects = await super().handle(batch, reading)
            if not taken_over.handled:
                # Its lease has run out unnoticed (the process was stopped, say), and another has done its work.
                await world.rows("UPDATE streams.leases SET free_at = '-infinity'")
                await world.catch_up(log, taken_over)
                await check_answers(world, log)
                # What the other put into the outbox has left already, and must not leave again.
                await world.rows("DELETE FROM streams.outbox")
            return effects

    await world.catch_up(log, Slow())
    assert taken_over.handled
    assert await world.rows("SELECT id FROM streams.outbox") == []
    assert await world.rows("SELECT attempts FROM streams.dead_letters") == [(1,)]
    assert await world.rows("SELECT handled FROM streams.cursors") == [(5,)]


async def test_a_long_turn_keeps_its_lease(world: World) -> None:
    log = await world.new_log()
    await world.ask(log, 1)

    class Long(Answering):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
            (first,) = await world.rows("SELECT lease, free_at FROM streams.leases")
            # Until it was renewed a few times.
            query = "SELECT FROM streams.leases WHERE lease = '{}' AND free_at >= '{}'::timestamptz + interval '{} s'"
            await until(lambda: world.has_row(query.format(*first, 3 * LEASE_S)))
            return await super().handle(batch, reading)

    await world.catch_up(log, Long(), lease_s=LEASE_S)
    await check_answers(world, log)


# In processes of their own, killed.


@asynccontextmanager
async def worker(world: World, **settings: object) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process with a runner; yield it once that has begun."""
    chosen: dict[str, object] = {
        "dsn": world.dsn,
        "appender_dsn": world.installation.as_role(world.roles.appender),
        "dies_at": None,
        "after": 2,
        "batch_max": 3,
        "lease_s": LEASE_S,
        "poll_s": 0.02,
        **settings,
    }
    program = (sys.executable, "-m", "testkit.streams.doomed_worker", json.dumps(chosen))
    pipe, folder = asyncio.subprocess.PIPE, PROJECT
    process = await asyncio.create_subprocess_exec(*program, cwd=folder, stdin=pipe, stdout=pipe)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() in {b"ready\n", b""}
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.communicate(), TIMEOUT_S)


@pytest.mark.parametrize("step", ["handle", "append"])
async def test_a_process_that_dies_while_it_handles_or_behind_an_append_is_made_up_for(world: World, step: str) -> None:
    log = await world.new_log()
    await ask_with_poison(world, log)
    async with worker(world, dies_at=step) as process:
        assert await asyncio.wait_for(process.wait(), TIMEOUT_S) == -signal.SIGKILL
    assert not await world.has_row("SELECT FROM streams.outbox")
    await world.catch_up(log, Answering())
    await check_answers(world, log)


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
@pytest.mark.parametrize("step", ["outbox", "cursor", "commit"])
async def test_a_process_that_is_killed_while_it_stores_is_made_up_for(
    world: World, wire: Wire, step: str, cut: Cut
) -> None:
    log = await world.new_log()
    async with worker(world, dsn=wire.dsn, poll_s=3_600) as process:
        assert process.stdin is not None

        async def kill() -> None:
            process.kill()
            await process.wait()

        await until(lambda: world.has_row("SELECT FROM streams.cursors"))
        # Its first look is over, so that the next commit is a batch's.
        wire.proxy.plan = Plan(STEPS[step], cut, then=kill)
        await ask_with_poison(world, log)
        process.stdin.write(b"ring\n")
        assert await asyncio.wait_for(process.wait(), TIMEOUT_S) == -signal.SIGKILL
    stored = step == "commit" and cut is Cut.AFTER
    assert await world.has_row("SELECT FROM streams.outbox") is stored
    await world.catch_up(log, Answering())
    await check_answers(world, log)


async def test_two_processes_with_two_workers_share_the_work_while_one_is_killed_again_and_again(world: World) -> None:
    logs = [await world.new_log() for _ in range(4)]
    async with worker(world, batch_max=2) as survivor:
        for _ in range(VICTIMS):
            async with worker(world, batch_max=2) as victim:
                for log in logs:
                    await ask_with_poison(world, log)
                victim.kill()
        query = "SELECT FROM streams.cursors HAVING sum(handled) = {}"
        await until(lambda: world.has_row(query.format(len(logs) * VICTIMS * 5)))
        survivor.terminate()
        assert await asyncio.wait_for(survivor.wait(), TIMEOUT_S) == 0
    for log in logs:
        await check_answers(world, log)


async def test_two_runners_with_workers_share_the_work(world: World) -> None:
    logs = [await world.new_log() for _ in range(3)]
    handlers = [Answering(), Answering()]
    runners = [world.runner(handler, workers=2, batch_max=2, poll_s=0.01) for handler in handlers]
    async with running(runners[0]), running(runners[1]):
        for log in logs:
            await world.ask(log, 10)
        await until(lambda: world.has_row("SELECT FROM streams.cursors HAVING sum(handled) = 30"))
    assert sum(len(handler.handled) for handler in handlers) >= 30
    for log in logs:
        await check_answers(world, log)
