# SPDX-License-Identifier: Apache-2.0
"""
The pages about policies: which there are, their versions and drafts, what differs between two, the review of a draft,
and the end of a policy. `policy_editor.py` has the form in which one is written, `policy_replays.py` its replay.

An id of a policy begins with a letter or a digit: paths with `_` in its place are pages of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from gateway.console import policy_editor, policy_replays
from gateway.console.lists import POLICY_DRAFTS
from gateway.console.logins import form_of, redirect
from gateway.console.pages import Visit, answer_list, twins_of, visited, waiting_drafts
from gateway.console.policy_form import diff_lines, version_of, written
from gateway.console.policy_seen import in_force_of, names_of_authors, requires_review, seen_of, time_in
from gateway.http import admin_routes, policy_routes

router = APIRouter(include_in_schema=False)
router.include_router(policy_editor.router)
router.include_router(policy_replays.router)

PATH: Final = "/console/policies"


@router.get(PATH)
@visited
async def policies(visit: Visit) -> Response:
    """List the policies, and the drafts that wait for a review."""
    found = await visit.read(admin_routes.list_policies)
    drafts = await waiting_drafts(visit, policy_routes.list_policy_drafts, "policy-drafts")
    twins = twins_of(visit.request.scope["path"], {})
    return visit.page("policies.html", policies=found["policies"], drafts=drafts, twins=twins)


@router.get(f"{PATH}/_drafts.{{form}}")
@visited
async def drafts(visit: Visit, form: str) -> Response:
    """Answer with the drafts that wait for a review, for programs and spreadsheets."""
    return await answer_list(visit, POLICY_DRAFTS, "policy-drafts", form)


@router.get(f"{PATH}/{{policy_id}}")
@visited
async def policy(visit: Visit, policy_id: str) -> Response:
    """Show a policy: what is in force, the draft that waits, and the versions that it has had."""
    seen = await seen_of(visit, policy_id)
    if not seen.steps and seen.draft is None:
        await visit.read(policy_routes.list_policy_versions, policy_id)  # says that there is none
    steps = seen.steps[::-1]
    draft_diff = None if seen.draft is None else _diff(seen.newest, seen.draft)
    return visit.page(
        "policy.html",
        seen=seen,
        steps=list(zip_longest(steps, steps[1:])),
        shown=await in_force_of(visit, policy_id),
        names=await names_of_authors(visit, seen),
        draft_diff=draft_diff,
        is_own=seen.draft is not None and seen.draft["author"] == visit.caller.actor,
        reviews=await requires_review(visit),
    )


@router.get(f"{PATH}/{{policy_id}}/diff")
@visited
async def diff(visit: Visit, policy_id: str) -> Response:
    """Compare two versions of a policy, or one with its draft."""
    seen = await seen_of(visit, policy_id)
    sides = visit.asked("from", "to")
    compared = {name: seen.side(name) for name in sides.values()}
    ends = [name for name in sides.values() if compared[name]["expression"] is None]
    lines = _diff(*(compared[name] for name in sides.values()))
    shown: dict[str, Any] = {"seen": seen, "sides": sides, "lines": lines, "ends": ends}
    return visit.page("drafted_diff.html", what="policy", base=PATH, **shown)


@router.post(f"{PATH}/{{policy_id}}/review")
@visited
async def review(visit: Visit, policy_id: str) -> Response:
    """Approve or refuse the draft."""
    sent = await form_of(visit.request)
    body = {
        "version": version_of(sent, "version"),
        "verdict": sent.get("verdict", ""),
        "reason": sent.get("reason", "").strip(),
        "activate_at": time_in(sent),
    }
    answered = await visit.send(policy_routes.review_policy, policy_id, body=body)
    # What was drafted and refused was never in force: there is no page of it any more.
    is_there = answered["policy"] is not None or (await seen_of(visit, policy_id)).steps
    return redirect(f"{PATH}/{policy_id}" if is_there else PATH)


@router.post(f"{PATH}/{{policy_id}}/retire")
@visited
async def retire(visit: Visit, policy_id: str) -> Response:
    """Retire a policy, or propose that, where another person has to approve it."""
    sent = await form_of(visit.request)
    reason = sent.get("reason", "").strip()
    if sent.get("do") == "draft":
        body = {"retire": True, "reason": reason, "version": version_of(sent, "draft_version")}
        await visit.send(policy_routes.draft_policy, policy_id, body=body)
    else:
        await visit.send(admin_routes.delete_policy, policy_id, reason=reason)
    return redirect(f"{PATH}/{policy_id}")


def _diff(older: Mapping[str, Any] | None, newer: Mapping[str, Any] | None) -> list[Any]:
    return diff_lines(written(older), written(newer))
