# SPDX-License-Identifier: Apache-2.0
"""The Appender on a real server: what it answers, what is stored then, and what one group cannot do to another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from lakeproof.provision import Provisioned
from ledger.append.appender import Appender
from ledger.append.queue import GUARDED_GROUPS_MAX
from ledger.errors import (
    FormatError,
    GroupMismatchError,
    GuardError,
    LedgerError,
    LogUnavailableError,
    NoSuchLogError,
    QueueFullError,
)
from ledger.format.entry import Branch
from ledger.format.event import GROUP_EVENTS_MAX
from ledger.format.guards import Guard, GuardCall, GuardRegistry
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.read import read_head, read_parts
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


@pytest.fixture(scope="module")
def database(module_database: str) -> str:
    return module_database


@pytest.fixture(scope="module")
def installation(module_installation: Provisioned) -> Provisioned:
    return module_installation


@pytest.fixture
async def running(installation: Provisioned) -> AsyncIterator[Appender]:
    async with appender(installation) as started:
        yield started


async def test_concurrent_groups_each_have_a_place_of_their_own(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    wanted = [group(*[event({"n": n, "of": k}) for k in range(1 + n % 3)]) for n in range(600)]
    outcomes = [appended(outcome) for outcome in await asyncio.gather(*(running.append(log_id, g) for g in wanted))]
    entries = await read_log(database, log_id)
    assert sorted(at for outcome in outcomes for at in outcome.indices) == list(range(len(entries)))
    for one, outcome in zip(wanted, outcomes, strict=True):
        assert places(entries, one.id) == (Branch.THEN, outcome.indices)
        assert not outcome.repeated
        assert outcome.recorded_at == entries[outcome.indices[0]].recorded_at
        assert [entries[at].data for at in outcome.indices] == [
            {"n": wanted.index(one), "of": k} for k in range(len(one.then))
        ]
    assert (await verify(installation, log_id)).size == len(entries)


async def test_groups_of_one_caller_stand_in_its_order(database: str, log_id: int, running: Appender) -> None:
    indices = [appended(await running.append(log_id, group())).indices for _ in range(5)]
    assert indices == [range(n, n + 1) for n in range(5)]


async def test_the_doorbell_rings_once_a_batch_that_changed_something(installation: Provisioned, log_id: int) -> None:
    rings: list[None] = []
    registry = GuardRegistry(())
    async with Appender(appender_dsn(installation), registry, on_append=lambda: rings.append(None)) as running:
        one = group()
        await running.append(log_id, one)
        await running.append(log_id, one)
        assert len(rings) == 1


# Appending again


async def test_the_same_group_is_appended_once(installation: Provisioned, log_id: int, running: Appender) -> None:
    one = group(event(payloads={"inputs": b"a", "message": b"m"}), event({"n": 2}))
    first = appended(await running.append(log_id, one))
    twins = await asyncio.gather(*(running.append(log_id, one) for _ in range(20)))
    assert {appended(twin)._replace(repeated=False) for twin in twins} == {first}
    assert all(appended(twin).repeated for twin in twins)
    assert (await verify(installation, log_id)).size == 2


async def test_the_same_group_with_fresh_salts_and_another_time_is_the_same(log_id: int, running: Appender) -> None:
    first = group(event(payloads={"inputs": b"a"}))
    again = group(event(payloads={"inputs": b"a"}), group_id=first.id)
    assert first.then[0].event != again.then[0].event
    assert (
        appended(await running.append(log_id, first)).indices == appended(await running.append(log_id, again)).indices
    )


async def test_a_part_that_was_erased_is_not_compared(database: str, log_id: int, running: Appender) -> None:
    first = group(event(payloads={"inputs": b"a", "message": b"m"}))
    await running.append(log_id, first)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("DELETE FROM ledger.parts WHERE log_id = %s AND name = 'inputs'", (log_id,))
    other = group(event(payloads={"inputs": b"changed", "message": b"m"}), group_id=first.id)
    assert appended(await running.append(log_id, other)).repeated
    another = group(event(payloads={"inputs": b"a", "message": b"changed"}), group_id=first.id)
    with pytest.raises(GroupMismatchError, match="event 0: part message"):
        await running.append(log_id, another)


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (group(event({"n": 2})), "event 0: data"),
        (group(event({"n": 1}, key="table:lake/u")), "event 0: key"),
        (group(event({"n": 1}), event()), "1 events, now 2"),
        (group(event({"n": 1}, payloads={"inputs": b"a"})), "event 0: names of parts"),
    ],
)
async def test_other_content_under_a_known_id_is_refused_and_says_what_differs(
    installation: Provisioned, log_id: int, running: Appender, other: Group, differs: str
) -> None:
    first = group(event({"n": 1}))
    await running.append(log_id, first)
    with pytest.raises(GroupMismatchError, match=differs):
        await running.append(log_id, replace_id(other, first.id))
    assert (await verify(installation, log_id)).size == 1


def replace_id(one: Group, group_id: UUID) -> Group:
    return Group(id=group_id, then=one.then, otherwise=one.otherwise, guard=one.guard, as_of=one.as_of)


async def test_one_id_in_two_logs_names_two_groups(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    other = new_log(database, installation)
    one = group()
    both = await asyncio.gather(running.append(log_id, one), running.append(other, one))
    assert [appended(outcome).repeated for outcome in both] == [False, False]
    again = await asyncio.gather(running.append(log_id, one), running.append(other, one))
    assert [appended(outcome).repeated for outcome in again] == [True, True]


# What is appended


async def test_nul_characters_and_any_text_are_kept_in_data_and_parts(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    data = {"nul": "a\x00b", "quote": "\"\\'", "wide": "𝄞\u2028"}
    await running.append(log_id, group(event(data, payloads={"inputs": b"\x00\xff"})))
    assert (await read_log(database, log_id))[0].data == data
    async with await AsyncConnection.connect(database) as connection:
        parts = await read_parts(connection, log_id, from_index=0, to_index=1)
    assert parts[0]["inputs"].payload == b"\x00\xff"
    await verify(installation, log_id)


async def test_parts_of_a_mebibyte_are_appended_many_at_a_time(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    # Over a pipeline this much would block both sides for ever: see PIPELINE_SIZE_BYTES_MAX.
    payload = b"x" * 1024 * 1024
    wanted = [group(event({"n": n}, payloads={"inputs": payload})) for n in range(12)]
    outcomes = await asyncio.gather(*(running.append(log_id, g) for g in wanted))
    assert sorted(appended(outcome).indices[0] for outcome in outcomes) == list(range(12))
    assert appended(await running.append(log_id, wanted[5])).repeated
    async with await AsyncConnection.connect(database) as connection:
        parts = await read_parts(connection, log_id, from_index=0, to_index=12)
    assert all(parts[at]["inputs"].payload == payload for at in range(12))
    await verify(installation, log_id)


async def test_the_largest_groups_are_appended_and_found_again(
    installation: Provisioned, log_id: int, running: Appender
) -> None:
    most = group(*[event({"n": n}) for n in range(GROUP_EVENTS_MAX)])
    assert appended(await running.append(log_id, most)).indices == range(GROUP_EVENTS_MAX)
    assert appended(await running.append(log_id, most)).repeated
    assert (await verify(installation, log_id)).size == GROUP_EVENTS_MAX


# Guards and the control plane


async def test_a_guard_that_holds_appends_then_and_one_that_does_not_appends_else(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    lost = (event({"lost": True}), event({"lost": True}))
    first = aggregate("policy:p", 1, otherwise=lost)
    second = aggregate("policy:p", 1, otherwise=lost)
    one, two = await asyncio.gather(running.append(log_id, first), running.append(log_id, second))
    assert (appended(one).branch, appended(one).indices) == (Branch.THEN, range(1))
    assert (appended(two).branch, appended(two).indices) == (Branch.ELSE, range(1, 3))
    again = appended(await running.append(log_id, second))
    assert (again.branch, again.indices, again.repeated) == (Branch.ELSE, range(1, 3), True)
    assert aggregates(database, log_id) == {"policy:p": 1}
    await verify(installation, log_id)


def aggregates(database: str, log_id: int) -> dict[str, int]:
    with psycopg.connect(database) as owner:
        rows = owner.execute("SELECT key, version FROM ledger.aggregates WHERE log_id = %s", (log_id,))
        return dict(rows.fetchall())


async def test_of_many_that_change_one_aggregate_exactly_one_does(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    await running.append(log_id, aggregate("policy:p", 1))
    async with appender(installation) as other:
        wanted = [aggregate("policy:p", 2) for _ in range(20)]
        outcomes = await asyncio.gather(
            *(one.append(log_id, g) for one, g in zip([running, other] * 10, wanted, strict=True))
        )
    assert [appended(outcome).branch for outcome in outcomes].count(Branch.THEN) == 1
    assert len(await read_log(database, log_id)) == 2
    assert aggregates(database, log_id) == {"policy:p": 2}


async def test_a_guard_not_held_with_an_empty_else_stores_nothing_and_runs_again(
    database: str, log_id: int, running: Appender
) -> None:
    early = aggregate("policy:p", 2)
    nothing = appended(await running.append(log_id, early))
    assert (nothing.branch, nothing.indices) == (Branch.ELSE, range(0))
    await running.append(log_id, aggregate("policy:p", 1))
    now = appended(await running.append(log_id, early))
    assert (now.branch, now.indices, now.repeated) == (Branch.THEN, range(1, 2), False)


async def test_several_guards_hold_together_or_change_nothing(database: str, log_id: int, running: Appender) -> None:
    await running.append(log_id, aggregate("policy:taken", 1))
    calls = tuple(GuardCall("aggregate.create", {"key": f"policy:{name}"}) for name in ("new", "taken"))
    both = Group(id=new_id(), then=(event(),), guard=calls)
    assert appended(await running.append(log_id, both)).branch is Branch.ELSE
    assert aggregates(database, log_id) == {"policy:taken": 1}


async def test_more_guarded_groups_than_one_transaction_takes_are_all_answered(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    count = 2 * GUARDED_GROUPS_MAX + 1
    wanted = [aggregate(f"policy:{n}", 1) for n in range(count)]
    outcomes = await asyncio.gather(*(running.append(log_id, g) for g in (*wanted, *[group() for _ in range(5)])))
    assert all(appended(outcome).branch is Branch.THEN for outcome in outcomes)
    assert aggregates(database, log_id) == {f"policy:{n}": 1 for n in range(count)}
    await verify(installation, log_id)


DIVISION = Guard(name="division", statements=("SELECT 1 / %(by)s WHERE %(log_id)s > 0",))
CATEGORY = Guard(name="category", statements=("SELECT %(value)s::text WHERE %(log_id)s > 0",))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (GuardCall("unknown", {}), "guard unknown: expected one of"),
        (GuardCall("division", {"by": 0}), "division by zero"),
        (GuardCall("division", {}), "query parameter"),
        (GuardCall("division", {"by": 1, "log_id": 2}), "log_id is bound by the sequencer"),
        (GuardCall("category", {"value": "a\x00b"}), "NUL"),
        (GuardCall("category", {"value": "\ud800"}), "surrogates"),
        (GuardCall("category", {"value": Jsonb(object())}), "JSON"),
        (GuardCall("category", {"value": object()}), "adapt"),
    ],
)
async def test_a_guard_that_fails_refuses_its_group_and_no_other(
    database: str, installation: Provisioned, log_id: int, call: GuardCall, says: str
) -> None:
    async with appender(installation, DIVISION, CATEGORY) as running:
        wanted: list[Group] = [aggregate("policy:before", 1), aggregate("policy:after", 1), group()]
        bad = Group(id=new_id(), then=(event(),), guard=(GuardCall("aggregate.create", {"key": "policy:bad"}), call))
        answers = await asyncio.gather(
            running.append(log_id, wanted[0]),
            running.append(log_id, bad),
            *(running.append(log_id, g) for g in wanted[1:]),
            return_exceptions=True,
        )
    refused = answers.pop(1)
    assert isinstance(refused, GuardError)
    assert says in str(refused)
    assert [answer.branch for answer in answers if isinstance(answer, Appended)] == [Branch.THEN] * 3
    assert aggregates(database, log_id) == {"policy:before": 1, "policy:after": 1}
    assert places(await read_log(database, log_id), bad.id) is None


def test_a_guard_must_be_bound_to_its_log() -> None:
    with pytest.raises(GuardError, match="log_id"):
        Guard(name="free", statements=("DELETE FROM ledger.aggregates",))


async def test_a_guard_reaches_no_other_tenant(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    other = new_log(database, installation)
    await running.append(log_id, aggregate("policy:p", 1))
    assert appended(await running.append(other, aggregate("policy:p", 2))).branch is Branch.ELSE
    assert appended(await running.append(other, aggregate("policy:p", 1))).branch is Branch.THEN
    assert aggregates(database, log_id) == {"policy:p": 1}


async def test_a_group_judged_by_an_older_policy_set_is_stale(database: str, log_id: int, running: Appender) -> None:
    await running.append(log_id, group(as_of=-1))
    await running.append(log_id, aggregate("policy:p", 1))
    assert await running.append(log_id, group(as_of=-1)) == Stale(control_index=1)
    assert appended(await running.append(log_id, group(as_of=1))).indices == range(2, 3)
    control, judged = aggregate("policy:p", 2), group(as_of=1)
    answers = await asyncio.gather(running.append(log_id, control), running.append(log_id, judged))
    assert answers[1] == Stale(control_index=3)
    assert len(await read_log(database, log_id)) == 4
    async with await AsyncConnection.connect(database) as connection:
        assert (await read_head(connection, log_id)).control_index == 3


# What one group cannot do to another


async def test_a_log_that_is_not_there_refuses_its_own_groups_only(log_id: int, running: Appender) -> None:
    answers = await asyncio.gather(
        running.append(log_id, group()),
        running.append(999_999, group()),
        running.append(log_id, group()),
        return_exceptions=True,
    )
    assert isinstance(answers[1], NoSuchLogError)
    assert isinstance(answers[0], Appended)
    assert isinstance(answers[2], Appended)


async def test_a_group_the_database_refuses_does_not_spoil_its_batch(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    # Preparing an event refuses such a key; one that got past it must still hurt nobody else.
    good = [group(event({"n": n})) for n in range(10)]
    bad = group(replace(event(), key="table:a\x00b"))
    answers = await asyncio.gather(
        *(running.append(log_id, g) for g in (*good[:5], bad, *good[5:])), return_exceptions=True
    )
    refused = answers.pop(5)
    assert type(refused) is LedgerError
    assert "invalid byte sequence" in str(refused)
    assert all(isinstance(answer, Appended) for answer in answers)
    entries = await read_log(database, log_id)
    assert {entry.group_id for entry in entries} == {g.id for g in good}
    await verify(installation, log_id)


async def test_a_broken_log_refuses_its_own_groups_only(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    broken = new_log(database, installation)
    first = group()
    await running.append(broken, first)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("UPDATE ledger.entries SET entry = 'x' WHERE log_id = %s", (broken,))
    answers = await asyncio.gather(
        running.append(log_id, group()),
        running.append(broken, first),
        running.append(log_id, group()),
        return_exceptions=True,
    )
    assert isinstance(answers[1], FormatError)
    assert isinstance(answers[0], Appended)
    assert isinstance(answers[2], Appended)


async def test_a_head_that_is_held_keeps_no_other_log_waiting(
    database: str, installation: Provisioned, running: Appender
) -> None:
    logs = [new_log(database, installation) for _ in range(8)]
    async with await AsyncConnection.connect(database) as holder:
        await holder.execute("SELECT FROM ledger.heads WHERE log_id = %s FOR UPDATE", (logs[0],))
        held = [asyncio.create_task(running.append(logs[0], group())) for _ in range(300)]
        for _ in range(5):
            await asyncio.gather(*(running.append(log_id, group()) for log_id in logs[1:]))
        assert not any(task.done() for task in held)
        await holder.rollback()
        outcomes = [appended(outcome) for outcome in await asyncio.gather(*held)]
    assert sorted(outcome.indices[0] for outcome in outcomes) == list(range(300))
    for log_id in logs:
        await verify(installation, log_id)


async def test_a_head_that_stays_held_is_answered_not_in_at_the_deadline(
    database: str, log_id: int, running: Appender
) -> None:
    async with await AsyncConnection.connect(database) as holder:
        await holder.execute("SELECT FROM ledger.heads WHERE log_id = %s FOR UPDATE", (log_id,))
        one = group()
        with pytest.raises(LogUnavailableError, match="nothing was appended"):
            await running.append(log_id, one, timeout_s=0.3)
    await running.append(log_id, group())
    assert places(await read_log(database, log_id), one.id) is None


# The queue, starting and stopping


async def test_a_full_queue_refuses_at_once(installation: Provisioned, log_id: int) -> None:
    async with Appender(appender_dsn(installation), GuardRegistry(()), queue_max=3) as running:
        answers = await asyncio.gather(*(running.append(log_id, group()) for _ in range(5)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [Appended] * 3 + [QueueFullError] * 2
        await running.append(log_id, group())


async def test_a_server_that_is_not_there_is_answered_not_in_at_the_deadline(installation: Provisioned) -> None:
    async with appender(installation, host="/nowhere") as running:
        with pytest.raises(LogUnavailableError, match="nothing was appended"):
            await running.append(1, group(), timeout_s=0.2)


async def test_an_appender_that_does_not_run_appends_nothing(installation: Provisioned, log_id: int) -> None:
    running = appender(installation)
    with pytest.raises(LogUnavailableError, match="not running"):
        await running.append(log_id, group())
    await running.start()
    await running.append(log_id, group())
    await running.stop()
    await running.stop()
    with pytest.raises(LogUnavailableError, match="not running"):
        await running.append(log_id, group())
    async with running:
        assert appended(await running.append(log_id, group())).indices == range(1, 2)


async def test_stopping_writes_what_waits(database: str, installation: Provisioned, log_id: int) -> None:
    running = appender(installation)
    await running.start()
    waiting = [asyncio.create_task(running.append(log_id, group())) for _ in range(500)]
    await asyncio.sleep(0)
    await running.stop()
    outcomes = [appended(await task) for task in waiting]
    assert len(await read_log(database, log_id)) == len(outcomes)


async def test_stopping_tells_those_who_cannot_be_served(database: str, installation: Provisioned, log_id: int) -> None:
    running = appender(installation)
    await running.start()
    async with await AsyncConnection.connect(database) as holder:
        await holder.execute("SELECT FROM ledger.heads WHERE log_id = %s FOR UPDATE", (log_id,))
        task = asyncio.create_task(running.append(log_id, group()))
        await asyncio.sleep(0)
        await running.stop()
        with pytest.raises(LogUnavailableError, match="nothing was appended"):
            await task
    assert await read_log(database, log_id) == []


async def test_a_caller_that_is_cancelled_leaves_no_trace_in_the_queue(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    async with await AsyncConnection.connect(database) as holder:
        await holder.execute("SELECT FROM ledger.heads WHERE log_id = %s FOR UPDATE", (log_id,))
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(running.append(log_id, group())) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
    outcomes = [appended(await task) for task in (tasks[0], tasks[2])]
    entries = await read_log(database, log_id)
    assert {at for outcome in outcomes for at in outcome.indices} <= {entry.index for entry in entries}
    await verify(installation, log_id)


# More than one process


async def test_two_appenders_that_alternate_complete_each_other_s_tiles(
    database: str, installation: Provisioned, log_id: int
) -> None:
    # Two Appenders are two processes as far as the log can tell: nothing is shared but the database. The last one
    # comes when all is there and must read what it has not seen. 256 entries are a tile; of tiles of tiles there is a
    # test with processes.
    async with appender(installation) as one, appender(installation) as two, appender(installation) as late:
        turn = 0
        size = 0

        async def grow(by: int) -> None:
            nonlocal turn, size
            turn += 1
            wanted = group(*[events[n % len(events)] for n in range(size, size + by)])
            assert appended(await (one, two)[turn % 2].append(log_id, wanted)).indices == range(size, size + by)
            size += by

        events = [event({"n": n}) for n in range(7)]
        for by in (200, 55, 1, 1, 300, 254, 1):  # 255, 256, 257, and over two tiles at once
            await grow(by)
        await late.append(log_id, group(*[event({"late": n}) for n in range(600)]))
        await grow_after(one, log_id)
    report = await verify(installation, log_id)
    assert report.size == size + 600 + 300
    with psycopg.connect(database) as owner:
        tiles = owner.execute("SELECT level, count(*) FROM ledger.tiles WHERE log_id = %s GROUP BY 1", (log_id,))
        assert dict(tiles.fetchall()) == {0: report.size // 256}


async def grow_after(running: Appender, log_id: int) -> None:
    await running.append(log_id, group(*[event({"n": n}) for n in range(300)]))


async def test_two_busy_appenders_share_a_log(installation: Provisioned, log_id: int) -> None:
    async with appender(installation) as one, appender(installation) as two:
        outcomes = await asyncio.gather(*((one, two)[n % 2].append(log_id, group()) for n in range(1000)))
    assert sorted(appended(outcome).indices[0] for outcome in outcomes) == list(range(1000))
    assert (await verify(installation, log_id)).size == 1000
