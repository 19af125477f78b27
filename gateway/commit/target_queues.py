# SPDX-License-Identifier: Apache-2.0
"""
Mutations of one target take turns in this process: first come, first served, one queue for each table or namespace.

A mutation is judged on what the one before it makes, so mutations of one process do not race each other. Only other
processes are raced, and the guards decide who was first. Where that happens, commits to a table are passed on to one
process (`gateway/http/peers.py`). A queue is about pace, not about safety: without it every
mutation would still be recorded and made exactly once, or not at all.

The turn is over as soon as it is known what the mutation makes of the target. While its file is written and its group
is appended, the next one is judged on that, so that several are appended together. If the one before is not made, the
guard of the next does not hold, and it takes another turn. While other processes change the target, too, that would be
in vain for all that follow, so they are made one by one then.

Guarantee: groups are submitted in the order of the turns. Whoever waits is answered. At most `waiting_max` wait for one
target, and none longer than `waiting_s`. Who leaves, whatever the reason, gives the turn to the next. A target whose
mutations are slow delays no other target.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, TypeAlias

from gateway.catalogs.catalog import Loaded
from gateway.errors import UnavailableError
from gateway.identifiers import Target

WAITING_MAX: Final = 1_000
"""Mutations that wait for one target. Each holds its request, which is bounded like the number of connections."""
WAITING_S: Final = 10.0
"""As long as an append may take: beyond it, clients better try again later."""
REMEMBERED_MAX: Final = 4_096
"""Targets of which it is remembered when they were changed: far more than change within the time of one request."""
ONE_BY_ONE_S: Final = 1.0
"""For so long after another process was first, mutations of a target are made one by one."""


class TargetBusyError(UnavailableError):
    """Too many mutations of one target wait already, or those before this one took too long; nothing was changed."""


_Key: TypeAlias = tuple[int, Target]
"""A log and one of its targets."""


class _Left:
    """What a mutation leaves to the next one: the target as it will be, and what is known of that."""

    def __init__(self, target: Loaded, chain: int) -> None:
        loop = asyncio.get_running_loop()
        self.target = target
        self.chain = chain
        self.is_submitted: asyncio.Future[bool] = loop.create_future()
        """Whether its group was submitted to the log."""
        self.is_made: asyncio.Future[bool] = loop.create_future()
        """Whether it was made: is durable."""

    def settle(self, *, is_made: bool) -> None:
        for known in (self.is_submitted, self.is_made):
            if not known.done():
                known.set_result(is_made)


@dataclass(slots=True, kw_only=True)
class _Queue:
    """The mutations of one target."""

    waiting: deque[asyncio.Future[Turn]] = field(default_factory=deque)
    """Those who wait while another one has its turn; each future gives one."""
    users: int = 0
    """Mutations that wait, have their turn, or are being made."""
    is_taken: bool = False
    """Whether somebody has the turn."""
    last: _Left | None = None
    """What the last one whose turn is over left, unless it is known that it will not be made."""
    chain: int = 0
    """Of mutations of one chain, each was judged on the one before: if one is not made, none behind it is."""
    changed_s: float = 0.0
    """When a mutation was last made or given up, on the clock of `monotonic`."""
    one_by_one_until_s: float = 0.0

    def settle(self, left: _Left, *, is_made: bool) -> None:
        """Note what became of the mutation that was to leave the target so."""
        left.settle(is_made=is_made)
        if not is_made and left.chain == self.chain:
            self.last = None
            self.chain += 1

    def is_broken_before(self, left: _Left | None) -> bool:
        """Return whether it is known that the mutation that was to leave the target so is not made."""
        if left is None or (left.is_made.done() and left.is_made.result()):
            return False
        return left.chain != self.chain

    def give_next(self) -> None:
        """Give the turn to the first who waits."""
        while self.waiting:
            given = self.waiting.popleft()
            if not given.done():
                given.set_result(Turn(self))
                return
        self.is_taken = False


class Turn:
    """
    The turn of one mutation: it is judged, and nobody else is meanwhile. It may be over before the mutation is made.
    """

    def __init__(self, queue: _Queue) -> None:
        self._queue = queue
        self._before = queue.last
        self._left: _Left | None = None
        self._is_over = False

    @property
    def before(self) -> Loaded | None:
        """
        The target as the mutation before this one leaves it, if that is made; None if there was none, or it changes
        nothing that is known here.
        """
        return None if self._before is None else self._before.target

    def is_newer_than(self, read_s: float) -> bool:
        """Return whether a mutation of this process may have changed the target since it was read, at `monotonic`."""
        return self._queue.changed_s >= read_s

    async def before_is_submitted(self) -> bool:
        """Wait until `before` was submitted to the log, so that what is submitted now comes behind it."""
        return self._before is None or await asyncio.shield(self._before.is_submitted)

    async def before_is_made(self) -> bool:
        """Wait until it is known whether `before` is made."""
        return self._before is None or await asyncio.shield(self._before.is_made)

    def pass_on(self, left: Loaded) -> None:
        """
        Give the turn to the next, which is judged on the target as it is `left` if this mutation is made.

        Not if it is known already that this one will not be made, or while other processes change the target.
        """
        is_alone = asyncio.get_running_loop().time() < self._queue.one_by_one_until_s
        if not self._is_over and not is_alone and not self._queue.is_broken_before(self._before):
            self._left = self._queue.last = _Left(left, self._queue.chain)
            self._end()

    def submitted(self) -> None:
        """Let what follows be submitted to the log, too, from the next turn of the event loop on."""
        if self._left is not None and not self._left.is_submitted.done():
            self._left.is_submitted.set_result(True)

    def raced(self) -> None:
        """Note that another process was first: for a while, turns are over when mutations are made."""
        self._queue.one_by_one_until_s = asyncio.get_running_loop().time() + ONE_BY_ONE_S

    def end(self, left: Loaded | None = None) -> None:
        """End the mutation, and the turn: it left the target so, or (None) was not made or left what is not known."""
        self._queue.changed_s = monotonic()
        if not self._is_over:
            self._left = None if left is None else _Left(left, self._queue.chain)
            self._queue.last = self._left
            self._end()
        if self._left is not None and not self._left.is_made.done():
            self._queue.settle(self._left, is_made=left is not None)

    def decline(self) -> None:
        """Give the turn to the next unused."""
        self._end()

    def _end(self) -> None:
        self._is_over = True
        self._queue.give_next()

    @contextmanager
    def ending_after(self, seconds: float) -> Iterator[None]:
        """End the turn after so long: what is done in the context waits for others, and may take longer."""
        timer = asyncio.get_running_loop().call_later(seconds, self.end)
        try:
            yield
        finally:
            timer.cancel()


class TargetQueues:
    """The queues of one process, of targets that somebody mutates now. Event loop only."""

    def __init__(self, *, waiting_max: int = WAITING_MAX, waiting_s: float = WAITING_S) -> None:
        self._waiting_max = waiting_max
        self._waiting_s = waiting_s
        self._queues: dict[_Key, _Queue] = {}
        self._changed_s: OrderedDict[_Key, float] = OrderedDict()
        """When targets without a queue were last changed; of many, those that were changed last."""

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def waiting(self) -> int:
        """How many mutations wait, for whatever target."""
        return sum(len(queue.waiting) for queue in self._queues.values())

    @property
    def mutations(self) -> int:
        """How many mutations wait, have their turn, or are being made."""
        return sum(queue.users for queue in self._queues.values())

    def is_idle(self, log_id: int, target: Target) -> bool:
        """Return whether nobody mutates `target`, or waits to."""
        return (log_id, target) not in self._queues

    @asynccontextmanager
    async def turn(self, log_id: int, target: Target) -> AsyncIterator[Turn]:
        """
        Wait for the turn to mutate `target`; mutation and turn end with the context at the latest.

        Raises:
            TargetBusyError: if too many wait, or the turn did not come in time.
        """
        key = log_id, target
        if (queue := self._queues.get(key)) is None:
            queue = self._queues[key] = _Queue(changed_s=self._changed_s.pop(key, 0.0))
        queue.users += 1
        try:
            if queue.is_taken:
                turn = await self._wait(queue, target.path)
            else:
                queue.is_taken = True
                turn = Turn(queue)
            try:
                yield turn
            finally:
                turn.end()
        finally:
            queue.users -= 1
            if not queue.users:
                del self._queues[key]
                self._changed_s[key] = queue.changed_s
                if len(self._changed_s) > REMEMBERED_MAX:
                    self._changed_s.popitem(last=False)

    async def _wait(self, queue: _Queue, path: str) -> Turn:
        waiting = queue.waiting
        if len(waiting) >= self._waiting_max:
            raise TargetBusyError(
                f"{len(waiting)} requests wait to change {path} (at most {self._waiting_max}): nothing was changed, "
                "try again later"
            )
        given: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        waiting.append(given)
        try:
            async with asyncio.timeout(self._waiting_s):
                return await given
        except (TimeoutError, asyncio.CancelledError) as error:
            if given.cancelled():
                with suppress(ValueError):  # it was skipped already
                    waiting.remove(given)
            else:  # the turn came at the same moment
                given.result().decline()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise TargetBusyError(
                f"other requests change {path}, and {self._waiting_s} s passed before this one's turn: nothing was "
                "changed, try again"
            ) from error
