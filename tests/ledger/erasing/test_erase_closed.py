# SPDX-License-Identifier: Apache-2.0
"""What is erased of a log that is closed is said in the one that goes on from it, and done in the closed one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from psycopg import sql

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.erasing.erase import Eraser, NoSuchSubjectError
from ledger.erasing.execution import NoCopies, RecordedErasure, parse_erasure
from ledger.erasing.rerun import erase_before_confirming, read_confirmed_logs, read_unrecorded, rerun_erasures
from ledger.errors import FormatError
from ledger.format.entry import parse_entry
from ledger.format.events import PayloadErased, PayloadErasedElsewhere
from ledger.recovering.successor import continue_log
from ledger.signing.key_directory import create_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import Log, find_log, read_entries, read_head
from testkit.ledger.appending import appender, new_id
from testkit.ledger.erasing import ADA, ASKED, EVE, Site, about, open_site

WORDS = {"principal": b"who it was", "inputs": b"what was asked"}


class Closed:
    """A site whose log was set back behind what was signed, and is closed; `successor` goes on from it."""

    def __init__(self, site: Site, successor: Log, signer: CheckpointSigner) -> None:
        self.site = site
        self.successor = successor
        self.signer = signer

    async def told(self) -> list[PayloadErased | PayloadErasedElsewhere]:
        """Return what the successor says to be erased."""
        size = (await read_head(self.site.owner, self.successor.log_id)).size
        entries = await read_entries(self.site.owner, self.successor.log_id, from_index=0, to_index=size)
        return [parse_erasure(entry) for entry in entries if parse_entry(entry).type == PayloadErased.TYPE]


@pytest.fixture
async def closed(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Closed]:
    async with open_site(database, installation, tmp_path) as site:
        keys = create_key_directory(tmp_path / "keys")
        signer = CheckpointSigner(installation.as_role(installation.roles.signer), keys)
        await site.tell(about(ADA, WORDS))
        await site.tell(about(EVE, WORDS))
        head = await (await site.owner.execute("TABLE ledger.heads")).fetchall()
        await site.tell(about(EVE, {"verdicts": b"lost"}))
        await signer.sign_once()
        await set_back(site, head)

        async def make_log(origin: str, tenant: UUID) -> Log:
            create_tenant_log(database, installation, tenant, origin=origin)
            await signer.sign_once()
            return await find_log(site.owner, origin)

        async with appender(installation) as running:
            successor, _ = await continue_log(
                site.owner, site.log, keys=keys, make_log=make_log, append=running.append, now=datetime.now(UTC)
            )
            await signer.sign_once()
            assert list(signer.refused) == [site.log.origin]
            yield Closed(site, successor, signer)


async def set_back(site: Site, heads: list[tuple[object, ...]]) -> None:
    """Set the site's log back to a head that it had, as an older backup does."""
    where = (site.log.log_id, 2)
    for table, column in (("parts", "index"), ("entries", "index"), ("checkpoints", "size")):
        query = sql.SQL("DELETE FROM ledger.{} WHERE log_id = %s AND {} >= %s")
        await site.owner.execute(query.format(sql.Identifier(table), sql.Identifier(column)), where)
    await site.owner.execute("DELETE FROM ledger.heads WHERE log_id = %s", (site.log.log_id,))
    (row,) = [row for row in heads if row[0] == site.log.log_id]
    await site.owner.execute("INSERT INTO ledger.heads VALUES (%s, %s, %s, %s, %s, %s)", row)


async def test_a_person_is_erased_from_a_closed_log(closed: Closed) -> None:
    site = closed.site
    done = await site.eraser.erase_subject(site.log, ADA, ASKED)
    assert (done.origin, done.parts, done.repeated) == (closed.successor.origin, 2, False)
    assert await site.payloads() == {(1, name): data for name, data in WORDS.items()}
    assert await site.count("ledger.subjects", f"actor = '{ADA}'") == 0
    assert site.keys.destroyed() == {ADA}
    (said,) = await closed.told()
    assert isinstance(said, PayloadErasedElsewhere)
    assert (said.origin, said.subject) == (site.log.origin, ADA)
    again = await site.eraser.erase_subject(site.log, ADA, ASKED)
    assert (again.index, again.repeated, again.parts) == (done.index, True, 0)
    assert len(await closed.told()) == 1
    assert (await read_head(site.owner, site.log.log_id)).size == 2, "nothing is appended to it"
    with pytest.raises(NoSuchSubjectError):
        await site.eraser.erase_subject(site.log, "0" * 32, ASKED)


