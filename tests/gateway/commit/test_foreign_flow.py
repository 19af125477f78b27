# SPDX-License-Identifier: Apache-2.0
"""
The commit flow with a foreign catalog: the order of its steps, and the answer if one of them fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import orjson
import pytest
import pytest_asyncio
from fastapi import FastAPI

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.catalogs.onward import HOPS_HEADER, HOPS_MAX, format_hop
from gateway.catalogs.upstreams import Upstream
from gateway.commit.open_decisions import OpenDecision
from lakeproof.services import Services, now
from lakeproof.tenants import found_tenant
from ledger.errors import LogUnavailableError, OutcomeUnknownError, QueueFullError
from ledger.format.sequence import Appended, Group, Stale
from testkit.gateway.log_contents import read_stored, words
from testkit.gateway.open_rows import open_rows
from testkit.gateway.sales import CREATE, Append, another_key, error_of, new_key, properties
from testkit.gateway.table_requests import snapshot
from testkit.gateway.view_requests import view_created, view_replaced
from testkit.servers.chained import BEYOND, Chained, open_chain, register
from testkit.servers.gateways import Gateway, open_gateway
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMESPACES = f"/v1/iceberg/{BEYOND}/namespaces"
TABLES = f"{NAMESPACES}/sales/tables"
ORDERS = f"{TABLES}/orders"
ORDERS_KEY = "table:beyond/sales/orders"


@pytest_asyncio.fixture(loop_scope="module")
async def chained(module_services: Services, module_app: FastAPI, module_url: str) -> AsyncIterator[Chained]:
    """Two gateways in a row, and `sales.orders` in the far one, made through the near one."""
    async with open_chain(module_services, module_app, module_url) as chained:
        (await chained.http.post(NAMESPACES, json={"namespace": ["sales"]})).raise_for_status()
        (await chained.http.post(TABLES, json=CREATE)).raise_for_status()
        yield chained


async def of_orders(gateway: Gateway, alias: str = BEYOND) -> list[str]:
    """What the log says of `sales.orders` since it was made."""
    return (await words(gateway.services, gateway.acme.log_id, key=f"table:{alias}/sales/orders"))[2:]


async def open_of(gateway: Gateway) -> list[OpenDecision]:
    return await open_rows(gateway.services, gateway.acme.log_id, now() + timedelta(days=1))


def failing(gateway: Gateway, number: int, fail: Callable[[Group], Awaitable[Appended | Stale]]) -> Append:
    """The log's append, whose call number `number` does what `fail` does."""
    count = 0

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        nonlocal count
        count += 1
        return await (fail(group) if count == number + 1 else gateway.services.gateway.append(log_id, group, **after))

    return append


async def test_the_decision_is_open_before_the_upstream_sees_anything(chained: Chained) -> None:
    at_append: list[tuple[list[str], int]] = []

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        at_append.append((await of_orders(chained.far, "lake"), len(await open_of(chained.near))))
        return await chained.near.services.gateway.append(log_id, group, **after)

    client = chained.near.through(append=append)
    assert (await client.post(ORDERS, json=properties(a="b"))).status_code == 200
    assert at_append == [([], 0), (["approved", "accepted"], 1)]
    assert await of_orders(chained.near) == ["approved", "accepted"]
    assert await open_of(chained.near) == []


