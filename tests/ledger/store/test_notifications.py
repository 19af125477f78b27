# SPDX-License-Identifier: Apache-2.0
"""The doorbell: rings reach other processes, a lost connection is made again, and it ends when it is told to."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg import AsyncConnection

from ledger.store import notifications
from ledger.store.notifications import LogNotifier

TIMEOUT_S = 20


async def ended(ringing: asyncio.Task[None]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(asyncio.CancelledError):
            await ringing


async def test_a_ring_reaches_other_processes_also_after_a_connection_was_lost(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "RETRY_S", 0.02)
    here, there = LogNotifier(database), LogNotifier(database)
    ringing = [asyncio.create_task(one.run()) for one in (here, there)]
    heard = there.subscribe()

    async def is_heard() -> None:
        heard.clear()
        async with asyncio.timeout(TIMEOUT_S):
            while not heard.is_set():
                here.notify()
                await asyncio.sleep(0.02)

    await is_heard()
    async with await AsyncConnection.connect(database, autocommit=True) as owner:
        cut = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        await owner.execute(cut)
    await is_heard()
    for task in ringing:
        task.cancel()
        await ended(task)


async def test_a_doorbell_that_is_cancelled_as_it_loses_its_connection_ends(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(_self: LogNotifier, _connection: AsyncConnection) -> None:
        ringing.cancel()
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(LogNotifier, "_receive", lose)
    ringing = asyncio.create_task(LogNotifier(database).run())
    await ended(ringing)
