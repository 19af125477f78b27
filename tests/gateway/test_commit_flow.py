"""
The way of a mutation: what is recorded, what is changed and what the engine is told, each with the others.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.admin.application import OPERATOR
from gateway.app import create_app
from gateway.commit_flow import ATTEMPTS_MAX, STALE_MAX
from gateway.measures import Measures
from gateway.policy.engine import Program, Verdict
from gateway.policy.pool import WorkerEngine
from ledger.canonical import Json
from ledger.entry import Branch
from ledger.errors import LogUnavailableError, OutcomeUnknownError, QueueFullError
from ledger.sequence import Appended, Group, Stale
from tests.gateway.conftest import Gateway
from tests.gateway.story import check_agreement, live_rows, path_of, tell, words

NAMESPACES = "/v1/iceberg/lake/namespaces"
SALES = f"{NAMESPACES}/sales"
TABLES = f"{SALES}/tables"
ORDERS = f"{TABLES}/orders"
ORDERS_KEY = "table:lake/sales/orders"
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": True}]}
CREATE = {"name": "orders", "schema": SCHEMA}

Append = Callable[[int, Group], Awaitable[Appended | Stale]]


def properties(requirements: Sequence[Mapping[str, Any]] = (), **texts: str) -> dict[str, Any]:
    """A commit that sets properties of a table."""
    return {"requirements": list(requirements), "updates": [{"action": "set-properties", "updates": texts}]}


def through(gateway: Gateway, *, key: str | None = None, **parts: Any) -> httpx.AsyncClient:
    """A client of the same gateway with some of its parts exchanged."""

    async def no_history() -> str:
        return ""

    house = replace(gateway.services.house, **parts)
    app = create_app(house, measures=Measures(), metrics=no_history, metrics_token=None)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {key or gateway.acme.key.secret}"}
    return httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers)


def before_each_append(gateway: Gateway, act: Callable[[int], Awaitable[object]]) -> Append:
    """The log's append, with `act` (told how many appends went before) happening right before it."""
    count = 0

    async def append(log_id: int, group: Group) -> Appended | Stale:
        nonlocal count
        await act(count)
        count += 1
        return await gateway.services.house.append(log_id, group)

    return append


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    return error


@pytest.fixture
async def sales(gateway: Gateway) -> Gateway:
    """A gateway with namespace `sales` and table `sales.orders`."""
    (await gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})).raise_for_status()
    (await gateway.http.post(TABLES, json=CREATE)).raise_for_status()
    return gateway


async def location_of_orders(gateway: Gateway) -> str:
    rows = await live_rows(gateway.services, gateway.acme.log_id)
    return rows.tables["lake", ("sales",), "orders"][1]


def metadata_files_beside(location: str) -> set[str]:
    return {str(path) for path in path_of(location).parent.iterdir()}


async def another_key(gateway: Gateway, identity: str = "eve@acme.example", *roles: str) -> str:
    issued = await gateway.services.house.admin.create_key(
        gateway.acme.log_id, OPERATOR, identity=identity, roles=roles
    )
    return issued.secret


# What lands


async def test_a_commit_and_its_record_are_one_group(sales: Gateway) -> None:
    answer = await sales.http.post(ORDERS, json=properties(owner="ada"))
    assert answer.status_code == 200
    *_, decision, outcome = await tell(sales.services, sales.acme.log_id)
    assert (decision.words, outcome.words) == ("approved", "accepted")
    assert decision.entry.group_id == outcome.entry.group_id
    assert (decision.entry.of, decision.entry.branch) == (2, Branch.THEN)
    assert outcome.settled.decision == str(decision.entry.group_id)
    assert outcome.settled.metadata_location == answer.json()["metadata-location"] == await location_of_orders(sales)
    assert decision.decided.base != outcome.settled.metadata_location
    assert decision.decided.as_of == (await sales.services.house.control.current(sales.acme.log_id)).as_of
    assert decision.entry.actor == sales.acme.key.actor
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_record_keeps_who_asked_for_what_in_erasable_parts(sales: Gateway) -> None:
    body = json.dumps(properties(owner="ada")).encode()
    await sales.http.post(ORDERS, content=body, headers={"X-Client-Version": "test 1"})
    decision = (await tell(sales.services, sales.acme.log_id))[-2]
    assert set(decision.parts) == {"inputs", "principal", "verdicts"}
    principal = json.loads(decision.parts["principal"])
    assert (principal["sub"], principal["roles"]) == ("ada@acme.example", ["data-eng"])
    inputs = json.loads(decision.parts["inputs"])
    assert (inputs["method"], inputs["path"], inputs["client"]) == ("POST", ORDERS, "test 1")
    assert inputs["body"].encode() == body
    assert b"ada@acme.example" not in json.dumps(dict(decision.entry.data)).encode()


