# SPDX-License-Identifier: Apache-2.0
"""
Namespaces: created, changed and dropped, but never while they contain anything.
"""

from __future__ import annotations

import pytest

from testkit.gateway.log_contents import check_agreement, live_rows, words
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, SALES, TABLES, before_each_append, error_of
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_namespace_conflicts_and_is_not_dropped_while_it_holds_something(sales: Gateway) -> None:
    exists = await sales.http.post(NAMESPACES, json={"namespace": ["sales"]})
    assert (exists.status_code, error_of(exists)["type"]) == (409, "AlreadyExistsException")
    assert error_of(exists)["message"] == "Namespace already exists: sales"
    orphan = await sales.http.post(NAMESPACES, json={"namespace": ["no", "eu"]})
    assert (orphan.status_code, error_of(orphan)["message"]) == (404, "Namespace does not exist: no")
    assert (await sales.http.post(NAMESPACES, json={"namespace": ["sales", "eu"]})).status_code == 200
    full = await sales.http.delete(SALES)
    assert (full.status_code, error_of(full)["type"]) == (409, "NamespaceNotEmptyException")
    assert error_of(full)["message"] == "Namespace sales is not empty."
    await sales.http.delete(ORDERS)
    assert (await sales.http.delete(SALES)).status_code == 409, "it still holds sales.eu"
    assert (await sales.http.delete(f"{NAMESPACES}/sales%1Feu")).status_code == 204
    assert (await sales.http.delete(SALES)).status_code == 204
    assert await check_agreement(sales.services, sales.acme.log_id) == await live_rows(
        sales.services, sales.acme.log_id
    )
    assert (await sales.http.get(NAMESPACES)).json() == {"namespaces": []}


async def test_a_namespace_that_is_filled_while_it_is_dropped_stays(shared_gateway: Gateway) -> None:
    await shared_gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})

    async def fill(count: int) -> None:
        if count == 0:
            (await shared_gateway.http.post(TABLES, json=CREATE)).raise_for_status()

    answer = await shared_gateway.through(append=before_each_append(shared_gateway, fill)).delete(SALES)
    assert (answer.status_code, error_of(answer)["type"]) == (409, "NamespaceNotEmptyException")
    assert (await words(shared_gateway.services, shared_gateway.acme.log_id, key="namespace:lake/sales"))[
        -1
    ] == "conflicted"
    rows = await check_agreement(shared_gateway.services, shared_gateway.acme.log_id)
    assert ("lake", ("sales",)) in rows.namespaces


async def test_of_two_changes_to_a_namespaces_properties_none_is_lost(sales: Gateway) -> None:
    async def be_first(count: int) -> None:
        if count == 0:
            (await sales.http.post(f"{SALES}/properties", json={"updates": {"winner": "yes"}})).raise_for_status()

    client = sales.through(append=before_each_append(sales, be_first))
    assert (await client.post(f"{SALES}/properties", json={"updates": {"loser": "yes"}})).status_code == 200
    assert (await sales.http.get(SALES)).json()["properties"] == {"winner": "yes", "loser": "yes"}
    await check_agreement(sales.services, sales.acme.log_id)


async def test_the_largest_properties_of_a_namespace_can_be_replayed(shared_gateway: Gateway) -> None:
    # Every character takes two bytes in the body, four in the record, whose parts must hold all of it.
    body = {"namespace": ["sales"], "properties": {f"p{number}": '"' * 25_000 for number in range(10)}}
    assert (await shared_gateway.http.post(NAMESPACES, json=body)).status_code == 200
    rows = await check_agreement(shared_gateway.services, shared_gateway.acme.log_id)
    assert rows.namespaces["lake", ("sales",)] == body["properties"]


async def test_namespace_properties_are_set_removed_and_listed(sales: Gateway) -> None:
    await sales.http.post(f"{SALES}/properties", json={"updates": {"a": "1", "b": "2"}})
    body = {"updates": {"b": "3"}, "removals": ["a", "never", "a"]}
    answer = await sales.http.post(f"{SALES}/properties", json=body)
    assert answer.json() == {"updated": ["b"], "removed": ["a"], "missing": ["never"]}
    assert (await sales.http.get(SALES)).json() == {"namespace": ["sales"], "properties": {"b": "3"}}
    both = await sales.http.post(f"{SALES}/properties", json={"updates": {"a": "1"}, "removals": ["a"]})
    assert (both.status_code, error_of(both)["type"]) == (422, "UnprocessableEntityException")
    await check_agreement(sales.services, sales.acme.log_id)
