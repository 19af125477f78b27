# SPDX-License-Identifier: Apache-2.0
"""
Guards that are sent at once, and what may come in between: held heads, refused savepoints, sessions that end. All
batches take two round trips; those in one are tested in `test_at_once.py`.
"""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from lakeproof.provision import Provisioned
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.append.batch import AppendTransaction
from ledger.errors import GuardError, LedgerError
from ledger.format.entry import Branch
from ledger.format.guards import Guard, GuardCall, GuardRegistry
from ledger.format.sealing import PLAIN
from ledger.format.sequence import Appended
from ledger.store.session import connect
from ledger.store.wire import PREPARE_AFTER
from testkit.ledger.appending import (
    aggregate,
    appended,
    appender,
    appender_dsn,
    group,
    new_log,
    places,
    read_log,
    verify,
)
from testkit.ledger.cutting_proxy import Cut, CuttingProxy, Plan
from testkit.ledger.guarded_groups import GUARDS, append_all, counted, guarded, kinds, rows


@pytest.fixture(scope="module")
def database(module_database: str) -> str:
    return module_database


@pytest.fixture(scope="module")
def installation(module_installation: Provisioned) -> Provisioned:
    return module_installation


@pytest.fixture(autouse=True, params=[1, 100], ids=["lookup apart", "lookup with guards"])
def apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, two_round_trips: None) -> None:
    monkeypatch.setattr("ledger.append.batch.APART_MIN", request.param)


# Heads that are held


async def held_then_free(database: str, log_id: int, transaction: AppendTransaction) -> None:
    """Request a head early while another process holds it; it is free when this returns."""
    async with await AsyncConnection.connect(database) as holder:
        await holder.execute("SELECT FROM ledger.heads WHERE log_id = %s FOR UPDATE", (log_id,))
        transaction.open_early(log_id)
        assert transaction._early is not None
        await transaction._early[1]


async def test_guards_change_nothing_while_another_process_holds_the_head(
    database: str, installation: Provisioned, log_id: int
) -> None:
    connection = await connect(appender_dsn(installation))
    transaction = AppendTransaction(connection, GuardRegistry(CORE_GUARDS), PLAIN)
    await transaction.admit([log_id])
    async with await AsyncConnection.connect(database) as holder:
        await holder.execute("SELECT FROM ledger.heads WHERE log_id = %s FOR UPDATE", (log_id,))
        transaction.open_with_guards({log_id: [aggregate("policy:p", 1)]}, wait=False)
        assert await transaction.begin() == set()
        sent = transaction._guards._sent
        assert sent is not None
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await sent.answers
        await transaction.rollback()
    assert rows(database, log_id) == {}
    transaction.close()
    await connection.close()


@pytest.mark.parametrize("with_guard", [True, False])
async def test_guards_that_ran_for_a_log_that_is_not_written_then_are_undone(
    database: str, installation: Provisioned, log_id: int, with_guard: bool
) -> None:
    # Its head was held when it was requested, and was free when the guards came: its group waits for the next batch.
    other = new_log(database, installation)
    connection = await connect(appender_dsn(installation))
    transaction = AppendTransaction(connection, GuardRegistry(CORE_GUARDS), PLAIN)
    await transaction.admit([log_id, other])
    await held_then_free(database, log_id, transaction)
    groups = {log_id: [aggregate("policy:p", 1)], other: [aggregate("policy:q", 1) if with_guard else group()]}
    transaction.open_with_guards(groups, wait=False)
    assert await transaction.begin() == {other}
    (outcomes,) = (await transaction.sequence({other: groups[other]})).values()
    assert isinstance(outcomes[0], Appended)
    transaction.commit(lambda: True)
    assert await transaction.committed()
    assert rows(database, log_id) == {}
    assert rows(database, other) == ({"policy:q": 1} if with_guard else {})
    assert await read_log(database, log_id) == []
    transaction.close()
    await connection.close()