async def test_the_body_of_a_large_commit_is_recorded_by_its_digest(sales: Gateway) -> None:
    large = {f"p{number}": '"' * 20_000 for number in range(40)}
    assert (await sales.http.post(ORDERS, json=properties(**large))).status_code == 200
    inputs = json.loads((await tell(sales.services, sales.acme.log_id))[-2].parts["inputs"])
    assert inputs["body"] is None
    assert inputs["body_size_bytes"] > 40 * 20_000
    assert len(inputs["body_sha256"]) == 64


async def test_the_steps_are_done_in_their_order(gateway: Gateway) -> None:
    (await gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})).raise_for_status()
    seen = await steps_of(gateway, gateway.http.post(TABLES, json=CREATE))
    assert seen == list(range(1, 15))
    assert await steps_of(gateway, gateway.http.get(ORDERS)) == []
    assert await steps_of(gateway, gateway.http.post(TABLES, json=CREATE)) == list(range(1, 12))


async def steps_of(gateway: Gateway, request: Awaitable[httpx.Response]) -> list[int]:
    """The steps that the gateway's own measures have counted during `request`."""
    before = counted_steps(gateway)
    await request
    after = counted_steps(gateway)
    return [step for step in sorted(after) if after[step] > before.get(step, 0)]


def counted_steps(gateway: Gateway) -> dict[int, int]:
    name = "lakeproof_commit_step_seconds_count"
    lines = gateway.app.state.measures.text().splitlines()
    counted = [line.removeprefix(name) for line in lines if line.startswith(name)]
    return {int(line.split('"')[1]): int(float(line.split()[-1])) for line in counted}


async def test_a_commit_that_changes_nothing_writes_nothing(sales: Gateway) -> None:
    location, told = await location_of_orders(sales), await tell(sales.services, sales.acme.log_id)
    for updates in ([], [{"action": "set-current-schema", "schema-id": 0}]):
        answer = await sales.http.post(ORDERS, json={"requirements": [], "updates": updates})
        assert answer.json()["metadata-location"] == location == await location_of_orders(sales)
    assert await tell(sales.services, sales.acme.log_id) == told


async def test_a_dropped_table_can_be_made_again(sales: Gateway) -> None:
    first = (await sales.http.get(ORDERS)).json()
    assert (await sales.http.delete(ORDERS)).status_code == 204
    assert (await sales.http.get(ORDERS)).status_code == 404
    assert error_of(await sales.http.delete(ORDERS))["type"] == "NoSuchTableException"
    assert path_of(first["metadata-location"]).exists()
    second = (await sales.http.post(TABLES, json=CREATE)).json()
    assert second["metadata"]["table-uuid"] != first["metadata"]["table-uuid"]
    assert second["metadata"]["location"] != first["metadata"]["location"]
    accepted = ["approved", "accepted"]
    assert await words(sales.services, sales.acme.log_id, key=ORDERS_KEY) == accepted * 3
    await check_agreement(sales.services, sales.acme.log_id)


# Creating


async def test_creating_what_exists_conflicts_in_a_creates_words(sales: Gateway) -> None:
    answer = await sales.http.post(TABLES, json=CREATE)
    assert (answer.status_code, error_of(answer)) == (
        409,
        {"message": "Table already exists: sales.orders", "type": "AlreadyExistsException", "code": 409},
    )
    *_, conflict = await tell(sales.services, sales.acme.log_id)
    assert conflict.words == "conflicted"
    assert conflict.parts["message"] == b"Table already exists: sales.orders"


async def test_a_commit_that_must_create_conflicts_in_a_requirements_words(sales: Gateway) -> None:
    body = properties([{"type": "assert-create"}], owner="ada")
    answer = await sales.http.post(ORDERS, json=body)
    assert answer.status_code == 409
    assert error_of(answer)["type"] == "CommitFailedException"
    assert error_of(answer)["message"] == "Requirement failed: table already exists"
    assert (await words(sales.services, sales.acme.log_id))[-1] == "conflicted"


