# SPDX-License-Identifier: Apache-2.0
"""
What leads to a host that never answers: tried some times, apart from everything else, then a dead letter that says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from ledger.errors import LogUnavailableError
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.read import Log
from ledger.store.session import Connection
from streams.connections import connect_storing
from streams.execution import HandledBatch
from streams.handler import DeadLetter, DeferringHandler, Effects, Message
from streams.processing.deferred_runner import OF_LOG_MAX, SLOW_MAX
from streams.processing.replay import ReplayResult
from streams.processing.runner import HandlerRunner
from streams.state import deferred
from streams.state.deferred import ATTEMPTS_MAX, HostLease, count_deferred, read_hosts
from streams.state.leases import LeaseLostError
from testkit.ledger.cutting_proxy import Cut, Plan
from testkit.streams.answering import ANSWERED, AnsweringHosts, told
from testkit.streams.replaying import replayed, wait_no_longer
from testkit.streams.wire import LEASE_S, Wire
from testkit.streams.world import World, check_answers_in_any_order, running, until

HERE, THERE = "here.example", "there.example"
HANDLER = "answering"


async def ask_hosts(world: World, log: Log, *hosts: str | None, **more: Any) -> None:
    """Ask one question of each host; None: of nobody."""
    for number, host in enumerate(hosts):
        await world.tell(log, told(number=number, **({} if host is None else {"host": host}), **more))


async def try_times(world: World, log: Log, handler: AnsweringHosts, times: int) -> None:
    """Let the handler try what is deferred so many times."""
    for _ in range(times):
        await world.catch_up(log, handler)
        await wait_no_longer(world)


async def answered(world: World, log: Log) -> list[int]:
    """Return the indices of the questions of a log that are answered."""
    return sorted(int(str(entry.data["question"]).rpartition("/")[2]) for entry in await world.entries(log, ANSWERED))


async def letters(world: World) -> list[tuple[Any, ...]]:
    return await world.rows("SELECT index, attempts, reason FROM streams.dead_letters ORDER BY log_id, index")


async def test_what_leads_to_hosts_is_handled_like_everything_else(world: World) -> None:
    log = await world.new_log()
    turns: list[HandledBatch] = []
    await ask_hosts(world, log, HERE, None, THERE, HERE)
    await world.tell(log, told(poison="arsenic", host=HERE), told(poison="lead"))
    await world.catch_up(log, AnsweringHosts(), on_batch=turns.append)
    await check_answers_in_any_order(world, log)
    assert not await world.has_row("SELECT FROM streams.deferred")
    assert sum(turn.messages for turn in turns) == 6
    assert sum(turn.dead for turn in turns) == 2


async def test_a_host_that_does_not_answer_holds_up_nothing_behind_it(world: World) -> None:
    log = await world.new_log()
    await ask_hosts(world, log, HERE, THERE, None, THERE, HERE, None)
    handler = AnsweringHosts(HERE)
    await world.catch_up(log, handler)
    assert await answered(world, log) == [1, 2, 3, 5]
    assert await world.has_row("SELECT FROM streams.cursors WHERE next_index >= 6")
    assert await world.rows("SELECT index FROM streams.deferred ORDER BY index") == [(0,), (4,)]
    # Left alone for a while, it is not asked again, whatever else comes.
    await ask_hosts(world, log, HERE, THERE)
    await world.catch_up(log, handler)
    assert handler.asked.count(HERE) == 1
    handler.silent.clear()
    await try_times(world, log, handler, 2)
    await check_answers_in_any_order(world, log)


async def test_a_host_that_never_answers_makes_dead_letters_of_what_waited_all_along(world: World) -> None:
    log = await world.new_log()
    await ask_hosts(world, log, HERE, HERE, HERE)
    handler = AnsweringHosts(HERE)
    await try_times(world, log, handler, ATTEMPTS_MAX - 1)
    assert await letters(world) == []
    await ask_hosts(world, log, HERE)
    await try_times(world, log, handler, 1)
    found = await letters(world)
    assert [index for index, _, _ in found] == [0, 1, 2]
    for _, attempts, reason in found:
        assert attempts == ATTEMPTS_MAX
        assert reason.startswith(f"{HERE} has not answered {ATTEMPTS_MAX} times in a row, at last: {HERE} does not")
    # What came later is tried as often itself.
    await try_times(world, log, handler, ATTEMPTS_MAX - 1)
    assert len(await letters(world)) == 3
    await try_times(world, log, handler, 1)
    assert len(await letters(world)) == 4
    assert len(handler.asked) == 2 * ATTEMPTS_MAX


async def test_what_a_host_never_answers_dies_alone(world: World) -> None:
    """Each failure puts that message behind the others, whose answers say that the host is there."""
    log = await world.new_log()
    await ask_hosts(world, log, HERE, lost=True)
    for _ in range(ATTEMPTS_MAX):
        await ask_hosts(world, log, HERE)
        handler = AnsweringHosts()
        await world.catch_up(log, handler)
        await wait_no_longer(world)
        await world.catch_up(log, handler)
        await wait_no_longer(world)
    ((index, attempts, reason),) = await letters(world)
    assert (index, attempts) == (0, ATTEMPTS_MAX)
    assert reason.startswith(f"tried {ATTEMPTS_MAX} times: {HERE} does not answer")
    assert len(await answered(world, log)) == ATTEMPTS_MAX
    assert not await world.has_row("SELECT FROM streams.deferred")


async def test_a_dead_letter_is_replayed_once_its_host_answers(world: World) -> None:
    log = await world.new_log()
    await ask_hosts(world, log, HERE)
    handler = AnsweringHosts(HERE)
    await try_times(world, log, handler, ATTEMPTS_MAX)
    (postponed,) = await replayed(world, handler)
    assert postponed.result is ReplayResult.POSTPONED
    assert "does not answer" in postponed.reason
    assert len(await letters(world)) == 1
    handler.silent.clear()
    assert [each.result for each in await replayed(world, handler)] == [ReplayResult.HANDLED]
    assert await replayed(world, handler) == []
    await check_answers_in_any_order(world, log)


async def test_pauses_grow_with_each_failure_and_end_with_an_answer(world: World) -> None:
    log = await world.new_log()
    await ask_hosts(world, log, HERE, HERE)
    handler = AnsweringHosts(HERE)
    pauses: list[float] = []
    for _ in range(ATTEMPTS_MAX - 1):
        await world.catch_up(log, handler)
        rows = await world.rows("SELECT extract(epoch FROM free_at - clock_timestamp())::float8 FROM streams.hosts")
        pauses.append(rows[0][0])
        await wait_no_longer(world)
    growing = [pause for pause in pauses if pause < deferred.PAUSE_S_MAX / 2]
    assert growing == sorted(growing) == pauses[: len(growing)]
    assert len(growing) < len(pauses), "in the end they are as long as they get"
    assert await world.rows("SELECT failures, is_quick FROM streams.hosts") == [(ATTEMPTS_MAX - 1, False)]
    handler.silent.clear()
    await world.catch_up(log, handler)
    query = "SELECT failures, failing_since, reason, lease FROM streams.hosts"
    assert await world.rows(query) == [(0, None, None, None)]


async def test_hosts_that_never_answer_hold_up_no_other_tenant(world: World) -> None:
    """More tenants, with more hosts, than are asked at a time; one worker for all the logs."""
    good = await world.new_log()
    await ask_hosts(world, good, THERE)
    handler = Waiting()
    await world.catch_up(good, handler, quick_s=3_600)  # so it is known to answer
    attackers = [await world.new_log() for _ in range(SLOW_MAX + 2)]
    for log in attackers:
        await ask_hosts(world, log, *(f"{number}.example" for number in range(4)), None)
    handler.waits = True
    async with running(world.runner(handler, poll_s=0.02, quick_s=3_600)):
        await until(lambda: handler.waiting == SLOW_MAX)
        await ask_hosts(world, good, THERE, None, THERE, THERE)
        await until(lambda: has_answers(world, good, 5))
        for log in attackers:
            await until(lambda log=log: has_answers(world, log, 1))  # type: ignore[misc]  # the one that asks nobody
        assert handler.waiting == SLOW_MAX
        assert handler.most_of_a_log == OF_LOG_MAX
    assert await world.rows("SELECT count(*) FROM streams.deferred") == [(4 * len(attackers),)]
    assert not await world.has_row("SELECT FROM streams.hosts WHERE lease IS NOT NULL")
    handler.waits = False
    for log in attackers:
        await world.catch_up(log, handler)
        await check_answers_in_any_order(world, log)
    await check_answers_in_any_order(world, good)


async def test_a_new_tenant_comes_before_the_second_host_of_another(world: World) -> None:
    attacker, good = await world.new_log(), await world.new_log()
    handler = AnsweringHosts()
    await ask_hosts(world, attacker, *(f"{number}.example" for number in range(20)))
    await world.catch_up(attacker, DeferringHandler(handler))
    await ask_hosts(world, good, HERE)
    await world.catch_up(good, DeferringHandler(handler))
    async with connect_storing(world.dsn) as connection:
        claims = [await claim(connection) for _ in range(2)]
        assert {one.log_id for one in claims if one is not None} == {attacker.log_id, good.log_id}
        assert await claim(connection) is None, "each has what one may have"
        for one in claims:
            assert one is not None
            await deferred.drop(connection, one, pause_s=0)
        await ask_hosts(world, later := await world.new_log(), HERE)
        await world.catch_up(later, DeferringHandler(handler))
        one = await claim(connection)
        assert one is not None
        assert one.log_id == later.log_id


async def claim(connection: Connection, *, lease_s: float = 30.0) -> HostLease | None:
    return await deferred.claim(connection, [HANDLER], is_quick=False, of_log_max=OF_LOG_MAX, lease_s=lease_s)


async def has_answers(world: World, log: Log, count: int) -> bool:
    return len(await answered(world, log)) >= count


class Waiting(AnsweringHosts):
    """Waits for every host but `THERE` for as long as `waits` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = False
        self.of_log: dict[int, int] = {}
        self.most_of_a_log = 0

    @property
    def waiting(self) -> int:
        """How many hosts are waited for now."""
        return sum(self.of_log.values())

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
        """Wait, or answer."""
        (host,) = await self.hosts(batch[:1], reading)
        if self.waits and host not in {None, THERE}:
            log_id = batch[0].log.log_id
            self.of_log[log_id] = self.of_log.get(log_id, 0) + 1
            self.most_of_a_log = max(self.most_of_a_log, self.of_log[log_id])
            try:
                await asyncio.Event().wait()
            finally:
                self.of_log[log_id] -= 1
        return await super().handle(batch, reading)