async def test_guards_of_the_logs_that_are_locked_are_sent_at_once_again(
    database: str, installation: Provisioned, log_id: int
) -> None:
    logs = [log_id, *(new_log(database, installation) for _ in range(2))]
    connection = await connect(appender_dsn(installation))
    transaction = AppendTransaction(connection, GuardRegistry(CORE_GUARDS), PLAIN)
    await transaction.admit(logs)
    await held_then_free(database, log_id, transaction)
    groups = {one: [aggregate("policy:p", 1), aggregate("policy:p", 2)] for one in logs}
    transaction.open_with_guards(groups, wait=False)
    locked = await transaction.begin()
    assert locked == set(logs[1:])
    await transaction.sequence({one: groups[one] for one in logs[1:]})
    assert transaction._guards.sent_for == frozenset(locked), "they were undone, and have run one by one"
    transaction.commit(lambda: True)
    assert await transaction.committed()
    assert [rows(database, one) for one in logs] == [{}, {"policy:p": 2}, {"policy:p": 2}]
    transaction.close()
    await connection.close()


async def test_guards_of_several_logs_are_sent_at_once_and_one_that_does_not_hold_is_its_own_log_s(
    database: str, installation: Provisioned, log_id: int, watched: Appender, proxy: CuttingProxy
) -> None:
    logs = [log_id, *(new_log(database, installation) for _ in range(3))]
    for one in logs:
        await watched.append(one, group())
    proxy.trace.clear()
    for version, branch in ((1, Branch.THEN), (1, Branch.ELSE)):
        wanted = [(one, aggregate("policy:p", version if one == logs[2] else 1)) for one in logs[:3]]
        wanted += [(logs[3], aggregate(f"policy:{branch}", 1))]
        answers = await asyncio.gather(*(watched.append(one, g) for one, g in wanted))
        assert [appended(answer).branch for answer in answers] == [branch] * 3 + [Branch.THEN]
        assert ("ROLLBACK TO" in kinds(proxy)) is (branch is Branch.ELSE)
    assert rows(database, logs[3]) == {"policy:then": 1, "policy:else": 1}
    for one in logs:
        await verify(installation, one)


async def test_two_processes_that_write_one_log_run_every_guard_once(
    database: str, installation: Provisioned, log_id: int
) -> None:
    async with appender(installation) as one, appender(installation) as two:
        wanted = [counted(f"row:{n % 3}") for n in range(300)]
        answers = await asyncio.gather(*((one, two)[n % 2].append(log_id, g) for n, g in enumerate(wanted)))
    assert all(appended(answer).branch is Branch.THEN for answer in answers)
    assert rows(database, log_id) == {f"row:{n}": 100 for n in range(3)}
    await verify(installation, log_id)


# Errors that outlive a transaction


async def test_a_session_goes_on_after_guards_that_failed_however_often(
    database: str, installation: Provisioned, log_id: int, watched: Appender
) -> None:
    transaction = watched._writer._transaction
    assert transaction is not None
    for n in range(20):
        bad, good = await append_all(watched, log_id, [guarded(GuardCall("share", {"by": 0})), aggregate(f"p:{n}", 1)])
        assert isinstance(bad, GuardError)
        assert isinstance(good, Appended)
    assert watched._writer._transaction is transaction
    query = "SELECT count(*), count(DISTINCT statement) FROM pg_prepared_statements"
    cursor = await transaction._wire.lend().execute(query)
    count, distinct = await cursor.fetchone() or (0, 1)
    assert count == distinct, "what failed was prepared again and again"


async def test_a_guard_that_breaks_while_it_is_sent_ahead_refuses_its_own_group_alone(
    database: str, installation: Provisioned, log_id: int
) -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    dsn = appender_dsn(installation)
    async with Appender(dsn, GuardRegistry((*CORE_GUARDS, *GUARDS)), batch_max=1) as running:
        wanted = [counted("row"), guarded(GuardCall("text", {"value": Jsonb(deep)})), counted("row")]
        answers = await append_all(running, log_id, wanted)
    refused = answers.pop(1)
    assert isinstance(refused, LedgerError)
    assert "RecursionError" in str(refused)
    assert [isinstance(answer, Appended) and not answer.repeated for answer in answers] == [True, True]
    assert rows(database, log_id) == {"row": 2}