async def test_a_staged_create_is_recorded_only_when_it_is_committed(gateway: Gateway) -> None:
    await gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})
    told = await tell(gateway.services, gateway.acme.log_id)
    staged = (await gateway.http.post(TABLES, json={**CREATE, "stage-create": True})).json()
    assert "metadata-location" not in staged
    assert not path_of(staged["metadata"]["location"]).exists()
    assert await tell(gateway.services, gateway.acme.log_id) == told
    answer = await gateway.http.post(ORDERS, json=commit_of_staged(staged["metadata"]))
    assert answer.status_code == 200
    assert answer.json()["metadata"]["table-uuid"] == staged["metadata"]["table-uuid"]
    decision, outcome = (await tell(gateway.services, gateway.acme.log_id))[-2:]
    assert (decision.decided.operation, outcome.words) == ("table.create", "accepted")
    assert "CATALOG_CREATE_ENTITY" in decision.decided.actions
    told = await tell(gateway.services, gateway.acme.log_id)
    exists = await gateway.http.post(TABLES, json={**CREATE, "stage-create": True})
    assert error_of(exists)["message"] == "Table already exists: sales.orders"
    assert await tell(gateway.services, gateway.acme.log_id) == told


def commit_of_staged(metadata: dict[str, Any]) -> dict[str, Any]:
    """The commit of a staged create, as engines send it."""
    return {
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": metadata["schemas"][0]},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": metadata["partition-specs"][0]},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": metadata["location"]},
            {"action": "set-properties", "updates": metadata["properties"]},
        ],
    }


async def test_who_may_not_create_may_not_commit_a_staged_create_either(gateway: Gateway) -> None:
    await gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})
    staged = (await gateway.http.post(TABLES, json={**CREATE, "stage-create": True})).json()
    rule = {"id": "no-tables", "effect": "forbid", "expression": "op == 'CREATE_ENTITY'"}
    assert (await gateway.http.post("/v1/access-rules", json=rule)).status_code == 201
    answer = await gateway.http.post(ORDERS, json=commit_of_staged(staged["metadata"]))
    assert answer.status_code == 403
    assert (await live_rows(gateway.services, gateway.acme.log_id)).tables == {}


# Refused


async def test_a_policys_no_is_recorded_and_nothing_is_changed(sales: Gateway) -> None:
    policy = {"id": "owned", "expression": "'owner' in result.properties", "message": "tables need an owner"}
    assert (await sales.http.post("/v1/policies", json=policy)).status_code == 201
    location, files = await location_of_orders(sales), metadata_files_beside(await location_of_orders(sales))
    answer = await sales.http.post(ORDERS, json=properties(colour="red"))
    assert answer.status_code == 403
    assert error_of(answer)["type"] == "ForbiddenException"
    assert error_of(answer)["message"] == "tables need an owner (policy owned, version 1)"
    *_, rejected = await tell(sales.services, sales.acme.log_id)
    assert rejected.words == "rejected"
    assert rejected.decided.reason is not None
    assert (rejected.decided.reason.id, rejected.decided.reason.version) == ("owned", 1)
    assert rejected.decided.base == location == await location_of_orders(sales)
    assert rejected.parts["message"].startswith(b"tables need an owner")
    verdicts = json.loads(rejected.parts["verdicts"])["verdicts"]
    assert [(one["kind"], one["id"], one["outcome"]) for one in verdicts] == [
        ("access_rule", "first-key", "allow"),
        ("policy", "owned", "deny"),
    ]
    assert metadata_files_beside(location) == files
    assert (await sales.http.post(ORDERS, json=properties(owner="ada"))).status_code == 200


async def test_a_policy_refuses_a_staged_create_on_the_record(gateway: Gateway) -> None:
    await gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})
    await gateway.http.post("/v1/policies", json={"id": "none", "expression": "false", "message": "closed"})
    answer = await gateway.http.post(TABLES, json={**CREATE, "stage-create": True})
    assert answer.status_code == 403
    assert (await words(gateway.services, gateway.acme.log_id))[-1] == "rejected"


async def test_without_access_nobody_learns_what_exists(sales: Gateway) -> None:
    eve = sales.client(await another_key(sales))
    refusals = [
        await eve.post(ORDERS, json=properties(owner="eve")),
        await eve.post(f"{TABLES}/nothing", json=properties(owner="eve")),
        await eve.post(TABLES, json=CREATE),
        await eve.post(TABLES, json={**CREATE, "name": "nothing"}),
        await eve.delete(f"{NAMESPACES}/nothing"),
        await eve.post(NAMESPACES, json={"namespace": ["sales"]}),
    ]
    assert {answer.status_code for answer in refusals} == {403}
    assert {answer.text for answer in refusals} == {refusals[0].text}
    assert (await words(sales.services, sales.acme.log_id))[-6:] == ["rejected"] * 6
    await check_agreement(sales.services, sales.acme.log_id)


