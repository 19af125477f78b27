# SPDX-License-Identifier: Apache-2.0
"""
The gateway's connections: each works as one role for one transaction, and lost ones are replaced unnoticed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg
import pytest

from gateway.database import Database
from lakeproof.provision import Provisioned
from ledger.store.session import Connection

CONNECTIONS = 3


async def user_of(connection: Connection) -> str:
    """Return the role that a connection works as."""
    row = await (await connection.execute("SELECT current_user::text")).fetchone()
    assert row is not None
    return str(row[0])


async def hold_all(database: Database, role: str) -> None:
    """Use every connection of the pool at once, so that all of them are made."""
    everybody = asyncio.Barrier(CONNECTIONS)

    async def hold() -> None:
        async with database.as_role(role):
            await everybody.wait()

    await asyncio.gather(*(hold() for _ in range(CONNECTIONS)))


async def test_a_connection_works_as_one_role_and_nothing_of_it_is_left_for_the_next(
    installation: Provisioned,
) -> None:
    roles = installation.roles
    async with Database(installation.dsn, connections_max=1) as database:
        async with database.as_role(roles.gateway) as connection:
            assert await user_of(connection) == roles.gateway
            await connection.execute("SET LOCAL work_mem = '64kB'")
        with suppress(ZeroDivisionError):
            async with database.as_role(roles.auditor) as connection:
                assert await user_of(connection) == roles.auditor
                raise ZeroDivisionError
        async with database.as_role(roles.gateway) as connection:
            row = await (await connection.execute("SHOW work_mem")).fetchone()
            assert row is not None
            assert row[0] != "64kB"


async def test_a_role_that_is_not_ours_to_take_is_refused_and_the_connection_serves_on(
    installation: Provisioned,
) -> None:
    async with Database(installation.dsn, connections_max=1) as database:
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            async with database.as_role('nobody"; RESET ROLE; --'):
                pytest.fail("there is no such role")
        async with database.as_role(installation.roles.gateway) as connection:
            assert await user_of(connection) == installation.roles.gateway


async def test_connections_that_the_server_has_closed_are_replaced_unnoticed(
    installation: Provisioned, database: str
) -> None:
    async with Database(installation.dsn, connections_max=CONNECTIONS) as pool:
        await hold_all(pool, installation.roles.gateway)
        with psycopg.connect(database, autocommit=True) as owner:
            ended = owner.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE application_name = 'lakeproof gateway' AND datname = current_database()"
            ).fetchall()
        assert ended == [(True,)] * CONNECTIONS
        await hold_all(pool, installation.roles.gateway)


async def test_what_fails_in_a_transaction_is_undone_and_a_cancelled_caller_holds_no_connection(
    installation: Provisioned,
) -> None:
    role = installation.roles.gateway
    async with Database(installation.dsn, connections_max=1) as database:
        with pytest.raises(psycopg.errors.DivisionByZero):
            async with database.as_role(role) as connection:
                await connection.execute("SELECT 1 / 0")

        async def wait_for_ever() -> None:
            async with database.as_role(role) as connection:
                await connection.execute("SELECT pg_sleep(60)")

        waiting = asyncio.create_task(wait_for_ever())
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with database.as_role(role) as connection:
            assert await user_of(connection) == role
