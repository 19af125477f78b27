# SPDX-License-Identifier: Apache-2.0
"""
Which policies judge a commit: those in scope, in order of creation, in the version that is in force at that time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from gateway.admin.application import OPERATOR
from gateway.policy.engine import Program, Verdict
from ledger.format.canonical import Json, format_time
from ledger.format.events import PolicyCreatedV1
from ledger.proving.evidence.gather import rules_in_force
from ledger.proving.evidence.scope import rules_digest
from testkit.gateway.log_contents import StoredEntry, read_stored
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, error_of, properties
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def policy(gateway: Gateway, policy_id: str, expression: str = "false", **more: Any) -> None:
    body = {"id": policy_id, "expression": expression, "message": f"{policy_id} says no", **more}
    created = await gateway.http.post("/v1/policies", json=body)
    assert created.status_code == 201, created.text


def judged_by(decision: StoredEntry) -> list[tuple[str, int, str]]:
    """The policies that judged, in the recorded order, and what they said."""
    verdicts = json.loads(decision.parts["verdicts"])["verdicts"]
    return [(one["id"], one["version"], one["outcome"]) for one in verdicts if one["kind"] == "policy"]


async def last_decision(gateway: Gateway) -> StoredEntry:
    told = await read_stored(gateway.services, gateway.acme.log_id)
    return [one for one in told if one.entry.type == "commit.decided"][-1]


async def test_only_policies_whose_scope_covers_a_commit_judge_it(sales: Gateway) -> None:
    await policy(sales, "z-everywhere", "true")
    await policy(sales, "sales-only", "true", scope={"names": ["sales.**"], "catalogs": ["lake"]})
    await policy(sales, "elsewhere", scope={"names": ["hr.**"]})
    await policy(sales, "other-alias", scope={"catalogs": ["far"]})
    await policy(sales, "a-drops", scope={"operations": ["table.drop"]})
    await policy(sales, "views", scope={"kinds": ["view"]})
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    assert judged_by(await last_decision(sales)) == [("z-everywhere", 1, "allow"), ("sales-only", 1, "allow")]
    refused = await sales.http.delete(ORDERS)
    assert (refused.status_code, error_of(refused)["message"]) == (403, "a-drops says no (policy a-drops, version 1)")
    assert judged_by(await last_decision(sales)) == [
        ("z-everywhere", 1, "allow"),
        ("sales-only", 1, "allow"),
        ("a-drops", 1, "deny"),
    ]
    assert (await sales.http.post(NAMESPACES, json={"namespace": ["hr"]})).status_code == 403


async def test_of_several_that_deny_the_first_in_order_of_creation_is_the_reason(sales: Gateway) -> None:
    await policy(sales, "z")
    await policy(sales, "a", scope={"names": ["sales.orders"]})
    await policy(sales, "m")
    for _ in range(2):  # the second time, verdicts are known
        refused = await sales.http.post(ORDERS, json=properties(a="b"))
        assert error_of(refused)["message"] == "z says no (policy z, version 1)"
        assert [name for name, _, _ in judged_by(await last_decision(sales))] == ["z", "a", "m"]


async def test_without_catalogs_a_policy_governs_a_name_under_every_alias(sales: Gateway) -> None:
    admin, log_id = sales.services.gateway.admin, sales.acme.log_id
    await admin.create_catalog(log_id, OPERATOR, alias="second", kind="builtin", options={})
    await policy(sales, "orders", scope={"names": ["sales.orders"], "operations": ["table.create", "table.commit"]})
    second = NAMESPACES.replace("/lake/", "/second/")
    assert (await sales.http.post(second, json={"namespace": ["sales"]})).status_code == 200
    assert (await sales.http.post(f"{second}/sales/tables", json=CREATE)).status_code == 403
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 403
    assert (await sales.http.post(f"{second}/sales/tables", json={**CREATE, "name": "items"})).status_code == 200


RENAME = "/v1/iceberg/lake/tables/rename"
TABLES = f"{NAMESPACES}/sales/tables"


async def uuid_of(gateway: Gateway, path: str = ORDERS) -> str:
    found: str = (await gateway.http.get(path)).json()["metadata"]["table-uuid"]
    return found


async def rename(gateway: Gateway, source: str, destination: str) -> httpx.Response:
    named = [{"namespace": ["sales"], "name": name} for name in (source, destination)]
    return await gateway.http.post(RENAME, json={"source": named[0], "destination": named[1]})


async def test_a_policy_by_uuid_follows_the_table_that_is_renamed_and_leaves_its_name(sales: Gateway) -> None:
    commits = ["table.commit", "table.drop"]
    await policy(sales, "frozen", scope={"uuids": [await uuid_of(sales)], "operations": commits})
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 403
    assert (await rename(sales, "orders", "parked")).status_code == 204
    assert (await sales.http.post(f"{TABLES}/parked", json=properties(a="b"))).status_code == 403
    assert (await sales.http.delete(f"{TABLES}/parked")).status_code == 403
    assert (await sales.http.post(TABLES, json=CREATE)).status_code == 200, "another table of its old name"
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    assert judged_by(await last_decision(sales)) == []
    shown = [(await sales.http.get(f"/v1/policies/{each}")).json()["scope"]["uuids"] for each in ("frozen",)]
    assert shown == [[await uuid_of(sales, f"{TABLES}/parked")]]


async def test_a_policy_by_uuid_judges_the_rename_the_drop_and_the_registration_of_its_table(sales: Gateway) -> None:
    uuid, location = await uuid_of(sales), (await sales.http.get(ORDERS)).json()["metadata-location"]
    for operation in ("table.rename_from", "table.rename_to"):
        await policy(sales, operation.replace(".", "-"), scope={"uuids": [uuid], "operations": [operation]})
        assert (await rename(sales, "orders", "other")).status_code == 403, operation
        assert (await sales.http.delete(f"/v1/policies/{operation.replace('.', '-')}")).status_code == 204
    assert (await sales.http.delete(ORDERS)).status_code == 204
    await policy(sales, "gone", scope={"uuids": [uuid]})
    body = {"name": "back", "metadata-location": location}
    assert (await sales.http.post(f"{NAMESPACES}/sales/register", json=body)).status_code == 403
    assert judged_by(await last_decision(sales)) == [("gone", 1, "deny")]


async def test_a_commit_that_no_policy_covers_needs_no_evaluation_of_policies(sales: Gateway) -> None:
    await policy(sales, "elsewhere", scope={"names": ["hr.**"]})
    judge = sales.services.gateway.judge
    asked: list[Program] = []

    class Asked:
        """The gateway's engine, and what it was asked."""

        async def check(self, expression: str, *, log_id: int, timeout_s: float, kind: str = "policy") -> None:
            await judge.engine.check(expression, log_id=log_id, timeout_s=timeout_s, kind=kind)

        async def judge(
            self, programs: Sequence[Program], activation: Mapping[str, Json], *, log_id: int, timeout_s: float
        ) -> tuple[Verdict, ...]:
            asked.extend(programs)
            return await judge.engine.judge(programs, activation, log_id=log_id, timeout_s=timeout_s)

    http = sales.through(judge=replace(judge, engine=Asked()))
    assert (await http.post(ORDERS, json=properties(a="b"))).status_code == 200
    assert {program.kind for program in asked} == {"access_rule"}
    assert judged_by(await last_decision(sales)) == []


