# SPDX-License-Identifier: Apache-2.0
"""
Open decisions follow from the log: whatever becomes of forwarded commits, replaying it gives the same rows.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.catalogs.catalog import Change
from gateway.commit.open_decisions import (
    FORWARD,
    REQUIREMENTS_SIZE_BYTES_MAX,
    Forwarding,
    OpenDecision,
    state_digest,
)
from gateway.errors import BadRequestError
from lakeproof.services import Services
from lakeproof.tenants import Founded, found_tenant
from ledger.format.entry import Branch, Entry
from ledger.format.events import CommitDecided, CommitOutcome, CommitSettled, from_data
from testkit.gateway.decisions import NOON, OWNER, TARGET, decide, settle
from testkit.gateway.log_contents import StoredEntry, read_stored
from testkit.gateway.open_rows import open_rows
from testkit.ledger.guard_replay import GuardedTable

pytestmark = pytest.mark.asyncio(loop_scope="module")


Row = list[Any]


def open_table(parts: Mapping[int, Mapping[str, bytes]]) -> GuardedTable[str, Row]:
    """The rows of open decisions; `parts` are the payload parts by the index of their entry."""

    def apply(rows: dict[str, Row], entry: Entry) -> None:
        if entry.branch is not Branch.THEN:
            return
        if entry.type == CommitDecided.TYPE and FORWARD in parts[entry.index]:
            decided, forward = from_data(CommitDecided, entry.data), json.loads(parts[entry.index][FORWARD])
            identifier = decided.identifier
            assert str(entry.group_id) not in rows
            rows[str(entry.group_id)] = [
                entry.key,
                decided.operation,
                identifier.alias,
                list(identifier.namespace),
                identifier.name,
                decided.base,
                decided.table_uuid,
                list(decided.snapshots),
                forward["owner"],
                forward["deadline"],
                forward["requirements"],
                forward["result"],
                False,
            ]
        elif entry.type == CommitSettled.TYPE:
            settled = from_data(CommitSettled, entry.data)
            if settled.decision in rows and settled.outcome is CommitOutcome.UNKNOWN:
                rows[settled.decision] = [*rows[settled.decision][:-1], True]
            else:
                rows.pop(settled.decision, None)

    return GuardedTable(
        select="SELECT decision::text, jsonb_build_array(key, operation, alias, namespace, name, base, table_uuid, "
        "snapshots, owner, to_char(deadline AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), requirements, "
        "result, is_unknown) FROM gateway.open_decisions WHERE log_id = %(log_id)s",
        apply=apply,
    )


def replayed(told: list[StoredEntry]) -> dict[str, Row]:
    parts = {one.entry.index: one.parts for one in told}
    return open_table(parts).replayed(one.entry for one in told)


async def check_agreement(services: Services, log_id: int) -> dict[str, Row]:
    rows = await asyncio.to_thread(open_table({}).live, services.installation.admin_dsn, log_id)
    assert replayed(await read_stored(services, log_id)) == rows
    return rows


@pytest_asyncio.fixture(loop_scope="module")
async def acme(module_services: Services) -> Founded:
    return await found_tenant(module_services, name="acme", identity="ada@acme.example")


async def open_of(services: Services, log_id: int, before: datetime) -> list[OpenDecision]:
    return await open_rows(services, log_id, before)


async def test_a_decision_stays_open_until_it_is_settled_for_certain(module_services: Services, acme: Founded) -> None:
    first = await decide(module_services, acme.log_id, snapshots=("7",))
    await decide(module_services, acme.log_id, deadline=NOON + timedelta(hours=1))
    assert await open_of(module_services, acme.log_id, NOON) == [], "its owner still has time"
    (due,) = await open_of(module_services, acme.log_id, NOON + timedelta(seconds=1))
    assert (due.decision, due.target, due.snapshots, due.owner, due.deadline) == (first, TARGET, ("7",), OWNER, NOON)
    assert due.requirements == ({"type": "assert-ref-snapshot-id", "ref": "ma\x00in", "snapshot-id": 2**62},)
    assert due.result == state_digest(Change(properties={"a": "b"}))
    assert not due.is_unknown
    for _ in range(2):
        assert await settle(module_services, acme.log_id, first, CommitOutcome.UNKNOWN)
        (due,) = await open_of(module_services, acme.log_id, NOON + timedelta(seconds=1))
        assert due.is_unknown
    assert len(await check_agreement(module_services, acme.log_id)) == 2
    assert await settle(module_services, acme.log_id, first, CommitOutcome.ACCEPTED)
    assert len(await check_agreement(module_services, acme.log_id)) == 1


async def test_a_decision_is_settled_once_and_by_its_own_key(module_services: Services, acme: Founded) -> None:
    decision = await decide(module_services, acme.log_id)
    assert not await settle(
        module_services, acme.log_id, decision, CommitOutcome.ACCEPTED, key="table:beyond/sales/others"
    )
    assert await settle(module_services, acme.log_id, decision, CommitOutcome.CONFLICTED)
    for late in CommitOutcome:
        assert not await settle(module_services, acme.log_id, decision, late), "it is known already"
    assert await check_agreement(module_services, acme.log_id) == {}


async def test_another_tenants_decision_is_out_of_reach(module_services: Services, acme: Founded) -> None:
    other = await found_tenant(module_services, name="other", identity="eve@other.example")
    decision = await decide(module_services, acme.log_id)
    assert not await settle(module_services, other.log_id, decision, CommitOutcome.ACCEPTED)
    roles = module_services.gateway.roles
    counts = {}
    for tenant in (acme.tenant, other.tenant):
        async with module_services.gateway.database.as_role(roles.tenant(tenant)) as connection:
            found = await connection.execute("SELECT count(*) FROM gateway.open_decisions")
            counts[tenant] = (await found.fetchone() or (None,))[0]
    assert counts == {acme.tenant: 1, other.tenant: 0}


steps = st.lists(
    st.one_of(st.just("open"), st.tuples(st.integers(0, 5), st.sampled_from(list(CommitOutcome)))),
    min_size=1,
    max_size=8,
)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=steps)
async def test_the_rows_are_what_the_log_says(
    module_services: Services, acme: Founded, history: list[str | tuple[int, CommitOutcome]]
) -> None:
    decisions: list[UUID] = []
    for step in history:
        if isinstance(step, str):
            decisions.append(await decide(module_services, acme.log_id))
        elif decisions:
            await settle(module_services, acme.log_id, decisions[step[0] % len(decisions)], step[1])
    await check_agreement(module_services, acme.log_id)


@pytest.mark.parametrize(
    "tampering",
    [
        "DELETE FROM gateway.open_decisions",
        "UPDATE gateway.open_decisions SET deadline = deadline + interval '1 microsecond'",
        "UPDATE gateway.open_decisions SET owner = repeat('0', 32)",
        "UPDATE gateway.open_decisions SET requirements = '[]'",
        "UPDATE gateway.open_decisions SET result = NULL",
        "UPDATE gateway.open_decisions SET is_unknown = true",
        "UPDATE gateway.open_decisions SET snapshots = '{8}'",
    ],
)
async def test_a_row_that_no_entry_explains_is_noticed(
    module_services: Services, acme: Founded, tampering: str
) -> None:
    await decide(module_services, acme.log_id, snapshots=("7",))
    await check_agreement(module_services, acme.log_id)
    admin_dsn = module_services.installation.admin_dsn
    async with await psycopg.AsyncConnection.connect(admin_dsn, autocommit=True) as owner:
        await owner.execute(f"{tampering} WHERE log_id = {acme.log_id}".encode())
    with pytest.raises(AssertionError):
        await check_agreement(module_services, acme.log_id)


async def test_requirements_that_are_too_large_are_refused() -> None:
    large = {"type": "assert-ref-snapshot-id", "ref": "x" * REQUIREMENTS_SIZE_BYTES_MAX, "snapshot-id": 1}
    with pytest.raises(BadRequestError, match=r"^requirements: expected at most"):
        Forwarding(owner=OWNER, deadline=NOON, requirements=(large,), result=None)


async def test_the_state_of_a_table_is_what_it_is_not_when_it_was_written() -> None:
    table = {"table-uuid": "u", "last-updated-ms": 1, "metadata-log": [], "schemas": [{"schema-id": 0}]}
    same = {**table, "last-updated-ms": 2, "metadata-log": [{"timestamp-ms": 1}], "refs": {}, "statistics": None}
    assert state_digest(Change(metadata=table)) == state_digest(Change(metadata=same))
    for other in ({**table, "schemas": []}, {**table, "properties": {"a": "b"}}, {**table, "last-column-id": 0}):
        assert state_digest(Change(metadata=other)) != state_digest(Change(metadata=table))
    assert state_digest(Change()) is None
    assert replace(Change(), properties={}) != Change()
    assert state_digest(Change(properties={})) is not None
