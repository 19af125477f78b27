# SPDX-License-Identifier: Apache-2.0
"""
Every step of a round of the signer x {lost, answer lost, crash before, crash after}, and what must hold after each.

What must hold: sizes only grow, at most one note leaves for a size, everything that left is of one tree, what was kept
beside the key leaves, and no log is confirmed that the signer has not compared.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple

import psycopg
import pytest

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.format.sequence import SequencedEntry
from ledger.signing.key_directory import create_key_directory
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from testkit.ledger.logs import TENANT, rows_of
from testkit.ledger.signing_site import Site, forked, open_site

QUERIES = load_queries("ledger.store", "signing.sql")


class Crash(BaseException):
    """The process is gone: nothing catches this."""


class Way(StrEnum):
    """How a step goes wrong."""

    LOST = "lost"  # the database never heard of it
    ANSWER_LOST = "answer lost"
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"

    @property
    def is_done(self) -> bool:
        """Whether the step itself was carried out."""
        return self in {Way.ANSWER_LOST, Way.CRASH_AFTER}


STATEMENTS = ("hold_signer_lock", "signing_states", "confirm", "insert_checkpoints")
FILE_STEPS = ("full disk", "fsync", "rename", "fsync of the directory")


class Fault(NamedTuple):
    """A fault at one step; `kept` if the note is beside the key then, `left` if it is in the database."""

    step: str
    way: Way
    kept: bool
    left: bool
    confirmed: bool


def _faults() -> Iterator[Fault]:
    for step in STATEMENTS:
        for way in Way:
            is_last = step == "insert_checkpoints"
            confirmed = is_last or (step == "confirm" and way.is_done)
            yield Fault(step, way, kept=is_last, left=is_last and way.is_done, confirmed=confirmed)
    yield Fault("full disk", Way.LOST, kept=False, left=False, confirmed=True)
    for step in FILE_STEPS[1:]:
        for way in (Way.CRASH_BEFORE, Way.CRASH_AFTER):
            kept = step == "fsync of the directory" or (step == "rename" and way.is_done)
            yield Fault(step, way, kept=kept, left=False, confirmed=True)


FAULTS = tuple(_faults())
GROWN = [
    *zip(FAULTS, (255, 260) * len(FAULTS), strict=False),
    *((fault, (260, 255)[number % 2]) for number, fault in enumerate(FAULTS) if fault.kept),
]
"""To which size the restored log grows after a fault: the size of what was kept, or more; where something was, both."""
EACH_FAULT = pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.step}, {fault.way}" for fault in FAULTS])


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
def rows(module_installation: Provisioned) -> Sequence[SequencedEntry]:
    return rows_of(270, log=module_installation.origin(TENANT))


async def strike(site: Site, fault: Fault, patch: pytest.MonkeyPatch) -> None:
    """Let a signer that has just started work on an unconfirmed database until the fault ends it."""
    await site.unconfirm()
    is_crash = fault.way in {Way.CRASH_BEFORE, Way.CRASH_AFTER}
    expected = Crash if is_crash else OSError if fault.step == "full disk" else psycopg.OperationalError
    async with site.connected() as connection:
        signer = site.signer()
        with patch.context() as armed:
            if fault.step in STATEMENTS:
                _arm_statement(fault, connection, armed)
            elif fault.step == "full disk":
                armed.setattr(os, "fdopen", _open_full)
            elif is_crash:
                _arm_file(fault, armed)
            with pytest.raises(expected):
                await signer.sign_due(connection)
    await site.look()


def _open_full(descriptor: int, mode: str) -> IO[bytes]:
    """Open another file in place of one that was made: the device that has no room for what is written to it."""
    os.close(descriptor)
    full: IO[bytes] = Path("/dev/full").open(mode)  # noqa: SIM115 - who asked for it closes it
    return full


def _arm_statement(fault: Fault, connection: Connection, patch: pytest.MonkeyPatch) -> None:
    execute = connection.execute
    error: BaseException = Crash() if "crash" in fault.way else psycopg.OperationalError("the wire was cut")

    async def execute_or_fail(query: Any, *arguments: Any, **options: Any) -> Any:
        if query != QUERIES[fault.step]:
            return await execute(query, *arguments, **options)
        if fault.way.is_done:
            await execute(query, *arguments, **options)
        raise error

    patch.setattr(connection, "execute", execute_or_fail)


def _arm_file(fault: Fault, patch: pytest.MonkeyPatch) -> None:
    name = "replace" if fault.step == "rename" else "fsync"
    real = getattr(os, name)
    calls = count(1 if fault.step == "fsync of the directory" else 2)

    def crash(*arguments: object) -> None:
        is_the_step = next(calls) == 2
        if not is_the_step or fault.way.is_done:
            real(*arguments)
        if is_the_step:
            raise Crash

    patch.setattr(os, name, crash)


@EACH_FAULT
async def test_after_a_fault_what_was_kept_leaves_and_the_log_goes_on(
    site: Site, rows: Sequence[SequencedEntry], monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    await site.hold(rows[:255])
    await strike(site, fault, monkeypatch)
    assert sorted(site.left) == ([255] if fault.left else [])
    assert site.kept() == (255 if fault.kept else 0)
    assert await site.confirmed() is fault.confirmed
    await site.hold(rows[:260])
    signed = await site.sign()
    assert [one.checkpoint.size for one in signed if one.put_back] == ([255] if fault.kept and not fault.left else [])
    assert sorted(site.left) == [255, 260][not fault.kept :]
    site.check_left(rows)
    assert (site.kept(), await site.confirmed()) == (260, True)
    assert await site.sign() == []


@pytest.mark.parametrize(("fault", "grown"), GROWN)
async def test_after_a_fault_and_a_restored_backup_no_second_root_leaves_for_one_size(
    site: Site, rows: Sequence[SequencedEntry], monkeypatch: pytest.MonkeyPatch, fault: Fault, grown: int
) -> None:
    await site.hold(rows[:250])
    await site.sign()
    await site.hold(rows[:255])
    await strike(site, fault, monkeypatch)
    await site.owner.execute("DELETE FROM ledger.checkpoints WHERE size >= 250")
    # The backup is of the time between: the first 250 entries are the same, then others follow.
    await site.hold(forked(rows, 250, grown - 250, origin=site.origin, salt="another"))
    signer = site.signer()
    await site.sign(signer)
    assert (site.origin in signer.refused) is fault.kept
    assert await site.confirmed() is not fault.kept


@pytest.mark.parametrize("way", list(Way))
async def test_a_refused_log_stays_refused_whatever_happens_while_its_confirmation_is_withdrawn(
    site: Site, rows: Sequence[SequencedEntry], monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    await site.hold(rows[:255])
    await site.sign()
    assert await site.confirmed()
    await site.hold(rows[:254])
    fault = Fault("withdraw", way, kept=True, left=True, confirmed=not way.is_done)
    async with site.connected() as connection:
        with monkeypatch.context() as armed:
            _arm_statement(fault, connection, armed)
            with pytest.raises(Crash if "crash" in way else psycopg.OperationalError):
                await site.signer().sign_due(connection)
    assert await site.confirmed() is fault.confirmed
    assert await site.sign() == []
    assert not await site.confirmed()
    site.check_left(rows)
