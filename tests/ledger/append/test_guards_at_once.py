# SPDX-License-Identifier: Apache-2.0
"""Guards that are sent at once: what is answered and stored is what would be if each group had been appended alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

import psycopg
import pytest

from lakeproof.provision import Provisioned
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.errors import GroupMismatchError, GuardError
from ledger.format.entry import Branch
from ledger.format.guards import GuardCall, GuardRegistry
from ledger.format.sequence import Appended, Group, Stale
from testkit.ledger.appending import (
    aggregate,
    appended,
    appender_dsn,
    event,
    group,
    new_id,
    places,
    read_log,
    verify,
)
from testkit.ledger.cutting_proxy import Cut, CuttingProxy, Plan
from testkit.ledger.guarded_groups import append_all, counted, guarded, kinds, rows


@pytest.fixture(scope="module")
def database(module_database: str) -> str:
    return module_database


@pytest.fixture(scope="module")
def installation(module_installation: Provisioned) -> Provisioned:
    return module_installation


# How many statements, and how many round trips

PROLOGUE: Final = ["BEGIN", "SELECT log_id,", "SELECT log_id,", "SAVEPOINT guard", "SELECT FROM"]
EPILOGUE: Final = ["RELEASE SAVEPOINT", "INSERT INTO", "UPDATE ledger.heads", "COMMIT"]


@pytest.mark.usefixtures("two_round_trips")
@pytest.mark.parametrize(("count", "exchanges"), [(1, 2), (16, 3)])
async def test_guards_that_hold_cost_one_statement_each_and_no_round_trip_of_their_own(
    proxy: CuttingProxy, log_id: int, watched: Appender, count: int, exchanges: int
) -> None:
    answers = await append_all(watched, log_id, [aggregate(f"policy:{n}", 1) for n in range(count)])
    assert [appended(answer).branch for answer in answers if not isinstance(answer, BaseException)] == (
        [Branch.THEN] * count
    )
    assert kinds(proxy) == PROLOGUE + ["INSERT INTO"] * count + EPILOGUE
    assert proxy.exchanges == exchanges  # lock and lookup, the guards (of a few groups together with those), the rest


@pytest.mark.usefixtures("two_round_trips")
async def test_guards_are_sent_before_any_answer_has_come(proxy: CuttingProxy, log_id: int, watched: Appender) -> None:
    # So a group takes two round trips where its log is not known: this one, and the one that ends with COMMIT.
    plan = proxy.plan = Plan(b"INSERT INTO ledger.aggregates", Cut.NOT)
    proxy.answers_pass.clear()
    task = asyncio.create_task(watched.append(log_id, aggregate("policy:p", 1)))
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
    database: str, installation: Provisioned, log_id: int, proxy: CuttingProxy, watched: Appender
) -> None:
    wanted = [
        aggregate("policy:a", 1),
        aggregate("policy:a", 2),
        aggregate("policy:a", 2, otherwise=(event({"lost": True}),)),
        guarded(GuardCall("aggregate.create", {"key": "policy:b"}), *aggregate("policy:a", 9).guard),
        aggregate("policy:a", 3),
        group(),
    ]
    answers = await append_all(watched, log_id, wanted)
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
    database: str, log_id: int, watched: Appender
) -> None:
    # Of two versions one is taken: the statement inserts the other, and returns no row.
    def record(*versions: int) -> Group:
        parameters = {"kind": "event", "originators": ["o"] * len(versions), "versions": list(versions)}
        positions = list(range(len(versions)))
        return guarded(GuardCall("recorded.insert", parameters | {"group_id": new_id(), "positions": positions}))

    wanted = [record(1), record(1, 2), record(2, 3)]
    answers = await append_all(watched, log_id, wanted)
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
    database: str, log_id: int, watched: Appender, call: GuardCall, says: str, at: int
) -> None:
    wanted = [counted("good:row") for _ in range(4)]
    bad = counted("bad:row", call)
    answers = await append_all(watched, log_id, [*wanted[:at], bad, *wanted[at:]])
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
    log_id: int, watched: Appender, call: GuardCall, _: str
) -> None:
    await watched.append(log_id, aggregate("policy:taken", 1))
    one = guarded(*aggregate("policy:taken", 1).guard, call)
    assert appended(await watched.append(log_id, one)).branch is Branch.ELSE


async def test_a_guard_without_statements_holds_and_ends_no_savepoint_of_another(
    database: str, log_id: int, watched: Appender
) -> None:
    empty, unsent = GuardCall("none", {}), GuardCall("text", {"value": "\ud800"})
    lost = guarded(GuardCall("aggregate.create", {"key": "policy:lost"}), *aggregate("policy:p", 2).guard)
    for wanted in ([guarded(empty), guarded(unsent)], [guarded(empty), lost, guarded(empty), aggregate("policy:q", 1)]):
        answers = await append_all(watched, log_id, wanted)
        held = [isinstance(answer, Appended) and answer.branch is Branch.THEN for answer in answers]
        assert held == [True, False, True, True][: len(wanted)]
    assert rows(database, log_id) == {"policy:q": 1}


# Groups whose guards must not run


async def test_the_guards_of_a_group_that_comes_twice_in_a_batch_run_once(
    database: str, log_id: int, proxy: CuttingProxy, watched: Appender
) -> None:
    one, other = counted("row"), counted("row")
    answers = await append_all(watched, log_id, [one, other, one, other, one])
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
    database: str, log_id: int, watched: Appender
) -> None:
    failing = counted("row", GuardCall("share", {"by": 0}))
    second = replace(counted("row"), id=failing.id)
    answers = await append_all(watched, log_id, [failing, second, second])
    assert isinstance(answers[0], GuardError)
    assert [appended(answer).repeated for answer in answers[1:] if isinstance(answer, Appended)] == [False, True]
    assert rows(database, log_id) == {"row": 1}


async def test_the_guards_of_a_group_that_the_log_holds_do_not_run_again(
    database: str, installation: Provisioned, log_id: int, watched: Appender
) -> None:
    stored, changed = counted("row"), counted("row")
    first = appended(await watched.append(log_id, stored))
    await watched.append(log_id, changed)
    changed = replace(changed, then=(event({"other": 1}),))
    answers = await append_all(watched, log_id, [counted("row"), stored, changed, counted("row"), group()])
    assert answers[1] == first._replace(repeated=True)
    assert isinstance(answers[2], GroupMismatchError)
    assert [isinstance(answer, Appended) for answer in answers] == [True, True, False, True, True]
    assert rows(database, log_id) == {"row": 2 + 2}
    alone = appended(await watched.append(log_id, stored))
    assert (alone.indices, alone.repeated) == (first.indices, True)
    assert rows(database, log_id) == {"row": 4}
    await verify(installation, log_id)


async def test_the_guards_of_a_group_that_is_stale_already_do_not_run(
    database: str, log_id: int, watched: Appender
) -> None:
    control = appended(await watched.append(log_id, aggregate("policy:p", 1))).indices[0]
    late, timely = replace(counted("late"), as_of=control - 1), replace(counted("timely"), as_of=control)
    answers = await append_all(watched, log_id, [counted("any"), late, timely])
    assert answers[1] == Stale(control_index=control)
    assert isinstance(answers[0], Appended)
    assert isinstance(answers[2], Appended)
    assert rows(database, log_id) == {"policy:p": 1, "any": 1, "timely": 1}


async def test_the_guards_of_a_group_that_becomes_stale_in_its_batch_do_not_run(
    database: str, log_id: int, proxy: CuttingProxy, watched: Appender
) -> None:
    before, late = replace(counted("before"), as_of=-1), replace(counted("late"), as_of=-1)
    answers = await append_all(watched, log_id, [before, aggregate("policy:p", 1), late])
    assert isinstance(answers[0], Appended)
    assert answers[2] == Stale(control_index=2)
    assert rows(database, log_id) == {"policy:p": 1, "before": 1}
    assert "ROLLBACK TO" not in kinds(proxy)


async def test_the_guards_of_a_group_behind_a_control_entry_that_was_refused_run(
    database: str, log_id: int, watched: Appender
) -> None:
    answers = await append_all(watched, log_id, [aggregate("policy:p", 2), replace(counted("row"), as_of=-1)])
    assert appended(answers[0] if isinstance(answers[0], Appended) else Stale(control_index=0)).branch is Branch.ELSE
    assert isinstance(answers[1], Appended)
    assert rows(database, log_id) == {"row": 1}
