# SPDX-License-Identifier: Apache-2.0
"""
The commit flow: what is recorded, what is changed and what the engine is answered agree.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable
from hashlib import sha256

import httpx
import pytest

from gateway.commit.events import INPUTS_SIZE_BYTES_MAX
from gateway.commit.metrics import MutationStage
from gateway.metadata.files import MetadataFileError
from ledger.format.entry import Branch
from testkit.gateway.log_contents import check_agreement, live_rows, path_of, read_stored, words
from testkit.gateway.sales import (
    CREATE,
    NAMESPACES,
    ORDERS,
    ORDERS_KEY,
    TABLES,
    another_key,
    error_of,
    files_beside,
    location_of_orders,
    properties,
)
from testkit.gateway.table_requests import commit_of_staged
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


# What lands


async def test_a_commit_and_its_record_are_one_group(sales: Gateway) -> None:
    answer = await sales.http.post(ORDERS, json=properties(owner="ada"))
    assert answer.status_code == 200
    *_, decision, outcome = await read_stored(sales.services, sales.acme.log_id)
    assert (decision.words, outcome.words) == ("approved", "accepted")
    assert decision.entry.group_id == outcome.entry.group_id
    assert (decision.entry.of, decision.entry.branch) == (2, Branch.THEN)
    assert outcome.settled.decision == str(decision.entry.group_id)
    assert outcome.settled.metadata_location == answer.json()["metadata-location"] == await location_of_orders(sales)
    assert decision.decided.base != outcome.settled.metadata_location
    assert decision.decided.as_of == (await sales.services.gateway.control.current(sales.acme.log_id)).as_of
    assert decision.entry.actor == sales.acme.key.actor
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_record_keeps_caller_and_request_in_erasable_parts(sales: Gateway) -> None:
    body = json.dumps(properties(owner="ada")).encode()
    await sales.http.post(ORDERS, content=body, headers={"X-Client-Version": "test 1"})
    decision = (await read_stored(sales.services, sales.acme.log_id))[-2]
    assert set(decision.parts) == {"inputs", "principal", "verdicts"}
    principal = json.loads(decision.parts["principal"])
    assert (principal["sub"], principal["roles"]) == ("ada@acme.example", ["data-eng"])
    inputs = json.loads(decision.parts["inputs"])
    assert (inputs["method"], inputs["path"], inputs["client"]) == ("POST", ORDERS, "test 1")
    assert inputs["body"].encode() == body
    assert b"ada@acme.example" not in json.dumps(dict(decision.entry.data)).encode()


async def test_the_body_of_a_large_commit_is_recorded_by_its_digest(sales: Gateway) -> None:
    for count, is_kept in ((40, False), (20, False), (10, True)):
        # A quotation mark takes two bytes in the body, and four in the record's own JSON.
        large = {f"p{number}": '"' * 20_000 for number in range(count)}
        body = json.dumps(properties(**large)).encode()
        assert (await sales.http.post(ORDERS, content=body)).status_code == 200
        part = (await read_stored(sales.services, sales.acme.log_id))[-2].parts["inputs"]
        inputs = json.loads(part)
        assert len(part) <= INPUTS_SIZE_BYTES_MAX
        assert inputs["body"] == (body.decode() if is_kept else None)
        assert inputs["body_size_bytes"] == len(body)
        assert inputs["body_sha256"] == sha256(body).hexdigest()


async def test_the_time_of_each_stage_that_a_mutation_passes_is_measured(shared_gateway: Gateway) -> None:
    (await shared_gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})).raise_for_status()
    created = await stages_of(shared_gateway, shared_gateway.http.post(TABLES, json=CREATE))
    assert {MutationStage.TENANT, MutationStage.JUDGE, MutationStage.DECIDE, MutationStage.ANSWER} <= created
    assert await stages_of(shared_gateway, shared_gateway.http.get(ORDERS)) == set(), "a read is no mutation"
    conflicted = await stages_of(shared_gateway, shared_gateway.http.post(TABLES, json=CREATE))
    assert MutationStage.DECIDE in conflicted
    assert MutationStage.ANSWER not in conflicted, "a conflict is recorded and changes nothing"


async def stages_of(gateway: Gateway, request: Awaitable[httpx.Response]) -> set[MutationStage]:
    """The stages that the gateway's own metrics have counted during `request`."""
    before = counted_stages(gateway)
    await request
    after = counted_stages(gateway)
    return {stage for stage, count in after.items() if count > before.get(stage, 0)}


