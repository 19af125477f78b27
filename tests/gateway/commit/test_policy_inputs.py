# SPDX-License-Identifier: Apache-2.0
"""
What policies see of a commit is what its record says, as far as policies name it; and a record says no more than that.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.catalogs.onward import Onward
from gateway.commit.events import NOTED_SIZE_BYTES_MAX, Requested, inputs
from gateway.commit.gateway import Gateway as GatewayParts
from gateway.commit.target_queues import TargetQueues
from gateway.identifiers import Target
from gateway.identity.principal import Principal, PrincipalSource
from gateway.mutations import Mutation, Operation, parse_mutation
from gateway.policy.engine import PolicyEngine, Program, Verdict
from gateway.policy.variables import FindingsView, LineageView, PrincipalView, RequestView, activation
from gateway.policy.vocabulary import ON_DEMAND
from ledger.format.canonical import Json, format_time
from testkit.gateway.log_contents import StoredEntry, path_of, read_stored
from testkit.gateway.sales import ORDERS, TABLES, properties
from testkit.servers.gateways import Gateway, app_of, open_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

DAYS = "age(request.time) == duration('0s') && commit.removed_snapshots.all(s, age(s.timestamp) > duration('24h'))"


@dataclass(slots=True)
class Watched:
    """The real engine, and the variables of each call of it that had policies."""

    engine: PolicyEngine
    seen: list[Mapping[str, Any]] = field(default_factory=list)

    async def check(self, expression: str, *, log_id: int, timeout_s: float, kind: str = "policy") -> None:
        await self.engine.check(expression, log_id=log_id, timeout_s=timeout_s, kind=kind)

    async def judge(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, log_id: int, timeout_s: float
    ) -> tuple[Verdict, ...]:
        if "commit" in activation:
            self.seen.append(activation)
        return await self.engine.judge(programs, activation, log_id=log_id, timeout_s=timeout_s)


def watched(parts: GatewayParts) -> tuple[GatewayParts, Watched]:
    engine = Watched(parts.judge.engine)
    return replace(parts, judge=replace(parts.judge, engine=engine), queues=TargetQueues()), engine


@asynccontextmanager
async def watching(sales: Gateway) -> AsyncIterator[tuple[Gateway, Watched]]:
    """A gateway for the same tenant whose policies' variables are seen."""
    parts, engine = watched(sales.services.gateway)
    async with open_gateway(sales.services, sales.acme, app_of(parts)) as gateway:
        yield gateway, engine


async def in_force(sales: Gateway, *expressions: str, first: int = 0) -> None:
    for number, expression in enumerate(expressions, start=first):
        await sales.services.gateway.admin.create_policy(
            sales.acme.log_id, OPERATOR, policy_id=f"p{number}", text=PolicyText(expression=expression, message="no")
        )
    assert (await sales.http.get(ORDERS)).status_code == 200, "the process knows them now"


async def decision_of(sales: Gateway, *, outcome: str) -> StoredEntry:
    """The last decision, which has this outcome."""
    stored = await read_stored(sales.services, sales.acme.log_id)
    found = [one for one in stored if one.entry.type == "commit.decided"][-1]
    assert found.words == outcome
    return found


def inputs_of(decision: StoredEntry) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(decision.parts["inputs"])
    return found


async def test_policies_see_the_time_that_the_decision_is_recorded_with(sales: Gateway) -> None:
    await in_force(sales, DAYS)
    async with watching(sales) as (gateway, engine):
        assert (await gateway.http.post(ORDERS, json=properties(a="b"))).status_code == 200
        approved = await decision_of(sales, outcome="approved")
        assert engine.seen[-1]["request"]["time"] == format_time(approved.entry.occurred_at)
        await in_force(sales, "request.time == ''", first=1)
        assert (await gateway.http.post(ORDERS, json=properties(a="c"))).status_code == 403
        rejected = await decision_of(sales, outcome="rejected")
        assert engine.seen[-1]["request"]["time"] == format_time(rejected.entry.occurred_at)
    assert rejected.entry.occurred_at > approved.entry.occurred_at


async def test_both_ends_of_a_rename_are_judged_and_recorded_at_one_time(sales: Gateway) -> None:
    await in_force(sales, "request.time != ''")
    async with watching(sales) as (gateway, engine):
        body = {
            "source": {"namespace": ["sales"], "name": "orders"},
            "destination": {"namespace": ["sales"], "name": "sold"},
        }
        path = TABLES.partition("/namespaces/")[0] + "/tables/rename"
        assert (await gateway.http.post(path, json=body)).status_code == 204
        times = {one["request"]["time"] for one in engine.seen}
    stored = await read_stored(sales.services, sales.acme.log_id)
    decided = [one.entry for one in stored if one.entry.type == "commit.decided"][-2:]
    assert times == {format_time(one.occurred_at) for one in decided}
    assert len(times) == 1


async def test_the_record_has_what_a_policy_names_and_nothing_else_has(sales: Gateway) -> None:
    await in_force(sales, "request.address != '' && size(principal.groups) == 0 && principal.attributes == {}")
    answer = await sales.http.post(ORDERS, json=properties(a="b"))
    assert answer.status_code == 200
    decision = await decision_of(sales, outcome="approved")
    assert inputs_of(decision)["variables"] == {
        "request.address": "127.0.0.1",
        "principal.groups": [],
        "principal.attributes": {},
    }
    assert "127.0.0.1" not in json.dumps(dict(decision.entry.data))