async def test_braces_in_a_message_of_version_1_stay_as_they_are(sales: Gateway) -> None:
    old = PolicyCreatedV1(id="old", version=1, expression="false", message="{commit.name} {{no}} {")
    await sales.services.gateway.admin._edits.create(sales.acme.log_id, OPERATOR, old)
    refused = await sales.http.post(ORDERS, json=properties(a="b"))
    assert error_of(refused)["message"] == "{commit.name} {{no}} { (policy old, version 1)"
    assert judged_by(await last_decision(sales)) == [("old", 1, "deny")]


async def test_a_denial_names_values_of_the_commit(sales: Gateway) -> None:
    await policy(sales, "named", message="{commit.name} in {commit.catalog}: {{ask}} {principal.sub}")
    refused = await sales.http.post(ORDERS, json=properties(a="b"))
    expected = "orders in lake: {ask} ada@acme.example (policy named, version 1)"
    assert error_of(refused)["message"] == expected
    assert (await last_decision(sales)).parts["message"] == expected.encode()


# Times


def clock_at(gateway: Gateway, **delta: float) -> Any:
    real = gateway.services.gateway.clock
    return lambda: real() + timedelta(**delta)


async def check_digest(gateway: Gateway, decision: StoredEntry) -> None:
    """Check that the digest of a decision follows from the log and the recorded time alone."""
    store = gateway.services.gateway.admin._edits._store
    control = await asyncio.to_thread(store.control_entries, gateway.acme.log_id, after=-1, limit=10_000)

    class Source:
        async def control_entries(self, *, end: int) -> Sequence[bytes]:
            return [entry for index, entry in control if index < end]

    as_of, at = decision.decided.as_of, decision.entry.occurred_at
    rules: Any = await rules_in_force(Source(), as_of, at=at)  # type: ignore[arg-type]
    assert rules_digest(entry for entry, _ in rules) == decision.decided.policy_set