@pytest.mark.parametrize("error", [LogUnavailableError, QueueFullError, OutcomeUnknownError])
async def test_a_decision_that_is_not_recorded_is_not_forwarded(chained: Chained, error: type[Exception]) -> None:
    async def fail(_group: Group) -> Appended | Stale:
        message = "no"
        raise error(message)

    client = chained.near.through(append=failing(chained.near, 0, fail))
    answer = await client.post(ORDERS, json=properties(a="b"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "nothing was changed" in error_of(answer)["message"]
    assert await of_orders(chained.far, "lake") == []
    assert await open_of(chained.near) == []


@pytest.mark.parametrize("error", [LogUnavailableError, QueueFullError, OutcomeUnknownError])
async def test_an_outcome_that_is_not_recorded_is_answered_all_the_same(
    chained: Chained, error: type[Exception]
) -> None:
    async def fail(_group: Group) -> Appended | Stale:
        message = "no"
        raise error(message)

    client = chained.near.through(append=failing(chained.near, 1, fail))
    answer = await client.post(ORDERS, json=properties(a="b"))
    assert answer.status_code == 200
    assert answer.json()["metadata"]["properties"]["a"] == "b"
    assert await of_orders(chained.far, "lake") == ["approved", "accepted"]
    assert await of_orders(chained.near) == ["approved"]
    (open_decision,) = await open_of(chained.near)
    assert (open_decision.key, open_decision.is_unknown) == (ORDERS_KEY, False)
    conflict = [{"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}]
    assert (await chained.http.post(ORDERS, json=properties(conflict))).status_code == 409


async def test_rules_that_change_before_the_decision_are_judged_again(chained: Chained) -> None:
    admin, log_id = chained.near.services.gateway.admin, chained.near.acme.log_id

    async def append(log: int, group: Group) -> Appended | Stale:
        if not await admin.list_policies(log_id):
            await admin.create_policy(
                log_id, OPERATOR, policy_id="p", text=PolicyText(expression="false", message="no more")
            )
        return await chained.near.services.gateway.append(log, group)

    answer = await chained.near.through(append=append).post(ORDERS, json=properties(a="b"))
    assert (answer.status_code, error_of(answer)["message"]) == (403, "no more (policy p, version 1)")
    assert await of_orders(chained.near) == ["rejected"]
    assert await of_orders(chained.far, "lake") == []


async def test_an_upstream_that_is_gone_has_done_nothing(chained: Chained, module_services: Services) -> None:
    async with open_gateway(module_services) as third:
        async with serve_gateway(third.app) as url:
            await register(chained.near, "gone", url, token=third.acme.key.secret, warehouse="lake")
            namespaces = "/v1/iceberg/gone/namespaces"
            assert (await chained.http.post(namespaces, json={"namespace": ["a"]})).status_code == 200
        read = await chained.http.get(f"{namespaces}/a")
        assert (read.status_code, read.headers["retry-after"]) == (503, "1")
        written = await chained.http.post(namespaces, json={"namespace": ["b"]})
        assert written.status_code == 503, "what it would change cannot even be loaded"
    assert await words(module_services, chained.near.acme.log_id, key="namespace:gone/b") == []


async def test_an_upstream_that_goes_between_load_and_forward_has_failed(chained: Chained) -> None:
    upstream = chained.near.services.gateway.catalogs.made[chained.near.acme.tenant, BEYOND]
    assert isinstance(upstream, Upstream)

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        outcome = await chained.near.services.gateway.append(log_id, group, **after)
        assert upstream.endpoint is not None
        upstream.endpoint = replace(upstream.endpoint, root="http://127.0.0.1:9/v1")
        return outcome

    client = chained.near.through(append=append)
    answer = await client.post(ORDERS, json=properties(a="b"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "nothing was changed" in error_of(answer)["message"]
    assert await of_orders(chained.near) == ["approved", "failed"], "proven: the connection was refused"
    assert await of_orders(chained.far, "lake") == []
    assert await open_of(chained.near) == []


RENAME = f"/v1/iceberg/{BEYOND}/tables/rename"


def renaming(to: str) -> dict[str, object]:
    """The body of a renameTable."""
    return {
        "source": {"namespace": ["sales"], "name": "orders"},
        "destination": {"namespace": ["sales"], "name": to},
    }


async def test_a_rename_opens_both_names_before_the_upstream_sees_anything(chained: Chained) -> None:
    at_append: list[tuple[list[str], int]] = []

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        at_append.append((await of_orders(chained.far, "lake"), len(await open_of(chained.near))))
        return await chained.near.services.gateway.append(log_id, group, **after)

    async with chained.near.through(append=append) as client:
        answer = await client.post(RENAME, json=renaming("invoices"))
    assert (answer.status_code, answer.content) == (204, b"")
    assert at_append == [([], 0), (["approved", "accepted"], 2)]
    assert await open_of(chained.near) == []
    near = chained.near
    stored = [one for one in await read_stored(near.services, near.acme.log_id) if one.entry.type.startswith("commit.")]
    decided, settled = stored[-4:-2], stored[-2:]
    assert [one.decided.operation for one in decided] == ["table.rename_from", "table.rename_to"]
    assert [one.words for one in settled] == ["accepted", "accepted"]
    location = (await chained.http.get(f"{TABLES}/invoices")).json()["metadata-location"]
    assert [one.settled.metadata_location for one in settled] == [None, location]
    assert (await chained.http.head(ORDERS)).status_code == 404


async def test_a_rename_that_the_upstream_refuses_is_recorded_for_both_names(chained: Chained) -> None:
    far = chained.far
    await far.services.gateway.admin.create_policy(
        far.acme.log_id,
        OPERATOR,
        policy_id="fixed",
        text=PolicyText(expression="commit.operation != 'table.rename_to'", message="no"),
    )
    answer = await chained.http.post(RENAME, json=renaming("invoices"))
    assert answer.status_code == 403
    assert error_of(answer)["message"].startswith("no")
    assert (await words(chained.near.services, chained.near.acme.log_id))[-4:] == [*["approved"] * 2, *["refused"] * 2]
    assert await open_of(chained.near) == []
    assert (await chained.http.head(ORDERS)).status_code == 204


async def test_a_refused_request_that_cannot_be_made_any_more_is_answered_when_it_is_sent_again(
    chained: Chained,
) -> None:
    far, headers = chained.far, new_key()
    await far.services.gateway.admin.create_policy(
        far.acme.log_id,
        OPERATOR,
        policy_id="fixed",
        text=PolicyText(expression="commit.operation != 'table.commit'", message="no"),
    )
    assert (await chained.http.post(ORDERS, json=properties(a="b"), headers=headers)).status_code == 403
    assert (await far.http.delete("/v1/iceberg/lake/namespaces/sales/tables/orders")).status_code == 204
    async with asyncio.timeout(20):
        again = await chained.http.post(ORDERS, json=properties(a="b"), headers=headers)
    assert (again.status_code, error_of(again)["type"]) == (404, "NoSuchTableException")
    assert await of_orders(chained.near) == ["approved", "refused"]


@pytest.mark.parametrize("appends", [False, True])
async def test_a_request_that_is_still_attempted_is_not_answered_with_a_conflict(
    chained: Chained, appends: bool
) -> None:
    """The engine would delete the files of a commit that is made after all."""
    headers, body, others = new_key(), properties(a="b"), list[httpx.Response]()
    if appends:  # once it is made, its own requirement does not hold any more
        location = (await chained.http.get(ORDERS)).json()["metadata"]["location"]
        body = snapshot(f"{location}/metadata/snap-7.avro")
        body["requirements"] = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}]
    of_far = "/v1/iceberg/lake/namespaces/sales/tables/orders"
    columns = [*CREATE["schema"]["fields"], {"id": 2, "name": "more", "type": "long", "required": False}]
    another_schema = [
        {"action": "add-schema", "schema": {"type": "struct", "fields": columns}},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    count = 0

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        nonlocal count
        count += 1
        if count == 1:  # what it was judged on is not there any more when it reaches the upstream
            changed = await chained.far.http.post(of_far, json={"requirements": [], "updates": another_schema})
            assert changed.status_code == 200, changed.text
        appended = await chained.near.services.gateway.append(log_id, group, **after)
        if count == 2:  # it has lost by a pin of the gateway, and is sent again by an engine that waits no longer
            others.append(await chained.http.post(ORDERS, json=body, headers=headers))
        return appended

    async with chained.near.through(append=append) as http:
        answer = await http.post(ORDERS, json=body, headers=headers)
    assert [each.status_code for each in (answer, *others)] == [200, 200], others
    assert await of_orders(chained.near) == ["approved", "conflicted", "approved", "accepted"]


async def test_a_repeated_commit_shows_nothing_new_to_whom_it_is_not_permitted_any_more(chained: Chained) -> None:
    admin, log_id = chained.near.services.gateway.admin, chained.near.acme.log_id
    await admin.create_access_rule(log_id, OPERATOR, rule_id="writers", effect="permit", expression="'w' in roles")
    eve = {"Authorization": f"Bearer {await another_key(chained.near, 'eve@acme.example', 'w')}"}
    headers = eve | new_key()
    assert (await chained.http.post(ORDERS, json=properties(a="b"), headers=headers)).status_code == 200
    assert (await chained.http.post(ORDERS, json=properties(a="secret"))).status_code == 200
    again = await chained.http.post(ORDERS, json=properties(a="b"), headers=headers)
    assert again.json()["metadata"]["properties"]["a"] == "secret"
    await admin.retire_access_rule(log_id, OPERATOR, rule_id="writers")
    again = await chained.http.post(ORDERS, json=properties(a="b"), headers=headers)
    assert (again.status_code, error_of(again)["type"]) == (504, "CommitStateUnknownException"), again.text
    assert "secret" not in again.text


async def test_a_repeated_commit_is_not_answered_with_another_table_of_the_same_name(chained: Chained) -> None:
    headers = new_key()
    assert (await chained.http.post(ORDERS, json=properties(a="b"), headers=headers)).status_code == 200
    of_far = "/v1/iceberg/lake/namespaces/sales/tables"
    assert (await chained.far.http.delete(f"{of_far}/orders")).status_code == 204
    assert (await chained.far.http.post(of_far, json=CREATE)).status_code == 200
    again = await chained.http.post(ORDERS, json=properties(a="b"), headers=headers)
    assert (again.status_code, error_of(again)["type"]) == (504, "CommitStateUnknownException"), again.text
    assert "was dropped and made again" in error_of(again)["message"]


@pytest.mark.parametrize("named", [False, True])
async def test_a_view_that_was_made_anew_meanwhile_is_judged_again_or_left_alone(chained: Chained, named: bool) -> None:
    views = f"{NAMESPACES}/sales/views"
    made = await chained.http.post(views, json=view_created())
    assert made.status_code == 200, made.text
    body = view_replaced("SELECT 2", view_uuid=made.json()["metadata"]["view-uuid"] if named else None)
    of_far = "/v1/iceberg/lake/namespaces/sales/views"
    count = 0

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        nonlocal count
        count += 1
        if count == 1:
            assert (await chained.far.http.delete(f"{of_far}/report")).status_code == 204
            assert (await chained.far.http.post(of_far, json=view_created())).status_code == 200
        return await chained.near.services.gateway.append(log_id, group, **after)

    async with chained.near.through(append=append) as http:
        answer = await http.post(f"{views}/report", json=body)
    assert answer.status_code == (409 if named else 200), answer.text
    said = await words(chained.near.services, chained.near.acme.log_id, key="view:beyond/sales/report")
    assert said[2:] == ["approved", "conflicted", *([] if named else ["approved", "accepted"])]


async def test_a_rename_to_a_name_that_is_taken_is_not_forwarded(chained: Chained) -> None:
    assert (await chained.http.post(TABLES, json={**CREATE, "name": "invoices"})).status_code == 200
    answer = await chained.http.post(RENAME, json=renaming("invoices"))
    assert (answer.status_code, error_of(answer)["type"]) == (409, "AlreadyExistsException")
    assert (await words(chained.near.services, chained.near.acme.log_id))[-1] == "conflicted"
    assert await of_orders(chained.far, "lake") == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{NAMESPACES}/sales/register", {"name": "more", "metadata-location": "s3://b/1.metadata.json"}),
        (f"{NAMESPACES}/sales/register-view", {"name": "more", "metadata-location": "s3://b/1.metadata.json"}),
    ],
)
async def test_nothing_is_registered_in_a_foreign_catalog_whose_files_cannot_be_read(
    chained: Chained, path: str, body: object
) -> None:
    answer = await chained.http.post(path, json=body)
    assert (answer.status_code, error_of(answer)["type"]) == (406, "UnsupportedOperationException")
    assert await of_orders(chained.far, "lake") == []
    async with chained.near.client(await another_key(chained.near)) as eve:
        assert (await eve.post(path, json=body)).status_code == 403


async def test_a_conflict_is_answered_in_the_upstreams_words(chained: Chained) -> None:
    (await chained.http.post(NAMESPACES, json={"namespace": ["full"]})).raise_for_status()
    (await chained.http.post(f"{NAMESPACES}/full/tables", json=CREATE)).raise_for_status()
    answer = await chained.http.delete(f"{NAMESPACES}/full")
    directly = await chained.far.http.delete("/v1/iceberg/lake/namespaces/full")
    assert (answer.status_code, answer.content) == (409, directly.content)
    told = await words(chained.near.services, chained.near.acme.log_id, key="namespace:beyond/full")
    assert told == ["approved", "accepted", "approved", "conflicted"]


async def test_credentials_that_the_upstream_refuses_are_named(chained: Chained) -> None:
    await register(chained.near, "locked", chained.far_url, token="nobody", warehouse="lake")
    answer = await chained.http.get("/v1/iceberg/locked/namespaces")
    assert (answer.status_code, error_of(answer)["type"]) == (403, "UpstreamCredentialsException")
    created = await chained.http.post("/v1/iceberg/locked/namespaces", json={"namespace": ["x"]})
    assert created.status_code == 403
    assert await words(chained.near.services, chained.near.acme.log_id, key="namespace:locked/x") == []


async def test_a_refusal_of_credentials_is_shown_only_to_permitted_callers(chained: Chained) -> None:
    eve = chained.near.client(await another_key(chained.near))
    answer = await eve.get(ORDERS)
    assert (answer.status_code, error_of(answer)["type"]) == (403, "ForbiddenException")
    assert "no access rule permits" in error_of(answer)["message"]


async def test_a_body_that_could_be_read_in_two_ways_is_refused(chained: Chained) -> None:
    body = b'{"requirements":[],"updates":[{"action":"set-properties","updates":{"a":"1"}}],"updates":[]}'
    answer = await chained.http.post(ORDERS, content=body)
    assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException")
    assert await of_orders(chained.near) == []


async def test_what_was_judged_is_required_of_the_upstream(chained: Chained) -> None:
    (await chained.http.post(ORDERS, json=properties(a="b"))).raise_for_status()
    told = await read_stored(chained.far.services, chained.far.acme.log_id, key="table:lake/sales/orders")
    sent = orjson.loads(orjson.loads(told[-2].parts["inputs"])["body"])
    assert [requirement["type"] for requirement in sent["requirements"]] == [
        "assert-table-uuid",
        "assert-current-schema-id",
        "assert-default-spec-id",
        "assert-default-sort-order-id",
        "assert-ref-snapshot-id",
    ]
    near = await read_stored(chained.near.services, chained.near.acme.log_id, key=ORDERS_KEY)
    forward = orjson.loads(near[-2].parts["forward"])
    assert orjson.loads(forward["requirements"]) == sent["requirements"]
    asked_for = orjson.loads(orjson.loads(near[-2].parts["inputs"])["body"])
    assert asked_for == properties(a="b"), "the record keeps what was asked for, and beside it what was sent"


async def test_an_engine_receives_nothing_that_bypasses_the_gateway(chained: Chained) -> None:
    config = (await chained.http.get(f"/v1/config?warehouse={BEYOND}")).json()
    assert config["overrides"] == {"prefix": f"iceberg/{BEYOND}"}
    for answer in (await chained.http.get(ORDERS), await chained.http.get(f"{ORDERS}?snapshots=refs")):
        assert answer.status_code == 200
        assert chained.far_url not in answer.text
        assert chained.far.acme.key.secret not in answer.text
    assert (await chained.http.head(ORDERS)).status_code == 204
    missing = await chained.http.head(f"{TABLES}/no")
    assert (missing.status_code, missing.content) == (404, b"")


async def test_a_new_table_is_judged_without_what_the_upstream_alone_decides(chained: Chained) -> None:
    admin, log_id = chained.near.services.gateway.admin, chained.near.acme.log_id
    await admin.create_policy(
        log_id,
        OPERATOR,
        policy_id="place",
        text=PolicyText(
            expression="commit.operation != 'table.create' || result.location.startsWith('file:///allowed')",
            message="not there",
        ),
    )
    refused = await chained.http.post(TABLES, json={**CREATE, "name": "anywhere"})
    assert refused.status_code == 403, "where it would be is not known: a rule on it does not hold"
    elsewhere = await chained.http.post(TABLES, json={**CREATE, "name": "there", "location": "file:///allowed/x"})
    assert (elsewhere.status_code, error_of(elsewhere)["type"]) == (400, "BadRequestException"), "the far one's words"
    told = await read_stored(chained.near.services, log_id, key="table:beyond/sales/there")
    assert [one.words for one in told] == ["approved", "refused"]
    assert told[0].decided.table_uuid is None


# Loops


async def aliases_in_a_ring(first: Gateway, second: Gateway, urls: tuple[str, str]) -> None:
    await register(first, "ring", urls[1], token=second.acme.key.secret, warehouse="ring")
    await register(second, "ring", urls[0], token=first.acme.key.secret, warehouse="ring")


async def test_two_aliases_that_point_at_each_other_are_refused_for_certain(
    chained: Chained, module_services: Services
) -> None:
    await aliases_in_a_ring(chained.near, chained.far, (chained.near_url, chained.far_url))
    async with asyncio.timeout(20):
        asked: list[httpx.Response] = [
            await chained.http.get("/v1/config?warehouse=ring"),
            await chained.http.get("/v1/iceberg/ring/namespaces"),
            await chained.http.post("/v1/iceberg/ring/namespaces", json={"namespace": ["x"]}),
            await chained.http.post("/v1/iceberg/ring/namespaces/x/tables/t", json=properties(a="b")),
            await chained.far.http.delete("/v1/iceberg/ring/namespaces/x"),
        ]
    for answer in asked:
        assert (answer.status_code, error_of(answer)["type"]) == (400, "ForwardingLoopException"), answer.text
    for gateway in (chained.near, chained.far):
        assert await words(module_services, gateway.acme.log_id, key="namespace:ring/x") == []
        assert await open_of(gateway) == []


async def test_an_alias_that_points_at_itself_is_refused(chained: Chained) -> None:
    await register(chained.near, "self", chained.near_url, token=chained.near.acme.key.secret, warehouse="self")
    answer = await chained.http.get("/v1/iceberg/self/namespaces")
    assert (answer.status_code, error_of(answer)["type"]) == (400, "ForwardingLoopException")


async def test_a_way_that_is_too_long_is_refused_and_one_that_is_not_goes_on(chained: Chained) -> None:
    hops = [format_hop(installation="x", tenant_hex="0" * 32, alias=f"a{number}") for number in range(HOPS_MAX + 1)]
    for count, status in ((0, 200), (HOPS_MAX - 1, 200), (HOPS_MAX, 400), (HOPS_MAX + 1, 400)):
        headers = {HOPS_HEADER: ",".join(hops[:count])}
        read = await chained.http.get(ORDERS, headers=headers)
        written = await chained.http.post(ORDERS, json=properties(a=str(count)), headers=headers)
        assert (read.status_code, written.status_code) == (status, status)
    assert (await chained.http.get(ORDERS, headers={HOPS_HEADER: "round and round"})).status_code == 400


async def test_another_tenants_upstream_is_out_of_reach(chained: Chained, module_services: Services) -> None:
    other = await found_tenant(module_services, name="other", identity="eve@other.example")
    client = chained.near.client(other.key.secret)
    assert (await client.get(ORDERS)).status_code == 404
    assert (await client.post(ORDERS, json=properties(a="b"))).status_code == 404
