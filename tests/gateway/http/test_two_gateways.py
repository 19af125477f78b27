# SPDX-License-Identifier: Apache-2.0
"""
Two gateways over one database: what one of them has made durable, the other knows at its next request, also while it
is busy. Each has its own caches, and its own exchange under way with the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest_asyncio

from gateway.admin.application import OPERATOR
from lakeproof.provision import Provisioned
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, TABLES, create_orders, properties
from testkit.servers.gateways import Gateway, app_of, open_gateway, start_services

BUSY = 12
"""Clients that ask without a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    """The gateway `here`, where things are changed, and a client of the same tenant at the other one."""

    here: Gateway
    there: httpx.AsyncClient

    def there_as(self, key: str) -> httpx.AsyncClient:
        """Return a client of the other gateway with another key."""
        return httpx.AsyncClient(
            transport=self.there._transport, base_url="http://there", headers={"Authorization": f"Bearer {key}"}
        )


@pytest_asyncio.fixture
async def both(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Both]:
    """Two gateways, and the table `sales.orders`; the other one has loaded it before."""
    async with (
        start_services(database, installation, tmp_path) as services,
        start_services(database, installation, tmp_path) as others,
        open_gateway(services) as here,
        open_gateway(others, here.acme, app_of(others.gateway)) as there,
    ):
        await create_orders(here.http)
        assert (await there.http.get(ORDERS)).status_code == 200
        yield Both(here=here, there=there.http)


async def while_busy(http: httpx.AsyncClient, change: Callable[[], Awaitable[object]]) -> list[int]:
    """
    Load the table again and again, from many clients, while `change` is made; return the statuses of those requests
    that began when it was durable.
    """
    is_changed, late, earlier = asyncio.Event(), list[int](), list[int]()

    async def ask() -> None:
        while True:
            counted = late if is_changed.is_set() else earlier
            counted.append((await http.get(ORDERS)).status_code)
            if len(late) >= 5 * BUSY:
                return

    async with asyncio.TaskGroup() as tasks:
        for _ in range(BUSY):
            tasks.create_task(ask())
        while len(earlier) < BUSY:  # noqa: ASYNC110 - until the first answers are there
            await asyncio.sleep(0)
        await change()
        is_changed.set()
    assert set(earlier[:BUSY]) == {200}
    return late


async def test_a_key_that_one_gateway_revokes_is_refused_by_the_other(both: Both) -> None:
    admin, log_id = both.here.services.gateway.admin, both.here.acme.log_id
    issued = await admin.create_key(log_id, OPERATOR, identity="ada@acme.example", roles=["data-eng"])
    async with both.there_as(issued.secret) as http:
        await permit_everybody(both)
        assert (await http.get(ORDERS)).status_code == 200
        late = await while_busy(http, lambda: admin.revoke_key(log_id, OPERATOR, key_id=issued.id))
        assert set(late) == {401}
        for method, path in (("HEAD", ORDERS), ("POST", ORDERS), ("GET", "/v1/config?warehouse=lake")):
            assert (await http.request(method, path)).status_code == 401
    assert (await both.there.get(ORDERS)).status_code == 200


async def permit_everybody(both: Both) -> None:
    """Permit everybody everything."""
    admin, log_id = both.here.services.gateway.admin, both.here.acme.log_id
    await admin.create_access_rule(log_id, OPERATOR, rule_id="all", effect="permit", expression="true")


async def test_a_rule_that_one_gateway_retires_permits_nothing_at_the_other(both: Both) -> None:
    admin, log_id = both.here.services.gateway.admin, both.here.acme.log_id
    await permit_everybody(both)
    issued = await admin.create_key(log_id, OPERATOR, identity="eve@acme.example", roles=[])
    async with both.there_as(issued.secret) as http:
        late = await while_busy(http, lambda: admin.retire_access_rule(log_id, OPERATOR, rule_id="all"))
        assert set(late) == {403}


async def test_a_rule_that_one_gateway_adds_forbids_at_the_other(both: Both) -> None:
    admin, log_id = both.here.services.gateway.admin, both.here.acme.log_id
    late = await while_busy(
        both.there,
        lambda: admin.create_access_rule(
            log_id, OPERATOR, rule_id="closed", effect="forbid", expression="path == 'sales.orders'"
        ),
    )
    assert set(late) == {403}
    assert (await both.there.post(ORDERS, json=properties(a="b"))).status_code == 403


async def test_a_person_who_is_erased_is_refused_at_the_next_request(both: Both, database: str) -> None:
    async def erase() -> None:
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as owner:
            await owner.execute("DELETE FROM ledger.subjects WHERE log_id = %s", (both.here.acme.log_id,))

    assert set(await while_busy(both.there, erase)) == {401}


async def test_a_table_that_one_gateway_changes_is_the_changed_one_at_the_other(both: Both) -> None:
    http, there = both.here.http, both.there
    for number in range(10):
        tag = (await there.get(ORDERS)).headers["etag"]
        committed = await http.post(ORDERS, json=properties(n=str(number)))
        assert committed.status_code == 200
        loaded = await there.get(ORDERS, headers={"If-None-Match": tag})
        assert loaded.status_code == 200
        assert loaded.json()["metadata-location"] == committed.json()["metadata-location"]
        assert loaded.json()["metadata"]["properties"]["n"] == str(number)
    assert set(await while_busy(there, lambda: http.delete(ORDERS))) == {404}
    assert (await there.head(ORDERS)).status_code == 404
    assert (await http.post(TABLES, json=CREATE)).status_code == 200
    assert (await there.head(ORDERS)).status_code == 204


async def test_a_catalog_that_one_gateway_retires_is_gone_at_the_other(both: Both) -> None:
    admin, log_id = both.here.services.gateway.admin, both.here.acme.log_id
    await admin.create_catalog(log_id, OPERATOR, alias="second", kind="builtin", options={})
    second = NAMESPACES.replace("/lake/", "/second/")
    assert (await both.there.post(second, json={"namespace": ["n"]})).status_code == 200
    await admin.retire_catalog(log_id, OPERATOR, alias="second")
    assert (await both.there.get(f"{second}/n/tables/t")).json()["error"]["message"] == "Catalog does not exist: second"
