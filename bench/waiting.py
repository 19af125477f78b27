# SPDX-License-Identifier: Apache-2.0
"""
How a bench waits for what another process does: it checks again and again, until it sees it or the time is over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class NotSeenError(Exception):
    """What was waited for did not come in time."""


async def wait_for(poll: Callable[[], Awaitable[T | None]], what: str, *, timeout_s: float, pause_s: float) -> T:
    """
    Return what `poll` returns as soon as that is not None; it is called every `pause_s` seconds.

    Raises:
        NotSeenError: if it is still None after `timeout_s` seconds; names `what` was waited for.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        seen = await poll()
        if seen is not None:
            return seen
        if time.monotonic() > deadline_s:
            raise NotSeenError(f"{what}: not within {timeout_s:g} s")
        await asyncio.sleep(pause_s)
