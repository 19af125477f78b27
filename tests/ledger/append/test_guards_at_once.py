# SPDX-License-Identifier: Apache-2.0
"""Guards that are sent at once: what is answered and stored is what would be if each group had been appended alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from lakeproof.provision import Provisioned
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.append.batch import AppendTransaction
from ledger.errors import GroupMismatchError, GuardError, LedgerError
from ledger.format.entry import Branch
from ledger.format.event import PreparedEvent
from ledger.format.guards import Guard, GuardCall, GuardRegistry
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
    new_id,
    new_log,
    places,
    read_log,
    verify,
)
from testkit.ledger.cutting_proxy import Cut, CuttingProxy, Plan

SHARE: Final = Guard(name="share", statements=("SELECT 6 / %(by)s WHERE %(log_id)s > 0",))
TEXT: Final = Guard(name="text", statements=("SELECT %(value)s::text WHERE %(log_id)s > 0",))
NONE: Final = Guard(name="none", statements=())
GUARDS: Final = (SHARE, TEXT, NONE)

Answer = Appended | Stale | BaseException


@pytest.fixture(scope="module")
def database(module_database: str) -> str:
    return module_database


@pytest.fixture(scope="module")
def installation(module_installation: Provisioned) -> Provisioned:
    return module_installation


@pytest.fixture
async def running(installation: Provisioned, log_id: int, proxy: CuttingProxy) -> AsyncIterator[Appender]:
    """An Appender behind the proxy that has appended; the proxy's trace begins with what comes next."""
    async with appender(installation, *GUARDS, host=str(proxy.directory)) as running:
        await running.append(log_id, group())
        proxy.trace.clear()
        proxy.exchanges = 0
        yield running


async def append_all(running: Appender, log_id: int, groups: Sequence[Group]) -> list[Answer]:
    """Append groups at the same time: they are one batch."""
    return await asyncio.gather(*(running.append(log_id, one) for one in groups), return_exceptions=True)


def guarded(*calls: GuardCall, otherwise: tuple[PreparedEvent, ...] = ()) -> Group:
    return Group(id=new_id(), then=(event(),), otherwise=otherwise, guard=calls)


def counted(key: str, *calls: GuardCall) -> Group:
    """Return a group whose guards count in the row `key` how often what they have changed has stayed."""
    return guarded(GuardCall("aggregate.count", {"key": key}), *calls)


def rows(database: str, log_id: int) -> dict[str, int]:
    with psycopg.connect(database) as owner:
        query = "SELECT key, version FROM ledger.aggregates WHERE log_id = %s"
        return dict(owner.execute(query, (log_id,)).fetchall())


def kinds(proxy: CuttingProxy) -> list[str]:
    """Return how each statement begins that came to the proxy."""
    return [" ".join(statement.decode().split()[:2]) for statement in proxy.trace]


# How many statements, and how many round trips

PROLOGUE: Final = ["BEGIN", "SELECT log_id,", "SELECT log_id,", "SAVEPOINT guard", "SELECT FROM"]
EPILOGUE: Final = ["RELEASE SAVEPOINT", "INSERT INTO", "UPDATE ledger.heads", "COMMIT"]


@pytest.mark.parametrize("count", [1, 16])
async def test_guards_that_hold_cost_one_statement_each_and_no_exchange_of_their_own(
    proxy: CuttingProxy, log_id: int, running: Appender, count: int
) -> None:
    answers = await append_all(running, log_id, [aggregate(f"policy:{n}", 1) for n in range(count)])
    assert [appended(answer).branch for answer in answers if not isinstance(answer, BaseException)] == (
        [Branch.THEN] * count
    )
    assert kinds(proxy) == PROLOGUE + ["INSERT INTO"] * count + EPILOGUE
    assert proxy.exchanges == 4  # the lock, the lookup, the guards, the rest


async def test_guards_are_sent_before_any_answer_has_come(proxy: CuttingProxy, log_id: int, running: Appender) -> None:
    # So a group takes two round trips: this one, and the one that ends with COMMIT.
    plan = proxy.plan = Plan(b"INSERT INTO ledger.aggregates", Cut.NOT)
    proxy.answers_pass.clear()
    task = asyncio.create_task(running.append(log_id, aggregate("policy:p", 1)))
    await plan.hit.wait()
    proxy.answers_pass.set()
    assert appended(await task).branch is Branch.THEN


