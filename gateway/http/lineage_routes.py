"""
`POST /v1/lineage`: OpenLineage events, one or a batch, from any engine, scheduler or tool. Thin: `projections.lineage`
reads them and decides what they mean.

An event is in the log before it is answered, so 202 means: kept. Then the answer waits, two seconds at most, for the
projection that decides on cycles: an edge that would close one is not drawn, and 422 tells the path. The event is kept
all the same, and answered in the same way when it comes again. It never waits longer: engines send their last events
while they stop. What else is not drawn of an event that was taken is told as `omitted`.

A batch is answered item by item, in the words of OpenLineage's HTTP API (operation `postEventBatch`): each event is
kept or refused for itself. Where every one was taken and all of it is drawn there is nothing to say.

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
from gateway.errors import BadRequestError, GatewayError, UnavailableError, UnprocessableError, append_errors
from gateway.http.request import body_of, check_access, credential
from gateway.identity import Principal
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
"""What access rules see of who tells of lineage."""
APPENDS_AT_ONCE: Final = 64
"""Events of a batch that are handed to the log together."""
DECISION_TIMEOUT_S: Final = 2.0
POLLS_S: Final = (0.005, 0.01, 0.02, 0.05)
"""Waits between looks at the projection; the last one repeats."""
PATH_SHOWN_BYTES_MAX: Final = 4 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one event: why it was refused (`status` says how), or what of it is omitted."""

    refusal: GatewayError | None = None
    omitted: Mapping[str, int] = field(default_factory=dict)


@router.post("/v1/lineage")
async def receive_lineage(request: Request) -> Response:
    """Keep an event, or a batch; answer 422 if an edge of it would close a cycle."""
    return await _receive(request, nothing_to_say=202)


@router.post("/v1/lineage/batch")
async def receive_batch(request: Request) -> Response:
    """The same where OpenLineage's clients send batches, with the status that its HTTP API has for them."""
    return await _receive(request, nothing_to_say=204)


async def _receive(request: Request, *, nothing_to_say: int) -> Response:
    gateway: Gateway = request.app.state.gateway
    caller = await gateway.authenticator.authenticate(credential(request))
    as_of = await check_access(gateway, caller, request, VIEW)
    body = await body_of(request, size_bytes_max=min(BODY_SIZE_BYTES_MAX, gateway.intake.body_size_bytes_max))
    try:
        # A large body takes a while to read, and nobody else should wait for it.
        now, random = gateway.clock(), gateway.random
        arrived = await asyncio.to_thread(to_groups, body, actor=caller.actor, at=now, random=random)
    except InvalidLineageError as error:
        raise BadRequestError(error.reason, field=error.field) from error
    kept: dict[int, int] = {}
    valid = [(position, one) for position, one in enumerate(arrived.events) if isinstance(one, LineageGroup)]
    for at in range(0, len(valid), APPENDS_AT_ONCE):
        # They reach the log in their order, some with one write. If it fails on one the sender is to send all of them
        # again: each is kept once.
        several = valid[at : at + APPENDS_AT_ONCE]
        indices = await _append_all(gateway, caller, request, [one.group for _, one in several], as_of=as_of)
        kept |= dict(zip((position for position, _ in several), indices, strict=True))
    outcomes = await _decided(gateway, caller, kept.values())
    answers = [
        _answer(one, None if position not in kept else outcomes.get(kept[position]))
        for position, one in enumerate(arrived.events)
    ]
    if arrived.is_batch:
        return _batch_response(answers, nothing_to_say=nothing_to_say)
    (answer,) = answers
    if answer.refusal is not None:
        raise answer.refusal
    if not answer.omitted:
        return Response(status_code=nothing_to_say)
    return JSONResponse({"omitted": dict(answer.omitted)}, status_code=HTTPStatus.ACCEPTED)


def _answer(one: LineageGroup | InvalidLineageError, outcome: EventOutcome | None) -> Answer:
    """Return what became of an event; without an `outcome` it is in the log, and decided later."""
    if isinstance(one, InvalidLineageError):
        return Answer(refusal=BadRequestError(one.reason, field=one.field))
    if outcome is None:
        event = one.event
        counts = {"columns": event.columns_omitted, "datasets": event.datasets_omitted, "names": event.names_omitted}
        return Answer(omitted={name: count for name, count in counts.items() if count})
    refusal = UnprocessableError(_words(outcome.cycles)) if outcome.cycles else None
    return Answer(refusal=refusal, omitted=outcome.omitted)


def _batch_response(answers: Sequence[Answer], *, nothing_to_say: int) -> Response:
    failed = [
        {"index": position, "reason": str(answer.refusal), "status": answer.refusal.status, "retriable": False}
        for position, answer in enumerate(answers)
        if answer.refusal is not None
    ]
    omitted = [
        {"index": position, "omitted": dict(answer.omitted)}
        for position, answer in enumerate(answers)
        if answer.omitted
    ]
    if not failed and not omitted:
        return Response(status_code=nothing_to_say)
    summary = {
        "received": len(answers),
        "successful": len(answers) - len(failed),
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
    """Append one event and return its index; it is judged anew if the rules have changed since `as_of`."""
    for _ in range(STALE_MAX):
        try:
            with append_errors(not_appended="the log does not answer: send the event again, it is kept once"):
                outcome = await gateway.append(caller.log_id, replace(group, as_of=as_of))
        except GroupMismatchError:
            # The same event, in other words: it came by somebody else, or has no time of its own.
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
    Return what is not drawn of the events at `indices`, once that is decided; nothing if that takes too long.
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
        return {}  # it is in the log: what is found later is told there


def _words(cycles: Sequence[Cycle]) -> str:
    first = cycles[0]
    path = " -> ".join((*shortened(first.path, size_bytes_max=PATH_SHOWN_BYTES_MAX), first.target))
    others = f" (and {len(cycles) - 1} more)" if len(cycles) > 1 else ""
    return f"{first.target} cannot be made from {first.source}: it would be made from itself, {path}{others}"
