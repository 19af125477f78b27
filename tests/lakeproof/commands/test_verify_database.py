# SPDX-License-Identifier: Apache-2.0
"""
Verification beside the signer: what it keeps outside the database is held against logs that were set back or replaced.

Whoever has the database alone can make all that lies in it agree; these are the ways to do so, and what finds them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from lakeproof.commands.reports import show_report
from lakeproof.commands.verify_database import verify_every_log, verify_log
from lakeproof.commands.verify_options import VerifyOptions
from lakeproof.installation import Installation
from lakeproof.provision import Provisioned
from ledger.anchoring.archive import ArchivedNotes, ArchiveError
from ledger.anchoring.archives import FileArchive
from ledger.errors import BrokenError, Fault
from ledger.format.verification import VerificationReport
from ledger.signing.key_directory import SignedNote
from ledger.verify import resuming
from ledger.verify.resuming import ProgressFile
from testkit.ledger.logs import sequenced
from testkit.ledger.tampering.instances import World
from testkit.ledger.tampering.tables import hold, set_back
from testkit.ledger.tampering.world import TENANTS, open_world, random_groups

SHADOW_LOG = "INSERT INTO ledger.logs (log_id, origin) OVERRIDING SYSTEM VALUE VALUES (0, %s)"
SHADOW_HEAD = "INSERT INTO ledger.heads (log_id) VALUES (0)"


@pytest.fixture
async def world(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[World]:
    """Logs that are signed and anchored, in the installation that an operator has: the signer's notes are there."""
    async with open_world(database, installation, tmp_path) as world:
        quick = world.installation
        installation = Installation.on(quick, settings=quick.settings, admin_dsn=quick.admin_dsn)
        yield replace(world, installation=installation)


async def broken(world: World, *, log: str = "one", pinned: bool = False) -> BrokenError:
    """Return the fault that verification finds, with a key that the auditor holds or without."""
    key = [world.keys.verifier_key(world.logs[log].log.origin)] if pinned else []
    with pytest.raises(BrokenError) as caught:
        await verify(world, VerifyOptions(keys=key), log=log)
    return caught.value


async def verify(world: World, options: VerifyOptions, *, log: str = "one") -> VerificationReport:
    origin = world.logs[log].log.origin
    return await verify_log(world.installation, world.auditor, origin, options, progress=lambda _done, _of: None)


async def rewrite(world: World) -> None:
    """Make a tenant's log one of other entries, none of them signed."""
    one = world.logs["one"]
    rows = sequenced(random_groups(Random(9), 300), log=one.log.origin)[0]  # noqa: S311
    await world.execute("DELETE FROM ledger.parts WHERE log_id = %s", one.log_id)
    await hold(world, one, rows, at=0)
    await world.execute("DELETE FROM ledger.checkpoints WHERE log_id = %s", one.log_id)


async def test_a_clean_log_goes_on_from_the_note_that_its_signer_keeps(world: World) -> None:
    for log in ("one", "other", "system"):
        report = await verify(world, VerifyOptions(), log=log)
        assert "the note that the signer keeps outside the database" in report.checked
        assert (report.is_pinned, report.is_signed) == (False, True)
    assert (await verify(world, VerifyOptions(keys=[world.keys.verifier_key(world.logs["one"].log.origin)]))).is_pinned


async def test_where_the_signer_keeps_no_note_that_is_said(world: World) -> None:
    (world.installation.keys / "last-notes").unlink()
    report = await verify(world, VerifyOptions())
    assert any("no note of this log is kept here" in unchecked for unchecked in report.unchecked)


async def test_all_logs_set_back_together_are_found(world: World) -> None:
    for log in world.logs.values():
        await set_back(world, log, min(log.notes))
    for pinned in (False, True):
        error = await broken(world, pinned=pinned)
        assert (error.fault, error.index) == (Fault.INDEX, min(world.logs["one"].notes)), pinned


async def test_another_log_that_claims_to_be_the_system_log_hides_nothing(world: World) -> None:
    await rewrite(world)
    await world.execute(SHADOW_LOG, "x/system")
    await world.execute(SHADOW_HEAD)
    for pinned in (False, True):
        assert (await broken(world, pinned=pinned)).fault is Fault.INDEX, pinned


