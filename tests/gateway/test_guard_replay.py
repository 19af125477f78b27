# SPDX-License-Identifier: Apache-2.0
"""
The catalog's rows follow from the log: whatever engines do, replaying entries and parts gives the same rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from testkit.gateway.log_contents import (
    Rows,
    StoredEntry,
    check_agreement,
    check_deeply,
    live_rows,
    read_stored,
    replay,
)
from testkit.gateway.sales import CREATE, properties
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMESPACES = (("a",), ("a", "b"), ("a", "b", "c"), ("d e",))
TABLES = ("t", "ü/ü")
TEXTS = ("1", "2", "no")
ANSWERS = {200, 204, 400, 403, 404, 406, 409, 422}

_aliases = (f"alias-{number}" for number in count())


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of an engine, without the alias it goes to."""

    verb: str
    namespace: tuple[str, ...]
    table: str
    text: str

    def send(self, http: httpx.AsyncClient, alias: str) -> Awaitable[httpx.Response]:
        """Send it."""
        namespaces = f"/v1/iceberg/{alias}/namespaces"
        namespace = f"{namespaces}/{quote(chr(0x1F).join(self.namespace), safe='')}"
        table = f"{namespace}/tables/{quote(self.table, safe='')}"
        body: dict[str, Any]
        match self.verb:
            case "create namespace":
                body = {"namespace": self.namespace, "properties": {"p": self.text}}
                return http.post(namespaces, json=body)
            case "update namespace":
                return http.post(f"{namespace}/properties", json={"updates": {"p": self.text, "q": "1"}})
            case "remove property":
                return http.post(f"{namespace}/properties", json={"updates": {}, "removals": ["p", "never"]})
            case "drop namespace":
                return http.delete(namespace)
            case "create table":
                return http.post(f"{namespace}/tables", json={**CREATE, "name": self.table})
            case "stage table":
                return http.post(f"{namespace}/tables", json={**CREATE, "name": self.table, "stage-create": True})
            case "commit":
                return http.post(table, json=properties(p=self.text))
            case "commit to what was":
                requirement = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7}
                return http.post(table, json=properties([requirement], p=self.text))
            case "drop table":
                return http.delete(table)
            case _:
                return http.delete(f"{table}?purgeRequested=true")


VERBS = (
    "create namespace",
    "create namespace",
    "update namespace",
    "remove property",
    "drop namespace",
    "create table",
    "create table",
    "stage table",
    "commit",
    "commit",
    "commit to what was",
    "drop table",
    "purge table",
)
requests = st.builds(
    Request,
    verb=st.sampled_from(VERBS),
    namespace=st.sampled_from(NAMESPACES),
    table=st.sampled_from(TABLES),
    text=st.sampled_from(TEXTS),
)
histories = st.lists(st.lists(requests, min_size=1, max_size=3), min_size=1, max_size=12)


async def play(gateway: Gateway, history: Sequence[Sequence[Request]]) -> str:
    """Send what stands together at once, one after the other what does not; return the alias it was sent to."""
    alias = next(_aliases)
    await gateway.services.gateway.admin.create_catalog(
        gateway.acme.log_id, OPERATOR, alias=alias, kind="builtin", options={}
    )
    for together in history:
        for answer in await asyncio.gather(*(request.send(gateway.http, alias) for request in together)):
            assert answer.status_code in ANSWERS, answer.text
    return alias


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories)
async def test_the_rows_are_what_the_log_says(shared_gateway: Gateway, history: list[list[Request]]) -> None:
    policies = await shared_gateway.services.gateway.admin.list_policies(shared_gateway.acme.log_id)
    if not policies:
        await shared_gateway.services.gateway.admin.create_policy(
            shared_gateway.acme.log_id,
            OPERATOR,
            policy_id="p",
            text=PolicyText(
                expression="!result.exists || !('p' in result.properties) || result.properties['p'] != 'no'",
                message="p says no",
            ),
        )
    await play(shared_gateway, history)
    await check_agreement(shared_gateway.services, shared_gateway.acme.log_id)
    await check_deeply(shared_gateway.services, shared_gateway.acme.log_id)


DONE: list[list[Request]] = [
    [Request(verb=verb, namespace=("a",), table="t", text="1")]
    for verb in ("create namespace", "update namespace", "create table", "commit")
]


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE gateway.tables SET metadata_location = metadata_location || 'x'",
        "UPDATE gateway.tables SET metadata_sha256 = repeat('0', 64)",
        "UPDATE gateway.tables SET table_uuid = gen_random_uuid()",
        "UPDATE gateway.tables SET name = 'u'",
        "DELETE FROM gateway.tables",
        """UPDATE gateway.namespaces SET properties = '{"p": "2", "q": "1"}'""",
        "INSERT INTO gateway.namespaces SELECT log_id, alias, '{z}', '{}' FROM gateway.namespaces",
    ],
)
async def test_a_row_that_no_entry_explains_is_noticed(shared_gateway: Gateway, tampering: str) -> None:
    await play(shared_gateway, DONE)
    rows = await check_agreement(shared_gateway.services, shared_gateway.acme.log_id)
    assert (len(rows.namespaces), len(rows.tables)) == (1, 1)
    column = " AND" if " WHERE " in tampering else " WHERE"
    admin_dsn = shared_gateway.services.installation.admin_dsn
    async with await psycopg.AsyncConnection.connect(admin_dsn, autocommit=True) as owner:
        await owner.execute(f"{tampering}{column} log_id = {shared_gateway.acme.log_id}".encode())
    with pytest.raises(AssertionError):
        await check_agreement(shared_gateway.services, shared_gateway.acme.log_id)


def differs(told: Sequence[StoredEntry], live: Rows) -> bool:
    """Tell whether a log leads elsewhere than to `live`, or nowhere, because an entry does not fit those before it."""
    try:
        return replay(told) != live
    except (AssertionError, KeyError):
        return True


async def test_an_entry_that_no_row_shows_is_noticed(shared_gateway: Gateway) -> None:
    await play(shared_gateway, DONE)
    told = await read_stored(shared_gateway.services, shared_gateway.acme.log_id)
    live = await live_rows(shared_gateway.services, shared_gateway.acme.log_id)
    assert not differs(told, live)
    assert differs(told[:-1], live), "the last commit is missing"
    for position, one in enumerate(told):
        if one.entry.type == "commit.settled":
            refused = replace(one, entry=replace(one.entry, data={**one.entry.data, "outcome": "conflicted"}))
            altered = [*told[:position], refused, *told[position + 1 :]]
            assert differs(altered, live), "the change of this entry is missing"