def counted_stages(gateway: Gateway) -> dict[MutationStage, int]:
    name = "lakeproof_commit_step_seconds_count"
    lines = gateway.app.state.measures.text().splitlines()
    counted = [line.removeprefix(name) for line in lines if line.startswith(name)]
    return {MutationStage(line.split('"')[1]): int(float(line.split()[-1])) for line in counted}


async def test_what_a_commit_replaces_is_not_kept_in_memory(sales: Gateway) -> None:
    files, before = sales.services.gateway.catalogs.files, await location_of_orders(sales)
    kept = path_of(before).read_bytes()
    assert (await sales.http.get(ORDERS)).status_code == 200
    assert (await sales.http.post(ORDERS, json=properties(owner="ada"))).status_code == 200
    path_of(before).unlink()
    with pytest.raises(MetadataFileError):
        await files.read(before, digest=sha256(kept).hexdigest())
    path_of(before).write_bytes(kept)
    assert (await sales.http.get(ORDERS)).json()["metadata"]["properties"]["owner"] == "ada"


async def test_a_commit_that_changes_nothing_writes_nothing(sales: Gateway) -> None:
    location, told = await location_of_orders(sales), await read_stored(sales.services, sales.acme.log_id)
    for updates in ([], [{"action": "set-current-schema", "schema-id": 0}]):
        answer = await sales.http.post(ORDERS, json={"requirements": [], "updates": updates})
        assert answer.json()["metadata-location"] == location == await location_of_orders(sales)
    assert await read_stored(sales.services, sales.acme.log_id) == told


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
    *_, conflict = await read_stored(sales.services, sales.acme.log_id)
    assert conflict.words == "conflicted"
    assert conflict.parts["message"] == b"Table already exists: sales.orders"


async def test_a_commit_that_must_create_conflicts_in_a_requirements_words(sales: Gateway) -> None:
    body = properties([{"type": "assert-create"}], owner="ada")
    answer = await sales.http.post(ORDERS, json=body)
    assert answer.status_code == 409
    assert error_of(answer)["type"] == "CommitFailedException"
    assert error_of(answer)["message"] == "Requirement failed: table already exists"
    assert (await words(sales.services, sales.acme.log_id))[-1] == "conflicted"


async def test_a_staged_create_is_recorded_only_when_it_is_committed(shared_gateway: Gateway) -> None:
    await shared_gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})
    told = await read_stored(shared_gateway.services, shared_gateway.acme.log_id)
    staged = (await shared_gateway.http.post(TABLES, json={**CREATE, "stage-create": True})).json()
    assert "metadata-location" not in staged
    assert not path_of(staged["metadata"]["location"]).exists()
    assert await read_stored(shared_gateway.services, shared_gateway.acme.log_id) == told
    answer = await shared_gateway.http.post(ORDERS, json=commit_of_staged(staged["metadata"]))
    assert answer.status_code == 200
    assert answer.json()["metadata"]["table-uuid"] == staged["metadata"]["table-uuid"]
    decision, outcome = (await read_stored(shared_gateway.services, shared_gateway.acme.log_id))[-2:]
    assert (decision.decided.operation, outcome.words) == ("table.create", "accepted")
    assert "CATALOG_CREATE_ENTITY" in decision.decided.actions
    told = await read_stored(shared_gateway.services, shared_gateway.acme.log_id)
    exists = await shared_gateway.http.post(TABLES, json={**CREATE, "stage-create": True})
    assert error_of(exists)["message"] == "Table already exists: sales.orders"
    assert await read_stored(shared_gateway.services, shared_gateway.acme.log_id) == told


