# SPDX-License-Identifier: Apache-2.0
"""
What one group does to the Appender that nobody has foreseen: it is refused alone, or the process learns that it cannot
append any more. And what a stalled server or a stalled process keeps from nobody: an answer by the deadline.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from lakeproof.provision import Provisioned
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.erasing.sealer import Sealer
from ledger.errors import GuardError, LedgerError, LogUnavailableError
from ledger.format.event import Part
from ledger.format.guards import Guard, GuardCall, GuardRegistry
from ledger.format.sealing import KEY_WAIT_S, StoredPart, SubjectKeysError
from ledger.format.sequence import Appended, Group
from testkit.ledger.appending import appended, appender, appender_dsn, event, group, new_id, read_log
from testkit.ledger.cutting_proxy import Cut, CuttingProxy, Plan
from testkit.ledger.erasing import ADA, EVE, about, held, key_folder

BATCH = 4


@pytest.fixture(scope="module")
def database(module_database: str) -> str:
    return module_database


@pytest.fixture(scope="module")
def installation(module_installation: Provisioned) -> Provisioned:
    return module_installation


# One group that breaks what handles it


@pytest.mark.parametrize("parameters", [None, 7, "key", ["key"], {7: "key"}])
async def test_a_guard_whose_parameters_are_none_is_refused_and_the_next_group_is_not(
    installation: Provisioned, log_id: int, parameters: object
) -> None:
    call = GuardCall("aggregate.create", cast("Any", parameters))
    async with appender(installation) as running:
        with pytest.raises(GuardError, match="parameters"):
            await running.append(log_id, Group(id=new_id(), then=(event(),), guard=(call,)))
        assert appended(await running.append(log_id, group())).indices == range(1)


class Odd:
    """Opens parts by a service that fails in its own way; seals nothing."""

    def __init__(self) -> None:
        self.opener = self

    def open(self, stored: StoredPart) -> Part | None:
        raise RuntimeError(f"no route to what opens {stored.name}")

    async def seal(self, group: Group, *, timeout_s: float = KEY_WAIT_S) -> Group:  # noqa: ARG002
        return group


async def test_what_breaks_on_one_group_breaks_no_other_of_its_batch_and_no_later_one(
    database: str, installation: Provisioned, log_id: int, caplog: pytest.LogCaptureFixture
) -> None:
    repeated = group(event(payloads={"inputs": b"p"}))
    async with Appender(appender_dsn(installation), GuardRegistry(CORE_GUARDS), sealer=Odd()) as running:
        await running.append(log_id, repeated)
        calls = [running.append(log_id, one) for one in (group(), repeated, group(), group())]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(answer) for answer in answers] == [Appended, LedgerError, Appended, Appended]
        assert "RuntimeError" in str(answers[1])
        assert "no route" not in str(answers[1])
        assert "no route to what opens inputs" in caplog.text
        assert isinstance(await running.append(log_id, group()), Appended)
    assert len(await read_log(database, log_id)) == 5


async def test_what_breaks_the_appender_itself_is_told_to_who_watches_and_everyone_waiting_is_answered(
    database: str, installation: Provisioned, log_id: int
) -> None:
    def ring() -> None:
        raise RuntimeError("the doorbell fell off")

    running = Appender(appender_dsn(installation), GuardRegistry(()), on_append=ring)
    await running.start()
    watching = asyncio.create_task(running.ended())
    assert isinstance(await running.append(log_id, group()), Appended)
    with pytest.raises(RuntimeError, match="fell off"):
        await watching
    with pytest.raises(LogUnavailableError, match="not running"):
        await running.append(log_id, group())
    with pytest.raises(RuntimeError, match="fell off"):
        await running.stop()
    assert len(await read_log(database, log_id)) == 1


async def test_who_watches_is_told_of_an_appender_that_was_cancelled_and_not_of_one_that_was_stopped(
    installation: Provisioned,
) -> None:
    running = appender(installation)
    await running.start()
    watching = asyncio.create_task(running.ended())
    (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "appender")
    task.cancel()
    with pytest.raises(LogUnavailableError, match="cancelled"):
        await watching
    await running.stop()
    await running.start()
    watching = asyncio.create_task(running.ended())
    await asyncio.sleep(0)
    await running.stop()
    await watching
    await running.ended()  # nothing runs, and nothing has failed


# Answers by the deadline


@pytest.mark.usefixtures("two_round_trips")
async def test_who_is_in_the_log_is_told_so_by_the_deadline_though_the_server_stalls_behind_the_commit(
    database: str, installation: Provisioned, log_id: int, proxy: CuttingProxy
) -> None:
    goes_on = asyncio.Event()

    async def stall() -> None:
        await goes_on.wait()

    dsn = appender_dsn(installation, host=str(proxy.directory))
    async with Appender(dsn, GuardRegistry(()), batch_max=BATCH) as running:
        await running.append(log_id, group())
        proxy.plan = Plan(b"COMMIT", Cut.NOT, following=Plan(b"BEGIN", Cut.NOT, stall))
        wanted = [group() for _ in range(2 * BATCH)]
        calls = [asyncio.create_task(running.append(log_id, one, timeout_s=0.2)) for one in wanted]
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*calls, return_exceptions=True)
        goes_on.set()
        assert [type(answer) for answer in answers] == [Appended] * BATCH + [LogUnavailableError] * BATCH
        await running.append(log_id, group())
    assert len(await read_log(database, log_id)) == 2 + BATCH


async def test_a_process_that_holds_the_keys_keeps_nobody_from_an_answer(
    database: str, installation: Provisioned, log_id: int, tmp_path: Path
) -> None:
    keys, other = key_folder(tmp_path), key_folder(tmp_path)

    def group_about(subject: str) -> Group:
        return Group(id=new_id(), then=(about(subject, {"principal": b"who"}),))

    dsn = appender_dsn(installation)
    async with Appender(dsn, GuardRegistry(()), sealer=Sealer(keys)) as running, asyncio.timeout(30):
        known = group_about(ADA)
        await running.append(log_id, known)
        other.find_or_create(ADA[:2] + "0" * 30)  # a key more in her file, which must be read anew
        with held(keys):
            with pytest.raises(SubjectKeysError, match="nothing was appended"):
                await running.append(log_id, group_about(EVE), timeout_s=0.2)
            (refused,) = await running.append_many(log_id, [group_about(EVE)], timeout_s=0.2)
            assert not isinstance(refused, Appended)
            await running.append(log_id, group_about(ADA))
            assert appended(await running.append(log_id, known)).repeated
        await running.append(log_id, group_about(EVE))
    assert len(await read_log(database, log_id)) == 3


def test_a_guard_is_still_bound_to_its_log() -> None:
    registry = GuardRegistry([Guard(name="one", statements=("SELECT %(log_id)s",))])
    with pytest.raises(GuardError, match="bound by the sequencer"):
        registry.statements(GuardCall("one", {"log_id": 1}), log_id=2)
    assert registry.statements(GuardCall("one", {"key": 1}), log_id=2) == [
        ("SELECT %(log_id)s", {"key": 1, "log_id": 2})
    ]
