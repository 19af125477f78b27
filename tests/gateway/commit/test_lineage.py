# SPDX-License-Identifier: Apache-2.0
"""
Policies see what a table was made from, and what detection knows of that; the record of the decision has it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.commit.look_ups import ReadModels
from gateway.metadata.draft import TableMetadata
from gateway.metadata.files import MetadataFiles
from gateway.policy.classifications import CLASSIFICATIONS_MAX
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


class CountedFiles(MetadataFiles):
    """Metadata files, of which it counts how many of the past are read."""

    def __init__(self, files: MetadataFiles) -> None:
        super().__init__(files.properties)
        self.asked = 0

    async def read_old(self, files: Sequence[tuple[str, str]]) -> list[TableMetadata | None]:
        self.asked += len(files)
        return await super().read_old(files)


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
        gateway.acme.log_id, OPERATOR, policy_id="made", text=PolicyText(expression=expression, message="no")
    )


async def changed(gateway: Gateway, expression: str) -> None:
    await gateway.services.gateway.admin.change_policy(
        gateway.acme.log_id, OPERATOR, policy_id="made", text=PolicyText(expression=expression, message="no")
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
        "lineage.cut": False,
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
    assert namespace == {"upstream": [], "classified": [], "cut": False, "as_of": 0}
    assert [{"upstream": one["upstream"]} for one in (before, after)] == [saw["lineage"] for saw in engine.seen]
    assert (len(before["upstream"]), len(people["upstream"]), len(after["upstream"])) == (0, 0, 1)
    weaker = await replay(sales, Proposed(id="made", expression="size(lineage.upstream) < 2"))
    assert (weaker.counts[Change.WIDENED], weaker.counts[Change.NARROWED]) == (1, 0)
    await erase_ada(sales)
    assert ERASED in [variables["lineage"] for _, variables in await rebuilt(sales)]


CLASSIFIED = {
    **CREATE,
    "name": "people",
    "schema": {
        "type": "struct",
        "fields": [
            {"id": 1, "name": "id", "type": "long", "required": True},
            {"id": 2, "name": "mail", "type": "string", "required": False, "doc": "whose; classification: email."},
        ],
    },
    "properties": {"classification": "restricted", "classification.mail": "email", "owner": "ada"},
}
UNLESS_RESTRICTED = "lineage.classified.all(t, t.known && !('restricted' in t.classifications))"


async def with_classified(gateway: Gateway, body: dict[str, Any] = CLASSIFIED) -> None:
    """Make orders from people, which is classified."""
    assert (await gateway.http.post(TABLES, json=body)).status_code == 200
    await made_from(gateway, "people", "orders")


async def noted_last(gateway: Gateway) -> dict[str, Any]:
    """Return the variables that the last decision has in its record."""
    decided = [one for one in await read_stored(gateway.services, gateway.acme.log_id) if "inputs" in one.parts]
    noted: dict[str, Any] = json.loads(decided[-1].parts["inputs"])["variables"]
    return noted


async def test_a_table_is_judged_on_how_what_it_was_made_from_is_classified_now(sales: Gateway) -> None:
    await with_classified(sales)
    await in_force(sales, UNLESS_RESTRICTED)
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 403
    (people,) = (await noted_last(sales))["lineage.classified"]
    uuid = await uuid_of_orders(sales, PEOPLE)
    assert people == {
        "catalog": "lake",
        "namespace": ["sales"],
        "name": "people",
        "uuid": uuid,
        "hops": 1,
        "known": True,
        "classifications": ["email", "restricted"],
    }
    assert (await sales.http.post(PEOPLE, json=properties(classification="internal"))).status_code == 200
    assert (await sales.http.post(ORDERS, json=properties(a="c"))).status_code == 200, "what is restricted no more"
    assert (await noted_last(sales))["lineage.classified"][0]["classifications"] == ["email", "internal"]


async def test_of_a_table_that_is_gone_or_says_too_much_it_is_not_known_how_it_is_classified(sales: Gateway) -> None:
    await with_classified(sales)
    await in_force(sales, UNLESS_RESTRICTED.replace("restricted", "secret"))
    assert (await sales.http.post(ORDERS, json=properties(a="1"))).status_code == 200
    too_many = {f"classification.c{number}": str(number) for number in range(CLASSIFICATIONS_MAX)}
    assert (await sales.http.post(PEOPLE, json=properties(**too_many))).status_code == 200
    assert (await sales.http.post(ORDERS, json=properties(a="2"))).status_code == 403
    assert (await sales.http.delete(PEOPLE)).status_code == 204
    assert (await sales.http.post(ORDERS, json=properties(a="3"))).status_code == 403
    (people,) = (await noted_last(sales))["lineage.classified"]
    assert (people["name"], people["known"], people["classifications"]) == ("people", False, [])


async def test_another_table_that_has_the_name_now_does_not_say_how_the_former_one_is_classified(
    sales: Gateway,
) -> None:
    """Lineage, which is behind the log, still has the name for the table that had it."""
    await with_classified(sales)
    await in_force(sales, UNLESS_RESTRICTED)
    assert (await sales.http.delete(PEOPLE)).status_code == 204
    assert (await sales.http.post(TABLES, json={**CREATE, "name": "people"})).status_code == 200
    assert (await sales.http.post(ORDERS, json=properties(a="1"))).status_code == 403
    assert [one["known"] for one in (await noted_last(sales))["lineage.classified"]] == [False]


async def test_no_tenant_is_judged_on_how_another_ones_tables_are_classified(sales: Gateway) -> None:
    await sales.http.post(TABLES, json={**CREATE, "name": "people"})
    await made_from(sales, "people", "orders")
    await in_force(sales, UNLESS_RESTRICTED)
    async with open_gateway(sales.services) as other:
        await other.http.post(NAMESPACES, json={"namespace": ["sales"]})
        assert (await other.http.post(TABLES, json=CLASSIFIED)).status_code == 200
        assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200


async def test_files_are_read_only_for_policies_that_name_classified_and_only_once(sales: Gateway) -> None:
    await with_classified(sales)
    looked = CountedFiles(sales.services.gateway.catalogs.files)
    parts = sales.services.gateway
    look_ups = ReadModels(parts.database, parts.roles, looked)
    async with sales.through(judge=replace(parts.judge, look_ups=look_ups)) as http:
        await in_force(sales, "size(lineage.upstream) < 100 && !lineage.cut")
        assert (await http.post(ORDERS, json=properties(a="1"))).status_code == 200
        assert looked.asked == 0
        assert "lineage.classified" not in await noted_last(sales)
        await changed(sales, "size(lineage.classified) == 1")
        for value in ("2", "3"):
            assert (await http.post(ORDERS, json=properties(a=value))).status_code == 200
        assert looked.asked == 1


async def test_a_replay_knows_classifications_only_where_they_were_looked_up(sales: Gateway) -> None:
    await in_force(sales, "size(lineage.upstream) < 100")
    assert (await sales.http.post(ORDERS, json=properties(a="1"))).status_code == 200
    await with_classified(sales)
    await changed(sales, UNLESS_RESTRICTED)
    assert (await sales.http.post(ORDERS, json=properties(a="2"))).status_code == 403
    assert (await sales.http.post(PEOPLE, json=properties(classification="internal"))).status_code == 200
    lineage: list[Any] = [variables["lineage"] for _, variables in await rebuilt(sales)]
    found = [one for one in lineage if isinstance(one, Known)]
    missing = [one.missing for one in found]
    assert missing == [frozenset(), {"classified"}, {"classified"}, frozenset(), frozenset()], "the first: a namespace"
    members: list[Any] = [one.members for one in found]
    assert members[3]["classified"][0]["classifications"] == ["email", "restricted"], "as it was then"
    weaker = await replay(sales, Proposed(id="made", expression="size(lineage.classified) < 2"))
    assert (weaker.counts[Change.WIDENED], weaker.counts[Change.NARROWED]) == (1, 0)
