"""
`POST /v1/lineage`: OpenLineage events, one or a batch, from any engine, scheduler or tool. Thin: `projections.lineage`
reads them and decides what they mean.

An event is in the log before it is answered, so 202 means: kept. Then the answer waits, two seconds at most, for the
projection that decides on cycles: an edge that would close one is not drawn, and 422 tells the path. The event is kept
all the same, and answered in the same way when it comes again. It never waits longer: engines send their last events
while they stop.

To access rules this is an update of lineage (`op == "UPDATE_ENTITY" && contentType == "LINEAGE"`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gateway.commit_flow import STALE_MAX
from gateway.errors import BadRequestError, UnavailableError, UnprocessableError
from gateway.house import House
from gateway.house_access import check_access
from gateway.iceberg_routes import chunks, credential
from gateway.identity import Principal
from gateway.policy.variables import CommitView
from gateway.requests import parse_content_length, read_body
from ledger.errors import GroupMismatchError, LogUnavailableError, OutcomeUnknownError, QueueFullError
from ledger.sequence import Appended, Group, Stale
from projections.lineage.drawing import shortened
from projections.lineage.errors import InvalidLineageError
from projections.lineage.json_text import BODY_SIZE_BYTES_MAX
from projections.lineage.read import Cycle, find_group, read_cycles, read_next_index
from projections.lineage.receiving import receive

router = APIRouter()

OPERATION: Final = "lineage.receive"
VIEW: Final = CommitView(catalog="", namespace=(), name="", kind="lineage", operation=OPERATION)
"""What access rules see of who tells of lineage."""
DECISION_TIMEOUT_S: Final = 2.0
POLLS_S: Final = (0.005, 0.01, 0.02, 0.05)
"""Waits between looks at the projection; the last one repeats."""
PATH_SHOWN_BYTES_MAX: Final = 4 * 1024


@router.post("/v1/lineage")
async def receive_lineage(request: Request) -> Response:
    """Keep an event, or a batch; answer 422 if an edge of it would close a cycle."""
    await _receive(request)
    return Response(status_code=202)


@router.post("/v1/lineage/batch")
async def receive_batch(request: Request) -> Response:
    """The same where OpenLineage's clients send batches, with the status that its HTTP API has for them."""
    await _receive(request)
    return Response(status_code=204)


async def _receive(request: Request) -> None:
    house: House = request.app.state.house
    caller = await house.authenticator.authenticate(credential(request))
    as_of = await check_access(house, caller, request, VIEW)
    body = await read_body(
        chunks(request),
        content_length=parse_content_length(request.headers.get("content-length")),
        size_bytes_max=min(BODY_SIZE_BYTES_MAX, house.body_size_bytes_max),
    )
    try:
        # A large body takes a while to read, and nobody else should wait for it.
        groups = await asyncio.to_thread(receive, body, actor=caller.actor, at=house.clock(), random=house.random)
    except InvalidLineageError as error:
        raise BadRequestError(error.reason, field=error.field) from error
    indices = []
    for group in groups:
        index, as_of = await _append(house, caller, request, group, as_of=as_of)
        indices.append(index)
    cycles = await _decided(house, caller, indices)
    if cycles:
        raise UnprocessableError(_words(cycles))


async def _append(house: House, caller: Principal, request: Request, group: Group, *, as_of: int) -> tuple[int, int]:
    """Append one event; return its index and the control index it was judged by, anew if the rules have changed."""
    for _ in range(STALE_MAX):
        try:
            outcome = await house.append(caller.log_id, replace(group, as_of=as_of))
        except GroupMismatchError:
            # The same event, in other words: it came by somebody else, or has no time of its own.
            return await _index_of(house, caller, group), as_of
        except (LogUnavailableError, QueueFullError, OutcomeUnknownError) as error:
            raise UnavailableError("the log does not answer: send the event again, it is kept once") from error
        match outcome:
            case Appended():
                return outcome.indices.start, as_of
            case Stale():
                as_of = await check_access(house, caller, request, VIEW)
    raise UnavailableError("access rules changed too often meanwhile: send the event again, it is kept once")


async def _index_of(house: House, caller: Principal, group: Group) -> int:
    async with house.database.as_role(house.roles.tenant(caller.tenant)) as connection:
        index = await find_group(connection, caller.log_id, group.id)
    if index is None:
        raise UnavailableError("the log does not show the event: send it again, it is kept once")
    return index


async def _decided(house: House, caller: Principal, indices: Sequence[int]) -> list[Cycle]:
    """
    Return the cycles that were found for the events at `indices`, once they are decided; none if that takes too long.
    """
    reader = house.roles.tenant(caller.tenant)
    polls = iter(POLLS_S)
    try:
        async with asyncio.timeout(DECISION_TIMEOUT_S):
            while True:
                async with house.database.as_role(reader) as connection:
                    if await read_next_index(connection, caller.log_id) > max(indices):
                        return await read_cycles(connection, caller.log_id, indices)
                await asyncio.sleep(next(polls, POLLS_S[-1]))
    except (TimeoutError, UnavailableError):
        return []  # it is in the log: what is found later is told there


def _words(cycles: Sequence[Cycle]) -> str:
    first = cycles[0]
    path = " -> ".join((*shortened(first.path, size_bytes_max=PATH_SHOWN_BYTES_MAX), first.target))
    others = f" (and {len(cycles) - 1} more)" if len(cycles) > 1 else ""
    return f"{first.target} cannot be made from {first.source}: it would be made from itself, {path}{others}"
