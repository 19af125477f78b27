# SPDX-License-Identifier: Apache-2.0
"""
The streams' sessions in PostgreSQL, each working as the streams' role, and the pauses of their loops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from psycopg import AsyncConnection

from ledger.store.notifications import WakeUp
from ledger.store.session import Connection

POLL_S: Final = 1.0
"""How often a loop polls: a notification can be missed, and other processes leave work."""
PAUSE_S: Final = 0.02
"""The least pause between two polls for what a process knows to be under way."""
PACE_S: Final = 0.25
"""
The least pause after a poll that found nothing, however many notifications come: each poll is a query, and nearly all
that is appended while tables are written concerns no handler. The first notification after a rest is followed at once.
"""

STATEMENT_TIMEOUT_S: Final = 60
IDLE_IN_TRANSACTION_TIMEOUT_S: Final = 30


_SESSION: Final = {
    "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
    "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_TIMEOUT_S}s",
    "default_transaction_isolation": "read committed",
    "TimeZone": "UTC",
}


@asynccontextmanager
async def connect_reading(dsn: str) -> AsyncIterator[Connection]:
    """
    Yield a read-only connection, for handlers.

    Raises:
        psycopg.Error: if the server cannot be reached, or refuses.
    """
    async with _connect(dsn, default_transaction_read_only="on") as connection:
        yield connection


@asynccontextmanager
async def connect_storing(dsn: str) -> AsyncIterator[Connection]:
    """
    Yield a connection whose commits are durable.

    Raises:
        psycopg.Error: if the server cannot be reached, or refuses.
    """
    async with _connect(dsn, synchronous_commit="on") as connection:
        yield connection


@asynccontextmanager
async def connect_following(dsn: str) -> AsyncIterator[Connection]:
    """
    Yield a connection whose commits do not wait for the disk.

    This is enough where everything stored derives from the log, which is durable: what a server loses in a crash is
    done again, with the same effect.

    Raises:
        psycopg.Error: if the server cannot be reached, or refuses.
    """
    async with _connect(dsn, synchronous_commit="off") as connection:
        yield connection


@asynccontextmanager
async def _connect(dsn: str, **session: str) -> AsyncIterator[Connection]:
    async with await AsyncConnection.connect(
        dsn, autocommit=True, connect_timeout=5, application_name="lakeproof streams"
    ) as connection:
        settings = {**_SESSION, **session}
        query = "SELECT set_config(name, setting, false) FROM unnest(%s::text[], %s::text[]) AS s (name, setting)"
        await connection.execute(query, (list(settings), list(settings.values())))
        yield connection


async def pass_on(wake: WakeUp, bells: Sequence[asyncio.Event]) -> None:
    """Set each worker's own event whenever `wake` is set, until cancelled: one event would be cleared by the first."""
    while True:
        await wake.wait()
        wake.clear()
        for bell in bells:
            bell.set()
