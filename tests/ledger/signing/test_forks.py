# SPDX-License-Identifier: Apache-2.0
"""Forks below what was signed are found at the next checkpoint, whatever they are; honest logs are never accused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.signing.key_directory import create_key_directory
from ledger.signing.signer import SignerState
from testkit.databases import CLONE
from testkit.ledger.forking import FORKS, DatabasePair, honest, seeded
from testkit.ledger.logs import TENANT, rows_of
from testkit.ledger.signing_site import Site, forked, open_site

TRIALS_EACH = 4


@pytest.fixture(scope="module")
def log_id(module_database: str, module_installation: Provisioned) -> int:
    return create_tenant_log(module_database, module_installation, TENANT)


@pytest.fixture
async def site(
    module_database: str, module_installation: Provisioned, log_id: int, tmp_path: Path
) -> AsyncIterator[Site]:
    keys = create_key_directory(tmp_path / "keys")
    async with open_site(module_database, module_installation, keys, log_id=log_id) as site:
        await site.clear()
        yield site


@pytest.fixture(scope="module")
def clone(module_database: str, log_id: int, admin_dsn: str) -> Iterator[str]:
    """A clone of the database of the log `log_id`: both are the same installation, and have the same log."""
    assert log_id, "it is there before the database is cloned"
    name = str(conninfo_to_dict(module_database)["dbname"])
    names = (sql.Identifier(f"{name}_clone"), sql.Identifier(name))
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(CLONE.format(*names))
        yield f"{name}_clone"
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(names[0]))


@pytest.fixture
async def pair(clone: str, site: Site) -> AsyncIterator[DatabasePair]:
    """The site, and one on the clone of its database."""
    database, dsn = (make_conninfo(known, dbname=clone) for known in (site.database, site.installation.dsn))
    async with open_site(database, replace(site.installation, dsn=dsn), site.keys, log_id=site.log_id) as other:
        yield DatabasePair(site, other)


@pytest.mark.parametrize("kind", FORKS, ids=lambda kind: kind.__name__)
async def test_a_fork_is_found_at_the_next_checkpoint(pair: DatabasePair, kind: object) -> None:
    (trial,) = [fork for fork in FORKS if fork is kind]
    for number in range(TRIALS_EACH):
        await pair.clear()
        outcome = await trial(pair, seeded(f"{trial.__name__} {number}"))
        assert outcome.ok, outcome
        assert pair.one.origin in outcome.refusal


async def test_an_honest_log_is_never_accused(pair: DatabasePair) -> None:
    for number in range(TRIALS_EACH):
        await pair.clear()
        outcome = await honest(pair, seeded(f"honest {number}"))
        assert outcome.ok, outcome


async def test_a_log_that_vanished_is_told_and_the_others_are_signed(
    database: str, installation: Provisioned, tmp_path: Path
) -> None:
    keys = create_key_directory(tmp_path / "keys")
    log_id = create_tenant_log(database, installation, TENANT)
    async with open_site(database, installation, keys, log_id=log_id) as site:
        await site.hold(rows_of(5, log=site.origin))
        await site.sign()
        for table in ("checkpoints", "confirmations", "heads", "logs"):
            await site.owner.execute(
                sql.SQL("DELETE FROM ledger.{} WHERE log_id = %s").format(sql.Identifier(table)), (site.log_id,)
            )
        signer = site.signer()
        assert await site.sign(signer) == []
        assert "no log of this origin" in str(signer.refused[site.origin])
        assert signer.state is SignerState.SIGNING


# Confirmations


async def test_a_restored_database_is_not_confirmed_until_its_history_goes_on(site: Site) -> None:
    rows = rows_of(40, log=site.origin)
    await site.hold(rows[:30])
    await site.sign()
    assert await site.confirmed()
    await site.hold(rows[:20])
    await site.unconfirm()
    assert await site.sign() == []
    assert not await site.confirmed()
    await site.hold(forked(rows, 20, 20, origin=site.origin, salt="another"))
    assert await site.sign() == []
    assert not await site.confirmed()
    await site.hold(rows[:30])
    assert [one.put_back for one in await site.sign()] == []
    assert await site.confirmed()


async def test_a_quiet_round_writes_nothing(site: Site) -> None:
    await site.hold(rows_of(3, log=site.origin))
    await site.sign()
    versions = "SELECT xmin, ctid, * FROM ledger.confirmations ORDER BY log_id"
    rows = await (await site.owner.execute(versions)).fetchall()
    await site.sign()
    assert await (await site.owner.execute(versions)).fetchall() == rows


async def test_a_running_signer_confirms_as_soon_as_the_server_is_back(site: Site) -> None:
    signer, stop = site.signer(), asyncio.Event()
    await site.hold(rows_of(3, log=site.origin))
    running = asyncio.create_task(signer.run(stop, interval_s=600))
    async with asyncio.timeout(20):
        while not await site.stored():
            pass
        await site.unconfirm()
        await site.owner.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name LIKE '%signer' AND datname = current_database()"
        )
        while not await site.confirmed():
            pass
        stop.set()
        await running
