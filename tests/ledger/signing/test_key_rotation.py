"""The life of the signer's keys on a real database: who signs when, and that a crash anywhere leaves what can go on."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.errors import BrokenError, KeyDirectoryError, KeyUnavailableError, RotationError
from ledger.format.checkpoint import format_checkpoint
from ledger.format.guards import GuardRegistry
from ledger.format.note import sign_note
from ledger.format.sequence import Appended, Group, Stale
from ledger.signing import rotation
from ledger.signing.key_directory import KeyDirectory, create_key_directory, enter_agent_key, open_key_directory
from ledger.signing.key_ring import KeyLife
from ledger.signing.keys import generate_key_file, read_seed
from ledger.signing.rotation import KeyRotation, NewKey, agent_key, imported_file_key, new_file_key
from ledger.signing.signer import SignerState
from ledger.signing.ssh_agent import find_key
from ledger.store.read import read_logs
from ledger.verify.database import verify_database
from testkit.ledger.appending import appender_dsn
from testkit.ledger.logs import TENANT
from testkit.ledger.signer_works import Works, signed_by
from testkit.ledger.signing_agents import ssh_agent


@pytest_asyncio.fixture
async def works(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Works]:
    log_id = create_tenant_log(database, installation, TENANT)
    create_key_directory(tmp_path / "keys")
    async with Appender(appender_dsn(installation), GuardRegistry(CORE_GUARDS)) as appender:
        yield Works(installation, appender, log_id, tmp_path / "keys")


@pytest.fixture
def place(short_directory: Callable[[], AbstractContextManager[Path]]) -> Iterator[Path]:
    with short_directory() as directory:
        yield directory


# From the first key to the second


async def test_each_checkpoint_verifies_with_the_keys_valid_then(works: Works, tmp_path: Path) -> None:
    first = works.open().signer(works.origin)
    (before,) = await works.grow()
    copy = tmp_path / "copied"
    generate_key_file(copy, random=lambda _: read_seed(works.path / "signing-key"))
    await works.keeper().rotate(new_file_key)
    during = next(one for one in await works.grow() if one.log_id == works.log_id)
    second = works.open().signer(works.origin)
    await works.keeper().retire()
    after = next(one for one in await works.grow() if one.log_id == works.log_id)

    keys = works.open()
    old, new = (record.key_id for record in keys.keys.ring.records)
    assert works.lives() == [KeyLife.RETIRED, KeyLife.ACTIVE]
    assert signed_by(before.note, keys, works.origin) == [old]
    assert signed_by(during.note, keys, works.origin) == sorted([old, new])
    assert signed_by(after.note, keys, works.origin) == [new]

    pinned_first = await works.history(keys.first_verifier_key(works.system))
    pinned_last = await works.history(second.verifier_key)
    assert pinned_first == pinned_last == keys.keys.history
    for one in (before, during, after):
        assert pinned_first.open(one.note, origin=works.origin) == one.checkpoint

    text = format_checkpoint(after.checkpoint)
    stolen = replace(first, key=imported_file_key(copy).key)
    for signers in ([stolen], [replace(first, key=new_file_key().key)]):
        with pytest.raises(BrokenError):
            pinned_first.open(sign_note(text, signers))
    assert pinned_first.open(sign_note(format_checkpoint(during.checkpoint), [second])) == during.checkpoint
    assert pinned_first.last_trees(works.origin) == (during.checkpoint,)


async def test_all_of_the_database_verifies_after_two_rotations(works: Works) -> None:
    for _ in range(2):
        await works.grow()
        await works.keeper().rotate(new_file_key)
        await works.grow()
        await works.keeper().retire()
    await works.grow()
    dsn = works.installation.as_role(works.installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        for log in await read_logs(connection):
            report = await verify_database(connection, log, works.open().verifier_keys(log.origin))
            assert report.signed_size == report.size > 0
    assert len(works.open().keys.ring.records) == 3


async def test_a_signer_that_runs_takes_the_change_up_in_its_next_round(works: Works) -> None:
    await works.grow()
    keys = works.signer.keys
    assert len(keys.signers(works.origin)) == 1
    await works.keeper().rotate(new_file_key)
    await works.grow()
    assert len(keys.signers(works.origin)) == 2
    await works.keeper().retire()
    await works.grow()
    assert len(keys.signers(works.origin)) == 1


async def test_a_log_that_stands_still_keeps_the_key_that_has_signed_it(works: Works) -> None:
    (still,) = await works.grow()
    old = works.open().verifier_key(works.origin)
    await works.keeper().rotate(new_file_key)
    await works.signer.sign_once()
    await works.keeper().retire()
    assert works.open().verifier_key(works.origin) == old
    assert (await works.history(works.open().verifier_key(works.system))).open(still.note) == still.checkpoint
    (moved,) = (one for one in await works.grow() if one.log_id == works.log_id)
    assert works.open().verifier_key(works.origin) != old
    assert works.open().open(moved.note, works.origin) == moved.checkpoint


async def test_the_private_half_is_gone_when_a_key_is_retired(works: Works) -> None:
    secret = (works.path / "signing-key").read_bytes()
    await works.grow()
    await works.keeper().rotate(new_file_key)
    await works.grow()
    held = os.open(works.path / "signing-key", os.O_RDONLY)
    retired = await works.keeper().retire()
    assert os.read(held, 100) == bytes(len(secret))
    os.close(held)
    assert retired.public not in works.open().keys.held
    assert all(secret.strip() not in file.read_bytes() for file in works.path.iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in works.path.iterdir()} == {0o600}


async def test_a_key_that_was_made_in_advance_is_brought_and_never_used_twice(works: Works, tmp_path: Path) -> None:
    file = tmp_path / "made"
    made = generate_key_file(file)
    await works.grow()
    assert (await works.keeper().rotate(lambda: imported_file_key(file))).key_id == made.key_id
    await works.grow()
    await works.keeper().retire()
    await works.grow()
    for path in (file, tmp_path / "nothing"):
        with pytest.raises((RotationError, OSError)):
            await works.keeper().rotate(lambda path=path: imported_file_key(path))  # type: ignore[misc]
    assert works.lives() == [KeyLife.RETIRED, KeyLife.ACTIVE]
    file.chmod(0o640)
    with pytest.raises(KeyDirectoryError, match="run chmod 600"):
        imported_file_key(file)


async def test_at_most_two_keys_sign(works: Works) -> None:
    await works.grow()
    with pytest.raises(RotationError, match="no key to retire"):
        await works.keeper().retire()
    await works.keeper().rotate(new_file_key)
    with pytest.raises(RotationError, match="retire it first"):
        await works.keeper().rotate(new_file_key)


async def test_a_key_is_not_retired_before_a_checkpoint_covers_the_rotation(works: Works) -> None:
    await works.grow()
    await works.keeper().rotate(new_file_key)
    with pytest.raises(RotationError, match="nothing that was signed covers the rotation yet"):
        await works.keeper().retire()
    await works.signer.sign_once()
    assert (await works.keeper().retire()).life is KeyLife.RETIRED


# A key that an agent holds


async def test_an_agent_holds_the_keys_from_the_first_to_the_next(works: Works, place: Path, tmp_path: Path) -> None:
    with ssh_agent(place) as agent:
        first, second = agent.add("first"), agent.add("second")
        works.path, works.agent = tmp_path / "agent's", agent.path
        enter_agent_key(works.path, find_key(agent.path, first))
        works.signer = works.started()
        (before,) = await works.grow()
        await works.keeper().rotate(lambda: agent_key(agent.path, second))
        during = await works.grow()
        assert signed_by(before.note, works.open(), works.origin) == [first]
        assert signed_by(during[-1].note, works.open(), works.origin) == sorted([first, second])
        await works.keeper().retire()
        await works.grow()
        assert works.signer.state is SignerState.SIGNING
        assert sorted(file.name for file in works.path.iterdir() if file.name.startswith("signing-key")) == []
        with pytest.raises(KeyUnavailableError, match="LAKEPROOF_SIGNER_AGENT"):
            open_key_directory(works.path)


async def test_a_lost_key_stops_the_signing_until_it_is_retired(works: Works, place: Path, tmp_path: Path) -> None:
    with ssh_agent(place) as agent:
        works.path, works.agent = tmp_path / "agent's", agent.path
        enter_agent_key(works.path, find_key(agent.path, agent.add("first")))
        works.signer = works.started()
        await works.grow()
        await works.keeper().rotate(new_file_key)
        agent.forget()
        assert await works.grow() == []
        assert works.signer.state is SignerState.UNAVAILABLE
        await works.keeper().retire()
        assert {one.log_id for one in await works.grow()} >= {works.log_id}
        history = await works.history(works.open().first_verifier_key(works.system))
        assert len(history.keys_for(works.origin, 10**6)) == 1


# Crashes


class Crash(BaseException):
    """The process is gone: nothing catches this."""


def crash_at(step: str, times: int, *, after: bool, patch: pytest.MonkeyPatch, works: Works) -> KeyRotation:
    """Return a keeper that is gone before or after it has done a step for the last of so many times."""
    left = [times]

    def struck(done: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and not after:
                raise Crash
            result = done(*arguments, **options)
            if left[0] == 0:
                raise Crash
            return result

        return act

    async def tell(told: Group) -> Appended | Stale:
        left[0] -= 1
        if left[0] == 0 and not after:
            raise Crash
        outcome = await works.tell(told)
        if left[0] == 0:
            raise Crash
        return outcome

    if step == "append":
        return works.keeper(tell)
    owner: Any = KeyDirectory if step.startswith("KeyDirectory") else rotation
    name = step.rpartition(".")[2]
    patch.setattr(owner, name, struck(getattr(owner, name)))
    return works.keeper()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("step", "times", "retiring"),
    [
        ("append", 1, False),
        ("state_rotation", 1, False),
        ("KeyDirectory.replace_ring", 1, False),
        ("destroy_strays", 1, False),
        ("write_later_key", 1, False),
        ("KeyDirectory.replace_ring", 2, False),
        ("append", 2, False),
        ("KeyDirectory.replace_ring", 3, False),
        ("state_retirement", 1, True),
        ("write_retirement", 1, True),
        ("KeyDirectory.replace_ring", 1, True),
        ("append", 1, True),
        ("destroy_key", 1, True),
        ("KeyDirectory.replace_ring", 2, True),
    ],
)
async def test_after_a_crash_at_any_step_the_signer_goes_on_and_the_step_is_taken_up(
    works: Works, step: str, times: int, retiring: bool, after: bool
) -> None:
    sent = await works.grow()
    if retiring:
        await works.keeper().rotate(new_file_key)
        sent += await works.grow()
    with pytest.MonkeyPatch.context() as patch:
        keeper = crash_at(step, times, after=after, patch=patch, works=works)
        with pytest.raises(Crash):
            await (keeper.retire() if retiring else keeper.rotate(new_file_key))
    works.signer = works.started()
    sent += await works.grow()
    if retiring:
        if KeyLife.RETIRED not in works.lives():
            await works.keeper().retire()
    elif KeyLife.OVERLAPPING not in works.lives():
        await works.keeper().rotate(new_file_key)
    sent += await works.grow()
    expected = [KeyLife.RETIRED, KeyLife.ACTIVE] if retiring else [KeyLife.OVERLAPPING, KeyLife.ACTIVE]
    assert works.lives() == expected
    assert await works.keeper().finish() is None
    assert len(list(works.path.glob("signing-key*"))) == (1 if retiring else 2)
    history = await works.history(works.open().first_verifier_key(works.system))
    assert history == works.open().keys.history
    for one in sent:
        assert history.open(one.note, origin=one.checkpoint.origin) == one.checkpoint


async def test_a_start_takes_up_what_was_cut_short(works: Works) -> None:
    await works.grow()

    async def cut(_: Group) -> Appended | Stale:
        raise Crash

    await works.keeper().record_first_key()
    with pytest.raises(Crash):
        await works.keeper(cut).rotate(new_file_key)
    assert works.lives() == [KeyLife.ACTIVE]
    with pytest.MonkeyPatch.context() as patch:
        keeper = crash_at("append", 2, after=False, patch=patch, works=works)
        with pytest.raises(Crash):
            await keeper.rotate(new_file_key)
    assert works.lives() == [KeyLife.ACTIVE, KeyLife.JOINING]
    finished = await works.keeper().finish()
    assert finished is not None
    assert works.lives() == [KeyLife.OVERLAPPING, KeyLife.ACTIVE]


# Secrets


async def test_no_secret_is_in_any_text_or_log(works: Works, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made: list[NewKey] = []

    def make() -> NewKey:
        made.append(new_file_key())
        return made[-1]

    await works.grow()
    first = (works.path / "signing-key").read_text().strip()
    await works.keeper().rotate(make)
    await works.grow()
    keys = works.open()
    seeds = [read_seed(file) for file in sorted(works.path.glob("signing-key*"))]
    secretive = (made, keys, keys.keys, keys.signers("a/b"), works.signer, works.keeper())
    await works.keeper().retire()
    said = "\n".join([*map(repr, secretive), caplog.text, *(f"{vars(record)}" for record in caplog.records)])
    assert len(seeds) == 2
    for seed in seeds:
        for form in (seed.hex(), repr(seed)[2:-1], first):
            assert form not in said