async def test_what_forbids_wins_over_what_permits(sales: Gateway) -> None:
    rule = {"id": "frozen", "effect": "forbid", "expression": "path == 'sales.orders'"}
    await sales.http.post("/v1/access-rules", json=rule)
    answer = await sales.http.post(ORDERS, json=properties(owner="ada"))
    assert error_of(answer)["message"] == "access rule frozen (version 1) forbids this"
    *_, rejected = await tell(sales.services, sales.acme.log_id)
    assert rejected.decided.reason is not None
    assert rejected.decided.reason.id == "frozen"


async def test_a_requirement_that_fails_is_a_conflict_on_the_record(sales: Gateway) -> None:
    requirement = {"type": "assert-table-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}
    answer = await sales.http.post(ORDERS, json=properties([requirement], owner="ada"))
    assert (answer.status_code, error_of(answer)["type"]) == (409, "CommitFailedException")
    *_, conflict = await tell(sales.services, sales.acme.log_id)
    assert (conflict.words, conflict.entry.of) == ("conflicted", 1)
    assert conflict.parts["message"].startswith(b"Requirement failed: UUID does not match")


async def test_what_does_not_exist_is_told_and_not_recorded(sales: Gateway) -> None:
    told = await tell(sales.services, sales.acme.log_id)
    for answer, kind in (
        (await sales.http.post(f"{TABLES}/nothing", json=properties(owner="ada")), "NoSuchTableException"),
        (await sales.http.post(f"{NAMESPACES}/no/tables", json=CREATE), "NoSuchNamespaceException"),
        (await sales.http.delete(f"{NAMESPACES}/no"), "NoSuchNamespaceException"),
        (await sales.http.post(f"{NAMESPACES}/no/properties", json={}), "NoSuchNamespaceException"),
    ):
        assert (answer.status_code, error_of(answer)["type"]) == (404, kind)
    assert await tell(sales.services, sales.acme.log_id) == told


# Namespaces


async def test_a_namespace_conflicts_and_is_not_dropped_while_it_holds_something(sales: Gateway) -> None:
    exists = await sales.http.post(NAMESPACES, json={"namespace": ["sales"]})
    assert (exists.status_code, error_of(exists)["type"]) == (409, "AlreadyExistsException")
    assert error_of(exists)["message"] == "Namespace already exists: sales"
    orphan = await sales.http.post(NAMESPACES, json={"namespace": ["no", "eu"]})
    assert (orphan.status_code, error_of(orphan)["message"]) == (404, "Namespace does not exist: no")
    assert (await sales.http.post(NAMESPACES, json={"namespace": ["sales", "eu"]})).status_code == 200
    full = await sales.http.delete(SALES)
    assert (full.status_code, error_of(full)["type"]) == (409, "NamespaceNotEmptyException")
    assert error_of(full)["message"] == "Namespace sales is not empty."
    await sales.http.delete(ORDERS)
    assert (await sales.http.delete(SALES)).status_code == 409, "it still holds sales.eu"
    assert (await sales.http.delete(f"{NAMESPACES}/sales%1Feu")).status_code == 204
    assert (await sales.http.delete(SALES)).status_code == 204
    assert await check_agreement(sales.services, sales.acme.log_id) == await live_rows(
        sales.services, sales.acme.log_id
    )
    assert (await sales.http.get(NAMESPACES)).json() == {"namespaces": []}


async def test_a_namespace_that_is_filled_while_it_is_dropped_stays(gateway: Gateway) -> None:
    await gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})

    async def fill(count: int) -> None:
        if count == 0:
            (await gateway.http.post(TABLES, json=CREATE)).raise_for_status()

    answer = await through(gateway, append=before_each_append(gateway, fill)).delete(SALES)
    assert (answer.status_code, error_of(answer)["type"]) == (409, "NamespaceNotEmptyException")
    assert (await words(gateway.services, gateway.acme.log_id, key="namespace:lake/sales"))[-1] == "conflicted"
    rows = await check_agreement(gateway.services, gateway.acme.log_id)
    assert ("lake", ("sales",)) in rows.namespaces


