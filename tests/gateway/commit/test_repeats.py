# SPDX-License-Identifier: Apache-2.0
"""
Requests that are sent again under one Idempotency-Key are made once and answered alike, whatever was lost in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from ledger.errors import OutcomeUnknownError
from ledger.format.sequence import Appended, Group, Stale
from testkit.gateway.log_contents import check_agreement, path_of, read_bare, read_stored, words
from testkit.gateway.sales import (
    CREATE,
    NAMESPACES,
    ORDERS,
    ORDERS_KEY,
    SALES,
    TABLES,
    another_key,
    error_of,
    location_of_orders,
    new_key,
    properties,
)
from testkit.gateway.view_requests import REPORT, VIEWS, view_created, view_replaced
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def size_of(sales: Gateway) -> int:
    return len(await read_bare(sales.services, sales.acme.log_id))


async def requests_of(sales: Gateway) -> AsyncIterator[tuple[str, str, Any]]:
    """One request of each kind, in an order in which all of them can be made."""
    yield "POST", NAMESPACES, {"namespace": ["archive"], "properties": {"a": "b"}}
    yield "POST", f"{NAMESPACES}/archive/properties", {"updates": {"c": "d"}, "removals": ["a"]}
    yield "POST", TABLES, {**CREATE, "name": "more"}
    yield "POST", ORDERS, properties(a="b")
    yield "POST", f"{SALES}/tables/more/unregister", None
    yield (
        "POST",
        "/v1/iceberg/lake/tables/rename",
        {
            "source": {"namespace": ["sales"], "name": "orders"},
            "destination": {"namespace": ["archive"], "name": "orders"},
        },
    )
    location = path_of_moved(sales)
    yield "DELETE", f"{NAMESPACES}/archive/tables/orders", None
    yield "POST", f"{SALES}/register", {"name": "again", "metadata-location": await location}
    yield "DELETE", f"{NAMESPACES}/archive", None


async def path_of_moved(sales: Gateway) -> str:
    entries = await read_stored(sales.services, sales.acme.log_id, key="table:lake/archive/orders")
    return next(str(one.settled.metadata_location) for one in entries if one.words == "accepted")


async def test_every_change_is_made_once_and_answered_alike(sales: Gateway) -> None:
    async for method, path, body in requests_of(sales):
        headers = new_key()
        first = await sales.http.request(method, path, json=body, headers=headers)
        assert first.status_code in {200, 204}, (path, first.text)
        size = await size_of(sales)
        for _ in range(2):
            again = await sales.http.request(method, path, json=body, headers=headers)
            assert again.status_code == first.status_code, path
            if not path.endswith("/properties"):  # which of its removals were there is not known any more
                assert again.content == first.content, path
            assert again.headers.get("etag") == first.headers.get("etag")
        assert await size_of(sales) == size, f"{method} {path} was recorded again"
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_repeated_commit_is_answered_as_it_was_made_whatever_came_after(sales: Gateway) -> None:
    headers = new_key()
    first = await sales.http.post(ORDERS, json=properties(a="first"), headers=headers)
    assert (await sales.http.post(ORDERS, json=properties(a="second"))).status_code == 200
    again = await sales.http.post(ORDERS, json=properties(a="first"), headers=headers)
    assert again.content == first.content
    assert (await sales.http.get(ORDERS)).json()["metadata"]["properties"]["a"] == "second"
    # And when the table is gone, or its old metadata file.
    assert (await sales.http.delete(ORDERS)).status_code == 204
    assert (await sales.http.post(ORDERS, json=properties(a="first"), headers=headers)).content == first.content
    path_of(first.json()["metadata-location"]).unlink()
    await check_agreement_without_files(sales)


async def check_agreement_without_files(sales: Gateway) -> None:
    said = await words(sales.services, sales.acme.log_id, key=ORDERS_KEY)
    assert said == ["approved", "accepted"] * 4


async def test_views_are_replaced_once(sales: Gateway) -> None:
    assert (await sales.http.post(VIEWS, json=view_created(), headers=new_key())).status_code == 200
    headers = new_key()
    first = await sales.http.post(REPORT, json=view_replaced("SELECT 2"), headers=headers)
    assert (await sales.http.post(REPORT, json=view_replaced("SELECT 3"))).status_code == 200
    again = await sales.http.post(REPORT, json=view_replaced("SELECT 2"), headers=headers)
    assert again.content == first.content
    assert (await sales.http.get(REPORT)).json()["metadata"]["current-version-id"] == 3
    for _ in range(2):
        assert (await sales.http.delete(REPORT, headers=headers | {"x": "y"})).status_code == 422
    dropping = new_key()
    for _ in range(2):
        assert (await sales.http.delete(REPORT, headers=dropping)).status_code == 204
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_transaction_is_made_once(sales: Gateway) -> None:
    assert (await sales.http.post(TABLES, json={**CREATE, "name": "more"})).status_code == 200
    changes = [
        {"identifier": {"namespace": ["sales"], "name": name}, **properties(a="b")} for name in ("orders", "more")
    ]
    headers = new_key()
    for _ in range(3):
        answer = await sales.http.post(
            "/v1/iceberg/lake/transactions/commit", json={"table-changes": changes}, headers=headers
        )
        assert answer.status_code == 204, answer.text
    assert await words(sales.services, sales.acme.log_id, key=ORDERS_KEY) == ["approved", "accepted"] * 2
    await check_agreement(sales.services, sales.acme.log_id)


async def test_an_answer_that_was_lost_is_given_when_the_request_is_sent_again(sales: Gateway) -> None:
    """The group is in the log, and the gateway that appended it did not learn that."""

    async def lose(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        await sales.services.gateway.append(log_id, group, **after)
        raise OutcomeUnknownError("the connection is lost")

    headers = new_key()
    async with sales.through(append=lose) as http:
        lost = await http.post(ORDERS, json=properties(a="b"), headers=headers)
    assert lost.status_code == 504
    found = await sales.http.post(ORDERS, json=properties(a="b"), headers=headers)
    assert found.status_code == 200
    assert found.json()["metadata-location"] == await location_of_orders(sales)
    assert await words(sales.services, sales.acme.log_id, key=ORDERS_KEY) == ["approved", "accepted"] * 2
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_request_that_nothing_came_of_is_made_when_it_is_sent_again(sales: Gateway) -> None:
    headers = new_key()
    body = {**CREATE, "name": "more"}
    assert (await sales.http.post(f"{NAMESPACES}/archive/tables", json=body, headers=headers)).status_code == 404
    assert (await sales.http.post(NAMESPACES, json={"namespace": ["archive"]})).status_code == 200
    assert (await sales.http.post(f"{NAMESPACES}/archive/tables", json=body, headers=headers)).status_code == 200


async def test_the_same_request_many_times_at_once_is_made_once(sales: Gateway) -> None:
    headers = new_key()
    answers = await asyncio.gather(
        *(sales.http.post(ORDERS, json=properties(a="b"), headers=headers) for _ in range(8)),
        *(sales.http.post(ORDERS, json=properties(**{f"p{n}": "x"}), headers=new_key()) for n in range(4)),
    )
    assert [each.status_code for each in answers] == [200] * 12
    assert len({each.content for each in answers[:8]}) == 1
    assert await words(sales.services, sales.acme.log_id, key=ORDERS_KEY) == ["approved", "accepted"] * 6
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_refusal_and_a_conflict_are_answered_again_also_when_they_would_not_be_any_more(sales: Gateway) -> None:
    admin, log_id = sales.services.gateway.admin, sales.acme.log_id
    await admin.create_policy(
        log_id,
        OPERATOR,
        policy_id="fixed",
        text=PolicyText(expression="!('a' in result.properties)", message="a is fixed"),
    )
    refused, taken = new_key(), new_key()
    first = await sales.http.post(ORDERS, json=properties(a="b"), headers=refused)
    conflict = await sales.http.post(TABLES, json=CREATE, headers=taken)
    assert (first.status_code, conflict.status_code) == (403, 409)
    await admin.retire_policy(log_id, OPERATOR, policy_id="fixed")
    again = await sales.http.post(ORDERS, json=properties(a="b"), headers=refused)
    # It was refused for good: who wants it now sends it under another key.
    assert (again.status_code, error_of(again)["message"]) == (403, error_of(first)["message"])
    assert (await sales.http.delete(ORDERS)).status_code == 204
    assert (await sales.http.post(TABLES, json=CREATE, headers=taken)).status_code == 409
    assert (await sales.http.post(TABLES, json=CREATE, headers=new_key())).status_code == 200
    await check_agreement(sales.services, log_id)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", ORDERS, properties(a="c")),
        ("POST", f"{TABLES}/more", properties(a="b")),
        ("DELETE", ORDERS, None),
        ("POST", TABLES, CREATE),
    ],
)
async def test_a_key_is_for_one_request(sales: Gateway, method: str, path: str, body: Any) -> None:
    headers = new_key()
    assert (await sales.http.post(TABLES, json={**CREATE, "name": "more"})).status_code == 200
    assert (await sales.http.post(ORDERS, json=properties(a="b"), headers=headers)).status_code == 200
    size = await size_of(sales)
    answer = await sales.http.request(method, path, json=body, headers=headers)
    assert (answer.status_code, error_of(answer)["type"]) == (422, "UnprocessableEntityException"), answer.text
    assert await size_of(sales) == size
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_key_is_its_callers_own(sales: Gateway) -> None:
    headers = new_key()
    assert (await sales.http.post(ORDERS, json=properties(a="b"), headers=headers)).status_code == 200
    other = {"Authorization": f"Bearer {await another_key(sales, 'bob@acme.example', 'admin')}"}
    await sales.services.gateway.admin.create_access_rule(
        sales.acme.log_id, OPERATOR, rule_id="admins", effect="permit", expression="'admin' in roles"
    )
    # The same request of somebody else is another one: nothing tells that there was one.
    assert (await sales.http.post(ORDERS, json=properties(a="c"), headers=headers | other)).status_code == 200
    metadata = (await sales.http.get(ORDERS)).json()["metadata"]
    assert metadata["properties"]["a"] == "c"


@pytest.mark.parametrize("key", ["", "x", str(uuid4()), str(UUID(int=7)), "0" * 36, f"{{{uuid4()}}}", "1" * 200])
async def test_what_is_no_key_is_refused(sales: Gateway, key: str) -> None:
    answer = await sales.http.post(ORDERS, json=properties(a="b"), headers={"Idempotency-Key": key})
    assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException")
    assert "Idempotency-Key: expected a UUID of version 7" in error_of(answer)["message"]
    # Where the specification has no key, the header means nothing.
    assert (await sales.http.get(ORDERS, headers={"Idempotency-Key": key})).status_code == 200
    assert (await sales.http.post(VIEWS, json=view_created(), headers={"Idempotency-Key": key})).status_code == 200


async def test_engines_learn_that_they_may_send_keys(sales: Gateway) -> None:
    config: httpx.Response = await sales.http.get("/v1/config", params={"warehouse": "lake"})
    assert config.json()["idempotency-key-lifetime"] == "PT24H"


async def test_an_unregistered_table_is_answered_again_whatever_its_size_and_while_its_file_is_there(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = new_key()
    first = await sales.http.post(f"{ORDERS}/unregister", headers=headers)
    monkeypatch.setattr("gateway.catalogs.registered.SNAPSHOTS_MAX", -1)  # more than may be registered at once
    again = await sales.http.post(f"{ORDERS}/unregister", headers=headers)
    assert (again.status_code, again.content) == (200, first.content)
    path_of(first.json()["metadata-location"]).unlink()
    gone = await sales.http.post(f"{ORDERS}/unregister", headers=headers)
    assert (gone.status_code, error_of(gone)["type"]) == (404, "NoSuchTableException")


async def test_a_repeated_commit_is_answered_however_many_came_after(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.commit.repeats.OUTCOMES_MAX", 2)
    headers = new_key()
    first = await sales.http.post(ORDERS, json=properties(a="first"), headers=headers)
    for number in range(3):
        assert (await sales.http.post(ORDERS, json=properties(a=f"{number}"))).status_code == 200
    again = await sales.http.post(ORDERS, json=properties(a="first"), headers=headers)
    assert (again.status_code, again.content) == (200, first.content)


async def test_a_repeated_request_is_answered_although_policies_can_judge_it_no_more(sales: Gateway) -> None:
    headers = new_key()
    first = await sales.http.post(ORDERS, json=properties(a="b"), headers=headers)
    assert first.status_code == 200
    await sales.services.gateway.admin.create_policy(
        sales.acme.log_id,
        OPERATOR,
        policy_id="broken",
        text=PolicyText(expression="commit.updates[7].action != ''", message="no"),
    )
    assert (await sales.http.post(ORDERS, json=properties(a="c"), headers=new_key())).status_code == 503
    again = await sales.http.post(ORDERS, json=properties(a="b"), headers=headers)
    assert (again.status_code, again.content) == (200, first.content)


async def test_a_repeated_commit_whose_table_has_another_name_now_is_not_said_to_have_failed(sales: Gateway) -> None:
    headers = new_key()
    first = await sales.http.post(ORDERS, json=properties(a="first"), headers=headers)
    names = [{"namespace": ["sales"], "name": name} for name in ("orders", "moved")]
    renaming = {"source": names[0], "destination": names[1]}
    assert (await sales.http.post("/v1/iceberg/lake/tables/rename", json=renaming)).status_code == 204
    assert (await sales.http.post(f"{TABLES}/moved", json=properties(a="second"))).status_code == 200
    path_of(first.json()["metadata-location"]).unlink()
    # An engine that is told 404 deletes the files of its commit.
    again = await sales.http.post(ORDERS, json=properties(a="first"), headers=headers)
    assert (again.status_code, error_of(again)["type"]) == (504, "CommitStateUnknownException"), again.text
