# SPDX-License-Identifier: Apache-2.0
"""
The table `sales.orders` of catalog `lake`, as most tests of the gateway use it: where it is, and requests about it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import httpx

from gateway.admin.application import OPERATOR
from gateway.identity.api_keys import parse_key
from ledger.format.event import random_group_id
from ledger.format.sequence import Appended, Group, Stale
from testkit.gateway.log_contents import live_rows, path_of
from testkit.servers.gateways import Gateway

NAMESPACES = "/v1/iceberg/lake/namespaces"
SALES = f"{NAMESPACES}/sales"
TABLES = f"{SALES}/tables"
ORDERS = f"{TABLES}/orders"
ORDERS_KEY = "table:lake/sales/orders"
SCHEMA: dict[str, Any] = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": True}]}
CREATE: dict[str, Any] = {"name": "orders", "schema": SCHEMA}

Append = Callable[[int, Group], Awaitable[Appended | Stale]]


async def create_orders(http: httpx.AsyncClient) -> None:
    """Make the namespace and the table."""
    assert (await http.post(NAMESPACES, json={"namespace": ["sales"]})).status_code == 200
    assert (await http.post(TABLES, json=CREATE)).status_code == 200


def properties(requirements: Sequence[Mapping[str, Any]] = (), /, **texts: str) -> dict[str, Any]:
    """A commit that sets properties of a table."""
    return {"requirements": list(requirements), "updates": [{"action": "set-properties", "updates": texts}]}


def new_key() -> dict[str, str]:
    """A header Idempotency-Key with a key of its own: a UUIDv7."""
    return {"Idempotency-Key": str(random_group_id(now_ms=1_790_000_000_000, random=os.urandom(10)))}


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error that an answer holds."""
    error: dict[str, Any] = answer.json()["error"]
    return error


async def location_of_orders(gateway: Gateway) -> str:
    """Where the pointer of `sales.orders` points."""
    rows = await live_rows(gateway.services, gateway.acme.log_id)
    return rows.tables["lake", ("sales",), "orders"][1]


def files_beside(location: str) -> set[str]:
    """The files of the folder of a metadata file."""
    return {str(path) for path in path_of(location).parent.iterdir()}


async def another_key(gateway: Gateway, identity: str = "eve@acme.example", *roles: str) -> str:
    """A key of another identity of the same tenant, which no rule permits anything yet."""
    issued = await gateway.services.gateway.admin.create_key(
        gateway.acme.log_id, OPERATOR, identity=identity, roles=roles
    )
    return issued.secret


async def revoke(gateway: Gateway, secret: str) -> None:
    """Revoke the key with that secret."""
    keys = (await gateway.http.get("/v1/keys")).json()["keys"]
    (found,) = [each["id"] for each in keys if each["prefix"] == parse_key(secret).prefix]
    assert (await gateway.http.delete(f"/v1/keys/{found}")).status_code == 204


async def another_guest(gateway: Gateway, identity: str = "eve@acme.example") -> str:
    """A key of another identity, which is permitted one namespace and nothing else: the catalog exists to it."""
    await gateway.services.gateway.admin.create_access_rule(
        gateway.acme.log_id,
        OPERATOR,
        rule_id="guests",
        effect="permit",
        expression="'guest' in roles && path == 'elsewhere'",
    )
    return await another_key(gateway, identity, "guest")


def before_each_append(gateway: Gateway, act: Callable[[int], Awaitable[object]]) -> Append:
    """The log's append, which calls `act` with the number of appends before, right before it."""
    count = 0

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        nonlocal count
        await act(count)
        count += 1
        return await gateway.services.gateway.append(log_id, group, **after)

    return append
