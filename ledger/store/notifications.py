# SPDX-License-Identifier: Apache-2.0
"""
Tells readers that a log has grown (LISTEN and NOTIFY), and lets a loop wait for more of a log.

Readers need not poll often. NOTIFY never runs inside an append, because in a transaction it takes a cluster-wide lock
through the commit. It runs on a connection of its own, afterwards, and once for many appends. A lost notification costs
a reader one second at most, because readers also poll every second. `wait_for_any` waits until the loop is stopped, a
notification arrives, or the time is over.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Protocol

import psycopg
from psycopg import AsyncConnection, sql

LOG_GROWN: Final = "lakeproof_log"
CHECKPOINT_REQUESTED: Final = "lakeproof_asked"
"""The channel on which callers that wait for receipts request checkpoints from the signer."""
CHECKPOINT_SIGNED: Final = "lakeproof_signed"
"""The channel on which the signer announces new checkpoints."""
PAUSE_S: Final = 0.05
"""
At most one NOTIFY of a process in this time, however much is appended, and at most one wake-up by those of others. The
first after a rest is sent, or heard, at once. Each wakes every process that listens, and a backend for it.
"""
RETRY_S: Final = 1.0
_log = logging.getLogger(__name__)


class LogNotifier:
    """
    The notifications of one process: `notify` after an append; `subscribe` to learn of appends in this and other
    processes.

    `dsn` may be of any role: NOTIFY and LISTEN need no grant.
    """

    def __init__(self, dsn: str) -> None:
        # Only the event loop's thread touches these. `notify` sets the events; `_send` clears its own, and each
        # subscriber clears the one it was given.
        self._dsn = dsn
        self._changed = asyncio.Event()
        self._waiters: set[asyncio.Event] = set()
        self._has_waiters = asyncio.Event()

    def notify(self) -> None:
        """Announce that a log has grown; returns at once."""
        self._changed.set()
        self._wake()

    def subscribe(self) -> asyncio.Event:
        """Return an event that is set at every notification; its owner clears it before it reads."""
        event = asyncio.Event()
        self._waiters.add(event)
        self._has_waiters.set()
        return event

    def unsubscribe(self, event: asyncio.Event) -> None:
        """Stop setting an event that `subscribe` returned."""
        self._waiters.discard(event)

    def _wake(self) -> None:
        for event in self._waiters:
            event.set()

    async def run(self) -> None:
        """Exchange notifications with other processes until cancelled; a lost connection is made again."""
        while True:
            try:
                async with (
                    await AsyncConnection.connect(self._dsn, autocommit=True, connect_timeout=5) as outgoing,
                    await AsyncConnection.connect(self._dsn, autocommit=True, connect_timeout=5) as incoming,
                ):
                    await self._exchange(outgoing, incoming)
            except (psycopg.Error, OSError) as error:
                _log.info("no notifications of growth, readers poll: %s", error)
            await asyncio.sleep(RETRY_S)

    async def _exchange(self, outgoing: AsyncConnection, incoming: AsyncConnection) -> None:
        """
        Send and receive until one of the two fails. No task group: an error in one would hide that it is cancelled.
        """
        exchanging = [asyncio.create_task(self._send(outgoing)), asyncio.create_task(self._receive(incoming))]
        try:
            done, _ = await asyncio.wait(exchanging, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in exchanging:
                task.cancel()
            await asyncio.gather(*exchanging, return_exceptions=True)
        for task in done:
            task.result()

    async def _send(self, connection: AsyncConnection) -> None:
        # One cursor and one text: to make them anew takes longer than to send them.
        notify = sql.SQL("NOTIFY {}").format(sql.Identifier(LOG_GROWN)).as_bytes()
        cursor = connection.cursor()
        while True:
            await self._changed.wait()
            self._changed.clear()
            await cursor.execute(notify)
            await asyncio.sleep(PAUSE_S)

    async def _receive(self, connection: AsyncConnection) -> None:
        await self._has_waiters.wait()  # a process in which nobody waits is not woken
        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(LOG_GROWN)))
        self._wake()  # for what was sent before
        while True:
            # At least one. Those that arrive during the pause wait in the socket, and are then taken together.
            async for _ in connection.notifies(stop_after=1):
                pass
            self._wake()
            await asyncio.sleep(PAUSE_S)


class WakeUp(Protocol):
    """What is set when there may be work: an asyncio.Event, or anything like it (see `LogNotifier`)."""

    async def wait(self) -> object:
        """Return once it is set."""

    def clear(self) -> None:
        """Unset it. Clear before reading: whatever comes after that sets it again."""


async def wait_for_any(stop: asyncio.Event, wake: WakeUp | None, *, timeout_s: float) -> None:
    """
    Return when `stop` or `wake` is set, or the time is over.
    """
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.wait())]
    if wake is not None:
        waits.append(asyncio.ensure_future(_wait(wake)))
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def _wait(wake: WakeUp) -> None:
    await wake.wait()
