# SPDX-License-Identifier: Apache-2.0
"""
What a duty is, and how the duties of one process run: together, watched, until they are told to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeAlias

from lakeproof.errors import first_of_group
from lakeproof.messages import Say
from lakeproof.services import Services

Ready: TypeAlias = Callable[[], None]
"""Called once, when what others wait for is done."""


class Duty(Protocol):
    """One duty. What it raises ends the process: it met corruption, a fault of ours, or what people must repair."""

    async def __call__(self, services: Services, stop: asyncio.Event, say: Say, ready: Ready, /) -> None:
        """Work until `stop` is set, and finish what has begun; `say` takes messages for people."""


@asynccontextmanager
async def watched(services: Services) -> AsyncIterator[None]:
    """
    Exchange notifications with other processes while the context is open, which ends if nothing is appended any more.

    Raises:
        LogUnavailableError: if the task of the appender was cancelled.
        Exception: whatever else ended it, or is raised in the context.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            appending = tasks.create_task(services.appender.ended(), name="appender watched")
            notifying = tasks.create_task(services.notifier.run(), name="notifications")
            yield
            # Not after an error: the group cancels them then, and a second cancel would interrupt their clean-up.
            appending.cancel()
            notifying.cancel()
    except ExceptionGroup as group:
        raise first_of_group(group) from group


async def run_duties(duties: Sequence[Duty], services: Services, stop: asyncio.Event, say: Say, ready: Ready) -> None:
    """
    Run duties until `stop` is set; `ready` is called when all of them are. The first that fails ends the others.

    Raises:
        ExceptionGroup: of whatever they raise.
    """
    waiting = len(duties)

    def one_is_ready() -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            ready()

    async with asyncio.TaskGroup() as tasks:
        for duty in duties:
            tasks.create_task(duty(services, stop, say, one_is_ready))
