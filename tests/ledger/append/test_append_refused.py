# SPDX-License-Identifier: Apache-2.0
"""When nothing at all is appended: a server that is not durable, a log whose history nobody has confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from lakeproof.postgres.server import EmbeddedServer
from lakeproof.provision import Provisioned, create_tenant_log, provision
from ledger.errors import LogUnavailableError, UnconfirmedLogError, UnsafeServerError
from ledger.format.sequence import Appended
from ledger.store.session import connect
from testkit.databases import LOGIN_PASSWORD
from testkit.ledger.appending import appended, appender, appender_dsn, confirm, group, new_log, read_log


def begin_anew(database: str, log_id: int) -> None:
    """Make the log's confirmation one of an earlier start of the server, as after a restart."""
    with psycopg.connect(database) as owner:
        owner.execute(
            "UPDATE ledger.confirmations SET server_started_at = server_started_at - interval '1 s' WHERE log_id = %s",
            (log_id,),
        )


def test_a_new_log_is_confirmed_and_an_old_one_is_not_confirmed_again(database: str, installation: Provisioned) -> None:
    tenant = uuid4()
    log_id = create_tenant_log(database, installation, tenant)
    query = (
        "SELECT size, EXISTS (SELECT FROM ledger.confirmed_logs AS n WHERE n.log_id = c.log_id) "
        "FROM ledger.confirmations AS c WHERE log_id = %s"
    )
    with psycopg.connect(database) as owner:
        assert owner.execute(query, (log_id,)).fetchall() == [(0, True)]
    begin_anew(database, log_id)
    assert create_tenant_log(database, installation, tenant) == log_id
    provision(database, login_password=LOGIN_PASSWORD)
    with psycopg.connect(database) as owner:
        assert owner.execute(query, (log_id,)).fetchall() == [(0, False)]


async def test_a_log_that_is_not_confirmed_takes_nothing_until_it_is(database: str, installation: Provisioned) -> None:
    log_id, other = (new_log(database, installation) for _ in range(2))
    begin_anew(database, log_id)
    async with appender(installation) as running:
        with pytest.raises(UnconfirmedLogError, match="until the signer"):
            await running.append(log_id, group(), timeout_s=0.2)
        waiting = [asyncio.create_task(running.append(log_id, group())) for _ in range(3)]
        for _ in range(3):  # another log is not kept waiting
            await running.append(other, group())
        assert await read_log(database, log_id) == []
        confirm(database, installation)
        assert {appended(await task).indices for task in waiting} == {range(n, n + 1) for n in range(3)}


async def test_a_log_without_a_confirmation_takes_nothing(database: str, installation: Provisioned) -> None:
    log_id = new_log(database, installation)
    with psycopg.connect(database) as owner:
        owner.execute("DELETE FROM ledger.confirmations WHERE log_id = %s", (log_id,))
    async with appender(installation) as running:
        with pytest.raises(UnconfirmedLogError):
            await running.append(log_id, group(), timeout_s=0.1)
    assert await read_log(database, log_id) == []


def test_the_appender_cannot_confirm_a_log_itself(database: str, installation: Provisioned) -> None:
    with psycopg.connect(appender_dsn(installation)) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("UPDATE ledger.confirmations SET server_started_at = pg_postmaster_start_time()")


async def test_a_server_without_fsync_is_refused_and_one_with_it_is_not(
    age: Path, short_directory: Callable[[], AbstractContextManager[Path]]
) -> None:
    with short_directory() as directory:
        server = EmbeddedServer(directory / "home", age, folder=directory / "servers", overrides={"fsync": "off"})
        server.start(print)
        try:
            installation = provision(server.admin_dsn, login_password="of a test")
            log_id = new_log(server.admin_dsn, installation)
            with pytest.raises(UnsafeServerError):
                await connect(appender_dsn(installation))
            async with appender(installation) as running:
                answers = await asyncio.gather(
                    *(running.append(log_id, group()) for _ in range(5)), return_exceptions=True
                )
                assert {type(answer) for answer in answers} == {UnsafeServerError}
                assert "expected fsync = on, found off" in str(answers[0])
                assert await read_log(server.admin_dsn, log_id) == []
                with psycopg.connect(server.admin_dsn, autocommit=True) as owner:
                    owner.execute("ALTER SYSTEM SET fsync = on")
                    owner.execute("SELECT pg_reload_conf()")
                while True:  # until the server has read its settings
                    try:
                        assert isinstance(await running.append(log_id, group()), Appended)
                        break
                    except UnsafeServerError:
                        continue
        finally:
            server.stop()


async def test_unconfirmed_is_a_kind_of_unavailable(database: str, installation: Provisioned) -> None:
    # Whoever answers 503 for a log that is away needs to know no more.
    log_id = new_log(database, installation)
    begin_anew(database, log_id)
    async with appender(installation) as running:
        with pytest.raises(LogUnavailableError):
            await running.append(log_id, group(), timeout_s=0.1)
