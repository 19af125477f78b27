# SPDX-License-Identifier: Apache-2.0
"""
Child processes that are not left behind, whenever the task that starts or ends them is cancelled.

If `asyncio.create_subprocess_exec` is cancelled, uvloop kills the process, but nobody waits until it has ended; asyncio
waits, but not if it is cancelled again. So a start is finished first, and then what it has started is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Protocol, TypeVar


class Child(Protocol):
    """What is used of an `asyncio.subprocess.Process`."""

    stdin: asyncio.StreamWriter | None

    def kill(self) -> None:
        """Send SIGKILL. Raises ProcessLookupError if the process has ended."""

    async def wait(self) -> int:
        """Wait until the process has ended and the system has reaped it; return its exit status."""


C = TypeVar("C", bound=Child)


async def start_child(starting: Awaitable[C]) -> C:
    """
    Return the process that `starting` starts, with all its pipes. If cancelled, kill it and wait until it has ended.

    Raises what `starting` raises: OSError if there can be no such process.
    """
    start = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(start)
    except asyncio.CancelledError:
        await _uninterrupted(_kill_started(start))
        raise


async def kill_child(process: Child) -> None:
    """Kill a process that may have ended, and wait until the system has reaped it, even if cancelled meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    await _uninterrupted(process.wait())


async def _kill_started(start: Awaitable[Child]) -> None:
    try:
        process = await start
    except OSError:
        return  # there is none
    await kill_child(process)


async def _uninterrupted(ending: Awaitable[object]) -> None:
    """Wait for what takes a moment, however often cancelled meanwhile; raise CancelledError after it, if so."""
    end = asyncio.ensure_future(ending)
    cancelled = None
    while not end.done():
        try:
            await asyncio.wait([end])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    end.result()
