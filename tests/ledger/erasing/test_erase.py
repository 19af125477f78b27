# SPDX-License-Identifier: Apache-2.0
"""People and parts are erased for good, in one order that a crash cannot break, and every proof stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from psycopg import AsyncConnection
from psycopg.errors import InsufficientPrivilege

from lakeproof.provision import Provisioned
from ledger.erasing.erase import Eraser, NoSuchSubjectError, Revocations
from ledger.erasing.execution import Deleted, ErasureTargets, RecordedErasure, execute_erasure, parse_erasure
from ledger.erasing.rerun import check_key_folder, rerun_erasures
from ledger.erasing.subject_keys import KeyFolder, open_key_encryption
from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.entry import parse_entry
from ledger.format.events import ErasureReason, PayloadErased, check_erased
from ledger.format.sealing import KeyOpener, SubjectKeysError
from ledger.format.sequence import Appended, Group
from ledger.proving.export import as_reader
from ledger.store.read import Log, first_index_since, read_entries, read_head
from ledger.verify.parts import PartsReport, verify_parts
from testkit.ledger.appending import new_id, verify
from testkit.ledger.erasing import ADA, ASKED, EVE, Site, about, key_folder, open_site

WORDS = {"principal": b"who it was", "inputs": b"what was asked"}


@pytest.fixture
async def site(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(database, installation, tmp_path) as site:
        yield site


async def verified(site: Site) -> PartsReport:
    """Verify everything: chain, tree, head, columns, and each part that is there."""
    await verify(site.installation, site.log.log_id)
    login = AsyncConnection.connect(site.installation.dsn, autocommit=True)
    async with await login as reader, as_reader(reader, site.log):
        return await verify_parts(reader, site.log, opener=KeyOpener(site.keys))


async def test_a_person_is_erased_and_everything_still_verifies(site: Site) -> None:
    for subject in (ADA, EVE, ADA):
        await site.tell(about(subject, WORDS))
    assert (await verified(site)).checked == 6
    done = await site.eraser.erase_subject(site.log, ADA, ASKED)
    assert (done.index, done.parts, done.repeated) == (3, 4, False)
    assert await site.payloads() == {(1, name): data for name, data in WORDS.items()}
    assert await site.count("ledger.subjects", f"actor = '{ADA}'") == 0
    assert site.keys.destroyed() == {ADA}
    assert await verified(site) == PartsReport(checked=2, entries=1, sealed=0)


async def test_the_log_says_that_and_why_and_nothing_about_whom(site: Site) -> None:
    await site.tell(about(ADA, WORDS))
    done = await site.eraser.erase_subject(site.log, ADA, ASKED)
    (entry,) = await read_entries(site.owner, site.log.log_id, from_index=done.index, to_index=done.index + 1)
    assert parse_erasure(entry) == PayloadErased(
        subject=ADA, reason=ErasureReason.REQUEST, before=None, index=None, name=None, type=None
    )
    assert parse_entry(entry).actor == "system"
    assert b"acme" not in entry


async def test_a_person_is_erased_under_all_their_actors_and_nobody_else(site: Site) -> None:
    issued = "1d" * 16
    row = "INSERT INTO ledger.subjects (log_id, actor, identity, issuer) VALUES (%s, %s, 'ada@acme.example', %s)"
    await site.owner.execute(row, (site.log.log_id, issued, EVE))
    for subject in (ADA, EVE, issued):
        await site.tell(about(subject, WORDS))
    erased = await site.eraser.erase_person(site.log, ADA, ASKED)
    assert [(done.index, done.parts) for done in erased] == [(3, 2), (4, 2)]
    assert await site.payloads() == {(1, name): data for name, data in WORDS.items()}
    assert await site.count("ledger.subjects", "identity = 'ada@acme.example'") == 0
    assert await site.count("ledger.subjects", f"actor = '{EVE}'") == 1
    assert site.keys.destroyed() == {ADA, issued}
    assert [done.repeated for done in await site.eraser.erase_person(site.log, ADA, ASKED)] == [True]


async def test_an_actor_that_is_minted_meanwhile_is_reached_too(site: Site) -> None:
    row = "INSERT INTO ledger.subjects (log_id, actor, identity, issuer) VALUES (%s, %s, 'ada@acme.example', %s)"
    late = ["2e" * 16]

    async def revoke(_log: Log, _subject: str) -> Revocations:
        if late:
            await site.owner.execute(row, (site.log.log_id, late.pop(), "f0" * 16))
        return Revocations(as_of=None, each=())

    await site.owner.execute(row, (site.log.log_id, "1d" * 16, EVE))
    eraser = Eraser(site.connection, site.appender, site.keys, new_group_id=new_id, revoke=revoke)
    assert len(await eraser.erase_person(site.log, ADA, ASKED)) == 3
    assert await site.count("ledger.subjects", "identity = 'ada@acme.example'") == 0


async def test_an_erasure_that_stopped_before_the_named_actor_reaches_the_others_again(site: Site) -> None:
    issued = "1d" * 16
    row = "INSERT INTO ledger.subjects (log_id, actor, identity, issuer) VALUES (%s, %s, 'ada@acme.example', %s)"
    await site.owner.execute(row, (site.log.log_id, issued, EVE))
    await site.eraser.erase_subject(site.log, issued, ASKED)
    assert [done.repeated for done in await site.eraser.erase_person(site.log, ADA, ASKED)] == [False]
    assert site.keys.destroyed() == {ADA, issued}


async def test_erasing_twice_appends_once_and_a_stranger_is_not_erased(site: Site) -> None:
    await site.tell(about(ADA, WORDS))
    first = await site.eraser.erase_subject(site.log, ADA, ASKED)
    again = await site.eraser.erase_subject(site.log, ADA, ASKED)
    assert (again.index, again.repeated, again.parts) == (first.index, True, 0)
    with pytest.raises(NoSuchSubjectError):
        await site.eraser.erase_subject(site.log, "0" * 32, ASKED)
    assert (await read_head(site.owner, site.log.log_id)).size == 2


async def test_what_a_slow_process_appends_for_an_erased_person_is_shown_to_nobody(site: Site) -> None:
    await site.tell(about(ADA, WORDS))
    await site.eraser.erase_subject(site.log, ADA, ASKED)
    await site.tell(about(ADA, WORDS))
    await site.owner.execute(
        "INSERT INTO ledger.parts (log_id, index, name, subject, sealed) VALUES (%s, 0, 'late', %s, %s)",
        (site.log.log_id, ADA, bytes(32) + b"in the clear"),
    )
    assert await site.payloads() == {}
    assert await verified(site) == PartsReport(checked=0, entries=0, sealed=0)
    assert (await rerun_erasures(site.connection, site.keys)).parts == 3
    assert await site.count("ledger.parts") == 0


async def test_a_repeated_append_is_known_again_sealed_or_erased(site: Site) -> None:
    group = Group(id=new_id(), then=(about(ADA, WORDS),))
    other = Group(id=group.id, then=(about(ADA, {**WORDS, "inputs": b"other"}),))
    first = await site.appender.append(site.log.log_id, group)
    assert await site.appender.append(site.log.log_id, group) == _repeated(first)
    with pytest.raises(Exception, match="part inputs"):
        await site.appender.append(site.log.log_id, other)
    await site.eraser.erase_subject(site.log, ADA, ASKED)
    assert await site.appender.append(site.log.log_id, group) == _repeated(first)


def _repeated(outcome: object) -> Appended:
    assert isinstance(outcome, Appended)
    return Appended(branch=outcome.branch, indices=outcome.indices, recorded_at=outcome.recorded_at, repeated=True)


class DyingKeys(KeyFolder):
    """The process dies when it is about to destroy a key: the entry is durable by then, and nothing else is done."""

    class Died(Exception):  # noqa: N818
        """It has died."""

    def destroy(self, subject: str) -> None:
        raise self.Died(subject)


@pytest.mark.parametrize(
    "done", ["", "key", "key identity", "key identity parts"], ids=lambda done: done or "nothing but the entry"
)
async def test_an_erasure_that_was_cut_off_anywhere_is_gone_on_with(site: Site, tmp_path: Path, done: str) -> None:
    await site.tell(about(ADA, WORDS), about(EVE, WORDS))
    dying = DyingKeys(site.keys.path, open_key_encryption(tmp_path / "kek"))
    eraser = Eraser(site.connection, site.appender, dying, new_group_id=new_id)
    with pytest.raises(DyingKeys.Died):
        await eraser.erase_subject(site.log, ADA, ASKED)
    if "key" in done:
        site.keys.destroy(ADA)
    if "identity" in done:
        await site.owner.execute("DELETE FROM ledger.subjects WHERE actor = %s", (ADA,))
    if "parts" in done:
        await site.owner.execute("DELETE FROM ledger.parts WHERE subject = %s", (ADA,))
    assert {index for index, _ in await site.payloads()} == {1}
    assert (await rerun_erasures(site.connection, site.keys)).erasures == 1
    assert await site.count("ledger.parts", f"subject = '{ADA}'") == 0
    assert await site.count("ledger.subjects", f"actor = '{ADA}'") == 0
    assert site.keys.destroyed() == {ADA}
    assert (await rerun_erasures(site.connection, site.keys)).erasures == 0
    assert (await verified(site)).checked == 2


async def test_a_restored_database_is_erased_again_before_it_is_served(site: Site) -> None:
    await site.tell(about(ADA, WORDS))
    backup = await (await site.owner.execute("SELECT * FROM ledger.parts")).fetchall()
    await site.eraser.erase_subject(site.log, ADA, ASKED)
    # The log knows; parts, identity and the mark are as in the backup.
    await site.owner.execute("DELETE FROM ledger.erasures_done")
    await site.owner.execute("INSERT INTO ledger.subjects VALUES (%s, %s, 'ada')", (site.log.log_id, ADA))
    async with site.owner.cursor() as cursor:
        await cursor.executemany("INSERT INTO ledger.parts VALUES (%s, %s, %s, %s, %s, %s)", backup)
    done = await rerun_erasures(site.connection, site.keys)
    assert (done.parts, done.unrecorded) == (2, ())
    assert await site.count("ledger.parts") + await site.count("ledger.subjects", f"actor = '{ADA}'") == 0


async def test_an_older_backup_that_knows_of_no_erasure_is_told_by_the_keys(site: Site) -> None:
    await site.tell(about(ADA, WORDS))
    site.keys.destroy(ADA)  # as an erasure did that this database has forgotten, entry and all
    done = await rerun_erasures(site.connection, site.keys)
    assert done.unrecorded == ((site.log.log_id, ADA),)
    await site.eraser.erase_subject(site.log, ADA, ASKED)
    assert (await rerun_erasures(site.connection, site.keys)).unrecorded == ()


async def test_an_older_folder_of_keys_is_told_by_the_log(site: Site, tmp_path: Path) -> None:
    await site.tell(about(ADA, WORDS))
    file = site.keys.path / ADA[:2]
    backup = file.read_bytes()
    await site.eraser.erase_subject(site.log, ADA, ASKED)
    file.write_bytes(backup)
    assert key_folder(tmp_path).find(ADA) is not None
    await rerun_erasures(site.connection, site.keys)
    assert key_folder(tmp_path).find(ADA) is None


async def test_another_folder_of_keys_is_refused(site: Site, tmp_path: Path) -> None:
    await check_key_folder(site.connection, site.keys.id)
    await check_key_folder(site.connection, site.keys.id)
    with pytest.raises(SubjectKeysError, match="restore"):
        await check_key_folder(site.connection, key_folder(tmp_path / "other").id)


async def test_one_part_is_erased_and_the_one_beside_it_stays(site: Site) -> None:
    await site.tell(about(ADA, WORDS))
    for repeated in (False, True):
        assert (await site.eraser.erase_part(site.log, 0, "inputs", ASKED)).repeated is repeated
    assert await site.payloads() == {(0, "principal"): WORDS["principal"]}
    for index, name in ((0, "verdicts"), (9, "inputs")):
        with pytest.raises(NoSuchSubjectError):
            await site.eraser.erase_part(site.log, index, name, ASKED)
    assert (await verified(site)).checked == 1


@pytest.mark.parametrize(
    ("name", "kind", "left"),
    [
        (None, None, set()),
        ("inputs", None, {(0, "principal"), (1, "principal")}),
        (None, "lineage.received", {(0, "principal"), (0, "inputs")}),
        ("inputs", "lineage.received", {(0, "principal"), (0, "inputs"), (1, "principal")}),
    ],
)
async def test_retention_erases_what_is_chosen_and_nothing_younger(
    site: Site, name: str | None, kind: str | None, left: set[tuple[int, str]]
) -> None:
    await site.tell(about(ADA, WORDS), about(EVE, WORDS, kind="lineage.received"))
    before = await site.tell(about(ADA, WORDS))
    await site.eraser.erase_before(site.log, before, ASKED, name=name, type=kind)
    assert (await site.payloads()).keys() == left | {(2, "principal"), (2, "inputs")}
    assert (await verified(site)).checked == len(left) + 2


async def test_the_first_entry_of_an_age_is_found(site: Site) -> None:
    times = []
    for _ in range(5):
        index = await site.tell(about(EVE, WORDS))
        (entry,) = await read_entries(site.owner, site.log.log_id, from_index=index, to_index=index + 1)
        times.append(parse_entry(entry).recorded_at)
    log_id = site.log.log_id
    found = [await first_index_since(site.owner, log_id, time, size=5) for time in times]
    assert found == [times.index(time) for time in times]
    assert await first_index_since(site.owner, log_id, times[-1] + timedelta(days=1), size=5) == 5
    assert await first_index_since(site.owner, log_id, times[0] - timedelta(days=1), size=5) == 0


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"subject": ADA, "before": 3},
        {"subject": ADA, "name": "inputs"},
        {"index": 3},
        {"index": 3, "name": "inputs", "type": "commit.decided"},
        {"name": "inputs"},
    ],
)
def test_an_erasure_of_nobody_knows_what_is_none(members: dict[str, object]) -> None:
    every = dict.fromkeys(("before", "index", "name", "subject", "type"), None) | members
    with pytest.raises(FormatError):
        check_erased(PayloadErased(reason=ErasureReason.ORDER, **every))


async def test_the_eraser_can_neither_read_parts_nor_touch_entries(site: Site) -> None:
    await site.tell(about(ADA, WORDS))
    for statement in (
        "SELECT sealed FROM ledger.parts",
        "SELECT identity FROM ledger.subjects",
        "UPDATE ledger.parts SET subject = NULL",
        "DELETE FROM ledger.entries",
        "DELETE FROM ledger.erased_subjects",
        "INSERT INTO ledger.parts (log_id) VALUES (1)",
    ):
        with pytest.raises(InsufficientPrivilege):
            await site.connection.execute(statement)


async def test_a_part_whose_key_is_lost_is_named_and_not_called_erased(site: Site) -> None:
    await site.tell(about(ADA, WORDS), about(EVE, WORDS))
    (site.keys.path / ADA[:2]).unlink()
    assert await verified(site) == PartsReport(checked=2, entries=1, sealed=2)


async def test_a_changed_sealed_part_is_found(site: Site) -> None:
    await site.tell(about(ADA, WORDS))
    await site.owner.execute("UPDATE ledger.parts SET sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1)")
    with pytest.raises(BrokenError) as found:
        await verified(site)
    assert found.value.fault is Fault.PART


async def test_a_part_that_was_stored_in_the_clear_is_erased_like_any_other(site: Site) -> None:
    await site.tell(about(ADA, {"principal": b"sealed"}))
    await site.owner.execute(
        "UPDATE ledger.parts SET key_id = NULL, sealed = %s WHERE index = 0", (bytes(32) + b"in the clear",)
    )
    erased = PayloadErased(subject=ADA, reason=ErasureReason.MISTAKE, before=None, index=None, name=None, type=None)
    recorded = RecordedErasure(log_id=site.log.log_id, index=0, event=erased)
    assert await execute_erasure(ErasureTargets(connection=site.connection, keys=site.keys), recorded) == Deleted(
        parts=1
    )
    assert await site.count("ledger.parts") == 0