async def test_guards_that_were_prepared_before_a_migration_hold_after_it(
    database: str, installation: Provisioned, log_id: int
) -> None:
    own = Guard(name="own", statements=("INSERT INTO public.own (log_id, k) VALUES (%(log_id)s, %(k)s)",))
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("DROP TABLE IF EXISTS public.own")
        owner.execute("CREATE TABLE public.own (log_id integer, k text)")
        owner.execute("GRANT INSERT ON public.own TO PUBLIC")
        async with appender(installation, own) as running:
            for n in range(2 * PREPARE_AFTER):
                await running.append(log_id, guarded(GuardCall("own", {"k": str(n)})))
            # What was prepared gives a text, and the column takes none any more.
            owner.execute("ALTER TABLE public.own ALTER k TYPE integer USING k::integer")
            wanted = [guarded(GuardCall("own", {"k": str(n)})) for n in range(3)]
            answers = await append_all(running, log_id, wanted)
            assert [appended(one).branch for one in answers if isinstance(one, Appended)] == [Branch.THEN] * 3


# A savepoint that is refused


@pytest.mark.parametrize("sqlstate", ["53200", "22023"])  # out of memory, which passes; an error that lasts
@pytest.mark.parametrize("skip", range(6))
@pytest.mark.parametrize("text", [b"RELEASE", b"SAVEPOINT guard", b"ROLLBACK TO"])
async def test_a_savepoint_that_is_refused_undoes_the_guards_of_no_group_that_is_appended(
    database: str, log_id: int, proxy: CuttingProxy, watched: Appender, text: bytes, skip: int, sqlstate: str
) -> None:
    proxy.plan = Plan(text, Cut.REFUSED, skip=skip, sqlstate=sqlstate)
    lost = guarded(*aggregate("policy:none", 2).guard)
    wanted = [counted("row"), counted("row"), lost, counted("row"), lost, counted("row")]
    answers = await append_all(watched, log_id, wanted)
    told = [isinstance(answer, Appended) and answer.branch is Branch.THEN for answer in answers]
    assert told == [True, True, False, True, False, True]
    assert not any(isinstance(answer, BaseException) for answer in answers)
    assert rows(database, log_id) == {"row": 4}


@pytest.mark.parametrize("sqlstate", ["53200", "57014"])
async def test_a_savepoint_that_is_refused_for_a_while_refuses_no_group(
    database: str, log_id: int, proxy: CuttingProxy, watched: Appender, sqlstate: str
) -> None:
    # The third time is the group's own: it has been written alone then, if any of the errors was said to last.
    proxy.plan = Plan(b"SAVEPOINT guard", Cut.REFUSED, sqlstate=sqlstate)
    proxy.plan.following = Plan(b"SAVEPOINT guard", Cut.REFUSED, sqlstate=sqlstate)
    proxy.plan.following.following = Plan(b"SAVEPOINT guard", Cut.REFUSED, sqlstate=sqlstate)
    assert appended(await watched.append(log_id, counted("row"))).branch is Branch.THEN
    assert rows(database, log_id) == {"row": 1}


# A session that ends


@pytest.mark.parametrize("cut", [Cut.ENDED_BEFORE, Cut.ENDED_AFTER])
@pytest.mark.parametrize(
    "step", [b"SAVEPOINT guard", b"NOWAIT", b"INSERT INTO ledger.aggregates", b"RELEASE", b"INSERT INTO ledger.entries"]
)
async def test_a_session_ended_between_the_exchanges_runs_every_guard_once_in_the_end(
    database: str, log_id: int, proxy: CuttingProxy, watched: Appender, step: bytes, cut: Cut
) -> None:
    plan = proxy.plan = Plan(step, cut)
    wanted = [counted("row") for _ in range(5)]
    answers = await append_all(watched, log_id, wanted)
    assert plan.hit.is_set()
    entries = await read_log(database, log_id)
    for one, answer in zip(wanted, answers, strict=True):
        assert isinstance(answer, Appended)
        assert places(entries, one.id) == (Branch.THEN, answer.indices)
    assert rows(database, log_id) == {"row": 5}