async def test_who_may_not_create_may_not_commit_a_staged_create_either(shared_gateway: Gateway) -> None:
    await shared_gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})
    staged = (await shared_gateway.http.post(TABLES, json={**CREATE, "stage-create": True})).json()
    rule = {"id": "no-tables", "effect": "forbid", "expression": "op == 'CREATE_ENTITY'"}
    assert (await shared_gateway.http.post("/v1/access-rules", json=rule)).status_code == 201
    answer = await shared_gateway.http.post(ORDERS, json=commit_of_staged(staged["metadata"]))
    assert answer.status_code == 403
    assert (await live_rows(shared_gateway.services, shared_gateway.acme.log_id)).tables == {}


# Refused


async def test_a_policys_no_is_recorded_and_nothing_is_changed(sales: Gateway) -> None:
    policy = {"id": "owned", "expression": "'owner' in result.properties", "message": "tables need an owner"}
    assert (await sales.http.post("/v1/policies", json=policy)).status_code == 201
    location, files = await location_of_orders(sales), files_beside(await location_of_orders(sales))
    answer = await sales.http.post(ORDERS, json=properties(colour="red"))
    assert answer.status_code == 403
    assert error_of(answer)["type"] == "ForbiddenException"
    assert error_of(answer)["message"] == "tables need an owner (policy owned, version 1)"
    *_, rejected = await read_stored(sales.services, sales.acme.log_id)
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
    assert files_beside(location) == files
    assert (await sales.http.post(ORDERS, json=properties(owner="ada"))).status_code == 200


async def test_a_policy_refuses_a_staged_create_on_the_record(shared_gateway: Gateway) -> None:
    await shared_gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})
    await shared_gateway.http.post("/v1/policies", json={"id": "none", "expression": "false", "message": "closed"})
    answer = await shared_gateway.http.post(TABLES, json={**CREATE, "stage-create": True})
    assert answer.status_code == 403
    assert (await words(shared_gateway.services, shared_gateway.acme.log_id))[-1] == "rejected"


async def test_without_access_a_caller_does_not_learn_what_exists(sales: Gateway) -> None:
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
    *_, rejected = await read_stored(sales.services, sales.acme.log_id)
    assert rejected.decided.reason is not None
    assert rejected.decided.reason.id == "frozen"


async def test_a_requirement_that_fails_is_a_conflict_on_the_record(sales: Gateway) -> None:
    requirement = {"type": "assert-table-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}
    answer = await sales.http.post(ORDERS, json=properties([requirement], owner="ada"))
    assert (answer.status_code, error_of(answer)["type"]) == (409, "CommitFailedException")
    *_, conflict = await read_stored(sales.services, sales.acme.log_id)
    assert (conflict.words, conflict.entry.of) == ("conflicted", 1)
    assert conflict.parts["message"].startswith(b"Requirement failed: UUID does not match")


async def test_a_missing_target_is_answered_and_not_recorded(sales: Gateway) -> None:
    told = await read_stored(sales.services, sales.acme.log_id)
    for answer, kind in (
        (await sales.http.post(f"{TABLES}/nothing", json=properties(owner="ada")), "NoSuchTableException"),
        (await sales.http.post(f"{NAMESPACES}/no/tables", json=CREATE), "NoSuchNamespaceException"),
        (await sales.http.delete(f"{NAMESPACES}/no"), "NoSuchNamespaceException"),
        (await sales.http.post(f"{NAMESPACES}/no/properties", json={}), "NoSuchNamespaceException"),
    ):
        assert (answer.status_code, error_of(answer)["type"]) == (404, kind)
    assert await read_stored(sales.services, sales.acme.log_id) == told