async def test_without_the_signers_notes_the_system_log_itself_finds_a_rewritten_log(
    database: str, installation: Provisioned, tmp_path: Path
) -> None:
    async with open_world(database, installation, tmp_path) as world:
        await rewrite(world)
        await world.execute(SHADOW_LOG, "x/system")
        await world.execute(SHADOW_HEAD)
        assert (await broken(world)).fault is Fault.ANCHOR


async def test_an_emptied_system_log_is_found_when_any_log_is_verified(world: World) -> None:
    system = world.logs["system"]
    await hold(world, system, [], at=0)
    await world.execute("DELETE FROM ledger.checkpoints WHERE log_id = %s", system.log_id)
    for pinned in (False, True):
        error = await broken(world, pinned=pinned)
        assert (error.fault, error.index) == (Fault.INDEX, 0), pinned


async def test_a_system_log_of_which_nothing_is_signed_is_said_to_be_one(
    database: str, installation: Provisioned, tmp_path: Path
) -> None:
    async with open_world(database, installation, tmp_path) as world:  # where the signer's notes are not at hand
        await world.execute("DELETE FROM ledger.checkpoints WHERE log_id = %s", world.logs["system"].log_id)
        report = await verify(world, VerifyOptions())
    assert any("nothing of it is signed" in unchecked for unchecked in report.unchecked)


async def test_a_system_log_that_is_gone_is_found_when_any_log_is_verified(world: World) -> None:
    await world.execute("UPDATE ledger.logs SET origin = 'x/system' WHERE tenant IS NULL")
    assert (await broken(world)).fault is Fault.ANCHOR


async def test_a_log_that_is_given_to_another_tenant_is_found(world: World) -> None:
    await world.execute("ALTER TABLE ledger.logs DROP CONSTRAINT IF EXISTS logs_tenant_key")
    for tenant in (None, TENANTS[1], UUID(int=7)):
        await world.execute("UPDATE ledger.logs SET tenant = %s WHERE log_id = %s", tenant, world.logs["one"].log_id)
        assert (await broken(world)).fault is Fault.DERIVED, tenant


async def test_two_logs_of_one_name_are_found(world: World) -> None:
    await world.execute("ALTER TABLE ledger.logs DROP CONSTRAINT logs_origin_key")
    await world.execute(SHADOW_LOG, world.logs["other"].log.origin)
    assert (await broken(world)).fault is Fault.DERIVED


async def test_parts_are_read_from_the_first_on_though_entries_are_taken_up_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StoppedError(Exception):
        pass

    def stop(done: int, _of: int) -> None:
        if done >= 512:
            raise StoppedError

    monkeypatch.setattr(resuming, "SAVE_ENTRIES", 256)
    one = world.logs["one"]
    options = VerifyOptions(keeper=ProgressFile(tmp_path / "progress"))
    with pytest.raises(StoppedError):
        await verify_log(world.installation, world.auditor, one.log.origin, options, progress=stop)
    await world.execute("UPDATE ledger.parts SET sealed = sealed || 'x' WHERE log_id = %s AND index < 256", one.log_id)
    with pytest.raises(BrokenError) as caught:
        await verify(world, VerifyOptions(keeper=ProgressFile(tmp_path / "progress")))
    assert caught.value.fault is Fault.PART


# All of them, and what is kept outside


async def every(world: World, options: VerifyOptions | None = None) -> dict[str, VerificationReport | BrokenError]:
    """Return what is said of each log, by the name that the world has for it, or by its origin."""
    verdicts = await verify_every_log(
        world.installation, world.auditor, options or VerifyOptions(), progress=lambda _done, _of: None
    )
    names = {state.log.origin: name for name, state in world.logs.items()}
    return {names.get(verdict.origin, verdict.origin): verdict.result for verdict in verdicts}


def faults(said: dict[str, VerificationReport | BrokenError]) -> dict[str, Fault]:
    return {name: one.fault for name, one in said.items() if isinstance(one, BrokenError)}


