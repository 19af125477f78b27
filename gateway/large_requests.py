"""
Where the bodies of large requests are parsed: not on the loop on which every tenant's requests are answered.

Guarantee: of one tenant at most one large body is parsed at a time, in a thread, and the others of it wait for that;
small ones are parsed where they are, since handing them over would cost more than it saves. What is parsed is pure.

A thread that computes and the loop share the interpreter's lock, which changes hands when its interval is over.
`SWITCH_INTERVAL_S` is what a process that serves sets it to: a commit comes back to the loop some dozens of times, and
with Python's own 5 ms each of them may wait that long for the lock.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

SMALL_BYTES_MAX: Final = 64 * 2**10
"""A body up to that is parsed within a millisecond or two."""
SWITCH_INTERVAL_S: Final = 0.0005


class LargeRequests:
    """The tenants of which a large body is parsed or waits to be."""

    def __init__(self) -> None:
        self._turns: dict[int, asyncio.Lock] = {}
        self._asking: Counter[int] = Counter()

    async def parse(self, log_id: int, body: bytes, parse: Callable[[], T]) -> T:
        """Return what `parse` makes of `body`, which a tenant has sent; its errors are the caller's."""
        if len(body) <= SMALL_BYTES_MAX:
            return parse()
        turn = self._turns.setdefault(log_id, asyncio.Lock())
        self._asking[log_id] += 1
        try:
            async with turn:
                return await asyncio.to_thread(parse)
        finally:
            self._asking[log_id] -= 1
            if not self._asking[log_id]:
                del self._asking[log_id], self._turns[log_id]
