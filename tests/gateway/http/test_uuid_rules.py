# SPDX-License-Identifier: Apache-2.0
"""
Access rules that name a table by its uuid follow it when it is renamed, and never another table of its former name.
So do policies, in foreign catalogs too (`tests/gateway/commit/test_policy_scopes.py` has the built-in ones).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from gateway.admin.application import OPERATOR
from gateway.commit.known_uuids import upstream_uuid
from gateway.policy.rule_files import PREFIX
from lakeproof.services import Services
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, SCHEMA, TABLES, another_key, create_orders, properties
from testkit.gateway.view_requests import VIEWS, view_created
from testkit.servers.chained import BEYOND, Chained, open_chain, register
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

RENAME = "/v1/iceberg/lake/tables/rename"
OTHER = f"{TABLES}/other"
FAR = f"/v1/iceberg/{BEYOND}/namespaces"
FAR_ORDERS = f"{FAR}/sales/tables/orders"
ASKS = "gateway.http.reads.upstream_uuid"


async def rule(gateway: Gateway, rule_id: str, effect: str, expression: str) -> None:
    await gateway.services.gateway.admin.create_access_rule(
        gateway.acme.log_id, OPERATOR, rule_id=rule_id, effect=effect, expression=expression
    )


async def uuid_of(http: httpx.AsyncClient, path: str = ORDERS) -> str:
    found: str = (await http.get(path)).json()["metadata"]["table-uuid"]
    return found


async def rename(http: httpx.AsyncClient, source: str, destination: str, path: str = RENAME) -> int:
    named = [{"namespace": ["sales"], "name": name} for name in (source, destination)]
    return (await http.post(path, json={"source": named[0], "destination": named[1]})).status_code


async def statuses(http: httpx.AsyncClient, path: str) -> list[int]:
    """Of a load, a check for existence, and a commit."""
    answers = [await http.get(path), await http.head(path), await http.post(path, json=properties(a="b"))]
    return [answer.status_code for answer in answers]


async def test_a_rule_by_uuid_follows_the_table_and_not_the_name(sales: Gateway) -> None:
    uuid = await uuid_of(sales.http)
    intern = sales.client(await another_key(sales, "ian@acme.example", "intern"))
    await rule(sales, "interns", "permit", "'intern' in roles && catalog == 'lake'")
    assert await statuses(intern, ORDERS) == [200, 204, 200]
    await rule(sales, "not-orders", "forbid", f"uuid == '{uuid}' && 'intern' in roles")
    assert await statuses(intern, ORDERS) == [403] * 3
    assert await rename(sales.http, "orders", "other") == 204
    assert await statuses(intern, OTHER) == [403] * 3, "it is the same table"
    assert await statuses(intern, ORDERS) == [404] * 3, "there is none of that name, and no rule about that"
    (await intern.post(TABLES, json=CREATE)).raise_for_status()
    assert await statuses(intern, ORDERS) == [200, 204, 200], "it is another table"
    assert await rename(intern, "other", "third") == 403
    assert await rename(intern, "orders", "fourth") == 204
    assert (await intern.delete(OTHER)).status_code == 403


async def test_a_permission_by_uuid_is_one_of_this_table_alone(sales: Gateway) -> None:
    uuid = await uuid_of(sales.http)
    (await sales.http.post(TABLES, json={"name": "other", "schema": SCHEMA})).raise_for_status()
    wim = sales.client(await another_key(sales, "wim@acme.example", "writer"))
    await rule(sales, "orders", "permit", f"uuid == '{uuid}' && 'writer' in roles")
    assert await statuses(wim, ORDERS) == [200, 204, 200]
    assert await statuses(wim, OTHER) == [403] * 3
    assert (await wim.get(f"{TABLES}/none")).status_code == 403
    # The names change hands: what was judged before is not what is judged now.
    assert await rename(sales.http, "orders", "parked") == 204
    assert await rename(sales.http, "other", "orders") == 204
    assert await rename(sales.http, "parked", "other") == 204
    assert await statuses(wim, ORDERS) == [403] * 3
    assert await statuses(wim, OTHER) == [200, 204, 200]
    assert await rename(wim, "other", "mine") == 204
    assert (await wim.post(TABLES, json={"name": "new", "schema": SCHEMA})).status_code == 403, "it has no uuid yet"


async def test_a_table_that_is_registered_again_is_the_one_that_the_rule_names(sales: Gateway) -> None:
    loaded = (await sales.http.get(ORDERS)).json()
    uuid, location = loaded["metadata"]["table-uuid"], loaded["metadata-location"]
    intern = sales.client(await another_key(sales, "ian@acme.example", "intern"))
    await rule(sales, "interns", "permit", "'intern' in roles && catalog == 'lake'")
    await rule(sales, "not-orders", "forbid", f"uuid == '{uuid}' && op == 'CREATE_ENTITY'")
    (await sales.http.delete(ORDERS)).raise_for_status()
    body = {"name": "back", "metadata-location": location}
    assert (await intern.post(f"{NAMESPACES}/sales/register", json=body)).status_code == 403
    assert (await sales.http.delete("/v1/access-rules/not-orders")).status_code == 204
    assert (await intern.post(f"{NAMESPACES}/sales/register", json=body)).status_code == 200
    assert await uuid_of(intern, f"{TABLES}/back") == uuid


async def test_views_have_uuids_too_and_all_else_has_none(sales: Gateway) -> None:
    made = await sales.http.post(VIEWS, json=view_created("report"))
    made.raise_for_status()
    uuid = made.json()["metadata"]["view-uuid"]
    rita = sales.client(await another_key(sales, "rita@acme.example", "reader"))
    await rule(sales, "report", "permit", f"'reader' in roles && uuid == '{uuid}'")
    await rule(sales, "rest", "permit", "'reader' in roles && uuid == '' && contentType == 'NAMESPACE'")
    assert (await rita.get(f"{VIEWS}/report")).status_code == 200
    assert (await rita.get(f"{TABLES}/report")).status_code == 403, "a view is no table"
    assert (await rita.get(f"{NAMESPACES}/sales")).status_code == 200
    assert (await rita.get("/v1/policies")).status_code == 403


async def test_an_imported_rule_may_name_a_uuid_and_the_check_of_a_reference_has_none(sales: Gateway) -> None:
    uuid = await uuid_of(sales.http)
    rita = sales.client(await another_key(sales, "rita@acme.example", "reader"))
    file = f"{PREFIX}orders=op == 'READ_ENTITY_VALUE' && uuid == '{uuid}' && 'reader' in roles\n"
    (await sales.http.post("/v1/access-rules/import", json={"file": file})).raise_for_status()
    assert (await rita.get(ORDERS)).status_code == 200
    assert await rename(sales.http, "orders", "other") == 204
    assert (await rita.get(ORDERS)).status_code == 403
    assert (await rita.get(OTHER)).status_code == 200
    viewing = f"{PREFIX}viewing=op == 'VIEW_REFERENCE' && uuid == '{uuid}'\n"
    (await sales.http.post("/v1/access-rules/import", json={"file": viewing})).raise_for_status()
    assert (await rita.get(OTHER)).status_code == 403


async def test_events_of_a_table_are_shown_by_its_uuid(sales: Gateway) -> None:
    uuid = await uuid_of(sales.http)
    (await sales.http.post(TABLES, json={"name": "other", "schema": SCHEMA})).raise_for_status()
    assert await rename(sales.http, "orders", "moved") == 204
    rita = sales.client(await another_key(sales, "rita@acme.example", "reader"))
    await rule(sales, "orders", "permit", f"'reader' in roles && (uuid == '{uuid}' || op == 'READ_CONTENT_KEY')")
    answer = await rita.post("/v1/iceberg/lake/events", json={})
    assert answer.status_code == 200, answer.text
    operations = [event["operation"] for event in answer.json()["events"]]
    assert [one["operation-type"] for one in operations] == ["create-namespace", "create-table", "rename-table"]
    assert {one["table-uuid"] for one in operations[1:]} == {uuid}


async def test_without_a_rule_that_reads_it_nothing_is_kept_apart_by_uuid(sales: Gateway) -> None:
    judge = sales.services.gateway.judge
    client = sales.through(judge=(fresh := replace(judge)))
    assert await statuses(client, ORDERS) == [200, 204, 200]
    assert {read.uuid for read in fresh.read_judgements._judgements} == {""}
    assert {key.uuid for key in fresh.known_access._decisions} == {""}
    await rule(sales, "some", "forbid", "uuid == 'x'")
    assert await statuses(client, ORDERS) == [200, 204, 200]
    uuid = await uuid_of(client)
    assert {read.uuid for read in fresh.read_judgements._judgements} == {"", uuid}
    assert {key.uuid for key in fresh.known_access._decisions} >= {"", uuid}


async def test_an_explanation_has_the_uuid_that_the_rules_saw(sales: Gateway) -> None:
    uuid = await uuid_of(sales.http)
    await rule(sales, "not-orders", "forbid", f"uuid == '{uuid}' && op == 'UPDATE_ENTITY'")
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 403
    decisions = [one.entry for one in await read_stored(sales.services, sales.acme.log_id) if one.words == "rejected"]
    explained = await sales.http.get(f"/v1/decisions/{decisions[-1].index}/explanation")
    assert explained.status_code == 200, explained.text
    (of_rule,) = [one for one in explained.json()["rules"] if one["id"] == "not-orders"]
    assert (of_rule["recorded"], of_rule["judged_again"]) == ("allow", "allow")


async def test_who_may_is_answered_by_the_uuid_of_the_table_that_is_there(sales: Gateway) -> None:
    uuid = await uuid_of(sales.http)
    await rule(sales, "orders", "permit", f"uuid == '{uuid}' && 'writer' in roles")

    async def decided(operation: str, name: str) -> str:
        path = f"/v1/access/who?operation={operation}&target=lake.sales.{name}"
        callers: list[dict[str, Any]] = (await sales.http.get(path)).json()["callers"]
        (decision,) = [one["decision"] for one in callers if one["roles"] == ["writer"]]
        return str(decision)

    assert await decided("table.load", "orders") == "permitted"
    assert await decided("table.load", "none") == await decided("table.create", "none") == "denied"
    assert await decided("table.rename_to", "none") == "undecidable", "it depends on which table"
    assert await rename(sales.http, "orders", "other") == 204
    assert (await decided("table.load", "orders"), await decided("table.load", "other")) == ("denied", "permitted")
    assert (await sales.http.get("/v1/access/lint")).json()["findings"] == [
        one
        for one in (await sales.http.get("/v1/access/lint")).json()["findings"]
        if one["finding"] == "unknown"  # no key has the role `writer`
    ]


@pytest_asyncio.fixture(loop_scope="module")
async def chained(module_services: Services, module_app: FastAPI, module_url: str) -> AsyncIterator[Chained]:
    async with open_chain(module_services, module_app, module_url) as chained:
        await create_orders(chained.far.http)
        yield chained


async def test_in_a_foreign_catalog_the_uuid_is_the_upstreams(chained: Chained) -> None:
    near = chained.near
    uuid = await uuid_of(near.http, FAR_ORDERS)
    intern = near.client(await another_key(near, "ian@acme.example", "intern"))
    await rule(near, "interns", "permit", f"'intern' in roles && catalog == '{BEYOND}'")
    await rule(near, "not-orders", "forbid", f"uuid == '{uuid}' && 'intern' in roles")
    assert await statuses(intern, FAR_ORDERS) == [403] * 3
    assert await rename(chained.far.http, "orders", "other") == 204
    assert await statuses(intern, FAR_ORDERS.replace("orders", "other")) == [403] * 3
    assert (await intern.get(FAR_ORDERS)).status_code == 404
    (await chained.far.http.post(TABLES, json=CREATE)).raise_for_status()
    assert await statuses(intern, FAR_ORDERS) == [200, 204, 200]


async def test_one_policy_by_uuid_governs_a_foreign_table_under_two_aliases_and_what_has_no_uuid_yet(
    chained: Chained,
) -> None:
    near = chained.near
    await register(near, "again", chained.near_url, token=chained.far.acme.key.secret, warehouse="lake")
    again, uuid = FAR.replace(BEYOND, "again"), await uuid_of(near.http, FAR_ORDERS)
    policy = {"id": "one", "expression": "false", "message": "no", "scope": {"uuids": [uuid]}}
    assert (await near.http.post("/v1/policies", json=policy)).status_code == 201
    for path in (FAR_ORDERS, f"{again}/sales/tables/orders"):
        assert (await near.http.post(path, json=properties(a="b"))).status_code == 403, path
    assert await rename(chained.far.http, "orders", "other") == 204
    for path in (FAR_ORDERS.replace("orders", "other"), f"{again}/sales/tables/other"):
        assert (await near.http.post(path, json=properties(a="b"))).status_code == 403, path
    (await chained.far.http.post(TABLES, json=CREATE)).raise_for_status()
    assert (await near.http.post(FAR_ORDERS, json=properties(a="b"))).status_code == 200, "another table of its name"
    # The upstream gives a new table its uuid only after the policies have judged it.
    new = f"{FAR}/sales/tables"
    assert (await near.http.post(new, json={"name": "new", "schema": SCHEMA})).status_code == 403
    scope = {"uuids": [uuid], "operations": ["table.commit", "table.drop"]}
    change = {"expression": "false", "message": "no", "scope": scope}
    assert (await near.http.put("/v1/policies/one", json=change)).status_code == 200
    assert (await near.http.post(new, json={"name": "new", "schema": SCHEMA})).status_code == 200


async def test_nothing_is_asked_at_an_upstream_for_whom_the_rules_refuse_anyway(chained: Chained) -> None:
    near = chained.near
    eve = near.client(await another_key(near, "eve@acme.example", "guest"))
    await rule(near, "some", "permit", "'intern' in roles && uuid == 'x'")
    await rule(near, "none", "forbid", "'intern' in roles && uuid == 'y'")
    # The upstream takes the key of the near gateway no longer: whoever has it asked, would be told so.
    (await chained.far.http.delete(f"/v1/keys/{chained.far.acme.key.id}")).raise_for_status()
    assert (await eve.get(FAR_ORDERS)).status_code == 403
    intern = near.client(await another_key(near, "ian@acme.example", "intern"))
    refused = await intern.get(FAR_ORDERS)
    assert refused.status_code == 503, "where it cannot be known, a rule that reads it cannot be judged"


async def test_a_name_that_changes_hands_at_the_upstream_while_a_load_is_judged_shows_no_other_table(
    chained: Chained, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = chained.near, chained.far
    await rule(near, "not-secret", "forbid", f"uuid == '{await uuid_of(near.http, FAR_ORDERS)}' && 'intern' in roles")
    await rule(near, "interns", "permit", f"'intern' in roles && catalog == '{BEYOND}'")
    intern = near.client(await another_key(near, "ian@acme.example", "intern"))
    assert await rename(far.http, "orders", "secret") == 204
    (await far.http.post(TABLES, json=CREATE)).raise_for_status()
    assert (await intern.get(FAR_ORDERS)).status_code == 200

    async def ask_and_swap(*parts: Any) -> str | None:
        uuid = await upstream_uuid(*parts)
        assert await rename(far.http, "orders", "parked") == 204
        assert await rename(far.http, "secret", "orders") == 204
        return uuid

    monkeypatch.setattr(ASKS, ask_and_swap)
    refused = await intern.get(FAR_ORDERS)
    assert (refused.status_code, "another one took the name" in refused.text) == (503, True)
    monkeypatch.setattr(ASKS, upstream_uuid)
    assert (await intern.get(FAR_ORDERS)).status_code == 403
