# SPDX-License-Identifier: Apache-2.0
"""
The queues of targets: turns in order, and every way to leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.catalogs.catalog import Loaded
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
