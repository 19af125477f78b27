# SPDX-License-Identifier: Apache-2.0
"""
The page of a replay: how far the last one of the tenant is, and what it found.

It tells of all decisions together, so it takes the right to see whatever they are about, besides those to read the log,
its inputs and policies. To begin one, to stop it and to attest it takes the right to write a draft of the policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from gateway.console.logins import form_of, redirect
from gateway.console.pages import Visit, visited
from gateway.console.policy_seen import SHORT, check_inputs, words_of_changes
from gateway.console.rendering import HEADERS
from gateway.errors import BadRequestError, ConflictError
from gateway.http import admin_routes
from gateway.http.inner import inner_request
from gateway.http.policy_replay_routes import check_sees_everything
from gateway.jobs import Jobs
from gateway.replaying import jobs as replays
from gateway.replaying.application import attest
from gateway.replaying.callers import names_of
from gateway.replaying.jobs import LastReplay, cancel_replay, replayed_of
from gateway.replaying.replay import Proposed

router = APIRouter(prefix="/console/policies", include_in_schema=False)

REPLAY: Final = "/console/policies/_replay"
REFRESH_S: Final = 2
PERIODS: Final[Mapping[str, timedelta]] = {
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "90d": timedelta(days=90),
    "365d": timedelta(days=365),
}
PERIODS_SAID: Final = {
    name: "hour" if period == timedelta(hours=1) else "24 hours" if period.days == 1 else f"{period.days} days"
    for name, period in PERIODS.items()
}
"""The periods in words."""


@router.get("/_replay")
@visited
async def replay(visit: Visit) -> Response:
    """Show how far the last replay of the tenant is, or what it found."""
    await _check_replays(visit)
    last = await replays.last_replay(_jobs(visit), visit.caller.log_id)
    names: Mapping[str, str] = {}
    if last is not None and last.found is not None:
        names = await _names(visit, last.found)
    return visit.page(
        "policy_replay.html", last=last, refresh_s=REFRESH_S, names=names, words=words_of_changes(), short=SHORT
    )


@router.get("/_replay/state")
@visited
async def replay_state(visit: Visit) -> Response:
    """Answer with how far the last replay is: for the script of its page."""
    await _check_replays(visit)
    last = await replays.last_replay(_jobs(visit), visit.caller.log_id)
    state = {"state": None} if last is None else _state(last)
    return JSONResponse(state, headers=HEADERS)


@router.post("/_replay/cancel")
@visited
async def cancel(visit: Visit) -> Response:
    """Have the replay stopped."""
    last = await _replay_of_form(visit)
    await cancel_replay(_jobs(visit), last)
    return redirect(REPLAY)


@router.post("/_replay/attest")
@visited
async def attest_replay(visit: Visit) -> Response:
    """Record in the log what the replay has found, and show that entry."""
    last = await _replay_of_form(visit)
    if last.found is None:
        raise ConflictError(
            "expected a replay that is done, found none: only what was found is attested", kind="NoResultException"
        )
    _, index = await attest(
        visit.gateway, visit.caller.log_id, last.proposal, replayed_of(last.found), actor=visit.caller.actor
    )
    return redirect(f"/console/log/{index}")


async def _names(visit: Visit, found: Mapping[str, Any]) -> dict[str, str]:
    known = {each["of"]: each["first"] for each in found["by_principal"]}
    known |= {each["actor"]: each["first"] for each in found["changes"]}
    return await names_of(visit.gateway, visit.caller.tenant, visit.caller.log_id, known)


async def _check_replays(visit: Visit) -> None:
    """
    Check that the visitor may see what a replay finds.

    Raises:
        ForbiddenError: if not.
    """
    await check_inputs(visit)
    await visit.read(admin_routes.list_policies)
    await check_sees_everything((await visit.looking()).sight)


async def begin_replay(visit: Visit, proposed: Proposed, period: str) -> Response:
    """
    Begin a replay of what was written over a period that ends now, and show how far it is.

    Raises:
        BadRequestError: if `period` is none of `PERIODS`.
        ForbiddenError: if the visitor may not see what it finds.
        ConflictError: if a replay of the tenant runs already.
    """
    if period not in PERIODS:
        raise BadRequestError(f"expected one of {', '.join(PERIODS)}, found {period!r:.40}", field="since")
    await _check_replays(visit)
    since = visit.gateway.clock() - PERIODS[period]
    await replays.begin_replay(_jobs(visit), visit.caller, [proposed], since=since)
    return redirect(REPLAY)


async def _replay_of_form(visit: Visit) -> LastReplay:
    """
    Return the replay that a form is about.

    Raises:
        ConflictError: if it is not the last one any more.
    """
    sent = await form_of(visit.request)
    await _check_replays(visit)
    last = await replays.last_replay(_jobs(visit), visit.caller.log_id)
    if last is None or str(last.replay) != sent.get("replay"):
        raise ConflictError(
            "expected the last replay, found one that another has replaced: look at that",
            kind="ReplayReplacedException",
        )
    inner = inner_request(visit.request, {}, headers=visit.headers)
    for policy in last.proposal:
        await admin_routes.may_edit(inner, "policy_draft", policy.id)
    return last


def _jobs(visit: Visit) -> Jobs:
    jobs: Jobs = visit.request.app.state.jobs
    return jobs


def _state(last: LastReplay) -> dict[str, Any]:
    return {
        "replay": str(last.replay),
        "state": last.state,
        "waits": last.waits,
        "done": last.done,
        "total": last.total,
        "ran_s": last.ran_s,
    }
