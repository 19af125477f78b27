# SPDX-License-Identifier: Apache-2.0
"""
What a tenant is told of itself: its log and what is in force, purges, drops, and messages that were given up.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.http import tenant_routes
from gateway.http.tenant_routes import FILTER_LENGTH_MAX
from ledger.store.read import read_head
from streams.connections import connect_storing
from streams.handler import DeadLetter, Message
from streams.state.dead_letters import put
from testkit.gateway.sales import CREATE, ORDERS, TABLES, another_key, error_of
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def shown(gateway: Gateway, path: str) -> dict[str, Any]:
    answer = await gateway.http.get(path)
    assert answer.status_code == 200, answer.text
    members: dict[str, Any] = answer.json()
    return members


async def test_a_tenant_is_shown_with_what_is_in_force_for_it(sales: Gateway) -> None:
    tenant = await shown(sales, "/v1/tenant")
    async with sales.services.gateway.database.as_role(sales.services.gateway.roles.auditor) as connection:
        size = (await read_head(connection, sales.acme.log_id)).size
    settings = [
        {"id": "lineage-cycles", "version": 0, "value": "refuse"},
        {"id": "policy-review", "version": 0, "value": "none"},
    ]
    (first,) = (await shown(sales, "/v1/log/entries?order=oldest&limit=1"))["entries"]
    assert tenant == {
        "id": sales.acme.tenant.hex,
        "name": "acme",
        "log": sales.acme.origin,
        "founded_at": first["recorded_at"],
        "entries": size,
        "checkpoint_size": 0,
        "verifier_keys": None,  # this process has none
        "catalogs": ["lake"],
        "policies": 0,
        "access_rules": 1,
        "keys": 1,
        "settings": settings,
    }


async def test_drops_and_purges_are_listed_apart(sales: Gateway) -> None:
    assert await shown(sales, "/v1/drops") == {"drops": [], "has_older": False}
    assert await shown(sales, "/v1/purges") == {"purges": [], "has_older": False}
    location = (await sales.http.get(ORDERS)).json()["metadata-location"]
    assert (await sales.http.delete(ORDERS)).status_code == 204
    found = await shown(sales, "/v1/drops?alias=lake")
    (drop,) = found["drops"]
    assert (drop["table"], drop["metadata_location"], drop["metadata_exists"]) == ("lake.sales.orders", location, True)
    assert await shown(sales, "/v1/purges") == {"purges": [], "has_older": False}
    unknown = await sales.http.get("/v1/drops?alias=sea")
    assert (unknown.status_code, error_of(unknown)["type"]) == (404, "NotFoundException")


async def test_a_purge_is_listed_until_it_is_completed_and_after(sales: Gateway) -> None:
    assert (await sales.http.delete(f"{ORDERS}?purgeRequested=true")).status_code == 204
    found = await shown(sales, "/v1/purges")
    (purge,) = found["purges"]
    assert found["has_older"] is False
    assert (purge["table"], purge["state"], purge["kept"]) == ("lake.sales.orders", "open", None)
    assert await shown(sales, "/v1/drops") == {"drops": [], "has_older": False}


async def test_older_purges_than_are_looked_at_are_said_to_be_there(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        assert (await sales.http.delete(f"{ORDERS}?purgeRequested=true")).status_code == 204
        assert (await sales.http.post(TABLES, json=CREATE)).status_code == 200
    every = await shown(sales, "/v1/purges")
    monkeypatch.setattr(tenant_routes, "PURGE_ENTRIES_MAX", 1)
    assert await shown(sales, "/v1/purges") == {"purges": every["purges"][1:], "has_older": True}


async def test_older_drops_than_are_looked_at_are_said_to_be_there(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_routes, "DROPS_MAX", 0)
    assert (await sales.http.delete(ORDERS)).status_code == 204
    assert await shown(sales, "/v1/drops") == {"drops": [], "has_older": True}


async def test_the_log_is_searched_for_drops_once_at_a_time(sales: Gateway) -> None:
    lock: asyncio.Lock = sales.app.state.reading_drops
    async with lock:
        busy = await sales.http.get("/v1/drops")
    assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")
    assert (await sales.http.get("/v1/drops")).status_code == 200


async def test_dead_letters_of_the_own_log_are_listed_without_what_they_hold(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = sales.services
    (log,) = [log for log in await services.logs() if log.log_id == sales.acme.log_id]
    streams = services.installation.as_role(services.installation.roles.streams)
    dead = [
        DeadLetter(message=Message(log=log, id=f"m{number}", value=b"hunter2"), reason="not JSON", attempts=1)
        for number in range(3)
    ]
    async with connect_storing(streams) as connection, connection.transaction():
        await put(connection, "handler:receive", dead)
    answer = await sales.http.get("/v1/dead-letters")
    assert "hunter2" not in answer.text
    letters = answer.json()["dead-letters"]
    assert [(each["id"], each["reason"], each["attempts"]) for each in letters] == [
        (f"m{number}", "not JSON", 1) for number in range(3)
    ]
    assert await shown(sales, "/v1/dead-letters?source=handler:other") == {"dead-letters": [], "has_more": False}
    monkeypatch.setattr(tenant_routes, "LETTERS_MAX", 2)
    some = await shown(sales, "/v1/dead-letters?source=handler:receive")
    assert ([each["id"] for each in some["dead-letters"]], some["has_more"]) == (["m0", "m1"], True)


@pytest.mark.parametrize("path", ["/v1/drops?alias=", "/v1/dead-letters?source="])
async def test_a_parameter_is_bounded(module_gateway: Gateway, path: str) -> None:
    for wrong in ("x" * (FILTER_LENGTH_MAX + 1), "", "%00", "a%0Bb"):
        refused = await module_gateway.http.get(path + wrong)
        assert (refused.status_code, error_of(refused)["type"]) == (400, "BadRequestException"), wrong


async def test_who_may_read_the_log_and_no_more_sees_what_it_tells_and_not_the_tenant(sales: Gateway) -> None:
    rule = {"id": "readers", "effect": "permit", "expression": "'reader' in roles && contentType == 'LOG'"}
    assert (await sales.http.post("/v1/access-rules", json=rule)).status_code == 201
    reader = sales.client(await another_key(sales, "rae@acme.example", "reader"))
    for path, status in (("purges", 200), ("drops", 200), ("dead-letters", 200), ("tenant", 403)):
        assert (await reader.get(f"/v1/{path}")).status_code == status, path
