# SPDX-License-Identifier: Apache-2.0
"""The versions of aggregates, which guards write, are what the log says: whatever was appended, by however many."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakeproof.provision import Provisioned
from ledger.format.entry import Branch
from ledger.format.sequence import Appended, Group
from testkit.ledger.appending import aggregate, appended, appender, event, group, new_log, read_log
from testkit.ledger.guard_replay import AGGREGATES

KEYS = ("policy:a", "policy:b", "key:c")
LOST = (event({"lost": True}),)


@st.composite
def any_group(draw: st.DrawFn) -> Group:
    if draw(st.integers(0, 5)) == 0:
        return group()
    lost = LOST if draw(st.booleans()) else ()
    return aggregate(draw(st.sampled_from(KEYS)), draw(st.integers(1, 4)), otherwise=lost)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(st.lists(any_group(), min_size=1, max_size=6), min_size=1, max_size=8), again=st.booleans())
async def test_the_rows_are_what_the_log_says(
    database: str, installation: Provisioned, rounds: list[list[Group]], again: bool
) -> None:
    log_id = new_log(database, installation)
    async with appender(installation) as one, appender(installation) as other:
        for together in rounds:
            twice = (*together, *together) if again else together
            calls = (running.append(log_id, wanted) for wanted in twice for running in (one, other)[: 1 + again])
            outcomes = [appended(outcome) for outcome in await asyncio.gather(*calls)]
    entries = await read_log(database, log_id)
    live = AGGREGATES.live(database, log_id)
    assert live == AGGREGATES.replayed(entries)
    assert all(isinstance(outcome, Appended) for outcome in outcomes)
    held = [e for e in entries if e.branch is Branch.THEN and e.key in KEYS]
    assert sum(live.values()) == len(held)


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE ledger.aggregates SET version = version + 1 WHERE key = 'policy:a'",
        "DELETE FROM ledger.aggregates WHERE key = 'policy:b'",
        "INSERT INTO ledger.aggregates SELECT log_id, 'policy:c', 1 FROM ledger.aggregates WHERE key = 'policy:a'",
    ],
)
async def test_a_row_that_the_log_does_not_tell_of_is_found(
    database: str, installation: Provisioned, tampering: str
) -> None:
    log_id = new_log(database, installation)
    async with appender(installation) as running:
        for wanted in (aggregate("policy:a", 1), aggregate("policy:b", 1), aggregate("policy:a", 2)):
            await running.append(log_id, wanted)
    told = AGGREGATES.replayed(await read_log(database, log_id))
    assert AGGREGATES.live(database, log_id) == told == {"policy:a": 2, "policy:b": 1}
    with psycopg.connect(database, autocommit=True) as owner:
        assert owner.execute(tampering.encode()).rowcount == 1
    assert AGGREGATES.live(database, log_id) != told
