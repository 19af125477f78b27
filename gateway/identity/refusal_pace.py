"""
The pace at which wrong credentials are refused: at once while they are few, one after the other when they are many.

Whoever sends wrong keys waits for the answer before he sends the next one over that connection. An answer that costs
next to nothing would let a few hundred connections keep the process busy with nothing else; one that is held back for
up to two seconds lets it do its work. Whether the key was malformed, unknown or wrong makes no difference to the pace,
and nobody with a key that is in force ever waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

PER_S: Final = 50
"""Refusals a second beyond which each waits for its turn."""
BURST: Final = 100
"""Refusals that may come at once before that."""
DELAY_MAX_S: Final = 2.0
"""How long an answer is held back at most: clients must hear no within their own time-outs."""


class RefusalPace:
    """Holds refusals back. One per process; owned by the event loop."""

    def __init__(
        self,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._turn_s = monotonic_s() - BURST / PER_S
        """When the next refusal has its turn; behind now, what is left of the burst."""

    async def wait(self) -> None:
        """Wait for the turn of one more refusal."""
        now_s = self._monotonic_s()
        self._turn_s = min(max(self._turn_s, now_s - BURST / PER_S) + 1 / PER_S, now_s + DELAY_MAX_S)
        if self._turn_s > now_s:
            await self._sleep(self._turn_s - now_s)
