# SPDX-License-Identifier: Apache-2.0
"""
Parses the bodies of large requests in a thread, so that the event loop keeps answering all tenants.

Guarantee: at most one large body per tenant is parsed at a time, and then none for `REST` times as long as it took. A
tenant thus has a tenth of the interpreter for its large bodies, however many it sends; a single one does not wait.
Small bodies are parsed on the event loop: a thread would cost more than it saves.

The thread and the event loop share the interpreter's lock. The lock changes hands after the switch interval, and not
at all while JSON is parsed: hence the pause. A serving process sets the interval to `SWITCH_INTERVAL_S`: a commit comes
back to the event loop some dozens of times, and with Python's default of 5 ms each of them may wait that long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

T = TypeVar("T")

SMALL_BYTES_MAX: Final = 64 * 2**10
"""A body of this size is parsed within one or two milliseconds."""
REST: Final = 9
SWITCH_INTERVAL_S: Final = 0.0001


@dataclass(slots=True)
class _Turns:
    """
    One tenant's large bodies; event loop only.

    `lock` is held while one is parsed, `next_s` is when the next may begin (on the loop's clock), `asking` counts those
    that wait or are parsed.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    next_s: float = 0.0
    asking: int = 0


class LargeRequests:
    """Parses large bodies in turns. `_turns` (event loop only) has the tenants with large bodies now or recently."""

    def __init__(self) -> None:
        self._turns: dict[int, _Turns] = {}

    async def parse(self, log_id: int, body: bytes, parse: Callable[[], T]) -> T:
        """Return the result of `parse`, a pure function, for a tenant's `body`; its errors are raised."""
        if len(body) <= SMALL_BYTES_MAX:
            return parse()
        loop = asyncio.get_running_loop()
        self._forget(loop.time())
        turns = self._turns.setdefault(log_id, _Turns())
        turns.asking += 1
        try:
            async with turns.lock:
                await asyncio.sleep(turns.next_s - loop.time())
                began_s = loop.time()
                try:
                    return await asyncio.to_thread(parse)
                finally:
                    turns.next_s = loop.time() + REST * (loop.time() - began_s)
        finally:
            turns.asking -= 1

    def _forget(self, now_s: float) -> None:
        for log_id in [one for one, turns in self._turns.items() if not turns.asking and turns.next_s <= now_s]:
            del self._turns[log_id]