STEPS = {
    "defer hosts": b"INSERT INTO streams.hosts",
    "defer": b"INSERT INTO streams.deferred",
    "claim": b"SET lease = gen_random_uuid(), free_at = clock_timestamp() + $1",
    "next": b"SELECT d.index, g.origin",
    "answered": b"SET is_quick",
    "remove": b"DELETE FROM streams.deferred",
    "outbox": b"INSERT INTO streams.outbox",
    "missed": b"SET lease = NULL, is_quick = false",
    "postpone": b"UPDATE streams.deferred",
    "commit": b"COMMIT",
}


@pytest.mark.parametrize("step", STEPS)
async def test_a_wire_cut_at_any_step_loses_and_repeats_nothing(world: World, wire: Wire, step: str) -> None:
    handler = AnsweringHosts()
    runner = HandlerRunner(wire.dsn, [handler], world.append, batch_max=3, poll_s=0.05, lease_s=LEASE_S / 2)
    async with running(runner, asyncio.Event()):
        for cut in (Cut.BEFORE, Cut.AFTER):
            log = await world.new_log()
            handler.silent.add(HERE)
            await until(partial(world.has_row, f"SELECT FROM streams.cursors WHERE log_id = {log.log_id}"))
            plan = wire.proxy.plan = Plan(STEPS[step], cut)
            await ask_hosts(world, log, THERE, HERE, None, THERE)
            await plan.hit.wait()
            await until(partial(has_all, world, log, handler))
            await check_answers_in_any_order(world, log)