async def test_namespace_properties_are_set_removed_and_told(sales: Gateway) -> None:
    await sales.http.post(f"{SALES}/properties", json={"updates": {"a": "1", "b": "2"}})
    body = {"updates": {"b": "3"}, "removals": ["a", "never", "a"]}
    answer = await sales.http.post(f"{SALES}/properties", json=body)
    assert answer.json() == {"updated": ["b"], "removed": ["a"], "missing": ["never"]}
    assert (await sales.http.get(SALES)).json() == {"namespace": ["sales"], "properties": {"b": "3"}}
    both = await sales.http.post(f"{SALES}/properties", json={"updates": {"a": "1"}, "removals": ["a"]})
    assert (both.status_code, error_of(both)["type"]) == (422, "UnprocessableEntityException")
    await check_agreement(sales.services, sales.acme.log_id)


# Races


async def test_a_loser_whose_requirements_still_hold_is_tried_again(sales: Gateway) -> None:
    async def be_first(count: int) -> None:
        if count == 0:
            (await sales.http.post(ORDERS, json=properties(winner="yes"))).raise_for_status()

    client = through(sales, append=before_each_append(sales, be_first))
    answer = await client.post(ORDERS, json=properties(loser="yes"))
    assert answer.status_code == 200
    found = (await sales.http.get(ORDERS)).json()["metadata"]["properties"]
    assert (found["winner"], found["loser"]) == ("yes", "yes")
    told = (await tell(sales.services, sales.acme.log_id, key=ORDERS_KEY))[-4:]
    assert [one.words for one in told] == ["approved", "accepted"] * 2
    assert told[2].decided.base == told[1].settled.metadata_location, "judged against what the winner made"
    named = {one.settled.metadata_location for one in told if one.words == "accepted"}
    files = metadata_files_beside(await location_of_orders(sales))
    assert len(files) == 3, "create, winner, loser; what the loser wrote first is gone"
    assert {str(path_of(str(location))) for location in named} <= files
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_loser_whose_requirement_fails_meanwhile_conflicts(sales: Gateway) -> None:
    other = {**SCHEMA, "fields": [*SCHEMA["fields"], {"id": 2, "name": "x", "type": "long", "required": False}]}
    updates = [{"action": "add-schema", "schema": other}, {"action": "set-current-schema", "schema-id": -1}]

    async def change_the_schema(count: int) -> None:
        if count == 0:
            body = {"requirements": [], "updates": updates}
            (await sales.http.post(ORDERS, json=body)).raise_for_status()

    client = through(sales, append=before_each_append(sales, change_the_schema))
    requirement = {"type": "assert-current-schema-id", "current-schema-id": 0}
    answer = await client.post(ORDERS, json=properties([requirement], owner="ada"))
    assert (answer.status_code, error_of(answer)["type"]) == (409, "CommitFailedException")
    assert error_of(answer)["message"] == "Requirement failed: current schema changed: expected id 0 != 1"
    assert (await words(sales.services, sales.acme.log_id))[-3:] == ["approved", "accepted", "conflicted"]


async def test_a_commit_that_always_loses_ends_with_a_conflict_on_the_record(sales: Gateway) -> None:
    async def be_first(count: int) -> None:
        (await sales.http.post(ORDERS, json=properties(winner=str(count)))).raise_for_status()

    client = through(sales, append=before_each_append(sales, be_first))
    answer = await client.post(ORDERS, json=properties(loser="yes"))
    assert (answer.status_code, error_of(answer)["type"]) == (409, "CommitFailedException")
    *_, decision, outcome = await tell(sales.services, sales.acme.log_id, key=ORDERS_KEY)
    assert (decision.words, outcome.words) == ("approved", "conflicted")
    assert (decision.entry.branch, outcome.settled.metadata_location) == (Branch.ELSE, None)
    found = (await sales.http.get(ORDERS)).json()["metadata"]["properties"]
    assert "loser" not in found
    assert found["winner"] == str(ATTEMPTS_MAX - 1)
    files = metadata_files_beside(await location_of_orders(sales))
    assert len(files) == 1 + ATTEMPTS_MAX, "the create and the winners"
    await check_agreement(sales.services, sales.acme.log_id)


async def test_of_two_creates_one_wins_and_the_other_is_told_so(gateway: Gateway) -> None:
    await gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})

    async def be_first(count: int) -> None:
        if count == 0:
            (await gateway.http.post(TABLES, json=CREATE)).raise_for_status()

    answer = await through(gateway, append=before_each_append(gateway, be_first)).post(TABLES, json=CREATE)
    assert (answer.status_code, error_of(answer)["type"]) == (409, "AlreadyExistsException")
    told = await words(gateway.services, gateway.acme.log_id, key=ORDERS_KEY)
    assert told == ["approved", "accepted", "conflicted"]


