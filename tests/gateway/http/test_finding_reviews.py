# SPDX-License-Identifier: Apache-2.0
"""
Findings are confirmed or dismissed, by who may do so, with a reason: an entry of the log that names the finding.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from gateway.admin.application import OPERATOR
from gateway.admin.edits import StaleEditError
from gateway.admin.limits import REASON_LENGTH_MAX
from gateway.admin.policy_edits import PolicyText
from gateway.policy.policy_library import library
from testkit.gateway.log_contents import StoredEntry, read_stored
from testkit.gateway.recorded_scans import EMAIL, PHONE, Detection, uuid_of_orders
from testkit.gateway.sales import NAMESPACES, ORDERS, ORDERS_KEY, SCHEMA, TABLES, another_key, error_of, properties
from testkit.gateway.two_views import project
from testkit.servers.gateways import Gateway, open_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

READERS = "'reader' in roles && op in ['READ_ENTITY_VALUE', 'READ_CONTENT_KEY', 'UPDATE_ENTITY', 'CREATE_ENTITY']"
REVIEWERS = "'steward' in roles && op == 'REVIEW_FINDING' && path.startsWith('sales.')"
DISMISSED = {"verdict": "dismissed", "reason": "invented for tests"}


async def found(gateway: Gateway, *what: Any, snapshot: str = "11") -> int:
    """Record a scan of `sales.orders`, and return the index of the last finding."""
    detection = Detection(gateway)
    await detection.scanned(snapshot, *(what or (EMAIL,)), table_uuid=await uuid_of_orders(gateway))
    await detection.projected()
    return await detection.size() - 1


async def review(http: httpx.AsyncClient, finding: int | str, **body: Any) -> httpx.Response:
    return await http.post(f"/v1/findings/{finding}/review", json={**DISMISSED, **body})


async def reviews_in(gateway: Gateway) -> list[StoredEntry]:
    stored = await read_stored(gateway.services, gateway.acme.log_id)
    return [one for one in stored if one.entry.type == "finding.reviewed"]


async def shown(gateway: Gateway, finding: int) -> dict[str, Any]:
    await Detection(gateway).projected()
    answer = await gateway.http.get(f"/v1/findings/{finding}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_a_review_is_an_entry_with_its_author_its_reason_and_the_finding(sales: Gateway) -> None:
    index = await found(sales)
    answer = await review(sales.http, index, reason="Ada's own test data, “ä”", version=0)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "finding": index,
        "verdict": "dismissed",
        "version": 1,
        "reason": "Ada's own test data, “ä”",
        "actor": sales.acme.key.actor,
    }
    (entry,) = await reviews_in(sales)
    assert (entry.entry.key, entry.entry.actor) == (ORDERS_KEY, sales.acme.key.actor)
    data = entry.entry.data
    assert (data["finding"], data["verdict"], data["reason"]) == (index, "dismissed", "Ada's own test data, “ä”")
    assert (data["column"], data["kind"], data["confidence_percent"], data["snapshot"]) == ("email", "email", 92, "11")
    assert json.loads(entry.parts["principal"])["sub"] == "ada@acme.example"
    finding = await shown(sales, index)
    assert (finding["state"], finding["review"]["index"]) == ("dismissed", entry.entry.index)
    assert finding["reviews"] == [finding["review"]]


async def test_a_later_review_takes_the_place_of_an_earlier_one_which_stays_in_the_history(sales: Gateway) -> None:
    index = await found(sales)
    assert (await review(sales.http, index)).status_code == 200
    assert (await review(sales.http, index, verdict="confirmed", reason="it is not")).json()["version"] == 2
    finding = await shown(sales, index)
    assert finding["state"] == "confirmed"
    assert [(each["version"], each["verdict"], each["reason"]) for each in finding["reviews"]] == [
        (2, "confirmed", "it is not"),
        (1, "dismissed", "invented for tests"),
    ]
    again = await found(sales, EMAIL, snapshot="12")
    assert (await shown(sales, again))["state"] == "confirmed", "what a later scan finds there is the same finding"
    assert (await review(sales.http, again)).json()["version"] == 3
    assert (await shown(sales, index))["state"] == "dismissed"


async def test_of_two_reviews_at_once_one_is_told_of_the_other(sales: Gateway) -> None:
    index = await found(sales)
    answers = await asyncio.gather(*(review(sales.http, index, version=0) for _ in range(5)))
    assert sorted(each.status_code for each in answers) == [200, 409, 409, 409, 409]
    assert len(await reviews_in(sales)) == 1
    stale = await review(sales.http, index, version=0)
    assert (stale.status_code, error_of(stale)["type"]) == (409, "ConcurrentChangeException")
    assert error_of(stale)["message"] == f"finding {index}: expected version 0 of its review, found version 1"
    assert (await review(sales.http, index, version=1)).status_code == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"reason": ""}, "reason: expected a text that is not empty, found ''"),
        ({"reason": " \n"}, "reason: expected a text that is not empty, found ' \\n'"),
        ({"reason": "x" * (REASON_LENGTH_MAX + 1)}, f"reason: expected at most {REASON_LENGTH_MAX} characters, found"),
        ({"reason": "a\x00b"}, "reason: expected no control characters, found U+0000"),
        ({"reason": None}, "reason: expected a text, found null"),
        ({"verdict": "open"}, "verdict: expected one of confirmed, dismissed, found 'open'"),
        ({"version": "1"}, "version: expected a whole number, found '1'"),
        ({"more": 1}, "more: expected members of verdict, reason, version, found another"),
    ],
)
async def test_what_is_no_review_is_refused_and_nothing_is_recorded(
    sales: Gateway, body: dict[str, Any], message: str
) -> None:
    index = await found(sales)
    answer = await review(sales.http, index, **body)
    assert (answer.status_code, error_of(answer)["message"][: len(message)]) == (400, message)
    assert await reviews_in(sales) == []


async def test_only_a_finding_of_the_log_can_be_reviewed(sales: Gateway, module_app: FastAPI) -> None:
    index = await found(sales)
    for finding in (index - 1, 0, 10**9):
        answer = await review(sales.http, finding)
        assert answer.status_code == 404, "a scan, a control entry, and no entry at all"
        assert error_of(answer)["message"] == f"finding {finding}: expected a finding that you may see, found none"
        assert (await sales.http.get(f"/v1/findings/{finding}")).status_code == 404
    for text in ("-1", "x", "1.0", "9" * 20):
        assert (await review(sales.http, text)).status_code == 400
    async with open_gateway(sales.services, app=module_app) as other:
        await Detection(other).projected()
        assert (await review(other.http, index)).status_code == 404
        assert await reviews_in(sales) == await reviews_in(other) == []


async def test_a_finding_that_the_read_model_does_not_have_yet_is_503_and_not_404(sales: Gateway) -> None:
    await found(sales)
    await Detection(sales).scanned("12", PHONE, table_uuid=await uuid_of_orders(sales))
    newest = await Detection(sales).size() - 1
    answer = await review(sales.http, newest)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert await reviews_in(sales) == []


async def test_what_a_later_scan_of_the_snapshot_has_replaced_is_not_reviewed(sales: Gateway) -> None:
    index = await found(sales)
    again = await found(sales)
    assert (await review(sales.http, index)).status_code == 404
    assert (await review(sales.http, again)).status_code == 200


async def test_to_review_is_a_right_of_its_own_which_rules_for_other_operations_do_not_give(sales: Gateway) -> None:
    index = await found(sales)
    admin, log_id = sales.services.gateway.admin, sales.acme.log_id
    await admin.create_access_rule(log_id, OPERATOR, rule_id="readers", effect="permit", expression=READERS)
    key = await another_key(sales, "eve@acme.example", "reader")
    async with sales.client(key) as reader, sales.client(await another_key(sales, "bob@acme.example")) as nobody:
        assert (await reader.get(f"/v1/findings/{index}")).status_code == 200
        refused = await review(reader, index)
        assert (refused.status_code, error_of(refused)["message"]) == (403, "no access rule permits this")
        table = (await reader.get("/v1/tables/lake/sales/orders/findings")).json()
        assert (table["may_review"], len(table["findings"])) == (False, 1)
        hidden = await review(nobody, index)
        assert (hidden.status_code, error_of(hidden)["message"]) == (
            404,
            f"finding {index}: expected a finding that you may see, found none",
        )
    assert await reviews_in(sales) == []
    await admin.create_access_rule(log_id, OPERATOR, rule_id="stewards", effect="permit", expression=REVIEWERS)
    steward = await another_key(sales, "sue@acme.example", "reader", "steward")
    async with sales.client(steward) as http:
        assert (await http.get("/v1/tables/lake/sales/orders/findings")).json()["may_review"] is True
        assert (await review(http, index)).status_code == 200
    what = await sales.http.get("/v1/access/who", params={"operation": "table.review", "target": "lake.sales.orders"})
    deciding = {each["rule"]["id"] for each in what.json()["callers"] if each["decision"] == "permitted"}
    assert deciding == {"first-key", "stewards"}


async def test_a_review_that_rules_of_yesterday_permitted_is_judged_again(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = await found(sales)
    admin = sales.services.gateway.admin
    made, tried = admin.review_finding, list[int]()

    async def behind(*args: Any, **named: Any) -> Any:
        tried.append(1)
        if len(tried) == 1:
            await admin.create_access_rule(
                sales.acme.log_id, OPERATOR, rule_id="nobody", effect="forbid", expression="op == 'REVIEW_FINDING'"
            )
            with pytest.raises(StaleEditError):
                await made(*args, **named)
            raise StaleEditError("stale")
        return await made(*args, **named)

    monkeypatch.setattr(admin, "review_finding", behind)
    answer = await review(sales.http, index)
    assert (answer.status_code, error_of(answer)["message"]) == (403, "access rule nobody (version 1) forbids this")
    assert await reviews_in(sales) == []


async def test_a_finding_follows_its_table_to_another_name_and_cannot_be_reviewed_once_that_is_dropped(
    sales: Gateway,
) -> None:
    index = await found(sales)
    rename = {
        "source": {"namespace": ["sales"], "name": "orders"},
        "destination": {"namespace": ["sales"], "name": "sold"},
    }
    assert (await sales.http.post("/v1/iceberg/lake/tables/rename", json=rename)).status_code == 204
    assert (await sales.http.post(TABLES, json={"name": "orders", "schema": SCHEMA})).status_code == 200
    await Detection(sales).projected()
    assert (await review(sales.http, index)).status_code == 200
    (entry,) = await reviews_in(sales)
    assert entry.entry.key == "table:lake/sales/sold"
    assert (await sales.http.delete(f"{TABLES}/sold")).status_code == 204
    await Detection(sales).projected()
    answer = await review(sales.http, index)
    assert (answer.status_code, error_of(answer)["type"]) == (404, "NoSuchTableException")
    assert len(await reviews_in(sales)) == 1


async def test_lists_have_the_state_of_each_and_those_of_one_state(sales: Gateway) -> None:
    last = await found(sales, EMAIL, PHONE)
    assert (await review(sales.http, last)).status_code == 200
    await Detection(sales).projected()

    async def listed(path: str, **query: str) -> list[tuple[int, str]]:
        answer = await sales.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return [(each["index"], each["state"]) for each in answer.json()["findings"]]

    of_table = "/v1/tables/lake/sales/orders/findings"
    for path in ("/v1/findings", of_table):
        assert await listed(path) == [(last, "dismissed"), (last - 1, "open")]
        assert await listed(path, state="open") == [(last - 1, "open")]
        assert await listed(path, state="dismissed") == [(last, "dismissed")]
        assert await listed(path, state="confirmed") == []
        assert (await sales.http.get(path, params={"state": "closed"})).status_code == 400


async def test_a_table_has_a_tag_until_what_was_found_for_certain_is_dismissed(sales: Gateway) -> None:
    phone = await found(sales, EMAIL, PHONE)

    async def tagged(tag: str) -> int:
        await project(sales)
        return len((await sales.http.get("/v1/tables", params={"tag": tag})).json()["tables"])

    assert [await tagged(tag) for tag in ("email", "pii", "phone")] == [1, 1, 0], "a phone of 55 percent tags nothing"
    assert (await review(sales.http, phone - 1)).status_code == 200
    assert [await tagged(tag) for tag in ("email", "pii")] == [0, 0]
    assert (await review(sales.http, phone - 1, verdict="confirmed")).status_code == 200
    assert await tagged("pii") == 1


async def test_a_table_is_not_written_until_its_findings_were_reviewed(sales: Gateway) -> None:
    """The ready policy, as its file is."""
    (policy,) = [each for each in library() if each.id == "quarantine-until-reviewed"]
    await sales.services.gateway.admin.create_policy(
        sales.acme.log_id,
        OPERATOR,
        policy_id=policy.id,
        text=PolicyText(expression=policy.expression, message=policy.message, scope=policy.scope),
    )
    assert (await sales.http.post(ORDERS, json=properties(a="1"))).status_code == 200
    index = await found(sales)
    assert (await sales.http.post(ORDERS, json=properties(a="2"))).status_code == 403
    assert (await review(sales.http, index)).status_code == 200
    assert (await sales.http.post(ORDERS, json=properties(a="3"))).status_code == 200, "before any read model has it"
    await Detection(sales).projected()
    assert (await sales.http.post(ORDERS, json=properties(a="4"))).status_code == 200, "and after"
    await found(sales, EMAIL, PHONE, snapshot="12")
    assert (await sales.http.post(ORDERS, json=properties(a="5"))).status_code == 200, "nothing new, but of 55 percent"
    assert (await sales.http.post(f"{NAMESPACES}", json={"namespace": ["more"]})).status_code == 200