async def has_all(world: World, log: Log, handler: AnsweringHosts) -> bool:
    """Tell whether all four questions are answered; the silent host answers once the others have."""
    if len(await answered(world, log)) < 3:
        return False
    handler.silent.clear()
    if not await world.has_row("SELECT FROM streams.hosts WHERE lease IS NOT NULL"):
        await wait_no_longer(world)  # it would end the lease of whoever is about to answer, too
    return not await world.has_row("SELECT FROM streams.deferred") and len(await answered(world, log)) == 4


async def test_an_append_that_loses_its_answer_is_made_up_for(world: World) -> None:
    log = await world.new_log()
    await ask_hosts(world, log, HERE, THERE)
    lost = 0

    async def append(log_id: int, group: Group) -> Appended | Stale:
        nonlocal lost
        outcome = await world.append(log_id, group)
        if not lost:
            lost += 1
            raise LogUnavailableError("no answer")
        return outcome

    handler = AnsweringHosts()
    await world.catch_up(log, handler, append=append)
    # The log was away, no host: nothing is counted against one.
    assert await world.rows("SELECT sum(failures) FROM streams.hosts") == [(0,)]
    await try_times(world, log, handler, 1)
    await wait_no_longer(world)
    await try_times(world, log, handler, 1)
    await check_answers_in_any_order(world, log)


