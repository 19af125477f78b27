# SPDX-License-Identifier: Apache-2.0
"""The life of the signer's keys on a real database: who signs when, and that a crash anywhere leaves what can go on."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
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
from ledger.store.session import Connection, connect_service
from ledger.verify.database import verify_database
from testkit.ledger.appending import appender_dsn, group
from testkit.ledger.logs import TENANT
from testkit.ledger.signer_installation import SignerSetup, signed_by
from testkit.ledger.signing_agents import ssh_agent


@pytest_asyncio.fixture
async def signing(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[SignerSetup]:
    log_id = create_tenant_log(database, installation, TENANT)
    create_key_directory(tmp_path / "keys")
    async with Appender(appender_dsn(installation), GuardRegistry(CORE_GUARDS)) as appender:
        yield SignerSetup(installation, appender, log_id, tmp_path / "keys")


@pytest.fixture
def place(short_directory: Callable[[], AbstractContextManager[Path]]) -> Iterator[Path]:
    with short_directory() as directory:
        yield directory


# From the first key to the second


async def test_each_checkpoint_verifies_with_the_keys_valid_then(signing: SignerSetup, tmp_path: Path) -> None:
    first = signing.open().signer(signing.origin)
    (before,) = await signing.grow()
    copy = tmp_path / "copied"
    generate_key_file(copy, random=lambda _: read_seed(signing.path / "signing-key"))
    await signing.keeper().rotate(new_file_key)
    during = next(one for one in await signing.grow() if one.log_id == signing.log_id)
    second = signing.open().signer(signing.origin)
    await signing.keeper().retire()
    after = next(one for one in await signing.grow() if one.log_id == signing.log_id)

    keys = signing.open()
    old, new = (record.key_id for record in keys.keys.ring.records)
    assert signing.lives() == [KeyLife.RETIRED, KeyLife.ACTIVE]
    assert signed_by(before.note, keys, signing.origin) == [old]
    assert signed_by(during.note, keys, signing.origin) == sorted([old, new])
    assert signed_by(after.note, keys, signing.origin) == [new]

    pinned_first = await signing.history(keys.first_verifier_key(signing.system))
    pinned_last = await signing.history(second.verifier_key)
    assert pinned_first == pinned_last == keys.keys.history
    for one in (before, during, after):
        assert pinned_first.open(one.note, origin=signing.origin) == one.checkpoint

    text = format_checkpoint(after.checkpoint)
    stolen = replace(first, key=imported_file_key(copy).key)
    for signers in ([stolen], [replace(first, key=new_file_key().key)]):
        with pytest.raises(BrokenError):
            pinned_first.open(sign_note(text, signers))
    assert pinned_first.open(sign_note(format_checkpoint(during.checkpoint), [second])) == during.checkpoint
    assert pinned_first.last_trees(signing.origin) == (during.checkpoint,)


async def test_all_of_the_database_verifies_after_two_rotations(signing: SignerSetup) -> None:
    for _ in range(2):
        await signing.grow()
        await signing.keeper().rotate(new_file_key)
        await signing.grow()
        await signing.keeper().retire()
    await signing.grow()
    dsn = signing.installation.as_role(signing.installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        for log in await read_logs(connection):
            report = await verify_database(connection, log, signing.open().verifier_keys(log.origin))
            assert report.signed_size == report.size > 0
    assert len(signing.open().keys.ring.records) == 3


async def test_a_signer_that_runs_takes_the_change_up_in_its_next_round(signing: SignerSetup) -> None:
    await signing.grow()
    keys = signing.signer.keys
    assert len(keys.signers(signing.origin)) == 1
    await signing.keeper().rotate(new_file_key)
    await signing.grow()
    assert len(keys.signers(signing.origin)) == 2
    await signing.keeper().retire()
    await signing.grow()
    assert len(keys.signers(signing.origin)) == 1


async def test_a_log_that_stands_still_keeps_the_key_that_has_signed_it(signing: SignerSetup) -> None:
    (still,) = await signing.grow()
    old = signing.open().verifier_key(signing.origin)
    await signing.keeper().rotate(new_file_key)
    await signing.signer.sign_once()
    await signing.keeper().retire()
    assert signing.open().verifier_key(signing.origin) == old
    assert (await signing.history(signing.open().verifier_key(signing.system))).open(still.note) == still.checkpoint
    (moved,) = (one for one in await signing.grow() if one.log_id == signing.log_id)
    assert signing.open().verifier_key(signing.origin) != old
    assert signing.open().open(moved.note, signing.origin) == moved.checkpoint


async def test_the_private_half_is_gone_when_a_key_is_retired(signing: SignerSetup) -> None:
    secret = (signing.path / "signing-key").read_bytes()
    await signing.grow()
    await signing.keeper().rotate(new_file_key)
    await signing.grow()
    held = os.open(signing.path / "signing-key", os.O_RDONLY)
    retired = await signing.keeper().retire()
    assert os.read(held, 100) == bytes(len(secret))
    os.close(held)
    assert retired.public not in signing.open().keys.held
    assert all(secret.strip() not in file.read_bytes() for file in signing.path.iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in signing.path.iterdir()} == {0o600}


async def test_a_key_that_was_made_in_advance_is_brought_and_never_used_twice(
    signing: SignerSetup, tmp_path: Path
) -> None:
    file = tmp_path / "made"
    made = generate_key_file(file)
    await signing.grow()
    assert (await signing.keeper().rotate(lambda: imported_file_key(file))).key_id == made.key_id
    await signing.grow()
    await signing.keeper().retire()
    await signing.grow()
    for path in (file, tmp_path / "nothing"):
        with pytest.raises((RotationError, OSError)):
            await signing.keeper().rotate(lambda path=path: imported_file_key(path))  # type: ignore[misc]
    assert signing.lives() == [KeyLife.RETIRED, KeyLife.ACTIVE]
    file.chmod(0o640)
    with pytest.raises(KeyDirectoryError, match="run chmod 600"):
        imported_file_key(file)


async def test_at_most_two_keys_sign(signing: SignerSetup) -> None:
    await signing.grow()
    with pytest.raises(RotationError, match="no key to retire"):
        await signing.keeper().retire()
    await signing.keeper().rotate(new_file_key)
    with pytest.raises(RotationError, match="retire it first"):
        await signing.keeper().rotate(new_file_key)


async def test_a_key_is_not_retired_before_a_checkpoint_covers_the_rotation(signing: SignerSetup) -> None:
    await signing.grow()
    await signing.keeper().rotate(new_file_key)
    with pytest.raises(RotationError, match="nothing that was signed covers the rotation yet"):
        await signing.keeper().retire()
    await signing.signer.sign_once()
    assert (await signing.keeper().retire()).life is KeyLife.RETIRED


# A key that an agent holds


async def test_an_agent_holds_the_keys_from_the_first_to_the_next(
    signing: SignerSetup, place: Path, tmp_path: Path
) -> None:
    with ssh_agent(place) as agent:
        first, second = agent.add("first"), agent.add("second")
        signing.path, signing.agent = tmp_path / "agent's", agent.path
        enter_agent_key(signing.path, find_key(agent.path, first))
        signing.signer = signing.started()
        (before,) = await signing.grow()
        await signing.keeper().rotate(lambda: agent_key(agent.path, second))
        during = await signing.grow()
        assert signed_by(before.note, signing.open(), signing.origin) == [first]
        assert signed_by(during[-1].note, signing.open(), signing.origin) == sorted([first, second])
        await signing.keeper().retire()
        await signing.grow()
        assert signing.signer.state is SignerState.SIGNING
        assert sorted(file.name for file in signing.path.iterdir() if file.name.startswith("signing-key")) == []
        with pytest.raises(KeyUnavailableError, match="LAKEPROOF_SIGNER_AGENT"):
            open_key_directory(signing.path)


async def test_a_lost_key_stops_the_signing_until_it_is_retired(
    signing: SignerSetup, place: Path, tmp_path: Path
) -> None:
    with ssh_agent(place) as agent:
        signing.path, signing.agent = tmp_path / "agent's", agent.path
        enter_agent_key(signing.path, find_key(agent.path, agent.add("first")))
        signing.signer = signing.started()
        await signing.grow()
        await signing.keeper().rotate(new_file_key)
        agent.forget()
        assert await signing.grow() == []
        assert signing.signer.state is SignerState.UNAVAILABLE
        await signing.keeper().retire()
        assert {one.log_id for one in await signing.grow()} >= {signing.log_id}
        history = await signing.history(signing.open().first_verifier_key(signing.system))
        assert len(history.keys_for(signing.origin, 10**6)) == 1


async def test_a_round_that_failed_leaves_the_lock_to_the_next_signer_before_its_session_has_ended(
    signing: SignerSetup, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[Connection] = []

    async def connect(dsn: str, *, name: str) -> Connection:
        connection = await connect_service(dsn, name=name)
        left.append(connection)
        monkeypatch.setattr(connection, "close", partial(asyncio.sleep, 0))
        return connection

    with ssh_agent(place) as agent:
        signing.path, signing.agent = tmp_path / "agent's", agent.path
        enter_agent_key(signing.path, find_key(agent.path, agent.add("first")))
        signing.signer = signing.started()
        await signing.grow()
        agent.forget()
        await signing.appender.append(signing.log_id, group())
        states: list[SignerState] = []
        monkeypatch.setattr("ledger.signing.signer.connect_service", connect)
        for _ in range(2):
            await signing.signer.sign_once()
            states.append(signing.signer.state)
    monkeypatch.undo()
    for connection in left:
        await connection.close()
    assert states == [SignerState.UNAVAILABLE, SignerState.UNAVAILABLE]


# Crashes


class Crash(BaseException):
    """The process is gone: nothing catches this."""


def crash_at(step: str, times: int, *, after: bool, patch: pytest.MonkeyPatch, signing: SignerSetup) -> KeyRotation:
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
        outcome = await signing.tell(told)
        if left[0] == 0:
            raise Crash
        return outcome

    if step == "append":
        return signing.keeper(tell)
    owner: Any = KeyDirectory if step.startswith("KeyDirectory") else rotation
    name = step.rpartition(".")[2]
    patch.setattr(owner, name, struck(getattr(owner, name)))
    return signing.keeper()


ROTATING = (
    ("append", 1),
    ("state_rotation", 1),
    ("KeyDirectory.replace_ring", 1),
    ("destroy_strays", 1),
    ("write_later_key", 1),
    ("KeyDirectory.replace_ring", 2),
    ("append", 2),
    ("KeyDirectory.replace_ring", 3),
)
RETIRING = (
    ("state_retirement", 1),
    ("write_retirement", 1),
    ("KeyDirectory.replace_ring", 1),
    ("append", 1),
    ("destroy_key", 1),
    ("KeyDirectory.replace_ring", 2),
)
CRASHES = [
    *((*step, retiring, False) for steps, retiring in ((ROTATING, False), (RETIRING, True)) for step in steps),
    (*ROTATING[-1], False, True),
    (*RETIRING[-1], True, True),
]
"""A crash before each step, in their order, which is one after the step before it; and one after the last."""


@pytest.mark.parametrize(("step", "times", "retiring", "after"), CRASHES)
async def test_after_a_crash_at_any_step_the_signer_goes_on_and_the_step_is_taken_up(
    signing: SignerSetup, step: str, times: int, retiring: bool, after: bool
) -> None:
    sent = await signing.grow()
    if retiring:
        await signing.keeper().rotate(new_file_key)
        sent += await signing.grow()
    with pytest.MonkeyPatch.context() as patch:
        keeper = crash_at(step, times, after=after, patch=patch, signing=signing)
        with pytest.raises(Crash):
            await (keeper.retire() if retiring else keeper.rotate(new_file_key))
    signing.signer = signing.started()
    sent += await signing.grow()
    if retiring:
        if KeyLife.RETIRED not in signing.lives():
            await signing.keeper().retire()
    elif KeyLife.OVERLAPPING not in signing.lives():
        await signing.keeper().rotate(new_file_key)
    sent += await signing.grow()
    expected = [KeyLife.RETIRED, KeyLife.ACTIVE] if retiring else [KeyLife.OVERLAPPING, KeyLife.ACTIVE]
    assert signing.lives() == expected
    assert await signing.keeper().finish() is None
    assert len(list(signing.path.glob("signing-key*"))) == (1 if retiring else 2)
    history = await signing.history(signing.open().first_verifier_key(signing.system))
    assert history == signing.open().keys.history
    for one in sent:
        assert history.open(one.note, origin=one.checkpoint.origin) == one.checkpoint


async def test_a_start_takes_up_what_was_cut_short(signing: SignerSetup) -> None:
    await signing.grow()

    async def cut(_: Group) -> Appended | Stale:
        raise Crash

    await signing.keeper().record_first_key()
    with pytest.raises(Crash):
        await signing.keeper(cut).rotate(new_file_key)
    assert signing.lives() == [KeyLife.ACTIVE]
    with pytest.MonkeyPatch.context() as patch:
        keeper = crash_at("append", 2, after=False, patch=patch, signing=signing)
        with pytest.raises(Crash):
            await keeper.rotate(new_file_key)
    assert signing.lives() == [KeyLife.ACTIVE, KeyLife.JOINING]
    finished = await signing.keeper().finish()
    assert finished is not None
    assert signing.lives() == [KeyLife.OVERLAPPING, KeyLife.ACTIVE]


# Secrets


async def test_no_secret_is_in_any_text_or_log(signing: SignerSetup, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made: list[NewKey] = []

    def make() -> NewKey:
        made.append(new_file_key())
        return made[-1]

    await signing.grow()
    first = (signing.path / "signing-key").read_text().strip()
    await signing.keeper().rotate(make)
    await signing.grow()
    keys = signing.open()
    seeds = [read_seed(file) for file in sorted(signing.path.glob("signing-key*"))]
    secretive = (made, keys, keys.keys, keys.signers("a/b"), signing.signer, signing.keeper())
    await signing.keeper().retire()
    said = "\n".join([*map(repr, secretive), caplog.text, *(f"{vars(record)}" for record in caplog.records)])
    assert len(seeds) == 2
    for seed in seeds:
        for form in (seed.hex(), repr(seed)[2:-1], first):
            assert form not in said
