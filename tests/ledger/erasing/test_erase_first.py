# SPDX-License-Identifier: Apache-2.0
"""Before a signer confirms a log, what was erased of it is erased again; a log where that fails stays unconfirmed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path

import pytest
from psycopg import sql

from lakeproof.provision import Provisioned
from ledger.erasing.rerun import erase_before_confirming, read_confirmed_logs, read_unrecorded, rerun_erasures
from ledger.erasing.subject_keys import KeyFolder
from ledger.errors import LedgerError
from ledger.format.entry import parse_entry
from ledger.format.events import PayloadErased
from ledger.signing.key_directory import create_key_directory, open_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import read_entries, read_head
from ledger.store.session import Connection
from testkit.ledger.appending import new_log
from testkit.ledger.erasing import ADA, ASKED, EVE, Site, about, open_site

WORDS = {"principal": b"who it was", "inputs": b"what was asked"}


@pytest.fixture
async def site(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(database, installation, tmp_path) as site:
        yield site


def signer(site: Site, tmp_path: Path, keys: KeyFolder | None = None) -> CheckpointSigner:
    """Return a signer that erases first, over its own connection."""
    installation = site.installation

    async def erase(connection: Connection, log_ids: Collection[int]) -> Mapping[int, LedgerError]:
        await connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(installation.roles.eraser)))
        try:
            return await erase_before_confirming(connection, keys or site.keys, log_ids)
        finally:
            await connection.execute("RESET ROLE")

    path = tmp_path / "keys"
    if not path.exists():
        create_key_directory(path)
    dsn = installation.as_role(installation.roles.signer)
    return CheckpointSigner(dsn, open_key_directory(path), before_confirming=erase)


async def start_anew(site: Site) -> None:
    """Make the database one that another start of the server serves."""
    await site.owner.execute("UPDATE ledger.confirmations SET server_started_at = server_started_at - interval '1 s'")


async def bring_back(site: Site, parts: list[tuple[object, ...]]) -> None:
    """Bring back what an older backup holds beside a log whose entries are all there."""
    await site.owner.execute("DELETE FROM ledger.erasures_done")
    await site.owner.execute("DELETE FROM ledger.erased_subjects")
    await site.owner.execute("INSERT INTO ledger.subjects VALUES (%s, %s, 'ada')", (site.log.log_id, ADA))
    async with site.owner.cursor() as cursor:
        await cursor.executemany("INSERT INTO ledger.parts VALUES (%s, %s, %s, %s, %s, %s)", parts)


async def test_what_a_restored_database_has_forgotten_is_erased_when_the_signer_meets_it(
    site: Site, tmp_path: Path
) -> None:
    signing = signer(site, tmp_path)
    await site.tell(about(ADA, WORDS))
    backup = await (await site.owner.execute("TABLE ledger.parts")).fetchall()
    await site.eraser.erase_subject(site.log, ADA, ASKED)
    await signing.sign_once()
    await bring_back(site, backup)
    await signing.sign_once()
    assert await site.count("ledger.parts") == 2, "nothing is looked for where every log is confirmed"
    await start_anew(site)
    await signing.sign_once()
    assert await site.count("ledger.parts") + await site.count("ledger.subjects", f"actor = '{ADA}'") == 0
    assert site.log.log_id in await read_confirmed_logs(site.connection)
    assert not signing.unconfirmed


async def test_whom_the_keys_alone_know_to_be_erased_is_erased_first_and_the_log_says_it_afterwards(
    site: Site, tmp_path: Path
) -> None:
    await site.tell(about(ADA, WORDS))
    site.keys.destroy(ADA)
    await start_anew(site)
    await signer(site, tmp_path).sign_once()
    assert await site.count("ledger.parts") + await site.count("ledger.subjects", f"actor = '{ADA}'") == 0
    assert await read_unrecorded(site.connection) == [(site.log.log_id, ADA)]
    done = await site.eraser.erase_subject(site.log, ADA, ASKED)
    assert not done.repeated
    assert await read_unrecorded(site.connection) == []
    assert (await site.eraser.erase_subject(site.log, ADA, ASKED)).index == done.index
    size = (await read_head(site.owner, site.log.log_id)).size
    entries = await read_entries(site.owner, site.log.log_id, from_index=0, to_index=size)
    assert [parse_entry(entry).type for entry in entries].count(PayloadErased.TYPE) == 1


class StuckKeys(KeyFolder):
    """Keys that cannot be destroyed of one person."""

    def destroy(self, subject: str) -> None:
        if subject == ADA:
            raise LedgerError("the disk of the keys is full")
        super().destroy(subject)


async def test_a_log_whose_erasures_cannot_be_carried_out_stays_unconfirmed_and_the_others_do_not(
    site: Site, database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = new_log(database, site.installation)
    await site.tell(about(ADA, WORDS), about(EVE, WORDS))
    await site.eraser.erase_subject(site.log, ADA, ASKED)
    await site.eraser.erase_subject(site.log, EVE, ASKED)
    await site.owner.execute("DELETE FROM ledger.erasures_done")
    await start_anew(site)
    stuck = StuckKeys(site.keys.path, site.keys._encryption)
    signing = signer(site, tmp_path, stuck)
    await signing.sign_once()
    await signing.sign_once()
    assert list(signing.unconfirmed) == [site.log.origin]
    assert not signing.refused
    taking = await read_confirmed_logs(site.connection)
    assert site.log.log_id not in taking
    assert other in taking
    assert await site.count("ledger.erasures_done") == 1, "what can be erased is erased"
    assert caplog.text.count("the disk of the keys is full") == 1, "said loudly, and once"
    await signer(site, tmp_path).sign_once()
    assert site.log.log_id in await read_confirmed_logs(site.connection)


async def test_an_erasure_is_carried_out_by_one_at_a_time(site: Site) -> None:
    await site.tell(about(ADA, WORDS))
    done = await site.eraser.erase_subject(site.log, ADA, ASKED)
    await site.owner.execute("DELETE FROM ledger.erasures_done")
    turn = "hashtextextended(format('lakeproof erasure %%s %%s', %s::int, %s::bigint), 0)"
    await site.owner.execute(f"SELECT pg_advisory_lock({turn})", (site.log.log_id, done.index))
    assert (await rerun_erasures(site.connection, site.keys)).erasures == 0
    assert await site.count("ledger.erasures_done") == 0
    await site.owner.execute(f"SELECT pg_advisory_unlock({turn})", (site.log.log_id, done.index))
    assert (await rerun_erasures(site.connection, site.keys)).erasures == 1
