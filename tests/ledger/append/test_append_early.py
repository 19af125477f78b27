# SPDX-License-Identifier: Apache-2.0
"""A head that is asked for before it is known what is appended: the batch that follows, and what comes in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned
from ledger.append.appender import Appender
from ledger.errors import GroupMismatchError, LogUnavailableError, UnconfirmedLogError
from ledger.format.sequence import Group
from testkit.ledger.appending import (
    SESSIONS,
    aggregate,
    appended,
    appender,
    event,
    group,
    new_log,
    places,
    read_log,
    verify,
)
from testkit.ledger.cutting_proxy import Cut, CuttingProxy, Plan

STEPS = (b"BEGIN", b"SKIP LOCKED", b"group_id = ANY")


@pytest.fixture(autouse=True)
def early_for_any_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledger.append.writer.EARLY_MIN", 1)


@pytest.fixture
async def idle(database: str, installation: Provisioned, log_id: int) -> AsyncIterator[Appender]:
    """An Appender that has appended, and waits for more; whatever comes, it goes on with the same session."""
    async with appender(installation) as running:
        await running.append(log_id, group())
        before = sessions(database)
        yield running
        assert sessions(database) == before, "the session was given up"


def sessions(database: str) -> list[int]:
    """Return the process ids of the Appenders' sessions; one that keeps a head locked, and is silent, is ended."""
    with psycopg.connect(database) as owner:
        return [pid for (pid,) in owner.execute(SESSIONS)]


async def until_one_waits_for_a_lock(database: str) -> None:
    """Return when a session of an Appender waits for a lock."""
    waiting = f"SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid IN ({SESSIONS})"
    async with await AsyncConnection.connect(database, autocommit=True) as owner:
        while await (await owner.execute(waiting)).fetchone() is None:  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0.01)


async def given_up(running: Appender, log_id: int) -> None:
    """Append, and give up when the head has been asked for, before anything is made of it."""
    call = asyncio.create_task(running.append(log_id, group()))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_no_head_stays_locked_for_a_caller_that_has_given_up(database: str, idle: Appender, log_id: int) -> None:
    await given_up(idle, log_id)
    assert len(await read_log(database, log_id)) == 1  # waits for the head
    assert appended(await idle.append(log_id, group())).indices == range(1, 2)


async def test_no_head_stays_locked_for_a_caller_whose_deadline_has_passed(
    database: str, idle: Appender, log_id: int
) -> None:
    call = asyncio.create_task(idle.append(log_id, group(), timeout_s=0))
    await asyncio.sleep(0)
    idle._check_deadlines()  # as the loop may, before it comes to the task that writes
    with pytest.raises(LogUnavailableError, match="before the deadline"):
        await call
    assert len(await read_log(database, log_id)) == 1


async def test_another_log_goes_on_without_the_one_whose_caller_has_given_up(
    database: str, installation: Provisioned, idle: Appender, log_id: int
) -> None:
    other = new_log(database, installation)
    await idle.append(other, group())
    calls = [asyncio.create_task(idle.append(one, group())) for one in (log_id, other)]
    await asyncio.sleep(0)
    calls[0].cancel()
    assert appended(await calls[1]).indices == range(1, 2)
    assert [len(await read_log(database, one)) for one in (log_id, other)] == [1, 2]


