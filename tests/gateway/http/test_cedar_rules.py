# SPDX-License-Identifier: Apache-2.0
"""
Access rules in Cedar through a gateway: who gets in, what lists show, what the log has, and what is told of rules.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.policy.access import IN_CEDAR
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import ORDERS, TABLES, another_key, error_of, properties
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

READERS = 'permit(principal in Role::"reader", action in Action::"read", resource in Namespace::"lake.sales");'
WRITERS = 'permit(principal in Role::"writer", action in [Action::"read", Action::"write"], resource is Table);'
SENSITIVE = """
forbid(principal, action, resource)
when { resource.path like "*.orders" }
unless { principal.roles.contains("reader") || principal.roles.contains("data-eng") };
"""


async def created(gateway: Gateway, id_: str, effect: str, text: str) -> dict[str, Any]:
    body = {"id": id_, "effect": effect, "expression": text, "vocabulary": IN_CEDAR}
    answer = await gateway.http.post("/v1/access-rules", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_policies_in_cedar_permit_and_forbid_and_the_log_has_their_verdicts(sales: Gateway) -> None:
    made = await created(sales, "readers", "permit", READERS)
    assert (made["vocabulary"], made["expression"], made["warnings"]) == (IN_CEDAR, READERS, [])
    await created(sales, "writers", "permit", WRITERS)
    reader = sales.client(await another_key(sales, "rik@acme.example", "reader"))
    writer = sales.client(await another_key(sales, "wim@acme.example", "writer"))
    nobody = sales.client(await another_key(sales, "nan@acme.example"))
    assert [(await who.get(ORDERS)).status_code for who in (reader, writer, nobody)] == [200, 200, 403]
    assert [one["name"] for one in (await reader.get(TABLES)).json()["identifiers"]] == ["orders"]
    assert [(await who.get("/v1/config?warehouse=lake")).status_code for who in (reader, nobody)] == [200, 404]
    assert [(await reader.get(path)).status_code for path in ("/v1/policies", "/log/checkpoint")] == [403, 403]
    assert (await reader.post(ORDERS, json=properties(a="b"))).status_code == 403
    assert (await writer.post(ORDERS, json=properties(a="b"))).status_code == 200
    await created(sales, "sensitive", "forbid", SENSITIVE)
    refused = await writer.post(ORDERS, json=properties(a="c"))
    assert refused.status_code == 403
    assert error_of(refused)["message"].startswith("access rule sensitive (version 1) forbids this")
    assert (await reader.get(ORDERS)).status_code == 200
    stored = await read_stored(sales.services, sales.acme.log_id)
    decided = [one for one in stored if one.entry.type == "commit.decided" and one.entry.key.endswith("/orders")]
    accepted, rejected = (one.entry.data for one in decided[-2:])
    assert accepted["policy_set"] != rejected["policy_set"]
    assert rejected["reason"] == {"id": "sensitive", "version": 1}
    versions = [one.entry.version for one in stored if one.entry.type == "access_rule.created"]
    assert versions[-3:] == [IN_CEDAR] * 3


async def test_what_is_no_valid_policy_is_not_saved(sales: Gateway) -> None:
    body = {"id": "p", "effect": "permit", "vocabulary": IN_CEDAR}
    for text, words in (
        ("'reader' in roles", "invalid token"),
        ('permit(principal, action == Action::"DELETE", resource);', "unrecognized action"),
        (SENSITIVE, "the policy is to forbid, and the effect of its rule is permit"),
        ("permit(principal, action, resource) when { resource.owner == principal };", "attribute `owner`"),
    ):
        answer = await sales.http.post("/v1/access-rules", json={**body, "expression": text})
        assert (answer.status_code, words in error_of(answer)["message"]) == (422, True), answer.text


async def test_nobody_locks_themselves_out_with_a_policy_in_cedar(sales: Gateway) -> None:
    text = "forbid(principal, action, resource);"
    body = {"id": "all", "effect": "forbid", "expression": text, "vocabulary": IN_CEDAR}
    answer = await sales.http.post("/v1/access-rules", json=body)
    assert (answer.status_code, "would lock you out" in error_of(answer)["message"]) == (422, True)


async def test_who_may_is_told_of_policies_in_cedar_and_what_they_read_of_a_body_is_unknown(sales: Gateway) -> None:
    await created(sales, "readers", "permit", READERS)
    creators = 'permit(principal in Role::"maker", action, resource) when { context.actions.contains("X") };'
    await created(sales, "makers", "permit", creators)

    async def told(operation: str) -> dict[tuple[str, ...], tuple[str, str | None]]:
        params = {"operation": operation, "target": "lake.sales.orders"}
        callers = (await sales.http.get("/v1/access/who", params=params)).json()["callers"]
        return {
            tuple(one["roles"]): (one["decision"], (one["rule"] or {"id": None})["id"])
            for one in callers
            if not one["keys"]
        }

    assert await told("table.load") == {
        (): ("denied", None),
        ("reader",): ("permitted", "readers"),
        ("maker",): ("denied", None),
    }
    assert await told("table.commit") == {
        (): ("denied", None),
        ("reader",): ("denied", None),
        ("maker",): ("undecidable", "makers"),
    }
    linted = (await sales.http.get("/v1/access/lint")).json()
    assert "rules in Cedar, and what they do to the others: readers, makers" in linted["not_looked_at"]


async def test_a_decision_by_a_policy_in_cedar_is_explained_by_its_verdict(sales: Gateway) -> None:
    await created(sales, "writers", "permit", WRITERS)
    writer = sales.client(await another_key(sales, "wim@acme.example", "writer"))
    assert (await writer.post(ORDERS, json=properties(a="b"))).status_code == 200
    stored = await read_stored(sales.services, sales.acme.log_id)
    decided = [one.entry for one in stored if one.entry.type == "commit.decided"][-1]
    explained = (await sales.http.get(f"/v1/decisions/{decided.group_id}/explanation")).json()
    (rule,) = [one for one in explained["rules"] if one["id"] == "writers"]
    assert (rule["recorded"], rule["judged_again"], rule["agrees"], rule["steps"]) == ("allow", "allow", True, [])
