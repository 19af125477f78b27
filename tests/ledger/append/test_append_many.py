# SPDX-License-Identifier: Apache-2.0
"""Many groups in one call: whatever happens to some of them, the list says what became of every one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned
from ledger.append.appender import Appender
from ledger.erasing.sealer import Sealer
from ledger.errors import LogUnavailableError, OutcomeUnknownError, QueueFullError
from ledger.format.guards import GuardRegistry
from ledger.format.sealing import SubjectKeysError
from ledger.format.sequence import Appended, AppendOutcome, AppendRefused, Group
from testkit.ledger.appending import appender_dsn, group, new_id, places, read_log
from testkit.ledger.erasing import ADA, about, key_folder


@pytest.fixture(scope="module")
def database(module_database: str) -> str:
    return module_database


@pytest.fixture(scope="module")
def installation(module_installation: Provisioned) -> Provisioned:
    return module_installation


async def check_told(database: str, log_id: int, wanted: Sequence[Group], outcomes: Sequence[AppendOutcome]) -> None:
    """Check that there is an outcome for each group, and that each is true."""
    entries = await read_log(database, log_id)
    for one, outcome in zip(wanted, outcomes, strict=True):
        match outcome:
            case Appended():
                assert places(entries, one.id) == (outcome.branch, outcome.indices)
            case AppendRefused(error=OutcomeUnknownError()):
                pass
            case _:
                assert places(entries, one.id) is None, f"told {outcome!r}"


def errors(outcomes: Sequence[AppendOutcome]) -> set[type]:
    return {type(one.error) for one in outcomes if isinstance(one, AppendRefused)}


async def test_a_group_that_cannot_be_sealed_is_refused_and_holds_up_no_other(
    database: str, installation: Provisioned, log_id: int, tmp_path: Path
) -> None:
    keys = key_folder(tmp_path)
    wanted = [group() for _ in range(600)]
    wanted[300] = Group(id=new_id(), then=(about(ADA, {"principal": b"ada"}),))
    (keys.path / ADA[:2]).write_text("damaged\n")
    async with Appender(appender_dsn(installation), GuardRegistry(()), sealer=Sealer(keys)) as running:
        outcomes = await running.append_many(log_id, wanted)
        await check_told(database, log_id, wanted, outcomes)
        assert [number for number, one in enumerate(outcomes) if not isinstance(one, Appended)] == [300]
        assert errors(outcomes) == {SubjectKeysError}
        (keys.path / ADA[:2]).unlink()
        again = await running.append_many(log_id, wanted)
    assert all(isinstance(one, Appended) for one in again)
    assert len(await read_log(database, log_id)) == 600


async def test_many_that_are_cut_off_by_a_stop_are_told_which_of_them_are_in(
    database: str, installation: Provisioned, log_id: int
) -> None:
    wanted = [group() for _ in range(3_000)]
    running = Appender(appender_dsn(installation), GuardRegistry(()))
    await running.start()
    call = asyncio.create_task(running.append_many(log_id, wanted))
    await running.append(log_id, group())  # behind the first of them
    await running.stop()
    outcomes = await call
    await check_told(database, log_id, wanted, outcomes)
    assert isinstance(outcomes[0], Appended)
    assert isinstance(outcomes[-1], AppendRefused)
    assert errors(outcomes) <= {LogUnavailableError, OutcomeUnknownError}


async def test_an_appender_that_does_not_run_refuses_all_of_them(
    database: str, installation: Provisioned, log_id: int
) -> None:
    wanted = [group() for _ in range(3)]
    outcomes = await Appender(appender_dsn(installation), GuardRegistry(())).append_many(log_id, wanted)
    assert (len(outcomes), errors(outcomes)) == (3, {LogUnavailableError})
    await check_told(database, log_id, wanted, outcomes)


async def test_many_for_whom_others_leave_no_room_are_refused_from_there_on(
    database: str, installation: Provisioned, log_id: int
) -> None:
    wanted = [group() for _ in range(5)]
    async with Appender(appender_dsn(installation), GuardRegistry(()), queue_max=3) as running:
        await running.append(log_id, group())
        async with await AsyncConnection.connect(database) as holder:
            await holder.execute("SELECT FROM ledger.heads WHERE log_id = %s FOR UPDATE", (log_id,))
            others = [asyncio.create_task(running.append(log_id, group(), timeout_s=30)) for _ in range(3)]
            await asyncio.sleep(0)  # they are in the queue, and have filled it
            outcomes = await running.append_many(log_id, wanted)
        await asyncio.gather(*others)
        assert (len(outcomes), errors(outcomes)) == (5, {QueueFullError})
        await check_told(database, log_id, wanted, outcomes)
        assert all(isinstance(one, Appended) for one in await running.append_many(log_id, wanted))


async def test_many_go_through_a_queue_of_few_bytes(installation: Provisioned, log_id: int) -> None:
    async with Appender(appender_dsn(installation), GuardRegistry(()), queue_size_bytes_max=1_000) as running:
        outcomes = await running.append_many(log_id, [group() for _ in range(50)])
    assert [one.indices[0] for one in outcomes if isinstance(one, Appended)] == list(range(50))