async def test_a_version_judges_from_its_time_on_and_the_one_before_until_then(sales: Gateway) -> None:
    at = format_time(sales.services.gateway.clock() + timedelta(hours=1))
    await policy(sales, "p", "true")
    change = {"expression": "false", "message": "now no", "activate_at": at}
    assert (await sales.http.put("/v1/policies/p", json=change)).status_code == 200
    before = sales.through(clock=clock_at(sales, minutes=59))
    after = sales.through(clock=clock_at(sales, minutes=61))
    for http, status, verdict in (
        (before, 200, ("p", 1, "allow")),
        (after, 403, ("p", 2, "deny")),
        (before, 200, ("p", 1, "allow")),
        (after, 403, ("p", 2, "deny")),
    ):
        answer = await http.post(ORDERS, json=properties(a="b"))
        assert answer.status_code == status, answer.text
        decision = await last_decision(sales)
        assert judged_by(decision) == [verdict]
        assert (decision.entry.occurred_at >= datetime.fromisoformat(at)) is (status == 403)
        await check_digest(sales, decision)


async def test_a_policy_that_is_to_come_judges_nothing_before(sales: Gateway) -> None:
    at = format_time(sales.services.gateway.clock() + timedelta(hours=1))
    await policy(sales, "p", activate_at=at)
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    decision = await last_decision(sales)
    assert judged_by(decision) == []
    await check_digest(sales, decision)
    after = sales.through(clock=clock_at(sales, hours=2))
    assert (await after.post(ORDERS, json=properties(a="b"))).status_code == 403
    await check_digest(sales, await last_decision(sales))


async def test_a_policy_that_ends_at_a_time_judges_until_then(sales: Gateway) -> None:
    at = format_time(sales.services.gateway.clock() + timedelta(hours=1))
    await policy(sales, "p")
    assert (await sales.http.delete("/v1/policies/p", params={"retire_at": at})).status_code == 204
    before = sales.through(clock=clock_at(sales, minutes=59))
    after = sales.through(clock=clock_at(sales, minutes=61))
    for http, status, verdicts in ((before, 403, [("p", 1, "deny")]), (after, 200, [])):
        answer = await http.post(ORDERS, json=properties(a="b"))
        assert answer.status_code == status, answer.text
        decision = await last_decision(sales)
        assert judged_by(decision) == verdicts
        await check_digest(sales, decision)


# Properties


async def test_the_commit_that_removes_a_tag_is_judged_by_the_policy_and_the_next_is_not(sales: Gateway) -> None:
    await policy(sales, "pii", scope={"properties": ["classification=pii"]})
    http = sales.http
    assert (await http.post(ORDERS, json=properties(classification="public"))).status_code == 200
    tag = properties(classification="pii")
    refused = await http.post(ORDERS, json=tag)
    assert error_of(refused)["message"] == "pii says no (policy pii, version 1)", "the commit that sets it"
    assert (await http.put("/v1/policies/pii", json=allowing("true"))).status_code == 200
    assert (await http.post(ORDERS, json=tag)).status_code == 200
    assert (await http.put("/v1/policies/pii", json=allowing("false"))).status_code == 200
    untag = {"requirements": [], "updates": [{"action": "remove-properties", "removals": ["classification"]}]}
    assert (await http.post(ORDERS, json=untag)).status_code == 403
    assert (await http.delete(ORDERS)).status_code == 403
    assert (await http.put("/v1/policies/pii", json=allowing("true"))).status_code == 200
    assert (await http.post(ORDERS, json=untag)).status_code == 200
    assert judged_by(await last_decision(sales)) == [("pii", 4, "allow")]
    assert (await http.post(ORDERS, json=properties(a="b"))).status_code == 200
    assert judged_by(await last_decision(sales)) == []


def allowing(expression: str) -> dict[str, Any]:
    scope = {"properties": ["classification=pii"]}
    return {"expression": expression, "message": "pii says no", "scope": scope}


async def test_a_table_that_is_made_with_a_tag_and_both_names_of_one_that_is_renamed_are_governed(
    sales: Gateway,
) -> None:
    await policy(sales, "pii", "commit.operation != 'table.create'", scope={"properties": ["classification.*"]})
    create = {**CREATE, "name": "people", "properties": {"classification.mail": "email"}}
    assert (await sales.http.post(ORDERS.rpartition("/")[0], json=create)).status_code == 403
    assert (await sales.http.post(ORDERS, json=properties(**{"classification.mail": "email"}))).status_code == 200
    renaming = {
        "source": {"namespace": ["sales"], "name": "orders"},
        "destination": {"namespace": ["sales"], "name": "more"},
    }
    assert (await sales.http.post("/v1/iceberg/lake/tables/rename", json=renaming)).status_code == 204
    told = [one for one in await read_stored(sales.services, sales.acme.log_id) if one.entry.type == "commit.decided"]
    assert [judged_by(one) for one in told[-2:]] == [[("pii", 1, "allow")]] * 2
