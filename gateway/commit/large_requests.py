"""
Where the bodies of large requests are parsed: not on the loop on which every tenant's requests are answered.

Guarantee: of one tenant at most one large body is parsed at a time, and after it none for `REST` times as long as it
took, so that a tenant has a tenth of the interpreter for its large bodies, however many it sends; a single one waits
for nothing. Small ones are parsed where they are: handing them over would cost more than it saves.

A thread that computes and the loop share the interpreter's lock, which changes hands when its interval is over, and
not at all while JSON is read: hence the rest. `SWITCH_INTERVAL_S` is what a process that serves sets the interval to: a
commit comes back to the loop some dozens of times, and with Python's own 5 ms each of them may wait that long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

T = TypeVar("T")

SMALL_BYTES_MAX: Final = 64 * 2**10
"""A body up to that is parsed within a millisecond or two."""
REST: Final = 9
SWITCH_INTERVAL_S: Final = 0.0001


@dataclass(slots=True)
class _Turns:
    """Of one tenant: whose turn it is, when the next one may begin (on the loop's clock), how many there are."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    next_s: float = 0.0
    asking: int = 0


class LargeRequests:
    """The tenants of which a large body is parsed, waits to be, or was parsed a moment ago."""

    def __init__(self) -> None:
        self._turns: dict[int, _Turns] = {}

    async def parse(self, log_id: int, body: bytes, parse: Callable[[], T]) -> T:
        """Return what `parse`, which is pure, makes of `body`, which a tenant has sent; its errors are the caller's."""
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
