# SPDX-License-Identifier: Apache-2.0
"""Appends in one round trip: when they are, what the server checks, and what is answered if that is not so."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import psycopg
import pytest
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.append.at_once import AtOnce, Ending
from ledger.append.batch import AppendTransaction
from ledger.errors import GroupMismatchError, GuardError, UnconfirmedLogError
from ledger.format.entry import Branch
from ledger.format.guards import GuardCall, GuardRegistry
from ledger.format.sealing import PLAIN
from ledger.format.sequence import Appended, Group, Stale
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
from testkit.ledger.cutting_proxy import CuttingProxy
from testkit.ledger.guarded_groups import append_all, counted, guarded, kinds, rows

PLAIN_GROUP: Final = ["BEGIN", "SELECT CASE", "INSERT INTO", "UPDATE ledger.heads", "COMMIT"]
GUARDED_GROUP: Final = ["BEGIN", "SELECT CASE", "WITH lakeproof_guard", *PLAIN_GROUP[2:]]


@pytest.fixture(scope="module")
def database(module_database: str) -> str:
    return module_database


@pytest.fixture(scope="module")
def installation(module_installation: Provisioned) -> Provisioned:
    return module_installation


def at_once_of(running: Appender) -> AtOnce:
    """Return what an Appender that has appended knows of heads."""
    transaction = running._writer._transaction
    assert transaction is not None
    return transaction.at_once


# How many round trips


async def test_a_group_takes_one_round_trip_once_its_log_is_known(
    installation: Provisioned, log_id: int, watched: Appender, proxy: CuttingProxy
) -> None:
    assert appended(await watched.append(log_id, group())).indices == range(1, 2)
    assert kinds(proxy) == PLAIN_GROUP
    assert proxy.exchanges == 1
    proxy.trace.clear()
    assert appended(await watched.append(log_id, aggregate("policy:p", 1))).branch is Branch.THEN
    assert kinds(proxy) == GUARDED_GROUP
    assert proxy.exchanges == 2
    await verify(installation, log_id)


async def test_the_first_group_of_a_process_takes_two(
    database: str, installation: Provisioned, log_id: int, proxy: CuttingProxy
) -> None:
    async with appender(installation, host=str(proxy.directory)) as running:
        await running.append(log_id, group())
        assert "SELECT CASE" not in kinds(proxy)
    async with appender(installation, host=str(proxy.directory)) as running:
        await running.append(log_id, group())
        assert "SELECT CASE" not in kinds(proxy)
    assert len(await read_log(database, log_id)) == 2


async def test_groups_of_several_logs_take_one_round_trip_together(
    database: str, installation: Provisioned, log_id: int, watched: Appender, proxy: CuttingProxy
) -> None:
    logs = [log_id, *(new_log(database, installation) for _ in range(3))]
    await asyncio.gather(*(watched.append(one, group()) for one in logs[1:]))
    proxy.trace.clear()
    proxy.exchanges = 0
    answers = await asyncio.gather(*(watched.append(one, aggregate("policy:p", 1)) for one in logs))
    assert [appended(answer).indices for answer in answers] == [range(1, 2)] * 4
    assert (proxy.exchanges, kinds(proxy).count("COMMIT")) == (1, 1)
    for one in logs:
        await verify(installation, one)


async def test_a_log_grows_by_one_round_trip_a_group_across_tiles_and_with_parts(
    database: str, installation: Provisioned, log_id: int, watched: Appender, proxy: CuttingProxy
) -> None:
    await watched.append_many(log_id, [group() for _ in range(250)])
    await watched.append(log_id, group())
    proxy.exchanges = 0
    for n in range(10):
        await watched.append(log_id, group(event({"n": n}, payloads={"inputs": b"p"}), event({"n": n})))
    assert proxy.exchanges <= 10 + 2, "at most one was missed, for the tile that it had to read"
    assert (await verify(installation, log_id)).size == 272
    with psycopg.connect(database) as owner:
        tiles = owner.execute("SELECT count(*) FROM ledger.tiles WHERE log_id = %s", (log_id,)).fetchone()
        parts = owner.execute("SELECT count(*) FROM ledger.parts WHERE log_id = %s", (log_id,)).fetchone()
    assert (tiles, parts) == ((1,), (10,))


async def test_a_large_batch_takes_two_round_trips(log_id: int, watched: Appender, proxy: CuttingProxy) -> None:
    await watched.append(log_id, group(*(event({"n": n}) for n in range(25))))
    await watched.append(log_id, group(event({"text": "x" * 40_000})))
    assert [one for one in kinds(proxy) if one == "SELECT CASE"] == ["SELECT CASE"]


async def test_the_time_of_an_entry_is_one_of_the_database_s_clock(
    database: str, log_id: int, watched: Appender
) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        for _ in range(5):
            (before,) = owner.execute("SELECT clock_timestamp()").fetchone() or (None,)
            recorded = appended(await watched.append(log_id, group())).recorded_at
            (after,) = owner.execute("SELECT clock_timestamp()").fetchone() or (None,)
            assert before is not None
            assert after is not None
            assert before - timedelta(seconds=1) <= recorded <= after


# What the server checks


@asynccontextmanager
async def known_log(installation: Provisioned, *logs: int) -> AsyncIterator[AppendTransaction]:
    """A transaction that has appended to these logs, and so knows their heads."""
    connection = await connect(appender_dsn(installation))
    transaction = AppendTransaction(connection, GuardRegistry(CORE_GUARDS), PLAIN)
    await transaction.admit(logs)
    groups = {one: [group()] for one in logs}
    transaction.open(groups, wait=False)
    await transaction.begin()
    await transaction.sequence(groups)
    transaction.commit(lambda: True)
    assert await transaction.committed()
    try:
        yield transaction
    finally:
        transaction.close()
        await connection.close()


async def ending(transaction: AppendTransaction, *logs: int) -> Ending:
    """Append a guarded group to each of the logs at once; return how that ended."""
    assert transaction.open_at_once({one: [counted("row")] for one in logs})
    transaction.at_once.commit(lambda: True)
    return await transaction.committed_at_once()


ALTERED: Final = {
    "index": "UPDATE ledger.heads SET size = 4 WHERE log_id = %s",
    "chain hash": "UPDATE ledger.heads SET last = sha256(last) WHERE log_id = %s",
    "frontier": "UPDATE ledger.heads SET frontier = sha256(frontier) WHERE log_id = %s",
    "control index": "UPDATE ledger.heads SET control_index = 0 WHERE log_id = %s",
    "time": "UPDATE ledger.heads SET recorded_at = recorded_at - interval '1 us' WHERE log_id = %s",
    "no time": "UPDATE ledger.heads SET recorded_at = NULL WHERE log_id = %s",
    "gone": "DELETE FROM ledger.heads WHERE log_id = %s",
    "not confirmed": "DELETE FROM ledger.confirmations WHERE log_id = %s",
    "confirmed before a restart": "UPDATE ledger.confirmations SET server_started_at = 'epoch' WHERE log_id = %s",
}


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("what", ALTERED)
async def test_a_head_that_is_not_as_this_process_has_left_it_is_noticed(
    database: str, installation: Provisioned, what: str, count: int
) -> None:
    logs = [new_log(database, installation) for _ in range(count)]
    async with known_log(installation, *logs) as transaction:
        assert await ending(transaction, *logs) is Ending.COMMITTED
        with psycopg.connect(database) as owner:
            assert owner.execute(ALTERED[what].encode(), (logs[-1],)).rowcount == 1
        assert await ending(transaction, *logs) is Ending.MISSED
        assert not transaction.open_at_once({one: [group()] for one in logs}), "it is read before it is expected again"
    for one in logs:
        assert rows(database, one) == {"row": 1}
    with psycopg.connect(database) as owner:
        query = "SELECT count(*) FROM ledger.entries WHERE log_id = ANY(%s)"
        assert owner.execute(query, (logs,)).fetchone() == (2 * count,)


async def test_a_head_that_another_process_holds_is_not_waited_for(
    database: str, installation: Provisioned, log_id: int
) -> None:
    other = new_log(database, installation)
    async with known_log(installation, log_id, other) as transaction:
        async with await AsyncConnection.connect(database) as holder:
            await holder.execute("SELECT FROM ledger.heads WHERE log_id = %s FOR UPDATE", (log_id,))
            assert await ending(transaction, log_id, other) is Ending.MISSED
        assert (rows(database, log_id), rows(database, other)) == ({}, {})


@pytest.mark.parametrize(("by", "expected"), [(1, Ending.MISSED), (-30, Ending.MISSED), (-0.2, Ending.COMMITTED)])
async def test_a_time_that_the_database_s_clock_does_not_show_is_refused(
    installation: Provisioned, log_id: int, by: float, expected: Ending
) -> None:
    async with known_log(installation, log_id) as transaction:
        clock = transaction.at_once.clock
        clock._clock = lambda: datetime.now(UTC) + timedelta(seconds=by)
        assert await ending(transaction, log_id) is expected
        assert (clock.now() is None) is (expected is Ending.MISSED), "what is known of the clocks is begun anew"


async def test_what_is_not_allowed_at_the_last_moment_is_rolled_back(
    database: str, installation: Provisioned, log_id: int
) -> None:
    async with known_log(installation, log_id) as transaction:
        assert transaction.open_at_once({log_id: [counted("row")]})
        transaction.at_once.commit(lambda: False)
        assert await transaction.committed_at_once() is Ending.NOT_ALLOWED
        assert rows(database, log_id) == {}
        assert await ending(transaction, log_id) is Ending.COMMITTED
    assert len(await read_log(database, log_id)) == 2


# What is answered


async def test_an_append_of_another_process_in_between_makes_the_next_take_the_long_way(
    database: str, installation: Provisioned, log_id: int, watched: Appender, proxy: CuttingProxy
) -> None:
    async with appender(installation) as other:
        await other.append(log_id, group())
    assert appended(await watched.append(log_id, aggregate("policy:p", 1))).indices == range(2, 3)
    assert proxy.exchanges == 1 + 2
    assert kinds(proxy)[-1] == "COMMIT"
    assert rows(database, log_id) == {"policy:p": 1}
    assert appended(await watched.append(log_id, group())).indices == range(3, 4)
    assert proxy.exchanges == 3 + 2, "whether the other one goes on writing is seen first"
    assert appended(await watched.append(log_id, group())).indices == range(4, 5)
    assert proxy.exchanges == 5 + 1
    assert (await verify(installation, log_id)).size == 5


async def test_two_processes_that_take_turns_try_it_in_vain_once(
    installation: Provisioned, log_id: int, watched: Appender, proxy: CuttingProxy
) -> None:
    async with appender(installation) as other:
        for _ in range(20):
            await other.append(log_id, group())
            await watched.append(log_id, group())
    assert proxy.exchanges == 20 * 2 + 1
    assert (await verify(installation, log_id)).size == 41


async def test_a_log_that_was_put_back_is_gone_on_with_where_it_ends(
    database: str, installation: Provisioned, log_id: int, watched: Appender
) -> None:
    with psycopg.connect(database) as owner:
        before = owner.execute(
            "SELECT size, last, frontier, control_index, recorded_at FROM ledger.heads WHERE log_id = %s", (log_id,)
        ).fetchone()
        assert before is not None
    lost = group()
    await watched.append(log_id, lost)
    with psycopg.connect(database) as owner:
        owner.execute("DELETE FROM ledger.entries WHERE log_id = %s AND index = 1", (log_id,))
        owner.execute(
            "UPDATE ledger.heads SET size = %s, last = %s, frontier = %s, control_index = %s, recorded_at = %s "
            "WHERE log_id = %s",
            (*before, log_id),
        )
    assert appended(await watched.append(log_id, group())).indices == range(1, 2)
    assert places(await read_log(database, log_id), lost.id) is None
    assert (await verify(installation, log_id)).size == 2


async def test_a_group_that_the_log_holds_is_found_and_its_guards_do_not_run_again(
    database: str, installation: Provisioned, log_id: int, watched: Appender
) -> None:
    one = counted("row")
    first = appended(await watched.append(log_id, one))
    assert await watched.append(log_id, one) == first._replace(repeated=True)
    async with appender(installation) as other:
        assert await other.append(log_id, one) == first._replace(repeated=True)
    with pytest.raises(GroupMismatchError):
        await watched.append(log_id, replace(one, then=(event({"other": 1}),)))
    answers = await append_all(watched, log_id, [counted("row"), one, counted("row")])
    assert [isinstance(answer, Appended) and answer.repeated for answer in answers] == [False, True, False]
    assert rows(database, log_id) == {"row": 3}
    assert (await verify(installation, log_id)).size == 4


async def test_a_group_that_is_submitted_twice_at_the_same_time_is_one(
    database: str, log_id: int, watched: Appender, proxy: CuttingProxy
) -> None:
    one = counted("row")
    answers = await append_all(watched, log_id, [one, one])
    assert [isinstance(answer, Appended) and answer.repeated for answer in answers] == [False, True]
    assert rows(database, log_id) == {"row": 1}
    assert proxy.exchanges == 1


async def test_a_guard_that_does_not_hold_has_the_answers_it_ever_had(
    database: str, installation: Provisioned, log_id: int, watched: Appender
) -> None:
    await watched.append(log_id, aggregate("policy:p", 1))
    nothing = appended(await watched.append(log_id, aggregate("policy:p", 1)))
    assert (nothing.branch, len(nothing.indices)) == (Branch.ELSE, 0)
    lost = appended(await watched.append(log_id, aggregate("policy:p", 7, otherwise=(event({"lost": 1}),))))
    assert (lost.branch, lost.indices) == (Branch.ELSE, range(2, 3))
    for call in (GuardCall("share", {"by": 0}), GuardCall("unknown", {}), GuardCall("text", {"value": object()})):
        with pytest.raises(GuardError):
            await watched.append(log_id, guarded(GuardCall("aggregate.count", {"key": "row"}), call))
    two = guarded(GuardCall("aggregate.count", {"key": "row"}), *aggregate("policy:p", 9).guard)
    assert appended(await watched.append(log_id, two)).branch is Branch.ELSE
    assert rows(database, log_id) == {"policy:p": 1}
    assert (await verify(installation, log_id)).size == 3


async def test_guards_that_do_not_hold_say_nothing_of_other_processes(
    log_id: int, watched: Appender, proxy: CuttingProxy
) -> None:
    await watched.append(log_id, aggregate("policy:p", 1))
    await watched.append(log_id, aggregate("policy:p", 1))
    proxy.exchanges = 0
    await watched.append(log_id, aggregate("policy:p", 2))
    assert proxy.exchanges == 1


async def test_a_group_judged_before_another_process_s_control_entry_is_stale(
    database: str, installation: Provisioned, log_id: int, watched: Appender
) -> None:
    async with appender(installation) as other:
        control = appended(await other.append(log_id, aggregate("policy:p", 1))).indices[0]
    late = replace(counted("row"), as_of=control - 1)
    assert await watched.append(log_id, late) == Stale(control_index=control)
    assert await watched.append(log_id, late) == Stale(control_index=control)
    assert rows(database, log_id) == {"policy:p": 1}
    assert appended(await watched.append(log_id, replace(late, as_of=control))).branch is Branch.THEN


async def test_a_group_judged_before_a_control_entry_of_its_own_process_is_stale(
    database: str, log_id: int, watched: Appender
) -> None:
    control = appended(await watched.append(log_id, aggregate("policy:p", 1))).indices[0]
    assert await watched.append(log_id, replace(counted("row"), as_of=-1)) == Stale(control_index=control)
    assert rows(database, log_id) == {"policy:p": 1}


async def test_a_log_that_is_confirmed_no_more_takes_nothing_in_one_round_trip_either(
    database: str, log_id: int, watched: Appender
) -> None:
    with psycopg.connect(database) as owner:
        owner.execute("DELETE FROM ledger.confirmations WHERE log_id = %s", (log_id,))
    with pytest.raises(UnconfirmedLogError):
        await watched.append(log_id, counted("row"), timeout_s=0.2)
    assert len(await read_log(database, log_id)) == 1
    assert rows(database, log_id) == {}


# What it comes after


async def test_nothing_is_committed_before_what_it_comes_after_is_done(
    database: str, log_id: int, watched: Appender, proxy: CuttingProxy
) -> None:
    after: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    one = counted("row")
    appending = asyncio.create_task(watched.append(log_id, one, after=after))
    while "UPDATE ledger.heads" not in kinds(proxy):  # noqa: ASYNC110 - the proxy tells nobody
        await asyncio.sleep(0.001)
    assert "COMMIT" not in kinds(proxy), "everything else has been sent meanwhile"
    assert rows(database, log_id) == {}
    after.set_result(None)
    assert appended(await appending).indices == range(1, 2)
    assert rows(database, log_id) == {"row": 1}


async def test_nothing_is_committed_if_what_it_comes_after_fails(database: str, log_id: int, watched: Appender) -> None:
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failed.set_exception(OSError("no space left on the device"))
    wanted = [watched.append(log_id, counted("row"), after=failed), watched.append(log_id, counted("row"))]
    refused, other = await asyncio.gather(*wanted, return_exceptions=True)
    assert "not done" in str(refused)
    assert isinstance(other, Appended)
    assert rows(database, log_id) == {"row": 1}
    assert len(await read_log(database, log_id)) == 2


# Several processes


@pytest.mark.parametrize("seed", range(3))
async def test_processes_that_append_by_turns_and_together_make_one_log(
    database: str, installation: Provisioned, log_id: int, seed: int
) -> None:
    draws = random.Random(seed)  # noqa: S311 - to be repeatable
    other_log = new_log(database, installation)
    told: dict[int, list[tuple[Group, Appended]]] = {log_id: [], other_log: []}
    counts: Counter[str] = Counter()
    async with appender(installation) as one, appender(installation) as two:

        async def append(running: Appender, log: int) -> None:
            match draws.randrange(4):
                case 0 if told[log]:
                    known, first = draws.choice(told[log])
                    assert await running.append(log, known) == first._replace(repeated=True)
                case 1:
                    counts[f"{log}"] += 1
                    wanted = counted("row")
                    told[log].append((wanted, appended(await running.append(log, wanted))))
                case 2:
                    taken = await running.append(log, guarded(*aggregate("policy:never", 5).guard))
                    assert appended(taken).branch is Branch.ELSE
                case _:
                    wanted = group(*(event({"n": n}, payloads={"p": b"x"}) for n in range(draws.randint(1, 3))))
                    told[log].append((wanted, appended(await running.append(log, wanted))))

        for _ in range(40):
            running = [draws.choice([(one,), (two,), (one, two)]) for _ in range(draws.randint(1, 3))]
            await asyncio.gather(*(append(each, draws.choice([*told])) for both in running for each in both))
    for log, answers in told.items():
        entries = await read_log(database, log)
        for wanted, answer in answers:
            assert places(entries, wanted.id) == (answer.branch, answer.indices)
        assert len(entries) == sum(len(answer.indices) for _, answer in answers)
        assert rows(database, log) == ({"row": counts[f"{log}"]} if counts[f"{log}"] else {})
        await verify(installation, log)
