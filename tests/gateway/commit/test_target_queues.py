# SPDX-License-Identifier: Apache-2.0
"""
The queues of targets: turns in order, and every way to leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from time import monotonic

import pytest

from gateway.catalogs.catalog import Loaded
from gateway.commit import target_queues
from gateway.commit.target_queues import TargetBusyError, TargetQueues
from gateway.identifiers import Target

ORDERS = Target(alias="lake", namespace=("sales",), name="orders")
LOG = 1


def left_at(location: str) -> Loaded:
    return Loaded(namespace_exists=True, metadata_location=location)


class Mutations:
    """Mutations of one target that have their turns when they are told to go on; `order` has what each found."""

    def __init__(self, queues: TargetQueues) -> None:
        self.queues = queues
        self.order: list[tuple[str, str | None]] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.has_turn = asyncio.Event()
        self._go_on: dict[str, asyncio.Event] = {}

    async def begin(self, *names: str, target: Target = ORDERS, log_id: int = LOG) -> None:
        """Let mutations arrive one after the other."""
        for name in names:
            self._go_on[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._mutate(name, target, log_id))
            await ready()

    async def end(self, *names: str) -> None:
        """Let mutations end their turns, whenever they have them."""
        for name in names:
            self._go_on[name].set()
        await asyncio.gather(*(self.tasks[name] for name in names))

    async def _mutate(self, name: str, target: Target, log_id: int) -> None:
        async with self.queues.turn(log_id, target) as turn:
            self.order.append((name, turn.before.metadata_location if turn.before else None))
            self.has_turn.set()
            await self._go_on[name].wait()
            turn.end(left_at(name))


async def ready() -> None:
    """Let every task run as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_turns_come_in_the_order_of_arrival_with_what_the_one_before_made() -> None:
    mutations = Mutations(TargetQueues())
    await mutations.begin("a", "b", "c", "d")
    assert mutations.order == [("a", None)]
    await mutations.end("d", "c", "b", "a")
    assert mutations.order == [("a", None), ("b", "a"), ("c", "b"), ("d", "c")]
    assert len(mutations.queues) == 0
    await mutations.begin("e")
    assert mutations.order[-1] == ("e", None), "what is not watched any more has to be read"
    await mutations.end("e")


async def test_other_targets_and_other_logs_do_not_wait() -> None:
    mutations = Mutations(TargetQueues(waiting_max=0))
    await mutations.begin("a")
    await mutations.begin("b", target=Target(alias="lake", namespace=("sales",), name="more"))
    await mutations.begin("c", target=Target(alias="lake", namespace=("sales",)))
    await mutations.begin("d", log_id=LOG + 1)
    assert [name for name, _ in mutations.order] == ["a", "b", "c", "d"]
    await mutations.end("a", "b", "c", "d")


async def test_one_that_fails_gives_its_turn_to_the_next_which_has_to_read() -> None:
    queues = TargetQueues()
    mutations = Mutations(queues)

    async def fail() -> None:
        async with queues.turn(LOG, ORDERS):
            await mutations.begin("b")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    await mutations.end("b")
    assert mutations.order == [("b", None)]


async def test_beyond_the_limit_nobody_waits() -> None:
    mutations = Mutations(TargetQueues(waiting_max=2))
    await mutations.begin("a", "b", "c")
    with pytest.raises(TargetBusyError, match=r"2 requests wait to change sales.orders \(at most 2\)"):
        async with mutations.queues.turn(LOG, ORDERS):
            pass
    await mutations.end("a", "b", "c")
    assert [name for name, _ in mutations.order] == ["a", "b", "c"]


async def test_whoever_waits_too_long_is_told_and_leaves_the_queue() -> None:
    mutations = Mutations(TargetQueues(waiting_s=0.0))
    await mutations.begin("a")
    with pytest.raises(TargetBusyError, match=r"other requests change sales.orders, and 0.0 s passed"):
        async with mutations.queues.turn(LOG, ORDERS):
            pass
    await mutations.end("a")
    assert len(mutations.queues) == 0


@pytest.mark.parametrize("gone", ["b", "c", "d"])
async def test_a_cancelled_one_leaves_the_queue(gone: str) -> None:
    mutations = Mutations(TargetQueues())
    await mutations.begin("a", "b", "c", "d")
    mutations.tasks[gone].cancel()
    await ready()
    kept = [name for name in ("a", "b", "c", "d") if name != gone]
    await mutations.end(*kept)
    assert [name for name, _ in mutations.order] == kept
    assert len(mutations.queues) == 0


async def test_a_cancelled_one_has_no_turn_even_if_it_comes_at_the_same_moment() -> None:
    def first_the_cancel(mutations: Mutations) -> None:
        mutations.tasks["b"].cancel()
        mutations.tasks["a"].cancel()

    def first_the_turn(mutations: Mutations) -> None:
        mutations.tasks["a"].cancel()
        asyncio.get_running_loop().call_soon(mutations.tasks["b"].cancel)

    for cancel in list[Callable[[Mutations], None]]((first_the_cancel, first_the_turn)):
        mutations = Mutations(TargetQueues())
        await mutations.begin("a", "b", "c")
        cancel(mutations)
        await ready()
        await mutations.end("c")
        assert [name for name, _ in mutations.order] == ["a", "c"]
        assert len(mutations.queues) == 0


async def test_one_that_is_cancelled_in_its_turn_gives_it_away() -> None:
    mutations = Mutations(TargetQueues())
    await mutations.begin("a", "b")
    mutations.tasks["a"].cancel()
    await mutations.end("b")
    assert mutations.order == [("a", None), ("b", None)]