async def test_parts_and_what_is_old_are_erased_from_a_closed_log_and_not_from_its_successor(closed: Closed) -> None:
    site = closed.site
    await site.owner.execute(
        "INSERT INTO ledger.parts (log_id, index, name, sealed) VALUES (%s, 0, 'inputs', %s)",
        (closed.successor.log_id, bytes(64)),
    )
    for repeated in (False, True):
        assert (await site.eraser.erase_part(site.log, 0, "inputs", ASKED)).repeated is repeated
        assert (await site.eraser.erase_before(site.log, 2, ASKED, name="principal", type=None)).repeated is repeated
    assert (await site.payloads()).keys() == {(1, "inputs")}
    assert await site.count("ledger.parts", f"log_id = {closed.successor.log_id}") == 1
    assert len(await closed.told()) == 2


async def test_what_was_erased_before_a_log_was_closed_is_not_said_again(
    database: str, installation: Provisioned, tmp_path: Path
) -> None:
    async with open_site(database, installation, tmp_path) as site:
        await site.tell(about(ADA, WORDS))
        first = await site.eraser.erase_subject(site.log, ADA, ASKED)
        create_tenant_log(database, installation, new_id(), origin=f"{site.log.origin}/2")
        again = await site.eraser.erase_subject(site.log, ADA, ASKED)
        assert (again.index, again.origin, again.repeated) == (first.index, site.log.origin, True)


async def test_an_erasure_of_a_closed_log_that_was_cut_off_is_gone_on_with_and_its_read_models_are_told(
    closed: Closed,
) -> None:
    site = closed.site
    told: list[tuple[str, PayloadErased]] = []

    class Dying(NoCopies):
        async def forget_closed(self, _log: Log, _erased: PayloadErased, /) -> None:
            raise FormatError("read model", expected="one", found=None)

    class Telling(NoCopies):
        async def forget_closed(self, log: Log, erased: PayloadErased, /) -> None:
            told.append((log.origin, erased))

    eraser = Eraser(site.connection, site.appender, site.keys, new_group_id=new_id, copies=Dying())
    with pytest.raises(FormatError):
        await eraser.erase_subject(site.log, ADA, ASKED)
    failed = await rerun_erasures(site.connection, site.keys, Dying())
    assert list(failed.failed) == [closed.successor.log_id]
    assert (await rerun_erasures(site.connection, site.keys, Telling())).erasures == 1
    ((origin, erased),) = told
    assert (origin, erased.subject) == (site.log.origin, ADA)
    assert (await rerun_erasures(site.connection, site.keys, Telling())).erasures == 0


async def test_a_closed_log_that_is_not_in_the_database_is_erased_once_it_is(closed: Closed) -> None:
    site = closed.site
    await site.eraser.erase_part(site.log, 0, "inputs", ASKED)
    await site.owner.execute("DELETE FROM ledger.erasures_done")
    rename = "UPDATE ledger.logs SET origin = %s WHERE log_id = %s"
    await site.owner.execute(rename, ("another.example/log", site.log.log_id))
    await rerun_erasures(site.connection, site.keys)
    assert await site.count("ledger.erasures_done") == 0
    await site.owner.execute(rename, (site.log.origin, site.log.log_id))
    await rerun_erasures(site.connection, site.keys)
    assert await site.count("ledger.erasures_done") == 1


async def test_a_backup_older_than_an_erasure_does_not_hold_up_what_is_said_of_a_closed_log(closed: Closed) -> None:
    site = closed.site
    site.keys.destroy(ADA)
    assert (await rerun_erasures(site.connection, site.keys)).unrecorded == ((site.log.log_id, ADA),)
    assert not await erase_before_confirming(site.connection, site.keys, [closed.successor.log_id])
    assert await site.count("ledger.parts", f"subject = '{ADA}'") == 2, "a log that is refused may be recovered yet"
    assert closed.successor.log_id in await read_confirmed_logs(site.connection)
    assert await site.eraser.recording_log(site.log) == closed.successor
    await site.eraser.erase_subject(site.log, ADA, ASKED)
    assert (await rerun_erasures(site.connection, site.keys)).unrecorded == ()
    assert await read_unrecorded(site.connection) == []


async def test_what_is_erased_elsewhere_is_read_strictly(closed: Closed) -> None:
    site = closed.site
    done = await site.eraser.erase_part(site.log, 0, "inputs", ASKED)
    log_id, index = closed.successor.log_id, done.index
    (entry,) = await read_entries(site.owner, log_id, from_index=index, to_index=index + 1)
    assert RecordedErasure(log_id=log_id, index=index, event=parse_erasure(entry)).event == (await closed.told())[0]
    with pytest.raises(FormatError):
        parse_erasure(entry.replace(b'"name":"inputs"', b'"name":null'))
    with pytest.raises(FormatError):
        parse_erasure(entry.replace(b'"version":2', b'"version":3'))
