# SPDX-License-Identifier: Apache-2.0
"""
The pace of refusals of wrong credentials: at once while they are few, one after the other when they are many.

A client sends the next key on a connection only after the answer to the last. If refusals were immediate, a few hundred
connections could keep the process busy; with a delay of a few seconds they cannot. Malformed, unknown and wrong keys
are treated alike, and requests with valid keys never wait.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

PER_S: Final = 50
"""Refusals per second beyond which each waits for its turn."""
BURST: Final = 50
"""Refusals that may come at once before that."""
DELAY_MAX_S: Final = 5.0
"""The longest delay of an answer: clients must receive it within their own time-outs."""
HELD_MAX: Final = 320
"""
Answers delayed at a time; further ones are sent at once. A connection with an unanswered request cannot be closed to
make space for another one.
"""


class RefusalPace:
    """
    Delays refusals. One per process; `_turn_s` and `_held` belong to the event loop. `fraction` returns a random number
    from 0 to 1.
    """

    def __init__(
        self,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        fraction: Callable[[], float] = random.random,
    ) -> None:
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._fraction = fraction
        self._turn_s = monotonic_s() - BURST / PER_S
        """When the next refusal has its turn; in the past by as much as the unused burst allows."""
        self._held = 0

    async def wait(self) -> None:
        """Wait for the turn of one more refusal."""
        now_s = self._monotonic_s()
        self._turn_s = max(self._turn_s, now_s - BURST / PER_S) + 1 / PER_S
        delay_s = self._turn_s - now_s
        if delay_s > DELAY_MAX_S:
            # Randomised, so that not all are answered, and repeated, at the same moment.
            self._turn_s = now_s + DELAY_MAX_S
            delay_s = DELAY_MAX_S * (1 + self._fraction()) / 2
        if delay_s <= 0 or self._held >= HELD_MAX:
            return
        self._held += 1
        try:
            await self._sleep(delay_s)
        finally:
            self._held -= 1
