# SPDX-License-Identifier: Apache-2.0
"""
Policies see what a table was made from, and what detection knows of that; the record of the decision has it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from gateway.admin.application import OPERATOR
from gateway.replaying.comparing import Change
from gateway.replaying.replay import Proposed
from gateway.replaying.variables import ERASED, NOT_LOOKED_UP, Known
from projections.relational import current_findings
from testkit.gateway.log_contents import read_stored
from testkit.gateway.recorded_scans import EMAIL, PHONE, Detection, uuid_of_orders
from testkit.gateway.replays import WatchedEngine, erase_ada, rebuilt, replay
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, TABLES, error_of, properties
from testkit.servers.gateways import Gateway, open_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREFIX = "/v1/iceberg/lake"
PEOPLE, PEOPLE_KEY = f"{TABLES}/people", "table:lake/sales/people"
CLEAN = "!lineage.upstream.exists(t, t.kinds.exists(k, k.confidence >= 80))"
RENAME = {
    "source": {"namespace": ["sales"], "name": "orders"},
    "destination": {"namespace": ["sales"], "name": "sold"},
}


async def made_from(gateway: Gateway, source: str, target: str) -> None:
    """Tell by OpenLineage that a table was made from another one, and bring the read models to the end of the log."""
    names = [[{"namespace": "lake", "name": f"sales.{name}"}] for name in (source, target)]
    event = {
        "eventType": "COMPLETE",
        "eventTime": "2026-11-20T12:00:00Z",
        "producer": "https://example.com/etl/1.4",
        "run": {"runId": str(uuid4())},
        "job": {"namespace": "etl", "name": "load"},
        "inputs": names[0],
        "outputs": names[1],
    }
    answer = await gateway.http.post("/v1/lineage", json=event)
    assert answer.status_code < 300, answer.text
    await Detection(gateway).projected()


async def in_force(gateway: Gateway, expression: str = CLEAN) -> None:
    await gateway.services.gateway.admin.create_policy(
        gateway.acme.log_id, OPERATOR, policy_id="made", expression=expression, message="no"
    )


async def with_people(gateway: Gateway) -> str:
    """Make orders from people, in which a mail address was found; return the uuid of people."""
    assert (await gateway.http.post(TABLES, json={**CREATE, "name": "people"})).status_code == 200
    uuid = await uuid_of_orders(gateway, PEOPLE)
    await Detection(gateway).scanned("11", EMAIL, PHONE, table_uuid=uuid, key=PEOPLE_KEY)
    await made_from(gateway, "people", "orders")
    return uuid


async def test_a_table_is_judged_on_what_was_found_in_what_it_was_made_from(sales: Gateway) -> None:
    await in_force(sales)
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    await with_people(sales)
    assert (await sales.http.post(ORDERS, json=properties(a="c"))).status_code == 403
    assert (await sales.http.post(PEOPLE, json=properties(a="c"))).status_code == 200, "which is made from nothing"
    assert (await sales.http.post(NAMESPACES, json={"namespace": ["more"]})).status_code == 200


async def test_the_record_has_all_of_it(sales: Gateway) -> None:
    uuid = await with_people(sales)
    await in_force(sales)
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 403
    decision = [one for one in await read_stored(sales.services, sales.acme.log_id) if one.words == "rejected"][-1]
    noted = json.loads(decision.parts["inputs"])["variables"]
    (policy,) = [
        one.entry.index
        for one in await read_stored(sales.services, sales.acme.log_id)
        if one.entry.type == "policy.created"
    ]
    assert noted == {
        "lineage.as_of": policy,
        "lineage.upstream": [
            {
                "catalog": "lake",
                "namespace": ["sales"],
                "name": "people",
                "uuid": uuid,
                "hops": 1,
                "kinds": [{"kind": "email", "confidence": 92}, {"kind": "phone", "confidence": 55}],
            }
        ],
    }


async def test_a_renamed_table_was_made_from_the_same(sales: Gateway) -> None:
    await with_people(sales)
    assert (await sales.http.post(f"{PREFIX}/tables/rename", json=RENAME)).status_code == 204
    await Detection(sales).projected()
    await in_force(sales)
    assert (await sales.http.post(f"{TABLES}/sold", json=properties(a="b"))).status_code == 403


async def test_a_read_model_that_is_too_far_behind_leaves_a_commit_undecided(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Detection(sales).projected()
    await in_force(sales)
    monkeypatch.setattr(current_findings, "BEHIND_ENTRIES_MAX", 0)
    answer = await sales.http.post(ORDERS, json=properties(a="b"))
    assert answer.status_code == 503
    assert "lineage is not known: expected the projection lineage at most 0 entries" in error_of(answer)["message"]
    await Detection(sales).projected()
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200


async def test_no_tenant_is_judged_on_another_ones_lineage(sales: Gateway) -> None:
    await in_force(sales)
    async with open_gateway(sales.services) as other:
        await other.http.post(NAMESPACES, json={"namespace": ["sales"]})
        await other.http.post(TABLES, json=CREATE)
        await with_people(other)
        await Detection(sales).projected()
        assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200


async def test_a_replay_judges_each_decision_on_what_was_recorded(sales: Gateway) -> None:
    assert (await sales.http.post(ORDERS, json=properties(a="0"))).status_code == 200
    await in_force(sales)
    judge = sales.services.gateway.judge
    engine = WatchedEngine(judge.engine, ["lineage"])
    async with sales.through(judge=replace(judge, engine=engine)) as http:
        assert (await http.post(ORDERS, json=properties(a="1"))).status_code == 200
        await with_people(sales)
        assert (await http.post(ORDERS, json=properties(a="2"))).status_code == 403
    found: list[Any] = [variables["lineage"] for _, variables in await rebuilt(sales)]
    assert found[1] is found[2] is NOT_LOOKED_UP
    members: list[Any] = [one.members for one in found if isinstance(one, Known)]
    namespace, before, people, after = members
    assert namespace == {"upstream": [], "as_of": 0}
    assert [{"upstream": one["upstream"]} for one in (before, after)] == [saw["lineage"] for saw in engine.seen]
    assert (len(before["upstream"]), len(people["upstream"]), len(after["upstream"])) == (0, 0, 1)
    weaker = await replay(sales, Proposed(id="made", expression="size(lineage.upstream) < 2"))
    assert (weaker.counts[Change.WIDENED], weaker.counts[Change.NARROWED]) == (1, 0)
    await erase_ada(sales)
    assert ERASED in [variables["lineage"] for _, variables in await rebuilt(sales)]