# Rules that change meanwhile


def policy(number: int, expression: str = "true") -> dict[str, str]:
    return {"policy_id": f"p{number}", "expression": expression, "message": f"policy {number} says no"}


async def test_a_commit_judged_by_older_policies_is_judged_again(sales: Gateway) -> None:
    house = sales.services.house

    async def register(count: int) -> None:
        if count == 0:
            await house.admin.create_policy(sales.acme.log_id, OPERATOR, **policy(1, "'owner' in result.properties"))

    location, files = await location_of_orders(sales), metadata_files_beside(await location_of_orders(sales))
    client = through(sales, append=before_each_append(sales, register))
    answer = await client.post(ORDERS, json=properties(colour="red"))
    assert (answer.status_code, error_of(answer)["message"]) == (403, "policy 1 says no (policy p1, version 1)")
    created, rejected = (await tell(sales.services, sales.acme.log_id))[-2:]
    assert (created.entry.type, rejected.words) == ("policy.created", "rejected")
    assert rejected.decided.as_of == created.entry.index
    assert (await location_of_orders(sales), metadata_files_beside(location)) == (location, files)


async def test_a_refusal_by_older_policies_is_judged_again_too(sales: Gateway) -> None:
    house = sales.services.house
    await house.admin.create_policy(sales.acme.log_id, OPERATOR, **policy(1, "false"))

    async def retire(count: int) -> None:
        if count == 0:
            await house.admin.retire_policy(sales.acme.log_id, OPERATOR, policy_id="p1")

    client = through(sales, append=before_each_append(sales, retire))
    assert (await client.post(ORDERS, json=properties(colour="red"))).status_code == 200
    assert (await words(sales.services, sales.acme.log_id))[-2:] == ["approved", "accepted"]
    assert "rejected" not in await words(sales.services, sales.acme.log_id)


