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

from lakeproof.log_room import InstalledLogs
from lakeproof.provision import Installation
from ledger.commands.verifying_room import verify_log
from ledger.errors import BrokenError, Fault
from ledger.verify import resuming
from ledger.verify.resuming import ProgressFile
from ledger.verify.rules import Report
from ledger.verify.wanted import Wanted
from tests.ledger.logs import sequenced
from tests.ledger.tampering import World
from tests.ledger.tampering_tables import hold, set_back
from tests.ledger.tampering_world import TENANTS, open_world, random_groups

SHADOW_LOG = "INSERT INTO ledger.logs (log_id, origin) OVERRIDING SYSTEM VALUE VALUES (0, %s)"
SHADOW_HEAD = "INSERT INTO ledger.heads (log_id) VALUES (0)"


@pytest.fixture
async def world(database: str, installation: Installation, tmp_path: Path) -> AsyncIterator[World]:
    """Logs that are signed and anchored, in the room that an operator has: the signer's notes are there."""
    async with open_world(database, installation, tmp_path) as world:
        assert isinstance(world.room, InstalledLogs)
        room = InstalledLogs(foundation=world.room.foundation, connection=world.room.connection)
        yield replace(world, room=room)


async def broken(world: World, *, log: str = "one", pinned: bool = False) -> BrokenError:
    """Return the fault that verification finds, with a key that the auditor holds or without."""
    key = [world.keys.verifier_key(world.logs[log].log.origin)] if pinned else []
    with pytest.raises(BrokenError) as caught:
        await verify(world, Wanted(keys=key), log=log)
    return caught.value


async def verify(world: World, wanted: Wanted, *, log: str = "one") -> Report:
    origin = world.logs[log].log.origin
    return await verify_log(world.open_room, origin, wanted, progress=lambda _done, _of: None)


async def rewrite(world: World) -> None:
    """Make a tenant's log one of other entries, none of them signed."""
    one = world.logs["one"]
    rows = sequenced(random_groups(Random(9), 300), log=one.log.origin)[0]  # noqa: S311
    await world.execute("DELETE FROM ledger.parts WHERE log_id = %s", one.log_id)
    await hold(world, one, rows, at=0)
    await world.execute("DELETE FROM ledger.checkpoints WHERE log_id = %s", one.log_id)


async def test_a_clean_log_goes_on_from_the_note_that_its_signer_keeps(world: World) -> None:
    for log in ("one", "other", "system"):
        report = await verify(world, Wanted(), log=log)
        assert "the note that the signer keeps outside the database" in report.checked
        assert (report.is_pinned, report.is_signed) == (False, True)
    assert (await verify(world, Wanted(keys=[world.keys.verifier_key(world.logs["one"].log.origin)]))).is_pinned


async def test_where_the_signer_keeps_no_note_that_is_said(world: World) -> None:
    assert isinstance(world.room, InstalledLogs)
    (world.room.foundation.keys / "last-notes").unlink()
    report = await verify(world, Wanted())
    assert any("no note of this log is kept here" in unchecked for unchecked in report.unchecked)


@pytest.mark.parametrize("pinned", [False, True])
async def test_all_logs_set_back_together_are_found(world: World, *, pinned: bool) -> None:
    for log in world.logs.values():
        await set_back(world, log, min(log.notes))
    error = await broken(world, pinned=pinned)
    assert (error.fault, error.index) == (Fault.INDEX, min(world.logs["one"].notes))


@pytest.mark.parametrize("pinned", [False, True])
async def test_another_log_that_claims_to_be_the_system_log_hides_nothing(world: World, *, pinned: bool) -> None:
    await rewrite(world)
    await world.execute(SHADOW_LOG, "x/system")
    await world.execute(SHADOW_HEAD)
    assert (await broken(world, pinned=pinned)).fault is Fault.INDEX


async def test_without_the_signers_notes_the_system_log_itself_finds_a_rewritten_log(
    database: str, installation: Installation, tmp_path: Path
) -> None:
    async with open_world(database, installation, tmp_path) as world:
        await rewrite(world)
        await world.execute(SHADOW_LOG, "x/system")
        await world.execute(SHADOW_HEAD)
        assert (await broken(world)).fault is Fault.ANCHOR


@pytest.mark.parametrize("pinned", [False, True])
async def test_an_emptied_system_log_is_found_when_any_log_is_verified(world: World, *, pinned: bool) -> None:
    system = world.logs["system"]
    await hold(world, system, [], at=0)
    await world.execute("DELETE FROM ledger.checkpoints WHERE log_id = %s", system.log_id)
    error = await broken(world, pinned=pinned)
    assert (error.fault, error.index) == (Fault.INDEX, 0)


async def test_a_system_log_of_which_nothing_is_signed_is_said_to_be_one(
    database: str, installation: Installation, tmp_path: Path
) -> None:
    async with open_world(database, installation, tmp_path) as world:  # where the signer's notes are not at hand
        await world.execute("DELETE FROM ledger.checkpoints WHERE log_id = %s", world.logs["system"].log_id)
        report = await verify(world, Wanted())
    assert any("nothing of it is signed" in unchecked for unchecked in report.unchecked)


async def test_a_system_log_that_is_gone_is_found_when_any_log_is_verified(world: World) -> None:
    await world.execute("UPDATE ledger.logs SET origin = 'x/system' WHERE tenant IS NULL")
    assert (await broken(world)).fault is Fault.ANCHOR


@pytest.mark.parametrize("tenant", [None, TENANTS[1], UUID(int=7)])
async def test_a_log_that_is_given_to_another_tenant_is_found(world: World, tenant: UUID | None) -> None:
    await world.execute("ALTER TABLE ledger.logs DROP CONSTRAINT IF EXISTS logs_tenant_key")
    await world.execute("UPDATE ledger.logs SET tenant = %s WHERE log_id = %s", tenant, world.logs["one"].log_id)
    assert (await broken(world)).fault is Fault.DERIVED


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
    wanted = Wanted(keeper=ProgressFile(tmp_path / "progress"))
    with pytest.raises(StoppedError):
        await verify_log(world.open_room, one.log.origin, wanted, progress=stop)
    await world.execute("UPDATE ledger.parts SET sealed = sealed || 'x' WHERE log_id = %s AND index < 256", one.log_id)
    with pytest.raises(BrokenError) as caught:
        await verify(world, Wanted(keeper=ProgressFile(tmp_path / "progress")))
    assert caught.value.fault is Fault.PART
