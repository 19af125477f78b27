# SPDX-License-Identifier: Apache-2.0
"""Random batches, their guards sent at once, against the same groups appended one by one: nothing tells them apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lakeproof.provision import Provisioned
from ledger.errors import LedgerError
from ledger.format.guards import GuardCall
from ledger.format.sequence import Appended, Group, Stale
from testkit.ledger.appending import appender, event, new_log, read_log
from testkit.ledger.guarded_groups import GUARDS

KEYS: Final = st.sampled_from(("policy:a", "policy:b"))
VERSIONS: Final = st.integers(1, 3)
CALLS: Final = st.one_of(
    st.builds(lambda key: GuardCall("aggregate.create", {"key": key}), KEYS),
    st.builds(lambda key, version: GuardCall("aggregate.change", {"key": key, "version": version}), KEYS, VERSIONS),
    st.just(GuardCall("aggregate.count", {"key": "count:all"})),
    st.builds(
        lambda versions: GuardCall(
            "recorded.insert",
            {
                "kind": "event",
                "originators": ["o"] * len(versions),
                "versions": versions,
                "group_id": UUID(int=7),
                "positions": list(range(len(versions))),
            },
        ),
        st.lists(VERSIONS, min_size=1, max_size=2),
    ),
    st.sampled_from(
        (
            GuardCall("share", {"by": 0}),
            GuardCall("share", {"by": 2}),
            GuardCall("share", {}),
            GuardCall("text", {"value": "\ud800"}),
            GuardCall("text", {"value": None}),
            GuardCall("unknown", {}),
        )
    ),
)
HOLDS: Final = st.just(GuardCall("aggregate.count", {"key": "count:all"}))
PLAIN: Final = event({"plain": 1})
CONTROL: Final = event({"id": "a", "version": 1}, kind="policy.created", key="policy:a")
EVENTS: Final = st.sampled_from((PLAIN, PLAIN, CONTROL))


@st.composite
def groups(draw: st.DrawFn) -> list[Group]:
    """Return groups of which some are alike, and some have one id with different content."""
    found: list[Group] = []
    for number in range(draw(st.integers(1, 10))):
        if found and draw(st.integers(0, 4)) == 0:
            twin = draw(st.sampled_from(found))
            found.append(twin if draw(st.booleans()) else replace(twin, then=(event({"other": number}),)))
            continue
        guard = draw(st.lists(st.one_of(HOLDS, CALLS), max_size=2))
        has_otherwise = draw(st.booleans()) and bool(guard)
        found.append(
            Group(
                id=UUID(int=number + 1),
                then=tuple(draw(st.lists(EVENTS, min_size=1, max_size=2))),
                otherwise=(event({"otherwise": number}),) if has_otherwise else (),
                guard=tuple(guard),
                as_of=draw(st.sampled_from((None, None, -1, 0, 3))),
            )
        )
    return found


@pytest.fixture(scope="module")
def database(module_database: str) -> str:
    return module_database


@pytest.fixture(scope="module")
def installation(module_installation: Provisioned) -> Provisioned:
    return module_installation


def count(key: str, number: int, *, as_of: int | None = None) -> Group:
    call = GuardCall("aggregate.count", {"key": key})
    return Group(id=UUID(int=number), then=(PLAIN,), guard=(call,), as_of=as_of)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=groups(), stored=st.sets(st.integers(0, 9), max_size=3))
@example(wanted=[count("row", number) for number in range(1, 20)], stored=set())
@example(wanted=[count("row", number) for number in range(1, 5)], stored={1, 2})
@example(wanted=[count("row", 1), replace(count("row", 2), then=(CONTROL,)), count("row", 3, as_of=0)], stored=set())
def test_a_batch_has_the_effect_of_its_groups_one_by_one(
    database: str, installation: Provisioned, wanted: list[Group], stored: set[int]
) -> None:
    before = [one for number, one in enumerate(wanted) if number in stored]

    async def together(log_id: int) -> list[object]:
        async with appender(installation, *GUARDS) as running:
            return await asyncio.gather(*(running.append(log_id, one) for one in wanted), return_exceptions=True)

    async def one_by_one(log_id: int, groups: Sequence[Group]) -> list[object]:
        async with appender(installation, *GUARDS) as running:
            return [(await asyncio.gather(running.append(log_id, one), return_exceptions=True))[0] for one in groups]

    async def effects(run: Callable[..., object]) -> tuple[object, ...]:
        log_id = new_log(database, installation)
        await one_by_one(log_id, before)
        answers = await (together(log_id) if run is together else one_by_one(log_id, wanted))
        return [told(answer) for answer in answers], await content(database, log_id), rows(database, log_id)

    batch, alone = (asyncio.run(effects(run)) for run in (together, one_by_one))
    assert batch == alone


def told(answer: object) -> object:
    """Return what a caller was told, without the time."""
    match answer:
        case Appended():
            return answer.branch, answer.indices, answer.repeated
        case Stale():
            return answer
        case LedgerError():
            return type(answer).__name__, str(answer)
    pytest.fail(f"an answer of another kind: {answer!r}")


async def content(database: str, log_id: int) -> list[object]:
    """Return what the entries of a log say, without what is different in every log: its name, times and hashes."""
    return [
        (one.index, one.type, one.key, one.data, one.group_id, one.branch, one.of, one.position)
        for one in await read_log(database, log_id)
    ]


def rows(database: str, log_id: int) -> list[object]:
    """Return the rows that guards have made."""
    with psycopg.connect(database) as owner:
        aggregates = owner.execute("SELECT key, version FROM ledger.aggregates WHERE log_id = %s ORDER BY 1", (log_id,))
        recorded = owner.execute("SELECT version FROM ledger.recorded_events WHERE log_id = %s ORDER BY 1", (log_id,))
        return [aggregates.fetchall(), recorded.fetchall()]