async def test_policies_that_never_stand_still_are_answered_503(sales: Gateway) -> None:
    house = sales.services.house

    async def register(count: int) -> None:
        await house.admin.create_policy(sales.acme.log_id, OPERATOR, **policy(count))

    told = await words(sales.services, sales.acme.log_id)
    files = metadata_files_beside(await location_of_orders(sales))
    answer = await through(sales, append=before_each_append(sales, register)).post(ORDERS, json=properties(a="b"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert len(await house.admin.list_policies(sales.acme.log_id)) == STALE_MAX
    assert await words(sales.services, sales.acme.log_id) == told
    assert metadata_files_beside(await location_of_orders(sales)) == files


async def test_a_key_that_is_revoked_while_its_commit_is_judged_commits_nothing(sales: Gateway) -> None:
    house, location = sales.services.house, await location_of_orders(sales)
    await house.admin.create_access_rule(
        sales.acme.log_id, OPERATOR, rule_id="eve", effect="permit", expression="'writer' in roles"
    )
    issued = await house.admin.create_key(sales.acme.log_id, OPERATOR, identity="eve", roles=["writer"])

    async def revoke(count: int) -> None:
        if count == 0:
            await house.admin.revoke_key(sales.acme.log_id, OPERATOR, key_id=issued.id)

    client = through(sales, key=issued.secret, append=before_each_append(sales, revoke))
    assert (await client.post(ORDERS, json=properties(a="b"))).status_code == 401
    assert await location_of_orders(sales) == location


async def test_an_alias_that_is_retired_while_a_commit_is_judged_takes_nothing(sales: Gateway) -> None:
    house, location = sales.services.house, await location_of_orders(sales)

    async def retire(count: int) -> None:
        if count == 0:
            await house.admin.retire_catalog(sales.acme.log_id, OPERATOR, alias="lake")

    answer = await through(sales, append=before_each_append(sales, retire)).post(ORDERS, json=properties(a="b"))
    assert (answer.status_code, error_of(answer)["message"]) == (404, "Catalog does not exist: lake")
    assert await location_of_orders(sales) == location


# Policies that cannot be judged

FAILS = "commit.requirements[7].type == 'x'"
SLOW = (
    "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, "
    "[1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, [1,2,3,4,5,6,7,8,9].all(g, a+b+c+d+e+f+g > 0)))))))"
)


async def test_an_undecidable_commit_is_refused_and_recorded_once(sales: Gateway) -> None:
    await sales.services.house.admin.create_policy(sales.acme.log_id, OPERATOR, **policy(1, FAILS))
    location = await location_of_orders(sales)
    for _ in range(3):
        answer = await sales.http.post(ORDERS, json=properties(a="b"))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert error_of(answer)["type"] == "ServiceUnavailableException"
    told = await tell(sales.services, sales.acme.log_id, key=ORDERS_KEY)
    assert [one.words for one in told[2:]] == ["undecidable"]
    assert told[-1].parts["message"].startswith(b"policy p1 (version 1) could not be judged")
    assert await location_of_orders(sales) == location
    await sales.http.post(ORDERS, json=properties(another="request"))
    assert (await words(sales.services, sales.acme.log_id, key=ORDERS_KEY))[2:] == ["undecidable"] * 2
    for _ in range(2):
        create = await sales.http.post(TABLES, json={**CREATE, "name": "more"})
        assert create.status_code == 503, "each attempt would have another uuid"
    assert await words(sales.services, sales.acme.log_id, key="table:lake/sales/more") == ["undecidable"]


async def test_the_same_request_of_another_caller_is_recorded_too(sales: Gateway) -> None:
    house = sales.services.house
    await house.admin.create_policy(sales.acme.log_id, OPERATOR, **policy(1, FAILS))
    await house.admin.create_access_rule(
        sales.acme.log_id, OPERATOR, rule_id="eve", effect="permit", expression="'writer' in roles"
    )
    eve = sales.client(await another_key(sales, "eve", "writer"))
    for client in (sales.http, eve, sales.http, eve):
        assert (await client.post(ORDERS, json=properties(a="b"))).status_code == 503
    told = (await tell(sales.services, sales.acme.log_id, key=ORDERS_KEY))[2:]
    assert [one.words for one in told] == ["undecidable"] * 2
    assert len({one.entry.actor for one in told}) == 2


async def test_a_policy_engine_that_is_too_slow_lets_nothing_pass(sales: Gateway) -> None:
    await sales.services.house.admin.create_policy(sales.acme.log_id, OPERATOR, **policy(1, SLOW))
    client = through(sales, policy_timeout_s=0.2)
    for _ in range(2):
        assert (await client.post(ORDERS, json=properties(a="b"))).status_code == 503
    *_, undecidable = told = await tell(sales.services, sales.acme.log_id, key=ORDERS_KEY)
    assert [one.words for one in told[2:]] == ["undecidable"]
    assert b"0.2 s passed" in undecidable.parts["message"]


class KilledEngine:
    """The gateway's engine, whose worker is killed while it judges."""

    def __init__(self, engine: WorkerEngine) -> None:
        self._engine = engine

    async def check(self, expression: str, *, timeout_s: float, kind: str = "policy") -> None:
        await self._engine.check(expression, timeout_s=timeout_s, kind=kind)

    async def judge(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, timeout_s: float
    ) -> tuple[Verdict, ...]:
        await self._engine.start()
        for pid in self._engine.pids:
            os.kill(pid, signal.SIGKILL)
        return await self._engine.judge(programs, activation, timeout_s=timeout_s)


async def test_a_policy_engine_that_dies_lets_nothing_pass(sales: Gateway) -> None:
    engine, location = sales.services.house.engine, await location_of_orders(sales)
    assert isinstance(engine, WorkerEngine)
    client = through(sales, engine=KilledEngine(engine), policy_timeout_s=10.0)
    assert (await client.post(ORDERS, json=properties(a="b"))).status_code == 503
    assert (await words(sales.services, sales.acme.log_id))[-1] == "undecidable"
    assert await location_of_orders(sales) == location
    answer = await through(sales, policy_timeout_s=10.0).post(ORDERS, json=properties(a="b"))
    assert answer.status_code == 200, "a new worker judges the next one"


# A log that does not answer


async def test_a_commit_whose_record_may_be_there_is_unknown_and_keeps_its_file(sales: Gateway) -> None:
    house = sales.services.house

    async def append(log_id: int, group: Group) -> Appended | Stale:
        await house.append(log_id, group)
        raise OutcomeUnknownError("the answer to COMMIT did not arrive")

    answer = await through(sales, append=append).post(ORDERS, json=properties(a="b"))
    assert (answer.status_code, error_of(answer)["type"]) == (504, "CommitStateUnknownException")
    assert "retry-after" not in answer.headers
    await check_agreement(sales.services, sales.acme.log_id)
    assert (await sales.http.get(ORDERS)).json()["metadata"]["properties"]["a"] == "b"


@pytest.mark.parametrize("error", [LogUnavailableError("no log"), QueueFullError("too many")])
async def test_a_commit_whose_record_is_not_there_leaves_no_file(sales: Gateway, error: Exception) -> None:
    async def append(log_id: int, group: Group) -> Appended | Stale:
        raise error

    location, files = await location_of_orders(sales), metadata_files_beside(await location_of_orders(sales))
    answer = await through(sales, append=append).post(ORDERS, json=properties(a="b"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert metadata_files_beside(location) == files
    assert await location_of_orders(sales) == location


async def test_a_refusal_that_cannot_be_recorded_is_503(sales: Gateway) -> None:
    await sales.services.house.admin.create_policy(sales.acme.log_id, OPERATOR, **policy(1, "false"))
    for error in (LogUnavailableError("no log"), QueueFullError("too many"), OutcomeUnknownError("who knows")):

        async def append(log_id: int, group: Group, error: Exception = error) -> Appended | Stale:
            raise error

        answer = await through(sales, append=append).post(ORDERS, json=properties(a="b"))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


# Where tables live


async def test_metadata_that_cannot_be_written_is_503_and_nothing_is_changed(gateway: Gateway) -> None:
    await gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})
    house = gateway.services.house
    in_the_way = path_of(f"{house.warehouse}/{gateway.acme.tenant.hex}")
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_bytes(b"not a folder")
    answer = await gateway.http.post(TABLES, json=CREATE)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert await words(gateway.services, gateway.acme.log_id, key=ORDERS_KEY) == []


async def test_tables_live_below_their_aliass_folder_and_nowhere_else(sales: Gateway) -> None:
    warehouse = f"{sales.services.house.warehouse}/{sales.acme.tenant.hex}/lake"
    other = f"{sales.services.house.warehouse}/{'0' * 32}/lake"
    for location in (
        f"{other}/t",
        f"{warehouse}/../../{'0' * 32}/lake/t",
        f"{warehouse}/t/../../../t",
        f"{warehouse}/%2e%2e/t",
        f"{warehouse}/./t",
        f"{warehouse}//t",
        f"{warehouse}/t?x",
        f"{warehouse}/t#x",
        f"{warehouse}/..\\t",
        f"{warehouse}/\n/t",
        f"{warehouse}/{'x' * 256}",
        f"{warehouse}/" + "/".join(["x" * 200] * 6),
        f"{warehouse}2/t",
        warehouse,
        f"{warehouse}/",
        "/etc/t",
        "file:///etc/t",
        "s3://elsewhere/t",
    ):
        create = await sales.http.post(TABLES, json={"name": "t", "schema": SCHEMA, "location": location})
        assert (create.status_code, error_of(create)["type"]) == (400, "BadRequestException"), location
        assert error_of(create)["message"].startswith("location: "), location
        body = {"requirements": [], "updates": [{"action": "set-location", "location": location}]}
        assert (await sales.http.post(ORDERS, json=body)).status_code == 400, location
        beside = await sales.http.post(ORDERS, json=properties(**{"write.metadata.path": location}))
        assert beside.status_code == 400, location
        assert error_of(beside)["message"].startswith("properties.write.metadata.path: "), location
    inside = await sales.http.post(TABLES, json={"name": "t", "schema": SCHEMA, "location": f"{warehouse}/my t/ü/"})
    assert inside.status_code == 200
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_link_that_leads_out_of_the_warehouse_is_not_followed(sales: Gateway, tmp_path: Path) -> None:
    warehouse = f"{sales.services.house.warehouse}/{sales.acme.tenant.hex}/lake"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path_of(f"{warehouse}/link").symlink_to(elsewhere)
    answer = await sales.http.post(TABLES, json={"name": "t", "schema": SCHEMA, "location": f"{warehouse}/link"})
    assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException")
    assert list(elsewhere.iterdir()) == []
    assert ("lake", ("sales",), "t") not in (await live_rows(sales.services, sales.acme.log_id)).tables


async def test_metadata_that_was_changed_behind_our_back_is_noticed(sales: Gateway) -> None:
    file = path_of(await location_of_orders(sales))
    file.write_bytes(file.read_bytes().replace(b"zstd", b"none"))
    sales.services.house.files.forget()
    for answer in (await sales.http.get(ORDERS), await sales.http.post(ORDERS, json=properties(a="b"))):
        assert (answer.status_code, error_of(answer)["type"]) == (500, "RuntimeIOException")
    file.unlink()
    assert (await sales.http.get(ORDERS)).status_code == 500
