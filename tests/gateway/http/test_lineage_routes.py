# SPDX-License-Identifier: Apache-2.0
"""
`POST /v1/lineage` through a real gateway: kept before it is answered, 422 with the path of a cycle, never a long wait.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from gateway.http import lineage_routes
from ledger.errors import LogUnavailableError, OutcomeUnknownError, QueueFullError
from ledger.format.events import LineageCycleFound, LineageReceived, from_data
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.read import Log
from projections.lineage.cycle_events import append_cycles
from projections.lineage.json_text import BODY_SIZE_BYTES_MAX
from projections.lineage.projection import LineageProjection
from projections.processing.generations import rebuild
from projections.processing.runner import ProjectionRunner
from testkit.gateway.log_contents import StoredEntry, read_stored
from testkit.gateway.sales import another_key, before_each_append, error_of
from testkit.servers.gateways import Gateway, open_gateway

LINEAGE = "/v1/lineage"

pytestmark = pytest.mark.asyncio(loop_scope="module")


def event(*, inputs: list[str], outputs: list[str], **members: Any) -> dict[str, Any]:
    """A COMPLETE of a new run, about topics."""
    topics = [[{"namespace": "kafka://prod", "name": name} for name in names] for names in (inputs, outputs)]
    return {
        "eventType": "COMPLETE",
        "eventTime": "2026-11-20T12:00:00Z",
        "producer": "https://example.com/etl/1.4",
        "run": {"runId": str(uuid4())},
        "job": {"namespace": "etl", "name": "load"},
        "inputs": topics[0],
        "outputs": topics[1],
        **members,
    }


def key(name: str) -> str:
    return f"dataset:kafka%3A%2F%2Fprod/{name}"


async def stored_entries(gateway: Gateway, *types: str) -> list[StoredEntry]:
    """What the log holds of these types."""
    told = await read_stored(gateway.services, gateway.acme.log_id)
    return [one for one in told if one.entry.type in (types or (LineageReceived.TYPE, LineageCycleFound.TYPE))]


async def log_of(gateway: Gateway) -> Log:
    return next(log for log in await gateway.services.logs() if log.log_id == gateway.acme.log_id)


@asynccontextmanager
async def projecting(gateway: Gateway) -> AsyncIterator[None]:
    """Run the projection, as `lakeproof up` does."""
    installation = gateway.services.installation
    dsn, opener = installation.as_role(installation.roles.projector), gateway.services.opener
    runner = ProjectionRunner(dsn, (LineageProjection(),), poll_s=0.01, opener=opener)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(runner.run(stop))
        try:
            yield
        finally:
            stop.set()


@pytest_asyncio.fixture(loop_scope="module")
async def projected(shared_gateway: Gateway) -> AsyncIterator[Gateway]:
    """A gateway beside which the projection runs."""
    async with projecting(shared_gateway):
        yield shared_gateway


async def test_start_and_complete_are_kept_with_their_raw_events_as_parts(projected: Gateway) -> None:
    run = {"runId": str(uuid4())}
    bodies = [json.dumps(event(inputs=["a"], outputs=["b"], run=run, eventType=kind)) for kind in ("START", "COMPLETE")]
    for body in bodies:
        answer = await projected.http.post(LINEAGE, content=body)
        assert (answer.status_code, answer.content) == (202, b"")
    told = await stored_entries(projected)
    assert [one.parts for one in told] == [{"event": body.encode()} for body in bodies]
    assert [from_data(LineageReceived, one.entry.data).event_type for one in told] == ["START", "COMPLETE"]
    assert {(one.entry.key, one.entry.actor) for one in told} == {(f"run:{run['runId']}", projected.acme.key.actor)}


async def test_an_edge_that_closes_a_cycle_is_422_with_the_path_and_recorded_in_the_log(projected: Gateway) -> None:
    for inputs, outputs in ((["a"], ["b"]), (["b"], ["c"])):
        assert (await projected.http.post(LINEAGE, json=event(inputs=inputs, outputs=outputs))).status_code == 202
    closing = event(inputs=["c"], outputs=["a"])
    refused = await projected.http.post(LINEAGE, json=closing)
    assert refused.status_code == 422
    assert " -> ".join(map(key, "abca")) in error_of(refused)["message"]
    parts = projected.services.gateway
    async with parts.database.as_role(parts.roles.projector) as connection:
        assert await append_cycles(connection, parts.append, await log_of(projected), clock=parts.clock) == 1
    (cycle,) = [
        from_data(LineageCycleFound, one.entry.data) for one in await stored_entries(projected, LineageCycleFound.TYPE)
    ]
    received = (await stored_entries(projected, LineageReceived.TYPE))[-1]
    assert cycle.lineage == str(received.entry.group_id)
    assert (cycle.source, cycle.target, cycle.path) == (key("c"), key("a"), tuple(map(key, "abc")))
    # The event is kept, and answered in the same way when it comes again; nothing is added.
    again = await projected.http.post(LINEAGE, json=closing)
    assert (again.status_code, again.json()) == (422, refused.json())
    assert len(await stored_entries(projected)) == 4
    # A rebuild finds what the live generation holds, what was told included.
    installation = projected.services.installation
    dsn, log = installation.as_role(installation.roles.projector), await log_of(projected)

    async def attested(*_: object) -> None:
        pass

    assert (
        await rebuild(dsn, LineageProjection(), log, append=attested, batch_max=1, opener=projected.services.opener)
    ).compared


async def test_the_same_event_adds_nothing_even_from_another_sender(projected: Gateway) -> None:
    sent = event(inputs=["a"], outputs=["b"])
    rule = {"id": "all", "effect": "permit", "expression": 'op == "UPDATE_ENTITY" && path == ".lineage"'}
    assert (await projected.http.post("/v1/access-rules", json=rule)).status_code == 201
    eve = projected.client(await another_key(projected))
    for http in (projected.http, projected.http, eve):
        assert (await http.post(LINEAGE, json=sent)).status_code == 202
    assert (await projected.http.post(LINEAGE, json={**sent, "eventType": "FAIL"})).status_code == 202
    assert len(await stored_entries(projected)) == 2
    # One that has no time of its own is the same event too.
    timeless = event(inputs=["b"], outputs=["a"])
    del timeless["eventTime"]
    for _ in range(2):
        assert (await projected.http.post(LINEAGE, json=timeless)).status_code == 422
    assert len(await stored_entries(projected, LineageReceived.TYPE)) == 3


async def test_a_batch_is_answered_item_by_item(projected: Gateway) -> None:
    events = [event(inputs=["a"], outputs=[name]) for name in "bcd"]
    assert (await projected.http.post(LINEAGE, json=events)).status_code == 202
    answer = await projected.http.post(f"{LINEAGE}/batch", json=events)
    assert (answer.status_code, answer.content) == (204, b"")
    assert len(await stored_entries(projected)) == 3
    many = event(inputs=[str(number) for number in range(60)], outputs=[f"to{number}" for number in range(20)])
    mixed = [event(inputs=["d"], outputs=["e"]), {}, event(inputs=["e"], outputs=["a"]), many]
    for path in (LINEAGE, f"{LINEAGE}/batch"):
        answer = await projected.http.post(path, json=mixed)
        assert answer.status_code == 200
        body = answer.json()
        assert body["status"] == "partial_success"
        counts = {"received": 4, "successful": 2, "failed": 2, "retriable": 0, "non_retriable": 2}
        assert body["summary"] == counts
        failed = [(each["index"], each["status"]) for each in body["failed_events"]]
        assert failed == [(1, 400), (2, 422)]
        assert body["failed_events"][0]["reason"].startswith("[1].eventType: ")
        assert " -> ".join(map(key, "adea")) in body["failed_events"][1]["reason"]
        assert body["omitted"] == [{"index": 3, "omitted": {"edges": 200}}]
    assert len(await stored_entries(projected, LineageReceived.TYPE)) == 6


async def test_what_is_not_drawn_of_an_event_that_is_taken_is_said(projected: Gateway) -> None:
    links = [{"namespace": "x", "name": str(number), "type": "TABLE"} for number in range(21)]
    facet = {"_producer": "https://example.com", "_schemaURL": "https://example.com/s.json", "identifiers": links}
    sent = event(inputs=["a", "b"], outputs=["a", "b"], job=None, schemaURL=None)
    sent["inputs"][0]["facets"] = {"symlinks": facet, "schema": None}
    answer = await projected.http.post(LINEAGE, json=sent)
    assert (answer.status_code, answer.json()) == (202, {"omitted": {"names": 1, "ambiguous": 2}})
    (told,) = await stored_entries(projected)
    assert json.loads(told.parts["event"]) == sent


async def test_a_tenant_that_keeps_cycles_is_refused_none(projected: Gateway) -> None:
    changed = await projected.http.put("/v1/settings/lineage-cycles", json={"value": "keep"})
    assert changed.status_code == 200
    for inputs, outputs in ((["dim"], ["hist"]), (["hist"], ["dim"]), (["dim"], ["hist"])):
        assert (await projected.http.post(LINEAGE, json=event(inputs=inputs, outputs=outputs))).status_code == 202


async def test_what_spark_sent_is_taken(projected: Gateway, shared_data: Path) -> None:
    for file in sorted((shared_data / "openlineage" / "spark").glob("*.json")):
        answer = await projected.http.post(LINEAGE, content=file.read_bytes())
        assert answer.status_code == 202, (file.name, answer.text)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"", 400, "body"),
        (b"{", 400, "body"),
        (b'{"producer": "x", "run": {"runId": "1"}}', 400, "eventType"),
        (json.dumps(event(inputs=[], outputs=[], run={"runId": "1"})).encode(), 400, "run.runId"),
        (json.dumps({**event(inputs=[], outputs=[]), "inputs": [{}]}).encode(), 400, "inputs[0].namespace"),
        (b'{"x": NaN}', 400, "body"),
        (b" " * (BODY_SIZE_BYTES_MAX + 1), 413, ""),
    ],
)
async def test_what_is_wrong_is_refused_with_its_field_and_nothing_is_kept(
    module_gateway: Gateway, body: bytes, status: int, field: str
) -> None:
    answer = await module_gateway.http.post(LINEAGE, content=body)
    assert answer.status_code == status
    if field:
        assert error_of(answer)["message"].startswith(f"{field}: ")
    assert await stored_entries(module_gateway) == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_only_post_is_allowed(module_gateway: Gateway, method: str) -> None:
    assert (await module_gateway.http.request(method, LINEAGE)).status_code == 405


async def test_unknown_and_unpermitted_callers_cannot_send_lineage(projected: Gateway) -> None:
    sent = event(inputs=["a"], outputs=["b"])
    assert (await projected.client(None).post(LINEAGE, json=sent)).status_code == 401
    assert (await projected.client("lp_wrong").post(LINEAGE, json=sent)).status_code == 401
    refused = await projected.client(await another_key(projected)).post(LINEAGE, json=sent)
    assert refused.status_code == 403
    (access,) = await stored_entries(projected, "access.refused")
    assert access.entry.data["operation"] == lineage_routes.OPERATION
    assert await stored_entries(projected) == []


async def test_a_rule_that_forbids_while_the_event_is_sent_is_obeyed(projected: Gateway) -> None:
    rule = {"id": "no-lineage", "effect": "forbid", "expression": 'contentType == "LINEAGE"'}

    async def forbid(count: int) -> None:
        if count == 0:
            (await projected.http.post("/v1/access-rules", json=rule)).raise_for_status()

    http = projected.through(append=before_each_append(projected, forbid))
    assert (await http.post(LINEAGE, json=event(inputs=["a"], outputs=["b"]))).status_code == 403
    assert await stored_entries(projected) == []


@pytest.mark.parametrize("error", [LogUnavailableError, QueueFullError, OutcomeUnknownError])
async def test_a_log_that_does_not_answer_is_503_and_sending_again_is_safe(
    projected: Gateway, error: Callable[[str], Exception]
) -> None:
    answers = iter([error("no answer")])

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        outcome = await projected.services.gateway.append(log_id, group, **after)
        for failure in answers:
            raise failure
        return outcome

    http = projected.through(append=append)
    sent = event(inputs=["a"], outputs=["b"])
    failed = await http.post(LINEAGE, json=sent)
    assert failed.status_code == 503
    assert failed.headers["Retry-After"]
    assert (await http.post(LINEAGE, json=sent)).status_code == 202
    assert len(await stored_entries(projected)) == 1


async def test_without_the_projection_the_answer_does_not_wait_for_ever(
    shared_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage_routes, "DECISION_TIMEOUT_S", 0.05)
    sent = event(inputs=["a"], outputs=["b"])
    closing = event(inputs=["b"], outputs=["a"])
    for each in (sent, closing):
        assert (await shared_gateway.http.post(LINEAGE, json=each)).status_code == 202
    assert len(await stored_entries(shared_gateway)) == 2
    monkeypatch.undo()
    async with projecting(shared_gateway):
        assert (await shared_gateway.http.post(LINEAGE, json=closing)).status_code == 422
    assert len(await stored_entries(shared_gateway, LineageReceived.TYPE)) == 2


async def test_no_tenant_sees_the_edges_of_another(projected: Gateway) -> None:
    async with open_gateway(projected.services) as other:
        assert (await projected.http.post(LINEAGE, json=event(inputs=["a"], outputs=["b"]))).status_code == 202
        answer = await other.http.post(LINEAGE, json=event(inputs=["b"], outputs=["a"]))
        assert answer.status_code == 202