async def test_whoever_has_lost_its_lease_stores_nothing(world: World) -> None:
    log = await world.new_log()
    await ask_hosts(world, log, HERE)

    class Slow(AnsweringHosts):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
            effects = await super().handle(batch, reading)
            if not others.asked:
                # Its lease has run out unnoticed, and another has done its work, which has left already.
                await wait_no_longer(world)
                await world.catch_up(log, others)
                await check_answers_in_any_order(world, log)
                await world.rows("DELETE FROM streams.outbox")
            return effects

    others = AnsweringHosts()
    await world.catch_up(log, Slow())
    assert others.asked
    assert await world.rows("SELECT id FROM streams.outbox") == []


async def test_a_failure_under_a_lost_lease_is_not_counted(world: World) -> None:
    log = await world.new_log()
    await ask_hosts(world, log, HERE)
    await world.catch_up(log, AnsweringHosts(HERE))
    await wait_no_longer(world)
    async with connect_storing(world.dsn) as connection:
        first, second = [await claim(connection, lease_s=0) for _ in range(2)]
        assert isinstance(first, HostLease)
        assert isinstance(second, HostLease)
        message = await deferred.read_next(connection, first)
        assert message is not None
        with pytest.raises(LeaseLostError):
            await deferred.missed(connection, first, message, "late")
        assert [(each.failures, each.messages) for each in await read_hosts(connection)] == [(1, 1)]
        await deferred.missed(connection, second, message, "late")
        assert [(each.failures, each.messages) for each in await read_hosts(connection)] == [(2, 1)]
        assert [(each.failures, each.messages) for each in await count_deferred(connection)] == [(2, 1)]


async def test_any_host_and_any_reason_can_be_stored(world: World) -> None:
    log = await world.new_log()
    hosts = ["", "x" * 10_000, "ünï-𝄞", "it's", '"; DROP TABLE streams.hosts; --', "%s %(host)s"]
    await ask_hosts(world, log, *hosts)
    handler = AnsweringHosts(*hosts)
    await world.catch_up(log, handler)
    assert await world.rows("SELECT count(*) FROM streams.hosts WHERE failures = 1") == [(len(hosts),)]
    handler.silent.clear()
    await try_times(world, log, handler, 2)
    await check_answers_in_any_order(world, log)


def test_a_message_is_tried_for_longer_than_an_hour() -> None:
    pauses = [
        min(deferred.PAUSE_S_MAX, deferred.PAUSE_S * deferred.PAUSE_GROWTH**failures)
        for failures in range(ATTEMPTS_MAX - 1)
    ]
    assert sum(pauses) > 3_600
    assert DeadLetter.__dataclass_fields__["attempts"].default == 1


@pytest.mark.parametrize(("quick_s", "is_quick"), [(3_600.0, True), (-1.0, False)])
async def test_a_host_is_quick_if_it_answered_soon(world: World, quick_s: float, *, is_quick: bool) -> None:
    log = await world.new_log()
    await ask_hosts(world, log, HERE)
    await world.catch_up(log, AnsweringHosts(), quick_s=quick_s)
    assert await world.rows("SELECT is_quick, failures FROM streams.hosts") == [(is_quick, 0)]