async def test_variables_that_are_too_large_are_recorded_as_missing() -> None:
    requested = Requested(
        mutation=Mutation(operation=Operation.TABLE_DROP, target=Target(alias="lake", namespace=("n",), name="t")),
        principal=Principal(
            tenant=UUID(int=1),
            log_id=1,
            actor="a" * 32,
            issuer=None,
            sub="ada",
            roles=(),
            source=PrincipalSource.JWT,
            key_id=None,
        ),
        method="DELETE",
        path=ORDERS,
        client="",
        address="192.0.2.7",
        body=b"",
        request_hash="",
        onward=Onward(),
    )
    largest = {"principal.groups": ["g" * (NOTED_SIZE_BYTES_MAX - len('{"principal.groups":[""]}'))]}
    larger = {"principal.groups": [largest["principal.groups"][0] + "g"]}
    assert json.loads(inputs(requested, largest))["variables"] == largest
    assert json.loads(inputs(requested, larger))["variables"] is None
    assert json.loads(inputs(requested, largest, size_bytes_max=NOTED_SIZE_BYTES_MAX))["variables"] is None
    assert "variables" not in json.loads(inputs(requested, None))


async def test_a_refused_commit_is_recorded_with_it_too(sales: Gateway) -> None:
    await in_force(sales, "request.address.startsWith('192.0.2.')")
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 403
    assert inputs_of(await decision_of(sales, outcome="rejected"))["variables"] == {"request.address": "127.0.0.1"}


@pytest.mark.parametrize("expressions", [[], ["request.client != 'x' && principal.roles != []"], [DAYS]])
async def test_the_record_has_no_address_that_no_policy_names(sales: Gateway, expressions: list[str]) -> None:
    await in_force(sales, *expressions)
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    decision = await decision_of(sales, outcome="approved")
    assert "variables" not in inputs_of(decision)
    assert not any(b"127.0.0.1" in part for part in decision.parts.values())


async def test_nothing_is_made_that_no_policy_names(sales: Gateway) -> None:
    await in_force(sales, "result.columns.all(c, c.name != 'x')", "principal.roles != []")
    async with watching(sales) as (gateway, engine):
        assert (await gateway.http.post(ORDERS, json=properties(a="b"))).status_code == 200
    (seen,) = engine.seen
    assert set(seen["request"]) == {"method", "path", "client"}
    assert set(seen["principal"]) == {"actor", "sub", "email", "roles", "source"}
    assert not {"added_columns", "removed_snapshots"} & set(seen["commit"])
    assert not {"fields", "snapshots", "ref_list", "statistics"} & set(seen["result"])


async def test_what_policies_saw_can_be_made_again_from_the_record(sales: Gateway) -> None:
    """As a replay does: nothing is needed but the log and the metadata files that it names."""
    every = " && ".join(
        f"{name}.{field} != null" for name, fields in sorted(ON_DEMAND.items()) for field in sorted(fields)
    )
    await in_force(sales, every)
    async with watching(sales) as (gateway, engine):
        answer = await gateway.http.post(ORDERS, json=properties(a="b"), headers={"X-Client-Version": "test 1"})
        assert answer.status_code == 200
    *_, decision, outcome = await read_stored(sales.services, sales.acme.log_id)
    inputs, caller = inputs_of(decision), json.loads(decision.parts["principal"])
    found, decided = inputs["variables"], decision.decided
    target = Target(alias="lake", namespace=("sales",), name="orders")
    mutation = parse_mutation(Operation(decided.operation), target, body=inputs["body"].encode())
    before, after = (
        json.loads(path_of(location or "").read_bytes())
        for location in (decided.base, outcome.settled.metadata_location)
    )
    again = activation(
        table=before,
        result=after,
        commit=mutation.view(),
        principal=PrincipalView(
            actor=decision.entry.actor,
            source=decided.principal_source,
            sub=caller["sub"],
            email=caller["email"] or "",
            roles=caller["roles"],
            groups=found["principal.groups"],
            attributes=tuple(found["principal.attributes"].items()),
        ),
        request=RequestView(
            method=inputs["method"],
            path=inputs["path"],
            client_version=inputs["client"],
            time=format_time(decision.entry.occurred_at),
            address=found["request.address"],
        ),
        findings=FindingsView(as_of=found["findings.as_of"]),
        lineage=LineageView(as_of=found["lineage.as_of"]),
    )
    assert json.loads(json.dumps(again)) == {name: json.loads(json.dumps(engine.seen[-1][name])) for name in again}


async def test_columns_are_judged_by_what_changes(sales: Gateway) -> None:
    await in_force(sales, "!is_narrowed(table, result) && commit.added_columns.all(c, c.doc != '')")
    loaded = (await sales.http.get(ORDERS)).json()["metadata"]
    (schema,) = loaded["schemas"]

    async def with_columns(*fields: dict[str, Any]) -> int:
        updates = [
            {"action": "add-schema", "schema": {"type": "struct", "fields": list(fields)}},
            {"action": "set-current-schema", "schema-id": -1},
        ]
        answer = await sales.http.post(ORDERS, json={"requirements": [], "updates": updates})
        return answer.status_code

    new = {"id": loaded["last-column-id"] + 1, "name": "note", "required": False, "type": "string"}
    assert await with_columns(*schema["fields"], new) == 403
    assert await with_columns(*schema["fields"][1:]) == 403
    assert await with_columns(*schema["fields"], {**new, "doc": "what the customer said"}) == 200
