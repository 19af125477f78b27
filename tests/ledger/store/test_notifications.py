# SPDX-License-Identifier: Apache-2.0
"""The doorbell: rings reach other processes, a lost connection is made again, and it ends when it is told to."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg import AsyncConnection

from ledger.store import notifications
from ledger.store.notifications import LOG_GROWN, LogNotifier

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


async def listening(owner: AsyncConnection) -> list[int]:
    """Return the processes whose last statement is LISTEN: they have nothing else to do."""
    rows = await owner.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
    )
    return [pid for (pid,) in await rows.fetchall()]


async def test_a_process_listens_once_somebody_waits_and_is_woken_for_what_came_before(database: str) -> None:
    here, there = LogNotifier(database), LogNotifier(database)
    async with asyncio.timeout(TIMEOUT_S), await AsyncConnection.connect(database, autocommit=True) as owner:
        ringing = [asyncio.create_task(one.run()) for one in (here, there)]
        first = here.subscribe()
        await first.wait()
        assert len(await listening(owner)) == 1, "nobody waits there"
        late = there.subscribe()
        await late.wait()
        assert len(await listening(owner)) == 2
    for task in ringing:
        task.cancel()
        await ended(task)


async def test_many_notifications_at_once_are_heard_and_so_is_the_one_after_them(database: str) -> None:
    notifier = LogNotifier(database)
    heard = notifier.subscribe()
    async with asyncio.timeout(TIMEOUT_S), await AsyncConnection.connect(database, autocommit=True) as other:
        ringing = asyncio.create_task(notifier.run())
        await heard.wait()  # it listens
        for number in (200, 1):
            heard.clear()
            # Payloads that differ are delivered apart, though they come together.
            notify = "SELECT count(pg_notify(%s, n::text)) FROM generate_series(1, %s) AS n"
            await other.execute(notify, (LOG_GROWN, number))
            await heard.wait()
    ringing.cancel()
    await ended(ringing)


async def test_a_doorbell_that_is_cancelled_as_it_loses_its_connection_ends(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(_self: LogNotifier, _connection: AsyncConnection) -> None:
        ringing.cancel()
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(LogNotifier, "_receive", lose)
    ringing = asyncio.create_task(LogNotifier(database).run())
    await ended(ringing)
