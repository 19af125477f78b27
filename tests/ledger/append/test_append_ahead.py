# SPDX-License-Identifier: Apache-2.0
"""Batches in a row, each opened behind the COMMIT of the one before: faults in between, order, bulk, and the plan."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import psycopg
import pytest
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned
from ledger.append.appender import APPEND_MANY_MAX, Appender
from ledger.errors import GroupMismatchError, LimitExceededError, LogUnavailableError, OutcomeUnknownError
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Appended, AppendRefused
from ledger.store.read import QUERIES
from ledger.store.session import connect
from testkit.ledger.appending import (
    aggregate,
    appended,
    appender,
    appender_dsn,
    event,
    group,
    new_log,
    places,
    read_log,
    verify,
)
from testkit.ledger.cutting_proxy import Cut, CuttingProxy, Plan

BATCH = 4
CALLS = 24
STEPS = (b"BEGIN", b"SKIP LOCKED", b"group_id = ANY", b"INSERT INTO ledger.entries", b"UPDATE ledger.heads", b"COMMIT")


@pytest.fixture(scope="module")
def database(module_database: str) -> str:
    return module_database


@pytest.fixture(scope="module")
def installation(module_installation: Provisioned) -> Provisioned:
    return module_installation


def in_small_batches(installation: Provisioned, proxy: CuttingProxy | None = None) -> Appender:
    dsn = appender_dsn(installation, host=str(proxy.directory) if proxy else None)
    return Appender(dsn, GuardRegistry(()), batch_max=BATCH)


async def test_batches_in_a_row_keep_the_order_of_those_who_asked(
    database: str, installation: Provisioned, log_id: int
) -> None:
    async with in_small_batches(installation) as running:
        wanted = [group() for _ in range(20 * BATCH)]
        outcomes = await asyncio.gather(*(running.append(log_id, one) for one in wanted))
    assert [appended(outcome).indices for outcome in outcomes] == [range(n, n + 1) for n in range(len(wanted))]
    times = [appended(outcome).recorded_at for outcome in outcomes]
    assert times == sorted(times)
    assert len(set(times)) >= len(wanted) // BATCH
    assert [entry.group_id for entry in await read_log(database, log_id)] == [one.id for one in wanted]


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
@pytest.mark.parametrize("step", STEPS)
async def test_a_wire_cut_between_two_batches_loses_and_doubles_nothing(
    database: str, installation: Provisioned, log_id: int, proxy: CuttingProxy, step: bytes, cut: Cut
) -> None:
    async with in_small_batches(installation, proxy) as running:
        commit = proxy.plan = Plan(b"COMMIT", Cut.NOT)
        wanted = [group(event({"n": n})) for n in range(CALLS)]
        calls = [asyncio.create_task(running.append(log_id, one)) for one in wanted]
        await commit.hit.wait()
        plan = proxy.plan = Plan(step, cut)
        outcomes = [appended(outcome) for outcome in await asyncio.gather(*calls)]
        assert plan.hit.is_set()
    entries = await read_log(database, log_id)
    assert len(entries) == CALLS
    for one, outcome in zip(wanted, outcomes, strict=True):
        assert places(entries, one.id) == (outcome.branch, outcome.indices)


async def test_a_commit_lost_with_the_next_batch_behind_it_is_unknown_and_the_next_is_not_in(
    database: str, installation: Provisioned, log_id: int, proxy: CuttingProxy
) -> None:
    async def go_away() -> None:
        proxy.accepts = False

    async with in_small_batches(installation, proxy) as running:
        await running.append(log_id, group())
        plan = proxy.plan = Plan(b"COMMIT", Cut.AFTER, go_away)
        wanted = [group() for _ in range(2 * BATCH)]
        answers = await asyncio.gather(
            *(running.append(log_id, one, timeout_s=0.1) for one in wanted), return_exceptions=True
        )
        assert plan.hit.is_set()
    kinds = [OutcomeUnknownError] * BATCH + [LogUnavailableError] * BATCH
    assert [type(answer) for answer in answers] == kinds
    assert {entry.group_id for entry in await read_log(database, log_id)} >= {one.id for one in wanted[:BATCH]}
    assert len(await read_log(database, log_id)) == 1 + BATCH


async def test_a_batch_that_is_refused_hurts_none_of_those_behind_it(
    database: str, installation: Provisioned, log_id: int
) -> None:
    other = new_log(database, installation)
    async with in_small_batches(installation) as running:
        first = group(event({"n": 1}))
        await running.append(log_id, first)
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute("UPDATE ledger.entries SET entry = 'x' WHERE log_id = %s", (log_id,))
        calls = [running.append(other, group()) for _ in range(CALLS)]
        answers = await asyncio.gather(*calls[:9], running.append(log_id, first), *calls[9:], return_exceptions=True)
    assert isinstance(answers.pop(9), Exception)
    assert sorted(appended(one).indices[0] for one in answers if isinstance(one, Appended)) == list(range(CALLS))


async def test_a_head_held_by_another_process_is_waited_for_between_batches(
    database: str, installation: Provisioned, log_id: int
) -> None:
    async with in_small_batches(installation) as running:
        calls = [asyncio.create_task(running.append(log_id, group())) for _ in range(CALLS)]
        async with await AsyncConnection.connect(database) as holder:
            await holder.execute("SELECT FROM ledger.heads WHERE log_id = %s FOR UPDATE", (log_id,))
        outcomes = [appended(outcome) for outcome in await asyncio.gather(*calls)]
    assert sorted(outcome.indices[0] for outcome in outcomes) == list(range(CALLS))


async def test_twins_that_stand_far_apart_in_a_large_batch_are_one_group(
    installation: Provisioned, log_id: int
) -> None:
    one = group(event({"twin": 1}))
    async with appender(installation) as running:
        calls = [running.append(log_id, one), *(running.append(log_id, group()) for _ in range(200))]
        outcomes = [appended(o) for o in await asyncio.gather(*calls, running.append(log_id, one))]
    assert (outcomes[0].indices, outcomes[-1].indices) == (range(1), range(1))
    assert outcomes[-1].repeated
    assert (await verify(installation, log_id)).size == 201


# In bulk


async def test_many_groups_in_one_call_are_appended_in_order_and_found_again(
    installation: Provisioned, log_id: int
) -> None:
    wanted = [group(event({"n": n}, payloads={"inputs": b"p"})) for n in range(2_000)]
    async with appender(installation) as running:
        first = await running.append_many(log_id, wanted)
        again = await running.append_many(log_id, wanted)
    assert [one.indices for one in first if isinstance(one, Appended)] == [range(n, n + 1) for n in range(2_000)]
    assert [(one.indices, one.repeated) for one in again if isinstance(one, Appended)] == [
        (range(n, n + 1), True) for n in range(2_000)
    ]
    assert (await verify(installation, log_id)).size == 2_000


async def test_one_of_many_that_is_refused_holds_up_no_other(installation: Provisioned, log_id: int) -> None:
    taken = group(event({"n": 1}))
    async with appender(installation) as running:
        await running.append(log_id, taken)
        wanted = [group(), group(event({"n": 2}), group_id=taken.id), aggregate("policy:p", 1), group()]
        outcomes = await running.append_many(log_id, wanted)
    assert [type(one) for one in outcomes] == [Appended, AppendRefused, Appended, Appended]
    assert isinstance(outcomes[1], AppendRefused)
    assert isinstance(outcomes[1].error, GroupMismatchError)


async def test_many_go_through_a_queue_that_is_smaller(installation: Provisioned, log_id: int) -> None:
    async with Appender(appender_dsn(installation), GuardRegistry(()), queue_max=3) as running:
        outcomes = await running.append_many(log_id, [group() for _ in range(50)])
    assert [one.indices[0] for one in outcomes if isinstance(one, Appended)] == list(range(50))


async def test_many_are_told_the_truth_at_the_deadline(database: str, installation: Provisioned, log_id: int) -> None:
    async with await AsyncConnection.connect(database) as holder, appender(installation) as running:
        await holder.execute("SELECT FROM ledger.heads WHERE log_id = %s FOR UPDATE", (log_id,))
        outcomes = await running.append_many(log_id, [group() for _ in range(5)], timeout_s=0.2)
    assert [type(one.error) for one in outcomes if isinstance(one, AppendRefused)] == [LogUnavailableError] * 5
    assert await read_log(database, log_id) == []


async def test_too_many_in_one_call_are_refused(installation: Provisioned, log_id: int) -> None:
    async with appender(installation) as running:
        with pytest.raises(LimitExceededError):
            await running.append_many(log_id, [group()] * (APPEND_MANY_MAX + 1))


# How the server finds the groups


async def test_the_look_up_uses_the_index_of_group_ids_whatever_the_statistics_say(
    database: str, installation: Provisioned, log_id: int
) -> None:
    # The log begins after the statistics were made: to them it is empty, and any way of reading it costs nothing.
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(
            "INSERT INTO ledger.entries (log_id, index, entry, leaf, type, key, is_control, group_id) "
            "SELECT -1, n, '', decode(repeat('00', 32), 'hex'), 'a.b', 'k', false, gen_random_uuid() "
            "FROM generate_series(1, 2000) AS n"
        )
        owner.execute("ANALYZE ledger.entries")
    connection = await connect(appender_dsn(installation))
    try:
        parameters = {
            "log_id": log_id,
            "group_ids": [uuid4() for _ in range(256)],
            "log_ids": [log_id, log_id + 1],
            "firsts": [1, 129],
            "lasts": [128, 256],
        }
        for query in ("find_groups", "find_groups_of_logs"):
            cursor = await connection.execute(f"EXPLAIN {QUERIES[query]}".encode(), parameters, prepare=True)
            plan = "\n".join(row[0] for row in await cursor.fetchall())
            assert "entries_group" in plan
            assert "entries_pkey" not in plan
            assert "Seq Scan" not in plan
    finally:
        await connection.close()
