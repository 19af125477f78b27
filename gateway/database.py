# SPDX-License-Identifier: Apache-2.0
"""
The gateway's connections to PostgreSQL: one pool, and a role for each use.

A connection logs in as a role that sees nothing and takes the role it works as for one transaction (SET LOCAL ROLE), so
that nothing of one tenant is left on it for the next.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import lru_cache
from typing import Final, Self

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from gateway.errors import UnavailableError
from ledger.store.session import Connection, brief_message, is_permanent, is_programming_error

CONNECTIONS_MAX: Final = 10
WAIT_S: Final = 3.0
STATEMENT_TIMEOUT_S: Final = 10

_log = logging.getLogger(__name__)


class Database:
    """A pool of connections; use `as_role` for every read. An async context manager."""

    def __init__(self, dsn: str, *, connections_max: int = CONNECTIONS_MAX) -> None:
        self._pool = connection_pool(dsn, connections_max=connections_max, name="lakeproof gateway", checks=False)

    async def __aenter__(self) -> Self:
        await self._pool.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def as_role(self, role: str, *, statement_timeout_s: int = STATEMENT_TIMEOUT_S) -> AsyncIterator[Connection]:
        """
        Yield a connection that works as `role` in one transaction, each statement of which may take so long.

        Raises:
            UnavailableError: if the database cannot be reached, or refuses because a right or a table is missing.
        """
        with outage_as_unavailable("the database cannot be reached: nothing was changed, try again"):
            connection = await self._begun(_begin_as(role, statement_timeout_s))
            try:
                yield connection
                await connection.commit()
            except BaseException:
                # What has gone wrong is known; that the rollback fails, too, says that the connection is lost.
                with suppress(psycopg.Error):
                    await connection.rollback()
                raise
            finally:
                await self._pool.putconn(connection)

    async def _begun(self, begin: bytes) -> Connection:
        """
        Return a connection of the pool with a transaction that `begin` has begun, in one round trip.

        It is the first statement that shows whether the server has closed a connection since its last use. Then another
        one is taken; the pool replaces the lost one.
        """
        tries = self._pool.max_size
        while True:
            connection, tries = await self._pool.getconn(), tries - 1
            try:
                await connection.execute(begin, prepare=False)
            except BaseException as error:
                with suppress(psycopg.Error):
                    await connection.rollback()
                await self._pool.putconn(connection)
                if not isinstance(error, psycopg.OperationalError) or not tries:
                    raise
            else:
                return connection


@lru_cache(maxsize=10_000)
def _begin_as(role: str, statement_timeout_s: int) -> bytes:
    begin = sql.SQL("BEGIN; SET LOCAL ROLE {}").format(sql.Identifier(role))
    if statement_timeout_s != STATEMENT_TIMEOUT_S:
        begin += sql.SQL("; SET LOCAL statement_timeout = {}").format(sql.Literal(f"{statement_timeout_s}s"))
    return begin.as_bytes()


def connection_pool(
    dsn: str, *, connections_max: int, name: str, checks: bool = True
) -> AsyncConnectionPool[Connection]:
    """
    Return a pool, not open yet, of connections in autocommit mode; the server shows them under `name`.

    Unless the pool `checks` each connection before it lends it, a round trip, a lent one may be lost already.
    """
    return AsyncConnectionPool(
        dsn,
        min_size=1,
        max_size=connections_max,
        timeout=WAIT_S,
        # The pool doubles its pauses between attempts until it gives up, and then tries again for the next caller.
        # Giving up early, it notices at once that a database is back, however long it was gone.
        reconnect_timeout=WAIT_S,
        open=False,
        check=AsyncConnectionPool.check_connection if checks else None,
        kwargs={"autocommit": True, "connect_timeout": 3, "application_name": name},
        configure=_configure,
    )


@contextmanager
def outage_as_unavailable(text: str) -> Iterator[None]:
    """
    Raise an outage of the database (`ledger.store.session`) as `UnavailableError(text)`.

    A missing right or table counts as an outage: a failover or a restored backup looks like that for a while. Causes
    that the operator may have to repair are logged. Errors that would never pass, such as a wrong statement, pass
    through unchanged.
    """
    try:
        yield
    except psycopg.Error as error:
        if is_programming_error(error):
            raise
        if is_permanent(error):
            _log.error("the database refuses: %s", brief_message(error))
        raise UnavailableError(text) from error


async def _configure(connection: Connection) -> None:
    await connection.execute("SELECT set_config('statement_timeout', %s, false)", (f"{STATEMENT_TIMEOUT_S}s",))
    await connection.execute("SELECT set_config('TimeZone', 'UTC', false)")
