# SPDX-License-Identifier: Apache-2.0
"""A database that refuses for a while: the signer and the receipts wait, say so, and come back by themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.append.appender import Appender
from ledger.format.proof import check_proof
from ledger.proving import receipts
from ledger.proving.receipts import NoReceiptError, Receipts
from ledger.signing import signer as signing
from ledger.signing.key_directory import KeyDirectory, create_key_directory
from ledger.signing.signer import CheckpointSigner, SignerState
from ledger.store import session
from ledger.store.read import Log, find_log
from ledger.store.session import Connection, is_programming_error
from testkit.ledger.appending import appended, appender, event, group, logged
from testkit.ledger.logs import TENANT

QUICK_S = 0.01
LONG_S = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A log that grows, and the keys of whoever signs it."""

    database: str
    installation: Provisioned
    keys: KeyDirectory
    log: Log
    appender: Appender

    def signer(self) -> CheckpointSigner:
        return CheckpointSigner(self.installation.as_role(self.installation.roles.signer), self.keys)

    def receipts(self) -> Receipts:
        return Receipts(self.installation.as_role(self.installation.roles.auditor), self.keys.verifier_keys)

    @asynccontextmanager
    async def signing(self, signer: CheckpointSigner) -> AsyncIterator[None]:
        """Let a signer run all the time."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(signer.run(stop, interval_s=QUICK_S))
            try:
                yield
            finally:
                stop.set()

    async def append(self) -> int:
        """Append an entry, and return its index."""
        return appended(await self.appender.append(self.log.log_id, group(event()))).indices[0]

    def signed_size(self) -> int:
        """Return the size of the newest checkpoint that has left."""
        with psycopg.connect(self.database) as connection:
            row = connection.execute("SELECT coalesce(max(size), 0) FROM ledger.checkpoints").fetchone()
        return int(row[0]) if row else 0

    def change(self, statement: str) -> None:
        """Do what the database's owner can, and cut everybody's connection, so that it is seen."""
        names = {duty: sql.Identifier(role) for duty, role in self.installation.roles.duties().items()}
        name = conninfo_to_dict(self.database)["dbname"]
        done = sql.SQL(statement).format(**names, database=sql.Identifier(str(name)))
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND application_name LIKE %s"
        with psycopg.connect(make_conninfo(self.database, dbname="postgres"), autocommit=True) as connection:
            if "DATABASE" in statement:
                connection.execute(done)
            else:
                with psycopg.connect(self.database, autocommit=True) as own:
                    own.execute(done)
            for application in ("lakeproof signer", "lakeproof receipts"):
                connection.execute(cut, (name, application))


@pytest_asyncio.fixture
async def site(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Site]:
    create_tenant_log(database, installation, TENANT)
    keys = create_key_directory(tmp_path / "keys")
    dsn = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        log = await find_log(connection, installation.origin(TENANT))
    async with appender(installation) as running:
        yield Site(database=database, installation=installation, keys=keys, log=log, appender=running)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - no event tells of what is in the database
            await asyncio.sleep(0)


READ_ONLY = ("ALTER DATABASE {database} SET default_transaction_read_only = on", "ALTER DATABASE {database} RESET ALL")
"""As while a standby has taken over and is not promoted yet."""
NO_TABLE = ("ALTER TABLE ledger.{0} RENAME TO away", "ALTER TABLE ledger.away RENAME TO {0}")
"""As while a backup is restored, or before the migrations have run."""
NO_GRANT = ("REVOKE {1} ON ledger.{0} FROM {{{2}}}", "GRANT {1} ON ledger.{0} TO {{{2}}}")


def both(pair: tuple[str, str], *names: str) -> tuple[str, str]:
    return pair[0].format(*names), pair[1].format(*names)


# The signer


@pytest.mark.parametrize(
    ("begins", "ends", "message"),
    [
        (*READ_ONLY, "read-only transaction"),
        (*both(NO_GRANT, "checkpoints", "INSERT", "signer"), "permission denied for table checkpoints"),
        (*both(NO_GRANT, "heads", "SELECT", "signer"), "permission denied for table heads"),
        (*both(NO_TABLE, "checkpoints"), 'relation "ledger.checkpoints" does not exist'),
    ],
)
async def test_the_signer_waits_until_the_database_takes_its_checkpoints_again(
    site: Site, caplog: pytest.LogCaptureFixture, begins: str, ends: str, message: str
) -> None:
    caplog.set_level(logging.INFO)
    signer = site.signer()
    async with site.signing(signer):
        await site.append()
        await until(lambda: site.signed_size() == 1)
        site.change(begins)
        await site.append()
        await until(lambda: message in signer.trouble)
        assert signer.state is SignerState.UNAVAILABLE
        site.change(ends)
        await site.append()
        await until(lambda: signer.state is SignerState.SIGNING and site.signed_size() > 1)
    assert signer.trouble == ""
    loud = [text for level, text in logged(caplog, "ledger.signing.signer") if level >= logging.WARNING]
    assert len([text for text in loud if message in text]) == 1, "once as long as it stays the same"


async def test_a_signer_without_its_database_does_not_hammer_at_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "RECONNECT_PAUSE_S", LONG_S)
    attempts = counted(monkeypatch)
    site.change("REVOKE SELECT ON ledger.heads FROM {signer}")
    signer, stop = site.signer(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(signer.run(stop, interval_s=LONG_S))
        await until(lambda: signer.trouble != "")
        for _ in range(100):
            await asyncio.sleep(0)
        stop.set()
    assert attempts == ["lakeproof signer"]


@pytest.mark.parametrize("statement", ["SELEC 1", "SELECT 1 / 0", "SELECT %(nobody_has_given_this)s"])
async def test_a_statement_of_ours_that_is_wrong_ends_the_signer(
    site: Site, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setitem(signing._QUERIES, "hold_signer_lock", statement)
    for working in (site.signer().run(asyncio.Event(), interval_s=QUICK_S), site.signer().sign_once()):
        with pytest.raises(psycopg.Error) as caught:
            await working
        assert is_programming_error(caught.value)


# Receipts


@pytest.mark.parametrize(
    ("begins", "ends", "message"),
    [
        (*both(NO_GRANT, "entries", "SELECT", "auditor"), "permission denied for table entries"),
        (*both(NO_GRANT, "checkpoints", "SELECT", "auditor"), "permission denied for table checkpoints"),
        (*both(NO_TABLE, "checkpoints"), 'relation "ledger.checkpoints" does not exist'),
    ],
)
async def test_who_waits_for_a_receipt_is_given_it_when_the_database_is_back(
    site: Site, caplog: pytest.LogCaptureFixture, begins: str, ends: str, message: str
) -> None:
    caplog.set_level(logging.INFO)
    index = await site.append()
    assert await site.signer().sign_once()
    async with site.receipts() as making:
        site.change(begins)
        waiting = asyncio.create_task(making.receipt(site.log, index, timeout_s=30))
        await until(lambda: message in making.trouble)
        site.change(ends)
        assert check_proof(await waiting, site.keys.verifier_keys(site.log.origin)).index == index
        await until(lambda: making.trouble == "")
    said = logged(caplog, "ledger.proving.receipts")
    assert [level for level, text in said if message in text] == [logging.ERROR], "once as long as it stays the same"
    assert said[-1][0] == logging.INFO


async def test_who_waits_in_vain_is_told_that_the_database_is_the_reason(site: Site) -> None:
    index = await site.append()
    site.change("REVOKE SELECT ON ledger.checkpoints FROM {auditor}")
    async with site.receipts() as making:
        with pytest.raises(NoReceiptError, match="is in the log, but the database cannot be read now"):
            await making.receipt(site.log, index, timeout_s=0.5)


async def test_receipts_do_not_hammer_at_a_database_that_refuses(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "RETRY_S", LONG_S)
    attempts = counted(monkeypatch)
    site.change("REVOKE SELECT ON ledger.checkpoints FROM {auditor}")
    async with site.receipts() as making:
        for _ in range(3):
            with pytest.raises(NoReceiptError):
                await making.receipt(site.log, 0, timeout_s=0.1)
    assert attempts == ["lakeproof receipts"]


async def test_a_fault_of_ours_fails_whoever_waits_and_ends_whoever_makes_receipts(site: Site) -> None:
    index = await site.append()
    assert await site.signer().sign_once()

    def keys_of(origin: str) -> Any:
        raise TypeError(f"no keys of {origin}")

    making = Receipts(site.installation.as_role(site.installation.roles.auditor), keys_of)
    waiting = [asyncio.create_task(asked(making, site.log, at)) for at in (index, index + 9)]
    with pytest.raises(TypeError, match="no keys of"):
        await used(making)
    for waited in waiting:
        with pytest.raises(NoReceiptError, match="has stopped making receipts"):
            await waited
    with pytest.raises(NoReceiptError, match="has stopped making receipts"):
        await making.receipt(site.log, index, timeout_s=30)


async def test_a_wrong_statement_ends_whoever_makes_receipts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(receipts._QUERIES, "newest_checkpoints", "SELEC 1")
    making = site.receipts()
    waiting = asyncio.create_task(asked(making, site.log, 0))
    with pytest.raises(psycopg.errors.SyntaxError):
        await used(making)
    with pytest.raises(NoReceiptError, match="has stopped making receipts"):
        await waiting


async def test_what_happens_to_who_uses_receipts_is_told_as_it_is(site: Site) -> None:
    for error in (KeyError("theirs"), asyncio.CancelledError("theirs")):
        with pytest.raises(type(error), match="theirs"):
            async with site.receipts():
                raise error


async def used(making: Receipts) -> None:
    """Use receipts as a process does that serves until it is ended."""
    async with making:
        await asyncio.Event().wait()


async def asked(making: Receipts, log: Log, index: int) -> bytes:
    """Ask for a receipt as soon as they are made: a task made before is begun first."""
    await asyncio.sleep(0)
    return await making.receipt(log, index, timeout_s=30)


# What is an outage


OUTAGES = ("08006", "25006", "28P01", "3D000", "40001", "42501", "42P01", "42883", "53100", "55P03", "57P03", "58030")
MISUSES = ("22012", "23505", "25P02", "42601", "42804", "P0001")


def test_only_what_the_database_may_get_over_is_an_outage() -> None:
    for state in OUTAGES:
        assert not is_programming_error(psycopg.errors.lookup(state)()), state
    for state in MISUSES:
        assert is_programming_error(psycopg.errors.lookup(state)()), state
    assert not is_programming_error(psycopg.OperationalError("the connection is lost"))
    assert not is_programming_error(psycopg.InterfaceError("the connection is closed"))
    assert not is_programming_error(OSError("no space left"))
    assert is_programming_error(psycopg.ProgrammingError("the query has 1 placeholder but 0 parameters were passed"))
    assert is_programming_error(psycopg.DataError("cannot be adapted"))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list that each connection of a service goes into, by the name that it gives itself."""
    attempts: list[str] = []
    connect = session.connect_service

    async def counting(dsn: str, *, name: str) -> Connection:
        attempts.append(name)
        return await connect(dsn, name=name)

    for module in (signing, receipts):
        monkeypatch.setattr(module, "connect_service", counting)
    return attempts
