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
"""The channel on which the signer is asked for checkpoints, by those who wait for receipts."""
CHECKPOINT_SIGNED: Final = "lakeproof_signed"
"""The channel on which the signer tells that checkpoints have left."""
PAUSE_S: Final = 0.02
"""At most one NOTIFY in this time, whatever is appended."""
RETRY_S: Final = 1.0
_log = logging.getLogger(__name__)


class LogNotifier:
    """
    One process's doorbell: `notify` after an append; `subscribe` to be told of appends here and elsewhere.

    `dsn` may be of any role; NOTIFY and LISTEN need no grant.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._rung = asyncio.Event()
        self._waiters: set[asyncio.Event] = set()

    def notify(self) -> None:
        """Say that a log has grown; returns at once."""
        self._rung.set()
        self._wake()

    def subscribe(self) -> asyncio.Event:
        """Return an event that is set at every ring; its owner clears it before it looks."""
        event = asyncio.Event()
        self._waiters.add(event)
        return event

    def unsubscribe(self, event: asyncio.Event) -> None:
        """Stop setting an event that `subscribe` returned."""
        self._waiters.discard(event)

    def _wake(self) -> None:
        for event in self._waiters:
            event.set()

    async def run(self) -> None:
        """Carry rings to and from other processes until cancelled; a lost connection is made again."""
        while True:
            try:
                async with (
                    await AsyncConnection.connect(self._dsn, autocommit=True, connect_timeout=5) as outgoing,
                    await AsyncConnection.connect(self._dsn, autocommit=True, connect_timeout=5) as incoming,
                ):
                    await self._carry(outgoing, incoming)
            except (psycopg.Error, OSError) as error:
                _log.info("the doorbell is silent, readers poll: %s", error)
            await asyncio.sleep(RETRY_S)

    async def _carry(self, outgoing: AsyncConnection, incoming: AsyncConnection) -> None:
        """Send and receive until one of the two fails. No task group: what fails in one hides that it is cancelled."""
        carrying = [asyncio.create_task(self._send(outgoing)), asyncio.create_task(self._receive(incoming))]
        try:
            done, _ = await asyncio.wait(carrying, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in carrying:
                task.cancel()
            await asyncio.gather(*carrying, return_exceptions=True)
        for task in done:
            task.result()

    async def _send(self, connection: AsyncConnection) -> None:
        notify = sql.SQL("NOTIFY {}").format(sql.Identifier(LOG_GROWN))
        while True:
            await self._rung.wait()
            self._rung.clear()
            await connection.execute(notify)
            await asyncio.sleep(PAUSE_S)

    async def _receive(self, connection: AsyncConnection) -> None:
        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(LOG_GROWN)))
        async for _ in connection.notifies():
            self._wake()


class WakeUp(Protocol):
    """What rings when there may be work: asyncio.Event, or anything like it (see `LogNotifier`)."""

    async def wait(self) -> object:
        """Return when it has rung since it was cleared."""

    def clear(self) -> None:
        """Be silent until it rings again. Cleared before looking: what comes from then on rings again."""


async def wait_for_any(stop: asyncio.Event, bell: WakeUp | None, *, timeout_s: float) -> None:
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


async def _rung(bell: WakeUp) -> None:
    await bell.wait()
