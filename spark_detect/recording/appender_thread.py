# SPDX-License-Identifier: Apache-2.0
"""
The log for the driver of Spark: an Appender on an event loop in a thread of its own, called from other threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Final, Self

from ledger.append.appender import Appender
from ledger.errors import GroupMismatchError
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.notifications import LogNotifier
from spark_detect.marks import GUARDS

APPEND_TIMEOUT_S: Final = 30.0


class AppenderThread:
    """
    Appends groups of scans, blocking; use as a context manager. `dsn` works as the appender role.

    `_appender` and the task that rings belong to `_loop`: only coroutines on it touch them. `append` may be called from
    any thread but that of the loop, between enter and exit. The other fields are set once.
    """

    def __init__(self, dsn: str) -> None:
        self._notifier = LogNotifier(dsn)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="appender", daemon=True)
        self._dsn = dsn
        self._appender: Appender | None = None
        self._ringing: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def append(self, groups: Iterable[tuple[int, Group]]) -> None:
        """
        Append groups, each to the log of that number; returns when all are durable.

        Raises:
            LedgerError: if one cannot be appended; others may have been.
        """
        asyncio.run_coroutine_threadsafe(self._append(list(groups)), self._loop).result()

    async def _append(self, groups: list[tuple[int, Group]]) -> None:
        await asyncio.gather(*(self._append_one(log_id, group) for log_id, group in groups))

    async def _append_one(self, log_id: int, group: Group) -> Appended | Stale | None:
        if self._appender is None:
            raise AssertionError("append after the appender was stopped")
        try:
            return await self._appender.append(log_id, group, timeout_s=APPEND_TIMEOUT_S)
        except GroupMismatchError:
            # Another process recorded this very scan, and saw it a little otherwise (by a newer metadata file, or
            # before a file was gone): it is recorded once, and what stands there stands.
            return None

    async def _start(self) -> None:
        self._appender = Appender(self._dsn, GuardRegistry(GUARDS), on_append=self._notifier.notify)
        await self._appender.start()
        self._ringing = asyncio.create_task(self._notifier.run())

    async def _stop(self) -> None:
        if self._ringing is not None:
            self._ringing.cancel()
            await asyncio.wait([self._ringing])
        if self._appender is not None:
            await self._appender.stop()
