# SPDX-License-Identifier: Apache-2.0
"""
The Iceberg REST catalog's routes: which exist, how names are encoded in them, and the form of the answers.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from gateway.http.operations import BY_ID
from gateway.identifiers import Target
from testkit.gateway.log_contents import check_agreement, read_stored
from testkit.gateway.sales import (
    CREATE,
    NAMESPACES,
    ORDERS,
    ORDERS_KEY,
    SALES,
    SCHEMA,
    TABLES,
    error_of,
    new_key,
    properties,
)
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_what_is_advertised_is_exactly_what_exists(sales: Gateway) -> None:
    answer = (await sales.http.get("/v1/config?warehouse=lake")).json()
    assert answer["overrides"] == {"prefix": "iceberg/lake"}
    advertised = set(answer["endpoints"])
    names = {"namespace": "n", "table": "t", "view": "v", "plan-id": "p", "function": "f"}
    exists = set()
    for operation in BY_ID.values():
        probed = operation.path.format(prefix="iceberg/lake", **names)
        reply = await sales.client(None).request(operation.method, probed)
        if reply.status_code == 401 or (operation.id, reply.status_code) == ("getToken", 400):
            exists.add(operation.endpoint)
        else:
            assert reply.status_code in {404, 405}, operation.id
    # What engines ask before they know of a catalog is not among its endpoints.
    assert exists == advertised | {"GET /v1/config", "POST /v1/oauth/tokens"}


async def test_every_way_to_write_the_prefix_is_one(sales: Gateway) -> None:
    for prefix in ("iceberg/lake", "iceberg%2Flake", "iceberg%2flake"):
        answer = await sales.http.get(f"/v1/{prefix}/namespaces/sales/tables/orders")
        assert answer.status_code == 200, prefix
        body = properties(prefix=quote(prefix))
        assert (await sales.http.post(f"/v1/{prefix}/namespaces/sales/tables/orders", json=body)).status_code == 200
    for other in ("%69ceberg/lake", "iceberg//lake", "Iceberg/lake", "iceberg/lake/", "iceberg%252Flake"):
        assert (await sales.http.get(f"/v1/{other}/namespaces/sales")).status_code == 404, other


async def test_an_unregistered_alias_does_not_exist(sales: Gateway) -> None:
    for method, path in (
        ("GET", "/v1/config?warehouse=sea"),
        ("GET", "/v1/iceberg/sea/namespaces"),
        ("GET", "/v1/iceberg/sea/namespaces/sales/tables/orders"),
        ("DELETE", "/v1/iceberg/sea/namespaces/sales/tables/orders"),
    ):
        answer = await sales.http.request(method, path)
        assert (answer.status_code, error_of(answer)["message"]) == (404, "Catalog does not exist: sea")


NAMES = [
    "plain",
    "two words",
    "spaces  within",
    "a.b",
    "a/b",
    "...",
    ".a",
    "100%",
    "%2F",
    "q?a=b&c#d",
    'say "x"',
    "it's",
    "back\\slash",
    "semi;colon",
    "ünïcödé",
    "表格",
    "😀",
    "\u1eb9\u0301",
    "\u00e9",
    "{brace}",
    "$dollar$",
    "--",
    "NULL",
    "x" * 255,
]


async def test_names_of_all_kinds_travel_unharmed(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    for name in NAMES:
        segment = quote(name, safe="")
        for levels in ([name], [name, name]):
            answer = await http.post(NAMESPACES, json={"namespace": levels, "properties": {name: name}})
            assert answer.status_code == 200, (name, answer.text)
            path = f"{NAMESPACES}/{'%1F'.join([segment] * len(levels))}"
            assert (await http.get(path)).json() == {"namespace": levels, "properties": {name: name}}
        created = await http.post(f"{path}/tables", json={**CREATE, "name": name})
        assert created.status_code == 200, (name, created.text)
        table = f"{path}/tables/{segment}"
        assert (await http.post(table, json=properties(**{name: name}))).status_code == 200, name
        assert (await http.get(table)).json()["metadata"]["properties"][name] == name
        listed = (await http.get(f"{path}/tables")).json()["identifiers"]
        assert listed == [{"namespace": levels, "name": name}]
        children = (await http.get(f"{NAMESPACES}?parent={segment}")).json()["namespaces"]
        assert children == [levels]
    assert len((await http.get(NAMESPACES)).json()["namespaces"]) == len(NAMES), "no two names are one"
    rows = await check_agreement(shared_gateway.services, shared_gateway.acme.log_id)
    assert {name for _, _, name in rows.tables} == set(NAMES)
    keys = {told.entry.key for told in await read_stored(shared_gateway.services, shared_gateway.acme.log_id)}
    for name in NAMES:
        assert Target(alias="lake", namespace=(name, name), name=name).key in keys


async def test_names_are_as_long_as_their_key_may_be(shared_gateway: Gateway) -> None:
    http = shared_gateway.http
    levels = [f"{number}{'x' * 244}" for number in range(6)]
    for depth in range(1, 7):
        assert (await http.post(NAMESPACES, json={"namespace": levels[:depth]})).status_code == 200
    path = f"{NAMESPACES}/{'%1F'.join(levels)}/tables"
    room = 2_000 - len(Target(alias="lake", namespace=tuple(levels), name="x").key) + 1
    assert (await http.post(path, json={**CREATE, "name": "t" * min(255, room)})).status_code == 200
    over = await http.post(path, json={**CREATE, "name": "ü" * 255})
    assert (over.status_code, error_of(over)["message"].split(":")[0]) == (400, "table")


async def test_errors_to_head_have_no_body(sales: Gateway) -> None:
    assert (await sales.http.head(ORDERS)).status_code == 204
    assert (await sales.http.head(SALES)).status_code == 204
    for path, status in (
        (f"{TABLES}/nothing", 404),
        (f"{NAMESPACES}/nothing", 404),
        (f"{NAMESPACES}/nothing/tables/nothing", 404),
        (f"{NAMESPACES}/%FF", 400),
        ("/v1/iceberg/sea/namespaces/sales", 404),
        (NAMESPACES, 405),
        ("/v1/nothing", 404),
        (f"{NAMESPACES}/{'x' * 20_000}", 414),
    ):
        answer = await sales.http.head(path)
        assert (answer.status_code, answer.content) == (status, b""), path
    answer = await sales.client(None).head(ORDERS)
    assert (answer.status_code, answer.content, answer.headers["www-authenticate"]) == (401, b"", "Bearer")


@pytest.mark.parametrize(("asked", "purges"), [("True", True), ("true", True), ("False", False), ("yes", False)])
async def test_a_purge_is_recorded_with_the_drop_that_asks_for_it(sales: Gateway, asked: str, *, purges: bool) -> None:
    assert (await sales.http.delete(f"{ORDERS}?purgeRequested={asked}")).status_code == 204
    stored = await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY)
    assert [one.entry.type for one in stored[2:]] == [
        "commit.decided",
        "commit.settled",
        *(["purge.requested"] if purges else []),
    ]
    assert len({one.entry.group_id for one in stored[2:]}) == 1


async def test_a_table_with_too_many_places_for_an_entry_is_not_purged(sales: Gateway) -> None:
    folder = (await sales.http.get(ORDERS)).json()["metadata"]["location"] + "-"
    folders = {f"{number}.path": f"{folder}{number}/{'x' * 200}/{'y' * 200}" for number in range(40)}
    assert (await sales.http.post(ORDERS, json=properties(**folders))).status_code == 200
    answer = await sales.http.delete(f"{ORDERS}?purgeRequested=true")
    assert (answer.status_code, error_of(answer)["type"]) == (406, "UnsupportedOperationException")
    assert "drop without purge" in error_of(answer)["message"]
    assert (await sales.http.delete(ORDERS)).status_code == 204


async def test_under_one_key_a_drop_and_a_drop_with_a_purge_are_two_requests(sales: Gateway) -> None:
    key = new_key()
    for _ in range(2):
        assert (await sales.http.delete(f"{ORDERS}?purgeRequested=true", headers=key)).status_code == 204
    assert (await sales.http.delete(ORDERS, headers=key)).status_code == 422


async def test_a_table_is_loaded_as_it_was_committed(sales: Gateway) -> None:
    committed = (await sales.http.post(ORDERS, json=properties(a="b"))).json()
    loaded = (await sales.http.get(ORDERS)).json()
    assert loaded["metadata"] == committed["metadata"]
    assert loaded["metadata-location"] == committed["metadata-location"]


async def test_only_the_snapshots_that_refs_name_are_loaded_on_request(sales: Gateway) -> None:
    updates: list[dict[str, Any]] = []
    location = (await sales.http.get(ORDERS)).json()["metadata"]["location"]
    for number in (1, 2):
        snapshot: dict[str, Any] = {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": 32_503_680_000_000 + number,
            "manifest-list": f"{location}/metadata/{number}.avro",
            "summary": {"operation": "append"},
            "schema-id": 0,
        }
        updates.append({"action": "add-snapshot", "snapshot": snapshot})
    updates.append({"action": "set-snapshot-ref", "ref-name": "tag", "type": "tag", "snapshot-id": 1})
    answer = await sales.http.post(ORDERS, json={"requirements": [], "updates": updates})
    assert answer.status_code == 200, answer.text
    every = (await sales.http.get(f"{ORDERS}?snapshots=all")).json()["metadata"]
    named = (await sales.http.get(f"{ORDERS}?snapshots=refs")).json()["metadata"]
    assert [one["snapshot-id"] for one in every["snapshots"]] == [1, 2]
    assert [one["snapshot-id"] for one in named["snapshots"]] == [1]
    decision, outcome = (await read_stored(sales.services, sales.acme.log_id))[-2:]
    assert decision.decided.snapshots == outcome.settled.snapshots == ("1", "2")


async def test_unknown_members_survive(sales: Gateway) -> None:
    schema: dict[str, Any] = {**SCHEMA, "schema-id": 1, "x-note": {"deep": [1, None, "ü"]}}
    updates = [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}]
    fields = [*SCHEMA["fields"], {"id": 2, "name": "n", "type": "string", "required": False, "x-tag": 7}]
    schema["fields"] = fields
    assert (await sales.http.post(ORDERS, json={"requirements": [], "updates": updates})).status_code == 200
    found = (await sales.http.get(ORDERS)).json()["metadata"]["schemas"][-1]
    assert (found["x-note"], found["fields"][1]["x-tag"]) == ({"deep": [1, None, "ü"]}, 7)


async def test_of_two_spellings_of_one_letter_one_is_a_name(shared_gateway: Gateway) -> None:
    await shared_gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})
    made = [
        (await shared_gateway.http.post(TABLES, json={**CREATE, "name": name})).status_code
        for name in ("caf\u00e9", "cafe\u0301")
    ]
    assert made == [200, 400]
