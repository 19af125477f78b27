"""
What works for long beside an appender ends when that can append no more, and does not go on in vain.

An appender ends by itself only through what should not be: then every group is refused, for ever, and no retry helps.
A process that ends is started again by whatever runs it, and says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lakeproof.errors import first_of_group
from ledger.append.appender import Appender


@asynccontextmanager
async def ends_with_the_appender(appender: Appender) -> AsyncIterator[None]:
    """
    Cancel what is done in the context as soon as `appender` has ended otherwise than by `stop`.

    Raises:
        LogUnavailableError: if its task was cancelled.
        Exception: what else has ended it; or what is raised in the context.
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