def set_back_home(world: World) -> None:
    """Let the signer's notes be what they were when the logs were smallest, as a restored home has them."""
    notes = world.keys.read_notes()
    for state in world.logs.values():
        note = state.notes[min(state.notes)]
        checkpoint = world.keys.open(note, state.log.origin)
        notes = {**notes, state.log.origin: SignedNote(checkpoint=checkpoint, note=note)}
    world.keys.keep_notes(notes)


async def test_without_a_name_every_log_is_verified_the_system_log_first(world: World) -> None:
    said = await every(world)
    assert next(iter(said)) == "system"
    assert set(said) == {"system", "one", "other"}
    for name, report in said.items():
        assert isinstance(report, VerificationReport)
        assert (report.is_signed, report.witnessed_size) == (True, 0)
        assert report.anchored_size == (None if name == "system" else world_anchored(world, name))


def world_anchored(world: World, name: str) -> int:
    """Return the size at which a tenant's log was anchored last: that before the newest at which it was signed."""
    return sorted(world.logs[name].notes)[-2]


async def test_a_fault_in_one_log_keeps_the_others_from_nothing(world: World) -> None:
    one = world.logs["one"]
    await world.execute("UPDATE ledger.entries SET key = 'x' WHERE log_id = %s AND index = 3", one.log_id)
    assert faults(await every(world)) == {"one": Fault.DERIVED}


async def test_a_neighbour_that_was_removed_whole_is_missed_without_being_named(world: World) -> None:
    other = world.logs["other"]
    for table in ("parts", "entries", "tiles", "checkpoints", "confirmations", "heads", "logs"):
        await world.execute(f"DELETE FROM ledger.{table} WHERE log_id = %s", other.log_id)  # noqa: S608
    # Signed, and not anchored since: the note outside knows the larger log.
    with_note = await every(world)
    assert faults(with_note) == {"other": Fault.INDEX}
    notes = world.keys.read_notes()
    world.keys.keep_notes({origin: note for origin, note in notes.items() if origin != other.log.origin})
    without_note = await every(world)
    assert faults(without_note) == {"other": Fault.ANCHOR}
    assert "one" in with_note.keys() & without_note.keys()


async def test_a_complete_rollback_verifies_and_the_report_says_so(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    for log in world.logs.values():
        await set_back(world, log, min(log.notes))
    set_back_home(world)
    report = await verify(world, VerifyOptions(), log="system")
    assert report.witnessed_size == 0
    show_report(report, as_json=False)
    said = "nobody outside vouches for this root; had database and home both been set back, this would verify, too\nOK"
    assert said in capsys.readouterr().out


async def test_a_checkpoint_that_is_kept_outside_finds_a_complete_rollback(world: World, tmp_path: Path) -> None:
    system = world.logs["system"]
    place = FileArchive(path=tmp_path / "published")
    place.add(system.log.origin, size=max(system.notes), note=system.notes[max(system.notes)])
    options = VerifyOptions(places=[place])
    for name, witnessed in (("system", max(system.notes)), ("one", world_anchored(world, "one"))):
        report = await verify(world, options, log=name)
        assert (report.witnessed_size, report.witnessed_by) == (witnessed, ("kept outside", place.where))
        assert f"1 checkpoints kept in {place.where}" in report.checked
    for log in world.logs.values():
        await set_back(world, log, min(log.notes))
    set_back_home(world)
    for name in ("system", "one"):
        with pytest.raises(BrokenError) as caught:
            await verify(world, options, log=name)
        assert (caught.value.fault, caught.value.index) == (Fault.INDEX, min(system.notes))
    assert faults(await every(world, options)) == {"system": Fault.INDEX}


async def test_a_checkpoint_of_another_installation_is_no_evidence_for_this_one(world: World) -> None:
    one = world.logs["one"]
    stranger = one.notes[max(one.notes)].replace(one.log.origin.encode(), b"elsewhere/system")
    said = await every(world, VerifyOptions(kept=[ArchivedNotes(where="a file", notes=(stranger,))]))
    assert faults(said) == {"elsewhere/system": Fault.SIGNATURE}


async def test_a_place_that_was_named_and_cannot_be_read_is_not_passed_over(world: World, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError):
        await every(world, VerifyOptions(places=[FileArchive(path=tmp_path)]))