async def test_no_head_is_asked_for_early_while_another_process_writes(
    database: str, idle: Appender, log_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.append.writer.SHARED_S", 3_600.0)  # what is known of others is not forgotten meanwhile
    writer = idle._writer
    async with await AsyncConnection.connect(database) as holder:
        await holder.execute("SELECT FROM ledger.heads WHERE log_id = %s FOR UPDATE", (log_id,))
        waiting = asyncio.create_task(idle.append(log_id, group()))
        while not writer._contention.is_shared(asyncio.get_running_loop().time()):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
    await waiting
    call = asyncio.create_task(idle.append(log_id, group()))
    await asyncio.sleep(0)
    transaction = writer._transaction
    assert transaction is not None
    assert transaction.early is None
    assert appended(await call).indices == range(2, 3)


async def test_groups_of_many_logs_still_share_one_transaction(
    database: str, installation: Provisioned, idle: Appender
) -> None:
    logs = [new_log(database, installation) for _ in range(5)]
    for turn in range(2):
        for outcome in await asyncio.gather(*(idle.append(one, group()) for one in logs)):
            assert appended(outcome).indices == range(turn, turn + 1)
    with psycopg.connect(database) as owner:
        query = "SELECT count(DISTINCT xmin::text) FROM ledger.entries WHERE log_id = ANY(%s) AND index = 1"
        assert owner.execute(query, (logs,)).fetchone() == (1,)


@pytest.mark.parametrize("known_first", [True, False])
async def test_groups_that_the_log_holds_are_found_among_new_ones(
    database: str, installation: Provisioned, idle: Appender, log_id: int, *, known_first: bool
) -> None:
    known = [group(event({"n": n}, payloads={"inputs": b"a"})) for n in range(40)]
    firsts = {one.id: appended(await idle.append(log_id, one)) for one in known}
    new = [group(event({"n": n})) for n in range(40)]
    asked = [*known, *new] if known_first else random.Random(5).sample([*known, *new], 80)  # noqa: S311 - an order
    answers = await asyncio.gather(*(idle.append(log_id, one) for one in asked))
    outcomes = {one.id: appended(answer) for one, answer in zip(asked, answers, strict=True)}
    assert {one.id: outcomes[one.id]._replace(repeated=False) for one in known} == firsts
    assert all(outcomes[one.id].repeated for one in known)
    entries = await read_log(database, log_id)
    assert len(entries) == 1 + 40 + 40
    in_order = [one for one in asked if one.id not in firsts]
    assert [places(entries, one.id) for one in in_order] == [
        (outcomes[one.id].branch, range(at, at + 1)) for at, one in enumerate(in_order, start=41)
    ]
    await verify(installation, log_id)


async def test_other_content_under_a_known_id_is_refused_and_the_new_ones_beside_it_are_not(
    database: str, idle: Appender, log_id: int
) -> None:
    known = group(event({"n": 1}))
    await idle.append(log_id, known)
    other = Group(id=known.id, then=(event({"n": 2}),))
    answers = await asyncio.gather(
        idle.append(log_id, other), *(idle.append(log_id, group()) for _ in range(3)), return_exceptions=True
    )
    assert isinstance(answers[0], GroupMismatchError)
    assert len(await read_log(database, log_id)) == 2 + 3


async def test_guards_run_behind_the_look_up(database: str, idle: Appender, log_id: int) -> None:
    first, second = aggregate("policy:a", 1), aggregate("policy:a", 2)
    await idle.append(log_id, first)
    outcomes = await asyncio.gather(
        idle.append(log_id, first), idle.append(log_id, second), idle.append(log_id, second)
    )
    assert [appended(outcome).repeated for outcome in outcomes] == [True, False, True]
    assert len(await read_log(database, log_id)) == 3


async def test_a_table_that_is_locked_is_waited_for(database: str, idle: Appender, log_id: int) -> None:
    async with await AsyncConnection.connect(database) as holder:
        await holder.execute("LOCK TABLE ledger.heads IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(LogUnavailableError):
            await idle.append(log_id, group(), timeout_s=0.3)
        waiting = [asyncio.create_task(idle.append(log_id, group())) for _ in range(3)]
        await until_one_waits_for_a_lock(database)
    assert [appended(outcome).indices for outcome in await asyncio.gather(*waiting)] == [
        range(n, n + 1) for n in (1, 2, 3)
    ]


async def test_a_table_that_is_locked_does_not_matter_to_who_has_given_up(
    database: str, idle: Appender, log_id: int
) -> None:
    async with await AsyncConnection.connect(database) as holder:
        await holder.execute("LOCK TABLE ledger.heads IN ACCESS EXCLUSIVE MODE")
        await given_up(idle, log_id)
        await asyncio.sleep(0.2)
    assert appended(await idle.append(log_id, group())).indices == range(1, 2)


async def test_a_log_that_is_confirmed_no_more_takes_nothing(database: str, idle: Appender, log_id: int) -> None:
    with psycopg.connect(database) as owner:
        owner.execute("DELETE FROM ledger.confirmations WHERE log_id = %s", (log_id,))
    with pytest.raises(UnconfirmedLogError):
        await idle.append(log_id, group(), timeout_s=0.2)
    assert len(await read_log(database, log_id)) == 1


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
@pytest.mark.parametrize("step", STEPS)
async def test_a_wire_cut_before_it_is_known_what_the_log_holds_loses_and_doubles_nothing(
    database: str, installation: Provisioned, log_id: int, proxy: CuttingProxy, step: bytes, cut: Cut
) -> None:
    async with appender(installation, host=str(proxy.directory)) as running:
        for _ in range(8):  # until the statements are prepared
            await running.append(log_id, group())
        plan = proxy.plan = Plan(step, cut)
        wanted = [group(event({"n": n})) for n in range(40)]
        outcomes = await asyncio.gather(*(running.append(log_id, one) for one in wanted))
        assert plan.hit.is_set()
    entries = await read_log(database, log_id)
    assert len(entries) == 8 + 40
    for one, outcome in zip(wanted, outcomes, strict=True):
        assert places(entries, one.id) == (appended(outcome).branch, appended(outcome).indices)


async def test_a_session_that_ended_while_nothing_was_appended_is_replaced(
    database: str, installation: Provisioned, log_id: int
) -> None:
    async with appender(installation) as running:
        await running.append(log_id, group())
        (pid,) = sessions(database)
        with psycopg.connect(database, autocommit=True) as owner:
            assert owner.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,)).fetchone() == (True,)
        outcomes = await asyncio.gather(*(running.append(log_id, group()) for _ in range(3)))
        assert {appended(outcome).indices for outcome in outcomes} == {range(n, n + 1) for n in (1, 2, 3)}
        assert pid not in sessions(database)


async def test_a_connection_that_is_known_to_be_lost_is_no_caller_s_trouble(
    installation: Provisioned, log_id: int
) -> None:
    async with appender(installation) as running:
        await running.append(log_id, group())
        connection = running._writer._connection
        assert connection is not None
        connection.pgconn.finish()
        assert appended(await running.append(log_id, group())).indices == range(1, 2)