async def test_a_turn_that_has_lasted_long_enough_ends_while_its_mutation_goes_on() -> None:
    queues = TargetQueues()
    mutations = Mutations(queues)
    async with queues.turn(LOG, ORDERS) as turn:
        await mutations.begin("b", "c")
        with turn.ending_after(0.0):
            await mutations.has_turn.wait()
        assert mutations.order == [("b", None)]
        turn.end(left_at("a"))
    await mutations.end("b", "c")
    assert mutations.order == [("b", None), ("c", "b")], "a turn ends once"


async def test_a_turn_that_ends_in_time_is_not_ended_by_the_clock() -> None:
    queues = TargetQueues()
    mutations = Mutations(queues)
    async with queues.turn(LOG, ORDERS) as turn:
        await mutations.begin("b")
        with turn.ending_after(0.0):
            pass
        await ready()
        assert mutations.order == []
    await mutations.end("b")


# Over before it is made


async def test_the_next_has_its_turn_while_the_one_before_is_made() -> None:
    mutations = Mutations(TargetQueues())
    async with mutations.queues.turn(LOG, ORDERS) as first:
        await mutations.begin("b")
        assert mutations.order == []
        first.pass_on(left_at("a"))
        await ready()
        assert mutations.order == [("b", "a")]
        first.end(left_at("a"))
    await mutations.end("b")
    assert len(mutations.queues) == 0


async def test_what_is_submitted_comes_behind_what_it_was_judged_on() -> None:
    queues = TargetQueues()
    async with queues.turn(LOG, ORDERS) as first:
        first.pass_on(left_at("a"))
        async with queues.turn(LOG, ORDERS) as second:
            waiting = asyncio.create_task(second.before_is_submitted())
            gone = asyncio.create_task(second.before_is_submitted())
            await ready()
            assert not waiting.done()
            gone.cancel()
            first.submitted()
            assert await waiting, "whoever waits is not cancelled with another"
            made = asyncio.create_task(second.before_is_made())
            await ready()
            assert not made.done()
            first.end(left_at("a"))
            assert await made


async def test_if_one_is_not_made_nobody_is_judged_on_it_or_on_those_behind_it() -> None:
    queues = TargetQueues()
    async with queues.turn(LOG, ORDERS) as first, AsyncExitStack() as stack:
        first.pass_on(left_at("a"))
        second = await stack.enter_async_context(queues.turn(LOG, ORDERS))
        second.pass_on(left_at("b"))
        first.end()
        assert not await second.before_is_submitted()
        assert not await second.before_is_made()
        third = await stack.enter_async_context(queues.turn(LOG, ORDERS))
        assert third.before is None, "not what the second would have left"
        third.pass_on(left_at("c"))
        second.end()
        fourth = await stack.enter_async_context(queues.turn(LOG, ORDERS))
        assert fourth.before == left_at("c"), "the end of a former chain ends no other"


async def test_one_that_is_known_not_to_be_made_keeps_its_turn_to_the_end() -> None:
    mutations = Mutations(TargetQueues())
    queues = mutations.queues
    async with queues.turn(LOG, ORDERS) as first, AsyncExitStack() as stack:
        first.pass_on(left_at("a"))
        second = await stack.enter_async_context(queues.turn(LOG, ORDERS))
        second.pass_on(left_at("b"))
        third = await stack.enter_async_context(queues.turn(LOG, ORDERS))
        first.end()
        third.pass_on(left_at("c"))
        await mutations.begin("d")
        assert mutations.order == [], "the second has not ended yet, but the first has"
        third.end()
        await mutations.end("d")
    assert mutations.order == [("d", None)]


async def test_one_that_is_cancelled_while_it_is_made_is_not_made() -> None:
    queues, begun = TargetQueues(), asyncio.Event()

    async def make() -> None:
        async with queues.turn(LOG, ORDERS) as turn:
            turn.pass_on(left_at("a"))
            begun.set()
            await asyncio.Event().wait()

    making = asyncio.create_task(make())
    await begun.wait()
    async with queues.turn(LOG, ORDERS) as second:
        making.cancel()
        assert not await second.before_is_made()


async def test_while_other_processes_are_first_mutations_are_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    mutations = Mutations(TargetQueues())
    async with mutations.queues.turn(LOG, ORDERS) as turn:
        turn.raced()
        turn.pass_on(left_at("a"))
        await mutations.begin("b")
        assert mutations.order == []
        turn.end(left_at("a"))
    await mutations.end("b")
    assert mutations.order == [("b", "a")]
    monkeypatch.setattr(target_queues, "ONE_BY_ONE_S", 0.0)
    async with mutations.queues.turn(LOG, ORDERS) as turn:
        turn.raced()
        turn.pass_on(left_at("a"))
        await mutations.begin("c")
        assert mutations.order[-1] == ("c", "a"), "for a while"
        await mutations.end("c")


async def test_what_was_read_before_a_change_in_this_process_is_known_to_be_old() -> None:
    queues = TargetQueues()
    before_s = monotonic()
    async with queues.turn(LOG, ORDERS) as turn:
        assert not turn.is_newer_than(before_s)
        turn.end(left_at("a"))
    async with queues.turn(LOG, ORDERS) as turn:
        assert turn.is_newer_than(before_s)
        assert not turn.is_newer_than(monotonic())
    async with queues.turn(LOG + 1, ORDERS) as turn:
        assert not turn.is_newer_than(before_s)


async def test_of_few_targets_it_is_remembered_when_they_were_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_queues, "REMEMBERED_MAX", 2)
    queues, before_s = TargetQueues(), monotonic()
    for log_id in range(3):
        async with queues.turn(log_id, ORDERS) as turn:
            turn.end(left_at("a"))
    found = []
    for log_id in (2, 1, 0):
        async with queues.turn(log_id, ORDERS) as turn:
            found.append(turn.is_newer_than(before_s))
    assert found == [True, True, False]
