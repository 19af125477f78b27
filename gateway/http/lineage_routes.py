# SPDX-License-Identifier: Apache-2.0
"""
`POST /v1/lineage`: OpenLineage events, one or a batch, from any engine, scheduler or tool. `projections.lineage` parses
and interprets them.

An event is in the log before it is answered, so 202 means that it is kept. Then the answer waits, for two seconds at
most, for the projection that decides on cycles: an edge that would close one is not drawn, and the answer is 422 with
the path. The event is kept all the same, and answered in the same way when it is sent again. It never waits longer:
engines send their last events while they stop. `omitted` counts what else of an event is not drawn.

A batch is answered item by item, as in OpenLineage's HTTP API (operation `postEventBatch`): each event is kept or
refused on its own. If all were kept and drawn completely, the answer has no body.

To access rules this is an update of lineage (`op == "UPDATE_ENTITY" && contentType == "LINEAGE"`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.commit.commit_flow import STALE_MAX
from gateway.commit.gateway import Gateway
from gateway.errors import BadRequestError, GatewayError, UnavailableError, UnprocessableError
from gateway.http.request import body_of, check_access, credentials
from gateway.identity import Principal
from gateway.log_errors import append_errors
from gateway.policy.variables import CommitView
from ledger.errors import GroupMismatchError
from ledger.format.sequence import Appended, Group, Stale
from projections.errors import InvalidLineageError
from projections.lineage.edges import shortened
from projections.lineage.ingest import LineageGroup, to_groups
from projections.lineage.json_text import BODY_SIZE_BYTES_MAX
from projections.lineage.read import Cycle, EventOutcome, find_group, read_next_index, read_outcomes

router = APIRouter()

OPERATION: Final = "lineage.receive"
VIEW: Final = CommitView(catalog="", namespace=(), name="", kind="lineage", operation=OPERATION)
"""A request with lineage as access rules see it."""
APPENDS_AT_ONCE: Final = 64
"""Events of a batch that are appended together."""
DECISION_TIMEOUT_S: Final = 2.0
POLLS_S: Final = (0.005, 0.01, 0.02, 0.05)
"""Pauses between polls of the projection; the last one repeats."""
PATH_SHOWN_BYTES_MAX: Final = 4 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EventResult:
    """The result for one event: why it was refused (`status` is the error's), or what of it is omitted."""

    refusal: GatewayError | None = None
    omitted: Mapping[str, int] = field(default_factory=dict)


@router.post("/v1/lineage")
async def receive_lineage(request: Request) -> Response:
    """Keep an event, or a batch; answer 422 if an edge of it would close a cycle."""
    return await _receive(request, nothing_to_say=202)


@router.post("/v1/lineage/batch")
async def receive_batch(request: Request) -> Response:
    """Keep a batch, under the path and with the status of OpenLineage's HTTP API."""
    return await _receive(request, nothing_to_say=204)


async def _receive(request: Request, *, nothing_to_say: int) -> Response:
    gateway: Gateway = request.app.state.gateway
    caller = await gateway.authenticator.authenticate(credentials(request))
    as_of = await check_access(gateway, caller, request, VIEW)
    body = await body_of(request, size_bytes_max=min(BODY_SIZE_BYTES_MAX, gateway.intake.body_size_bytes_max))
    try:
        # A large body takes a while to parse; other requests must not wait for it.
        now, random = gateway.clock(), gateway.random
        arrived = await asyncio.to_thread(to_groups, body, actor=caller.actor, at=now, random=random)
    except InvalidLineageError as error:
        raise BadRequestError(error.reason, field=error.field) from error
    kept: dict[int, int] = {}
    valid = [(position, one) for position, one in enumerate(arrived.events) if isinstance(one, LineageGroup)]
    for at in range(0, len(valid), APPENDS_AT_ONCE):
        # They are appended in their order. If one fails, the sender has to send all of them again: each is kept once.
        several = valid[at : at + APPENDS_AT_ONCE]
        indices = await _append_all(gateway, caller, request, [one.group for _, one in several], as_of=as_of)
        kept |= dict(zip((position for position, _ in several), indices, strict=True))
    outcomes = await _decided(gateway, caller, kept.values())
    results = [
        _result(one, None if position not in kept else outcomes.get(kept[position]))
        for position, one in enumerate(arrived.events)
    ]
    if arrived.is_batch:
        return _batch_response(results, nothing_to_say=nothing_to_say)
    (result,) = results
    if result.refusal is not None:
        raise result.refusal
    if not result.omitted:
        return Response(status_code=nothing_to_say)
    return JSONResponse({"omitted": dict(result.omitted)}, status_code=HTTPStatus.ACCEPTED)


def _result(one: LineageGroup | InvalidLineageError, outcome: EventOutcome | None) -> EventResult:
    """Return the result for an event; without an `outcome` it is in the log, and decided later."""
    if isinstance(one, InvalidLineageError):
        return EventResult(refusal=BadRequestError(one.reason, field=one.field))
    if outcome is None:
        event = one.event
        counts = {"columns": event.columns_omitted, "datasets": event.datasets_omitted, "names": event.names_omitted}
        return EventResult(omitted={name: count for name, count in counts.items() if count})
    refusal = UnprocessableError(_words(outcome.cycles)) if outcome.cycles else None
    return EventResult(refusal=refusal, omitted=outcome.omitted)


def _batch_response(results: Sequence[EventResult], *, nothing_to_say: int) -> Response:
    failed = [
        {"index": position, "reason": str(result.refusal), "status": result.refusal.status, "retriable": False}
        for position, result in enumerate(results)
        if result.refusal is not None
    ]
    omitted = [
        {"index": position, "omitted": dict(result.omitted)}
        for position, result in enumerate(results)
        if result.omitted
    ]
    if not failed and not omitted:
        return Response(status_code=nothing_to_say)
    summary = {
        "received": len(results),
        "successful": len(results) - len(failed),
        "failed": len(failed),
        "retriable": 0,
        "non_retriable": len(failed),
    }
    status = "partial_success" if failed else "success"
    return JSONResponse({"status": status, "summary": summary, "failed_events": failed, "omitted": omitted})


async def _append_all(
    gateway: Gateway, caller: Principal, request: Request, groups: Sequence[Group], *, as_of: int
) -> list[int]:
    """Append events and return their indices."""
    try:
        async with asyncio.TaskGroup() as tasks:
            appending = [tasks.create_task(_append(gateway, caller, request, group, as_of=as_of)) for group in groups]
    except BaseExceptionGroup as error:
        raise error.exceptions[0] from error
    return [task.result() for task in appending]


async def _append(gateway: Gateway, caller: Principal, request: Request, group: Group, *, as_of: int) -> int:
    """Append one event and return its index; it is judged again if the rules have changed since `as_of`."""
    for _ in range(STALE_MAX):
        try:
            with append_errors(not_appended="the log does not answer: send the event again, it is kept once"):
                outcome = await gateway.append(caller.log_id, replace(group, as_of=as_of))
        except GroupMismatchError:
            # The log has the same event with other bytes: another caller sent it, or it has no time of its own.
            return await _index_of(gateway, caller, group)
        match outcome:
            case Appended():
                return outcome.indices.start
            case Stale():
                as_of = await check_access(gateway, caller, request, VIEW)
    raise UnavailableError("access rules changed too often meanwhile: send the event again, it is kept once")


async def _index_of(gateway: Gateway, caller: Principal, group: Group) -> int:
    async with gateway.database.as_role(gateway.roles.tenant(caller.tenant)) as connection:
        index = await find_group(connection, caller.log_id, group.id)
    if index is None:
        raise UnavailableError("the log does not show the event: send it again, it is kept once")
    return index


async def _decided(gateway: Gateway, caller: Principal, indices: Collection[int]) -> dict[int, EventOutcome]:
    """
    Return what is not drawn of the events at `indices`, once that is decided; empty if that takes too long.
    """
    if not indices:
        return {}
    reader = gateway.roles.tenant(caller.tenant)
    polls = iter(POLLS_S)
    try:
        async with asyncio.timeout(DECISION_TIMEOUT_S):
            while True:
                async with gateway.database.as_role(reader) as connection:
                    if await read_next_index(connection, caller.log_id) > max(indices):
                        return await read_outcomes(connection, caller.log_id, indices)
                await asyncio.sleep(next(polls, POLLS_S[-1]))
    except (TimeoutError, UnavailableError):
        return {}  # the events are in the log, and so will be a cycle that is found later


def _words(cycles: Sequence[Cycle]) -> str:
    first = cycles[0]
    path = " -> ".join((*shortened(first.path, size_bytes_max=PATH_SHOWN_BYTES_MAX), first.target))
    others = f" (and {len(cycles) - 1} more)" if len(cycles) > 1 else ""
    return f"{first.target} cannot be made from {first.source}: it would be made from itself, {path}{others}"
