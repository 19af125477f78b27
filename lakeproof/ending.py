# SPDX-License-Identifier: Apache-2.0
"""
How a long-running process ends: at a signal, or with an appender that can append no more.

An appender ends by itself only through an error that no retry helps against; then it refuses every group. A process
that ends is started again by its supervisor, and says why it ended.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from lakeproof.errors import first_of_group
from ledger.append.appender import Appender


@contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` at SIGINT and SIGTERM while the context is open."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@asynccontextmanager
async def end_with_appender(appender: Appender) -> AsyncIterator[None]:
    """
    Cancel the work in the context as soon as `appender` has ended otherwise than by `stop`.

    Raises:
        LogUnavailableError: if its task was cancelled.
        Exception: whatever else ended it, or is raised in the context.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(appender.ended(), name="appender watched")
            try:
                yield
            finally:
                watching.cancel()
    except ExceptionGroup as group:
        raise first_of_group(group) from group
