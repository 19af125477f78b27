# SPDX-License-Identifier: Apache-2.0
"""
Replays of proposed policies over HTTP: jobs that judge recorded decisions again (`gateway/replaying/jobs.py`).

A replay tells of all decisions together, so it takes the right to see whatever they are about, besides those to read
the log, its inputs and policies. To begin one, to cancel it and to attest it takes the right to write a draft of each
of its policies. Of a tenant one is under way at a time, and the last one is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from gateway.admin.policy_apply import check_compiles
from gateway.admin.policy_reports import savable
from gateway.errors import BadRequestError, ConflictError, ForbiddenError, NotFoundError
from gateway.http.admin_routes import body_as, may_edit, may_read
from gateway.http.log_routes import CHANGING, INPUTS, VARY, VIEW
from gateway.http.looking.reading import Looking, look
from gateway.http.looking.sight import Sight
from gateway.http.policy_file_routes import BODY_SIZE_BYTES_MAX, CALL_S, DRAFT, PolicyFilesBody, policies_of
from gateway.http.request import check_access
from gateway.jobs import Jobs
from gateway.replaying import jobs as replays
from gateway.replaying.application import attest
from gateway.replaying.callers import names_of
from gateway.replaying.jobs import LastReplay, cancel_replay, replayed_of
from gateway.replaying.replay import Proposed
from gateway.replaying.spans import EXPECTED, span_of
from ledger.format import canonical

router = APIRouter(prefix="/v1/policy-replays")

SINCE: Final = "30d"


class PolicyReplayBody(PolicyFilesBody):
    """
    Proposed policies, each in place of the one of its id if there is one, and how far back decisions are judged again:
    `since` is like 90m, 12h, 30d or 8w. With `coverage`, also how many decisions reach each branch.
    """

    since: str = Field(default=SINCE, max_length=8)
    coverage: bool = False


@router.post("")
async def begin_policy_replay(request: Request) -> Response:
    """Have recorded decisions judged again with proposed policies, by another process. Nothing is saved."""
    body = await body_as(request, PolicyReplayBody, size_bytes_max=BODY_SIZE_BYTES_MAX)
    back = span_of(body.since)
    if back is None:
        raise BadRequestError(f"{EXPECTED}, found {body.since!r:.40}", field="since")
    policies = savable(await policies_of(body.policies))
    looking = await _check_replays(request)
    gateway, caller = looking.gateway, looking.caller
    await _check_drafts(request, [policy.id for policy in policies])
    for policy in policies:
        await check_compiles(gateway.authors, policy, log_id=caller.log_id, timeout_s=CALL_S)
    proposal = [Proposed(id=policy.id, expression=policy.expression, scope=policy.scope) for policy in policies]
    since = gateway.clock() - back
    begun = await replays.begin_replay(_jobs(request), caller, proposal, since=since, covers=body.coverage)
    last = await _found(request, looking, str(begun))
    headers = {"Location": f"/v1/policy-replays/{begun}", "Retry-After": "1"}
    return JSONResponse(_shown(last), status_code=202, headers=headers)


@router.get("")
async def list_policy_replays(request: Request) -> Response:
    """List the replays that are kept, which is the last one, without what they found."""
    looking = await _check_replays(request)
    last = await replays.last_replay(_jobs(request), looking.caller.log_id)
    return JSONResponse({"policy-replays": [] if last is None else [_shown(last)]})


@router.get("/{job}")
async def show_policy_replay(request: Request, job: str) -> Response:
    """Show how far a replay is, and once it is done what it found."""
    looking = await _check_replays(request)
    last = await _found(request, looking, job)
    result = None if last.found is None else await _named(looking, last.found)
    return JSONResponse({**_shown(last), "result": result}, headers={"Cache-Control": CHANGING, "Vary": VARY})


@router.delete("/{job}")
async def cancel_policy_replay(request: Request, job: str) -> Response:
    """Cancel a replay that has not ended."""
    looking = await _check_replays(request)
    last = await _found(request, looking, job)
    await _check_drafts(request, [policy.id for policy in last.proposal])
    await cancel_replay(_jobs(request), last)
    return Response(status_code=204)


@router.post("/{job}/attest")
async def attest_policy_replay(request: Request, job: str) -> Response:
    """Record in the log what a replay has found; the same again is recorded once."""
    looking = await _check_replays(request)
    last = await _found(request, looking, job)
    await _check_drafts(request, [policy.id for policy in last.proposal])
    if last.found is None:
        raise ConflictError(
            "expected a replay that is done, found none: only what was found is attested", kind="NoResultException"
        )
    caller = looking.caller
    _, index = await attest(looking.gateway, caller.log_id, last.proposal, replayed_of(last.found), actor=caller.actor)
    return JSONResponse({"id": str(last.replay), "index": index})


async def check_sees_everything(sight: Sight) -> None:
    """
    Check that a caller may see whatever decisions are about.

    Raises:
        ForbiddenError: if not.
    """
    if not await sight.sees_everything():
        raise ForbiddenError(
            "a replay tells of all decisions together: it takes the right to load every table, view and namespace. Try "
            "the policy on the decisions of a table instead"
        )


async def _check_replays(request: Request) -> Looking:
    """Authenticate the caller, and check that they may see what a replay finds."""
    looking = await look(request)
    for view in (VIEW, INPUTS):
        await check_access(looking.gateway, looking.caller, request, view)
    await may_read(request, "policy")
    await check_sees_everything(looking.sight)
    return looking


async def _check_drafts(request: Request, ids: Iterable[str]) -> None:
    for policy_id in ids:
        await may_edit(request, DRAFT, policy_id)


async def _found(request: Request, looking: Looking, job: str) -> LastReplay:
    try:
        wanted = UUID(job)
    except ValueError as error:
        raise BadRequestError(f"expected the id of a replay, found {job!r:.80}", field="job") from error
    last = await replays.last_replay(_jobs(request), looking.caller.log_id)
    if last is None or last.replay != wanted:
        raise NotFoundError(
            f"replay {job}: expected the last one of the tenant, found none of that id: another may have taken its "
            "place",
            kind="NotFoundException",
        )
    return last


async def _named(looking: Looking, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was found, with the names of callers as far as they are not erased."""
    known = {each["of"]: each["first"] for each in found["by_principal"]}
    known |= {each["actor"]: each["first"] for each in found["changes"]}
    names = await names_of(looking.gateway, looking.caller.tenant, looking.caller.log_id, known)
    return {
        **found,
        "coverage": found.get("coverage", []),
        "by_principal": [{**each, "principal": names.get(each["of"])} for each in found["by_principal"]],
        "changes": [{**each, "principal": names.get(each["actor"])} for each in found["changes"]],
    }


def _shown(last: LastReplay) -> dict[str, Any]:
    return {
        **last.job.shown(),
        "since": canonical.format_time(last.since),
        "policies": [policy.shown() for policy in last.proposal],
        "coverage": bool(last.job.asked.get("covers")),
    }


def _jobs(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs
