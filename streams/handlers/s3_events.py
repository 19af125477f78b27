# SPDX-License-Identifier: Apache-2.0
"""
The handler of S3's events: appends triggers to the logs that they belong to.

A message of S3 names no tenant and may list files of several. So this handler, unlike others, appends to the logs
itself, under derived ids; its messages belong to the system log, where no tenant can read the file names of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from ledger.errors import BrokenError, LedgerError
from ledger.store.session import Connection
from projections.relational.catalogs import read_catalogs
from streams.errors import TransientError
from streams.execution import UNAVAILABLE
from streams.handler import Append, DeadLetter, Effects, Message
from streams.handlers.catalog_locations import CatalogLocations
from streams.handlers.triggers import LogGroup, gather

S3_EVENTS: Final = "s3-events"
APPENDS_MAX: Final = 64
"""Groups that are on their way into the logs at a time."""


class ReceiveS3Events:
    """
    Turns messages of S3 into triggers (implements `streams.handler.Handler`).

    `warehouse` is this installation's own; `on_triggers` is called with the number that was appended.
    """

    name: str = S3_EVENTS
    types: frozenset[str] = frozenset()

    def __init__(
        self,
        append: Append,
        *,
        warehouse: str,
        clock: Callable[[], datetime],
        on_triggers: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._append = append
        self._warehouse = warehouse
        self._clock = clock
        self._on_triggers = on_triggers

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
        """
        Append the triggers of `batch`; return as dead what no catalog, or no log, takes.

        Raises:
            TransientError: if the log is away; what was appended meanwhile is not appended again.
        """
        places = CatalogLocations.of(await read_catalogs(reading), warehouse=self._warehouse)
        gathered = gather(batch, places, at=self._clock())
        turns = asyncio.Semaphore(APPENDS_MAX)
        refused = await asyncio.gather(*(self._append_one(item, turns) for item in gathered.groups))
        self._on_triggers(sum(not dead for dead in refused))
        dead = {letter.message.id: letter for letters in (*refused, gathered.dead) for letter in letters}
        return Effects(dead=tuple(dead.values()))

    async def _append_one(self, item: LogGroup, turns: asyncio.Semaphore) -> Sequence[DeadLetter]:
        """Append one group; return the messages that it comes from as dead if the log will never take it."""
        try:
            async with turns:
                await self._append(item.log.log_id, item.group)
        except UNAVAILABLE as error:
            raise TransientError(str(error)) from error
        except BrokenError:
            raise
        except LedgerError as error:
            return [DeadLetter(message=message, reason=str(error)) for message in item.messages]
        return ()
