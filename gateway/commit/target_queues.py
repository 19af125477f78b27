# SPDX-License-Identifier: Apache-2.0
"""
Mutations of one target take turns in this process: first come, first served, one queue for each table or namespace.

A mutation is judged on what the one before it has made, so mutations of one process do not race each other. Only other
processes are raced, and the guards decide who was first. A queue is about pace, not about safety: without it every
mutation would still be recorded and made exactly once, or not at all.

Guarantee: whoever waits is answered. At most `waiting_max` wait for one target, and none longer than `waiting_s`.
Who leaves, whatever the reason, gives the turn to the next. A target whose mutations are slow delays no other target.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Final, TypeAlias

from gateway.catalogs.catalog import Loaded
from gateway.errors import UnavailableError
from gateway.identifiers import Target

WAITING_MAX: Final = 1_000
"""Mutations that wait for one target. Each holds its request, which is bounded like the number of connections."""
WAITING_S: Final = 10.0
"""As long as an append may take: beyond it, clients better try again later."""


class TargetBusyError(UnavailableError):
    """Too many mutations of one target wait already, or those before this one took too long; nothing was changed."""


_Key: TypeAlias = tuple[int, Target]
"""A log and one of its targets."""


class Turn:
    """
    The turn of one mutation. `before` is the target as the mutation before it left it, in the database by now; None if
    there was none, or it changed nothing that is known here.
    """

    def __init__(self, before: Loaded | None, give_next: Callable[[Loaded | None], None]) -> None:
        self.before = before
        self._give_next = give_next
        self._has_ended = False

    def end(self, left: Loaded | None = None) -> None:
        """Give the turn to the next, with the target as it was `left`; a turn ends once."""
        if not self._has_ended:
            self._has_ended = True
            self._give_next(left)

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
        self._queues: dict[_Key, deque[asyncio.Future[Turn]]] = {}
        """Those who wait while another one has its turn; each future gives one."""

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def waiting(self) -> int:
        """How many mutations wait, for whatever target."""
        return sum(map(len, self._queues.values()))

    @asynccontextmanager
    async def turn(self, log_id: int, target: Target) -> AsyncIterator[Turn]:
        """
        Wait for the turn to mutate `target`; it ends with the context at the latest.

        Raises:
            TargetBusyError: if too many wait, or the turn did not come in time.
        """
        key = log_id, target
        if key in self._queues:
            turn = await self._wait(key)
        else:
            self._queues[key] = deque()
            turn = self._turn(key, None)
        try:
            yield turn
        finally:
            turn.end()

    def _turn(self, key: _Key, before: Loaded | None) -> Turn:
        return Turn(before, partial(self._give_next, key))

    async def _wait(self, key: _Key) -> Turn:
        waiting, path = self._queues[key], key[1].path
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
                given.result().end(given.result().before)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise TargetBusyError(
                f"other requests change {path}, and {self._waiting_s} s passed before this one's turn: nothing was "
                "changed, try again"
            ) from error

    def _give_next(self, key: _Key, left: Loaded | None) -> None:
        """Give the turn to the first who waits, with the target as it was `left`."""
        waiting = self._queues[key]
        while waiting:
            given = waiting.popleft()
            if not given.done():
                given.set_result(self._turn(key, left))
                return
        del self._queues[key]
