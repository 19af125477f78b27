"""
How a loop waits for more of the log: until it is told to stop, a bell rings, or it is time to look for itself.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

BACK_OFF_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Waits while the database, or what else a loop needs, is away; the last one repeats."""


class Bell(Protocol):
    """What rings when there may be work: asyncio.Event, or anything like it (see `ledger.doorbell`)."""

    async def wait(self) -> object:
        """Return when it has rung since it was cleared."""

    def clear(self) -> None:
        """Be silent until it rings again. Cleared before looking: what comes from then on rings again."""


def back_off_s(failures: int) -> float:
    """
    Return how long to wait after so many failures in a row before this one.
    """
    return BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)]


async def first_of(stop: asyncio.Event, bell: Bell | None, *, timeout_s: float) -> None:
    """
    Return when `stop` is set, `bell` rings, or the time is over.
    """
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.wait())]
    if bell is not None:
        waits.append(asyncio.ensure_future(_rung(bell)))
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def _rung(bell: Bell) -> None:
    await bell.wait()
