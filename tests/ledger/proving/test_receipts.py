# SPDX-License-Identifier: Apache-2.0
"""Receipts: a caller is given the proof of its entry once a signed checkpoint covers it, and none that is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.append.appender import Appender
from ledger.errors import BrokenError, Fault
from ledger.format.proof import check_proof
from ledger.proving import receipts as module
from ledger.proving.receipts import NoReceiptError, Receipts
from ledger.signing.key_directory import KeyDirectory, create_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import Log, find_log
from testkit.ledger.appending import appended, appender, event, group
from testkit.ledger.logs import TENANT, change

ANOTHER_SIZE = "UPDATE ledger.checkpoints SET note = overlay(note PLACING '5' FROM position('\\x0a340a' IN note) + 1)"
LONG_S = 3_600.0
"""An interval in which nothing is signed unless somebody asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A log that is appended to, and whoever signs it."""

    database: str
    installation: Provisioned
    keys: KeyDirectory
    log: Log
    appender: Appender
    receipts: Receipts

    @asynccontextmanager
    async def signing(self) -> AsyncIterator[None]:
        """Let a signer run that signs when it is asked, and hardly ever by itself."""
        stop = asyncio.Event()
        signer = CheckpointSigner(self.installation.as_role(self.installation.roles.signer), self.keys)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(signer.run(stop, interval_s=LONG_S))
            try:
                yield
            finally:
                stop.set()

    async def append(self, count: int = 1) -> range:
        """Append entries, and return where they are."""
        return appended(await self.appender.append(self.log.log_id, group(*[event() for _ in range(count)]))).indices

    async def check(self, index: int) -> int:
        """Ask for the receipt of an entry, check it, and return the size of the tree that it stands in."""
        proof = await self.receipts.receipt(self.log, index, timeout_s=20)
        proven = check_proof(proof, [self.keys.verifier_key(self.log.origin)])
        assert proven.index == index
        return proven.checkpoint.size


@pytest_asyncio.fixture
async def site(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Site]:
    create_tenant_log(database, installation, TENANT)
    keys = create_key_directory(tmp_path / "keys")
    dsn = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        log = await find_log(connection, installation.origin(TENANT))
    async with appender(installation) as running, Receipts(dsn, keys.verifier_keys) as receipts:
        yield Site(
            database=database, installation=installation, keys=keys, log=log, appender=running, receipts=receipts
        )


async def test_who_asks_for_a_receipt_has_the_signer_sign(site: Site) -> None:
    async with site.signing():
        for expected in range(3):
            (index,) = await site.append()
            assert index == expected
            assert await site.check(index) == index + 1


async def test_many_are_given_theirs_at_once_while_the_log_grows(site: Site) -> None:
    async with site.signing():
        for _ in range(3):
            places = await asyncio.gather(*(site.append(1 + number % 7) for number in range(50)))
            sizes = await asyncio.gather(*(site.check(index) for indices in places for index in indices))
            assert all(size > index for size, index in zip(sizes, [i for p in places for i in p], strict=True))
    assert min(sizes) > 256  # in a tree with complete tiles


async def test_an_old_entry_has_a_receipt_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAVES_READ_MAX", 100)
    monkeypatch.setattr(module, "NODES_MAX", 50)
    async with site.signing():
        await site.append(700)
        for index in (699, 0, 350, 698):
            assert await site.check(index) == 700
        await site.append(90)
        for index in (789, 0, 700, 650):
            assert await site.check(index) == 790


async def test_without_a_signer_the_caller_learns_that_its_entry_is_in_the_log_all_the_same(site: Site) -> None:
    (index,) = await site.append()
    with pytest.raises(NoReceiptError, match="is in the log, but no signed checkpoint covers it"):
        await site.receipts.receipt(site.log, index, timeout_s=0.1)
    async with site.signing():
        assert await site.check(index) == 1


async def test_too_many_who_wait_are_sent_away(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 1)
    await site.append(2)
    first = asyncio.create_task(site.check(0))
    await asyncio.sleep(0)
    with pytest.raises(NoReceiptError, match="request this one again later"):
        await site.receipts.receipt(site.log, 1, timeout_s=1)
    async with site.signing():
        assert await first == 2
        assert await site.check(1) == 2


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE ledger.entries SET entry = replace(encode(entry, 'escape'), 'lake', 'dune')::bytea", Fault.ENTRY),
        ("DELETE FROM ledger.entries WHERE index = 3", Fault.ROOT),
        ("UPDATE ledger.entries SET leaf = sha256(leaf) WHERE index = 3", Fault.ROOT),
        (ANOTHER_SIZE, Fault.SIGNATURE),
    ],
)
async def test_what_is_not_as_it_was_signed_has_no_receipt(site: Site, statement: str, fault: Fault) -> None:
    await site.append(4)
    async with site.signing():
        assert await site.check(3) == 4
    change(site.database, statement)
    dsn = site.installation.as_role(site.installation.roles.auditor)
    async with Receipts(dsn, site.keys.verifier_keys) as another:
        with pytest.raises(BrokenError) as caught:
            await another.receipt(site.log, 3, timeout_s=20)
    assert caught.value.fault is fault


async def test_a_lost_connection_is_made_again(site: Site) -> None:
    async with site.signing():
        await site.append()
        assert await site.check(0) == 1
        change(
            site.database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lakeproof receipts'"
            " AND datname = current_database()",
        )
        await site.append()
        assert await site.check(1) == 2