async def test_guards_of_a_batch_opened_ahead_are_sent_behind_the_commit_before_it(
    database: str, installation: Provisioned, log_id: int, proxy: CuttingProxy
) -> None:
    dsn = appender_dsn(installation, host=str(proxy.directory))
    async with Appender(dsn, GuardRegistry(CORE_GUARDS), batch_max=4) as running:
        wanted = [aggregate(f"policy:{n}", 1) for n in range(12)]
        answers = await append_all(running, log_id, wanted)
    assert [appended(answer).indices for answer in answers if isinstance(answer, Appended)] == [
        range(n, n + 1) for n in range(12)
    ]
    found = kinds(proxy)
    first = found.index("COMMIT")
    assert found[first + 1 :] == 2 * (PROLOGUE + ["INSERT INTO"] * 4 + EPILOGUE)
    assert rows(database, log_id) == {f"policy:{n}": 1 for n in range(12)}


# Guards that do not hold, or fail


async def test_one_that_does_not_hold_changes_nothing_and_those_around_it_stay(
    database: str, installation: Provisioned, log_id: int, proxy: CuttingProxy, running: Appender
) -> None:
    wanted = [
        aggregate("policy:a", 1),
        aggregate("policy:a", 2),
        aggregate("policy:a", 2, otherwise=(event({"lost": True}),)),
        guarded(GuardCall("aggregate.create", {"key": "policy:b"}), *aggregate("policy:a", 9).guard),
        aggregate("policy:a", 3),
        group(),
    ]
    answers = await append_all(running, log_id, wanted)
    branches = [appended(answer).branch for answer in answers if not isinstance(answer, BaseException)]
    assert branches == [Branch.THEN, Branch.THEN, Branch.ELSE, Branch.ELSE, Branch.THEN, Branch.THEN]
    assert rows(database, log_id) == {"policy:a": 3}
    entries = await read_log(database, log_id)
    assert [places(entries, one.id) for one in wanted] == [
        (Branch.THEN, range(1, 2)),
        (Branch.THEN, range(2, 3)),
        (Branch.ELSE, range(3, 4)),
        None,
        (Branch.THEN, range(4, 5)),
        (Branch.THEN, range(5, 6)),
    ]
    assert kinds(proxy).count("SAVEPOINT guard") == 1 + 5  # at once, then one for each of the guarded groups
    await verify(installation, log_id)


async def test_a_guard_that_changes_rows_and_does_not_hold_leaves_none_of_them(
    database: str, log_id: int, running: Appender
) -> None:
    # Of two versions one is taken: the statement inserts the other, and returns no row.
    def record(*versions: int) -> Group:
        parameters = {"kind": "event", "originators": ["o"] * len(versions), "versions": list(versions)}
        positions = list(range(len(versions)))
        return guarded(GuardCall("recorded.insert", parameters | {"group_id": new_id(), "positions": positions}))

    wanted = [record(1), record(1, 2), record(2, 3)]
    answers = await append_all(running, log_id, wanted)
    branches = [appended(answer).branch for answer in answers if not isinstance(answer, BaseException)]
    assert branches == [Branch.THEN, Branch.ELSE, Branch.THEN]
    with psycopg.connect(database) as owner:
        query = "SELECT version FROM ledger.recorded_events WHERE log_id = %s ORDER BY version"
        assert owner.execute(query, (log_id,)).fetchall() == [(1,), (2,), (3,)]


FAILING: Final = [
    (GuardCall("share", {"by": 0}), "division by zero"),
    (GuardCall("share", {}), "query parameter missing: by"),
    (GuardCall("text", {"value": "\ud800"}), "surrogates"),
    (GuardCall("text", {"value": object()}), "adapt"),
    (GuardCall("unknown", {}), "expected one of"),
]


@pytest.mark.parametrize(("call", "says"), FAILING)
@pytest.mark.parametrize("at", [0, 2, 4])
async def test_one_that_fails_refuses_its_group_and_the_guards_of_the_others_have_run_once(
    database: str, log_id: int, running: Appender, call: GuardCall, says: str, at: int
) -> None:
    wanted = [counted("good:row") for _ in range(4)]
    bad = counted("bad:row", call)
    answers = await append_all(running, log_id, [*wanted[:at], bad, *wanted[at:]])
    refused = answers.pop(at)
    assert isinstance(refused, GuardError)
    assert says in str(refused)
    assert all(isinstance(answer, Appended) and answer.branch is Branch.THEN for answer in answers)
    assert rows(database, log_id) == {"good:row": 4}
    entries = await read_log(database, log_id)
    assert len(entries) == 1 + 4
    assert places(entries, bad.id) is None


