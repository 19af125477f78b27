"""
The pace at which wrong credentials are refused: at once while they are few, one after the other when they are many.

Whoever sends wrong keys waits for the answer before he sends the next one over that connection. An answer that costs
next to nothing would let a few hundred connections keep the process busy with nothing else; one that is held back for a
few seconds lets it do its work. Whether the key was malformed, unknown or wrong makes no difference to the pace, and
nobody with a key that is in force ever waits.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

PER_S: Final = 50
"""Refusals a second beyond which each waits for its turn."""
BURST: Final = 50
"""Refusals that may come at once before that."""
DELAY_MAX_S: Final = 5.0
"""How long an answer is held back at most: clients must hear no within their own time-outs."""
HELD_MAX: Final = 320
"""
Answers held back at a time, further ones are given at once: a connection whose request is not answered yet cannot be
closed to make room for another one.
"""


class RefusalPace:
    """
    Holds refusals back. One per process; owned by the event loop. `fraction` returns a random number from 0 to 1.
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
        """When the next refusal has its turn; as far behind now as there is room for more at once."""
        self._held = 0

    async def wait(self) -> None:
        """Wait for the turn of one more refusal."""
        now_s = self._monotonic_s()
        self._turn_s = max(self._turn_s, now_s - BURST / PER_S) + 1 / PER_S
        delay_s = self._turn_s - now_s
        if delay_s > DELAY_MAX_S:
            # Spread, since they would all be answered, and come again, at the same moment.
            self._turn_s = now_s + DELAY_MAX_S
            delay_s = DELAY_MAX_S * (1 + self._fraction()) / 2
        if delay_s <= 0 or self._held >= HELD_MAX:
            return
        self._held += 1
        try:
            await self._sleep(delay_s)
        finally:
            self._held -= 1
