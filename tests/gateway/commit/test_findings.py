# SPDX-License-Identifier: Apache-2.0
"""
Policies see what detection knows of a table: as of the log, under whatever name, and where none of them reads it
nothing is looked up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import httpx
import pytest

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.commit.gateway import Gateway as GatewayParts
from gateway.commit.target_queues import TargetQueues
from gateway.policy.scopes import EVERYTHING, Scope
from gateway.policy.variables import ClassifiedView, FindingsView, LineageView, UpstreamView
from lakeproof.services import Services
from projections.relational import current_findings
from testkit.gateway.log_contents import StoredEntry, read_stored
from testkit.gateway.recorded_scans import EMAIL, PHONE, Detection, uuid_of_orders
from testkit.gateway.replays import WatchedEngine
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, TABLES, another_key, error_of, properties
from testkit.gateway.table_requests import commit_to, transaction
from testkit.servers.gateways import Gateway, app_of, open_gateway
from testkit.spark_detect.lakehouse import make_people, open_lakehouse

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREFIX = "/v1/iceberg/lake"
SURE = "findings.columns.all(f, f.confidence < 90)"
RENAME = {
    "source": {"namespace": ["sales"], "name": "orders"},
    "destination": {"namespace": ["sales"], "name": "sold"},
}
REGISTER = f"{NAMESPACES}/sales/register"


async def in_force(gateway: Gateway, expression: str, *, scope: Scope = EVERYTHING) -> None:
    await gateway.services.gateway.admin.create_policy(
        gateway.acme.log_id,
        OPERATOR,
        policy_id="found",
        text=PolicyText(expression=expression, message="no", scope=scope),
    )


async def last_decision(gateway: Gateway) -> StoredEntry:
    stored = await read_stored(gateway.services, gateway.acme.log_id)
    return [one for one in stored if one.entry.type == "commit.decided"][-1]


class Unasked:
    """Look-ups that nothing may ask for."""

    async def findings(self, tenant: UUID, log_id: int, table_uuid: str | None) -> FindingsView:
        raise AssertionError(f"table {table_uuid} of log {log_id} of {tenant} was looked up")

    async def lineage(self, tenant: UUID, log_id: int, key: str, table_uuid: str | None) -> LineageView:
        raise AssertionError(f"{key}, table {table_uuid} of log {log_id} of {tenant}, was looked up")

    async def classified(
        self, tenant: UUID, log_id: int, upstream: Sequence[UpstreamView]
    ) -> tuple[ClassifiedView, ...]:
        raise AssertionError(f"how {upstream} of log {log_id} of {tenant} are classified was looked up")


def unasked(parts: GatewayParts) -> GatewayParts:
    return replace(parts, judge=replace(parts.judge, look_ups=Unasked()), queues=TargetQueues())


async def test_what_a_scan_finds_stops_the_next_commit(module_services: Services) -> None:
    """From PyIceberg's append to detection's own entries, and back to a commit."""
    async with open_lakehouse(module_services, name="scanned") as lakehouse:
        await lakehouse.play(make_people)
        await module_services.gateway.admin.create_policy(
            lakehouse.log_id,
            OPERATOR,
            policy_id="found",
            text=PolicyText(expression=SURE, message="{findings.scanned_snapshot}"),
        )
        headers = {"Authorization": f"Bearer {lakehouse.key}"}
        async with httpx.AsyncClient(base_url=lakehouse.url, headers=headers) as http:
            path = f"{PREFIX}/namespaces/crm/tables/people"
            assert (await http.post(path, json=properties(a="1"))).status_code == 200, "nothing was scanned yet"
            await lakehouse.detect()
            assert max(found.confidence_percent for found in await lakehouse.found()) >= 90
            refused = await http.post(path, json=properties(a="2"))
            assert refused.status_code == 403
            snapshot = (await lakehouse.completed())[-1].snapshot
            assert error_of(refused)["message"] == f"{snapshot} (policy found, version 1)"


async def test_they_are_the_newest_of_each_column_and_kind(sales: Gateway) -> None:
    detection, uuid = Detection(sales), await uuid_of_orders(sales)
    await in_force(sales, "size(findings.columns) >= 0 && findings.as_of >= 0 && findings.scanned_at != 'x'")
    await detection.scanned("11", EMAIL, PHONE, table_uuid=uuid)
    await detection.scanned("12", EMAIL, table_uuid=uuid)
    judge = sales.services.gateway.judge
    engine = WatchedEngine(judge.engine, ["findings"])
    http = sales.through(judge=replace(judge, engine=engine))
    for _ in range(2):
        as_of = await detection.size()
        assert (await http.post(ORDERS, json=properties(a="b"))).status_code == 200
        found = engine.seen[-1]["findings"]
        assert found["as_of"] == as_of
        assert [(one["column"], one["field_id"], one["kind"], one["confidence"]) for one in found["columns"]] == [
            ("email", 1, "email", 92),
            ("phone", 2, "phone", 55),
        ]
        assert [(one["snapshot"], one["matches"], one["values"]) for one in found["columns"]] == [
            ("12", 90, 100),
            ("11", 90, 100),
        ]
        await detection.projected()  # and again from the read model
    first, again = (one["findings"] for one in engine.seen)
    assert {**first, "as_of": 0} == {**again, "as_of": 0}


async def test_a_table_that_was_never_scanned_and_a_new_one_have_none(sales: Gateway) -> None:
    await in_force(sales, "findings.columns == [] && findings.scanned_at == '' && findings.as_of > 0")
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    assert (await sales.http.post(TABLES, json={**CREATE, "name": "more"})).status_code == 200


async def test_views_and_namespaces_have_none_and_nothing_is_looked_up_for_them(sales: Gateway) -> None:
    await in_force(sales, "findings.columns == [] && findings.as_of == 0")
    async with open_gateway(sales.services, sales.acme, app_of(unasked(sales.services.gateway))) as gateway:
        assert (await gateway.http.post(NAMESPACES, json={"namespace": ["more"]})).status_code == 200


async def test_a_renamed_table_keeps_its_findings(sales: Gateway) -> None:
    detection, uuid = Detection(sales), await uuid_of_orders(sales)
    await detection.scanned("11", EMAIL, table_uuid=uuid)
    await detection.projected()
    assert (await sales.http.post(f"{PREFIX}/tables/rename", json=RENAME)).status_code == 204
    await in_force(sales, SURE)
    assert (await sales.http.post(f"{TABLES}/sold", json=properties(a="b"))).status_code == 403
    await detection.projected()
    assert (await sales.http.post(f"{TABLES}/sold", json=properties(a="b"))).status_code == 403
    assert (await sales.http.post(TABLES, json=CREATE)).status_code == 200, "another table under the old name"
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200


async def test_both_ends_of_a_rename_are_judged_on_them(sales: Gateway) -> None:
    uuid = await uuid_of_orders(sales)
    await in_force(sales, SURE, scope=Scope(operations=("table.rename_to",)))
    assert (await sales.http.post(f"{PREFIX}/tables/rename", json=RENAME)).status_code == 204
    back = {"source": RENAME["destination"], "destination": RENAME["source"]}
    await Detection(sales).scanned("11", EMAIL, table_uuid=uuid)
    assert (await sales.http.post(f"{PREFIX}/tables/rename", json=back)).status_code == 403


async def test_a_table_that_is_registered_again_has_its_findings(sales: Gateway) -> None:
    loaded = (await sales.http.get(ORDERS)).json()
    await Detection(sales).scanned("11", EMAIL, table_uuid=loaded["metadata"]["table-uuid"])
    assert (await sales.http.delete(ORDERS)).status_code == 204
    await in_force(sales, SURE)
    body = {"name": "again", "metadata-location": loaded["metadata-location"]}
    assert (await sales.http.post(REGISTER, json=body)).status_code == 403


async def test_the_record_has_the_index_up_to_which_the_log_was_read(sales: Gateway) -> None:
    detection, uuid = Detection(sales), await uuid_of_orders(sales)
    await in_force(sales, SURE)
    as_of = await detection.size()
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    await detection.scanned("11", EMAIL, table_uuid=uuid)
    later = await detection.size()
    assert (await sales.http.post(ORDERS, json=properties(a="c"))).status_code == 403
    stored = await read_stored(sales.services, sales.acme.log_id)
    noted = [json.loads(one.parts["inputs"]).get("variables") for one in stored if "inputs" in one.parts]
    assert noted[-2:] == [{"findings.as_of": as_of}, {"findings.as_of": later}]


async def test_a_read_model_that_is_too_far_behind_leaves_a_commit_undecided(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    detection = Detection(sales)
    await detection.projected()
    await in_force(sales, SURE, scope=Scope(names=("sales.orders",)))
    assert (await sales.http.post(TABLES, json={**CREATE, "name": "more"})).status_code == 200
    monkeypatch.setattr(current_findings, "BEHIND_ENTRIES_MAX", 2)
    before = await detection.size()
    for _ in range(2):
        answer = await sales.http.post(ORDERS, json=properties(a="b"))
        assert answer.status_code == 503
        assert answer.headers["Retry-After"]
        assert "at most 2 entries behind the log" in error_of(answer)["message"]
        assert "lakeproof projections status" in error_of(answer)["message"]
    assert await detection.size() == before + 1, "the same request, undecided for the same cause, is recorded once"
    decision = await last_decision(sales)
    assert decision.words == "undecidable"
    assert b"at most 2 entries behind" in decision.parts["message"]
    assert (await sales.http.post(f"{TABLES}/more", json=properties(a="b"))).status_code == 200, "no policy is for it"
    await detection.projected()
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200


async def test_who_may_not_commit_has_nothing_looked_up(sales: Gateway) -> None:
    await in_force(sales, SURE)
    key = await another_key(sales)
    async with open_gateway(sales.services, sales.acme, app_of(unasked(sales.services.gateway))) as gateway:
        answer = await gateway.client(key).post(ORDERS, json=properties(a="b"))
        assert answer.status_code in {403, 404}


@pytest.mark.parametrize(
    "expression",
    [
        "!('findings-open' in table.properties)",
        "result.columns.all(c, c.name != 'findings') // findings",
        'commit.name != r"findings"',
    ],
)
async def test_nothing_is_looked_up_that_no_policy_reads(sales: Gateway, expression: str) -> None:
    await in_force(sales, expression)
    async with open_gateway(sales.services, sales.acme, app_of(unasked(sales.services.gateway))) as gateway:
        assert (await gateway.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    decision = await last_decision(sales)
    assert b"findings.as_of" not in decision.parts["inputs"]


async def test_nothing_is_looked_up_for_a_commit_that_no_such_policy_is_for(sales: Gateway) -> None:
    await in_force(sales, SURE, scope=Scope(names=("elsewhere.*",)))
    async with open_gateway(sales.services, sales.acme, app_of(unasked(sales.services.gateway))) as gateway:
        assert (await gateway.http.post(ORDERS, json=properties(a="b"))).status_code == 200
        with pytest.raises(AssertionError, match="was looked up"):
            await unasked(sales.services.gateway).judge.look_ups.findings(sales.acme.tenant, sales.acme.log_id, None)


async def test_no_tenant_is_judged_on_another_ones_findings(sales: Gateway) -> None:
    """The other one's log tells of a table with the same uuid."""
    await in_force(sales, SURE)
    uuid = await uuid_of_orders(sales)
    async with open_gateway(sales.services) as other:
        detection = Detection(other)
        await detection.scanned("11", EMAIL, table_uuid=uuid)
        assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200
        await detection.projected()
        await Detection(sales).projected()
        assert (await sales.http.post(ORDERS, json=properties(a="c"))).status_code == 200
    await Detection(sales).scanned("11", EMAIL, table_uuid=uuid)
    assert (await sales.http.post(ORDERS, json=properties(a="d"))).status_code == 403


async def test_a_transaction_is_judged_on_the_findings_of_each_of_its_tables(sales: Gateway) -> None:
    assert (await sales.http.post(TABLES, json={**CREATE, "name": "more"})).status_code == 200
    await in_force(sales, SURE)
    both = transaction(*(commit_to(name, properties(a="b")) for name in ("orders", "more")))
    assert (await sales.http.post(f"{PREFIX}/transactions/commit", json=both)).status_code == 204
    uuid = await uuid_of_orders(sales, f"{TABLES}/more")
    await Detection(sales).scanned("11", EMAIL, table_uuid=uuid, key="table:lake/sales/more")
    assert (await sales.http.post(f"{PREFIX}/transactions/commit", json=both)).status_code == 403
    assert (await sales.http.post(ORDERS, json=properties(a="c"))).status_code == 200


async def test_commits_at_once_see_the_same(sales: Gateway) -> None:
    await Detection(sales).scanned("11", EMAIL, table_uuid=await uuid_of_orders(sales))
    await in_force(sales, SURE)
    answers: list[Any] = await asyncio.gather(*(sales.http.post(ORDERS, json=properties(a=str(n))) for n in range(5)))
    assert {answer.status_code for answer in answers} == {403}