@pytest.mark.parametrize(("call", "_"), FAILING[:-1])
async def test_a_guard_that_would_fail_is_not_asked_if_the_one_before_it_does_not_hold(
    log_id: int, running: Appender, call: GuardCall, _: str
) -> None:
    await running.append(log_id, aggregate("policy:taken", 1))
    one = guarded(*aggregate("policy:taken", 1).guard, call)
    assert appended(await running.append(log_id, one)).branch is Branch.ELSE


async def test_a_session_goes_on_after_guards_that_failed_however_often(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    connection = running._writer._connection
    assert connection is not None
    for n in range(20):
        bad, good = await append_all(running, log_id, [guarded(GuardCall("share", {"by": 0})), aggregate(f"p:{n}", 1)])
        assert isinstance(bad, GuardError)
        assert isinstance(good, Appended)
    assert running._writer._connection is connection
    cursor = await connection.execute("SELECT count(*), count(DISTINCT statement) FROM pg_prepared_statements")
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


async def test_a_guard_without_statements_holds_and_ends_no_savepoint_of_another(
    database: str, log_id: int, running: Appender
) -> None:
    empty, unsent = GuardCall("none", {}), GuardCall("text", {"value": "\ud800"})
    lost = guarded(GuardCall("aggregate.create", {"key": "policy:lost"}), *aggregate("policy:p", 2).guard)
    for wanted in ([guarded(empty), guarded(unsent)], [guarded(empty), lost, guarded(empty), aggregate("policy:q", 1)]):
        answers = await append_all(running, log_id, wanted)
        held = [isinstance(answer, Appended) and answer.branch is Branch.THEN for answer in answers]
        assert held == [True, False, True, True][: len(wanted)]
    assert rows(database, log_id) == {"policy:q": 1}


# Groups whose guards must not run


async def test_the_guards_of_a_group_that_comes_twice_in_a_batch_run_once(
    database: str, log_id: int, proxy: CuttingProxy, running: Appender
) -> None:
    one, other = counted("row"), counted("row")
    answers = await append_all(running, log_id, [one, other, one, other, one])
    assert [appended(answer).repeated for answer in answers if isinstance(answer, Appended)] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert rows(database, log_id) == {"row": 2}
    assert "ROLLBACK TO" not in kinds(proxy)


async def test_the_guards_of_a_second_group_run_if_the_first_of_its_id_has_stored_nothing(
    database: str, log_id: int, running: Appender
) -> None:
    failing = counted("row", GuardCall("share", {"by": 0}))
    second = replace(counted("row"), id=failing.id)
    answers = await append_all(running, log_id, [failing, second, second])
    assert isinstance(answers[0], GuardError)
    assert [appended(answer).repeated for answer in answers[1:] if isinstance(answer, Appended)] == [False, True]
    assert rows(database, log_id) == {"row": 1}


async def test_the_guards_of_a_group_that_the_log_holds_do_not_run_again(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    stored, changed = counted("row"), counted("row")
    first = appended(await running.append(log_id, stored))
    await running.append(log_id, changed)
    changed = replace(changed, then=(event({"other": 1}),))
    answers = await append_all(running, log_id, [counted("row"), stored, changed, counted("row"), group()])
    assert answers[1] == first._replace(repeated=True)
    assert isinstance(answers[2], GroupMismatchError)
    assert [isinstance(answer, Appended) for answer in answers] == [True, True, False, True, True]
    assert rows(database, log_id) == {"row": 2 + 2}
    alone = appended(await running.append(log_id, stored))
    assert (alone.indices, alone.repeated) == (first.indices, True)
    assert rows(database, log_id) == {"row": 4}
    await verify(installation, log_id)


async def test_the_guards_of_a_group_that_is_stale_already_do_not_run(
    database: str, log_id: int, running: Appender
) -> None:
    control = appended(await running.append(log_id, aggregate("policy:p", 1))).indices[0]
    late, timely = replace(counted("late"), as_of=control - 1), replace(counted("timely"), as_of=control)
    answers = await append_all(running, log_id, [counted("any"), late, timely])
    assert answers[1] == Stale(control_index=control)
    assert isinstance(answers[0], Appended)
    assert isinstance(answers[2], Appended)
    assert rows(database, log_id) == {"policy:p": 1, "any": 1, "timely": 1}


async def test_the_guards_of_a_group_that_becomes_stale_in_its_batch_do_not_run(
    database: str, log_id: int, proxy: CuttingProxy, running: Appender
) -> None:
    before, late = replace(counted("before"), as_of=-1), replace(counted("late"), as_of=-1)
    answers = await append_all(running, log_id, [before, aggregate("policy:p", 1), late])
    assert isinstance(answers[0], Appended)
    assert answers[2] == Stale(control_index=2)
    assert rows(database, log_id) == {"policy:p": 1, "before": 1}
    assert "ROLLBACK TO" not in kinds(proxy)


async def test_the_guards_of_a_group_behind_a_control_entry_that_was_refused_run(
    database: str, log_id: int, running: Appender
) -> None:
    answers = await append_all(running, log_id, [aggregate("policy:p", 2), replace(counted("row"), as_of=-1)])
    assert appended(answers[0] if isinstance(answers[0], Appended) else Stale(control_index=0)).branch is Branch.ELSE
    assert isinstance(answers[1], Appended)
    assert rows(database, log_id) == {"row": 1}


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
        transaction.open({log_id: [aggregate("policy:p", 1)]}, wait=False)
        transaction.send_guards({log_id: [aggregate("policy:p", 1)]})
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
    transaction.open(groups, wait=False)
    transaction.send_guards(groups)
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
    transaction.open(groups, wait=False)
    transaction.send_guards(groups)
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
    database: str, installation: Provisioned, log_id: int, running: Appender, proxy: CuttingProxy
) -> None:
    logs = [log_id, *(new_log(database, installation) for _ in range(3))]
    for one in logs:
        await running.append(one, group())
    proxy.trace.clear()
    for version, branch in ((1, Branch.THEN), (1, Branch.ELSE)):
        wanted = [(one, aggregate("policy:p", version if one == logs[2] else 1)) for one in logs[:3]]
        wanted += [(logs[3], aggregate(f"policy:{branch}", 1))]
        answers = await asyncio.gather(*(running.append(one, g) for one, g in wanted))
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


# A savepoint that is refused


@pytest.mark.parametrize("sqlstate", ["53200", "22023"])  # out of memory, which passes; an error that lasts
@pytest.mark.parametrize("skip", range(6))
@pytest.mark.parametrize("text", [b"RELEASE", b"SAVEPOINT guard", b"ROLLBACK TO"])
async def test_a_savepoint_that_is_refused_undoes_the_guards_of_no_group_that_is_appended(
    database: str, log_id: int, proxy: CuttingProxy, running: Appender, text: bytes, skip: int, sqlstate: str
) -> None:
    proxy.plan = Plan(text, Cut.REFUSED, skip=skip, sqlstate=sqlstate)
    lost = guarded(*aggregate("policy:none", 2).guard)
    wanted = [counted("row"), counted("row"), lost, counted("row"), lost, counted("row")]
    answers = await append_all(running, log_id, wanted)
    told = [isinstance(answer, Appended) and answer.branch is Branch.THEN for answer in answers]
    assert told == [True, True, False, True, False, True]
    assert not any(isinstance(answer, BaseException) for answer in answers)
    assert rows(database, log_id) == {"row": 4}


@pytest.mark.parametrize("sqlstate", ["53200", "57014"])
async def test_a_savepoint_that_is_refused_for_a_while_refuses_no_group(
    database: str, log_id: int, proxy: CuttingProxy, running: Appender, sqlstate: str
) -> None:
    # The third time is the group's own: it has been written alone then, if any of the errors was said to last.
    proxy.plan = Plan(b"SAVEPOINT guard", Cut.REFUSED, sqlstate=sqlstate)
    proxy.plan.following = Plan(b"SAVEPOINT guard", Cut.REFUSED, sqlstate=sqlstate)
    proxy.plan.following.following = Plan(b"SAVEPOINT guard", Cut.REFUSED, sqlstate=sqlstate)
    assert appended(await running.append(log_id, counted("row"))).branch is Branch.THEN
    assert rows(database, log_id) == {"row": 1}


# A session that ends


@pytest.mark.parametrize("cut", [Cut.ENDED_BEFORE, Cut.ENDED_AFTER])
@pytest.mark.parametrize(
    "step", [b"SAVEPOINT guard", b"NOWAIT", b"INSERT INTO ledger.aggregates", b"RELEASE", b"INSERT INTO ledger.entries"]
)
async def test_a_session_ended_between_the_exchanges_runs_every_guard_once_in_the_end(
    database: str, log_id: int, proxy: CuttingProxy, running: Appender, step: bytes, cut: Cut
) -> None:
    plan = proxy.plan = Plan(step, cut)
    wanted = [counted("row") for _ in range(5)]
    answers = await append_all(running, log_id, wanted)
    assert plan.hit.is_set()
    entries = await read_log(database, log_id)
    for one, answer in zip(wanted, answers, strict=True):
        assert isinstance(answer, Appended)
        assert places(entries, one.id) == (Branch.THEN, answer.indices)
    assert rows(database, log_id) == {"row": 5}
