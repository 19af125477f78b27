# SPDX-License-Identifier: Apache-2.0
"""
The pages about row filters and column masks: which there are, their versions and drafts, what differs between two, the
review of a draft, and the form in which one is written, which is its file.

They ask the routes for programs. What was written stays in the form, whatever is wrong with it. An id begins with a
letter or a digit: paths with `_` in its place are pages of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from gateway.admin.restriction_edits import NOT_ENFORCED
from gateway.console.lists import RESTRICTION_DRAFTS
from gateway.console.logins import form_of, redirect
from gateway.console.pages import Visit, answer_list, twins_of, visited, waiting_drafts
from gateway.console.policy_form import Problem, diff_lines, problem_at, version_of
from gateway.console.policy_seen import Seen, names_of_authors, requires_review, seen_of
from gateway.control.drafts import RestrictionDraft
from gateway.errors import ConflictError, GatewayError, NotFoundError
from gateway.http import restriction_routes
from gateway.policy.policy_files import PolicyFileError, format_members
from gateway.policy.restriction_files import RestrictionFile, parse_restriction
from gateway.policy.restrictions.compiled import RestrictionRefusedError
from gateway.policy.restrictions.contents import MEMBERS

router = APIRouter(include_in_schema=False)

PATH: Final = "/console/restrictions"
FORM_SIZE_BYTES_MAX: Final = 512 * 1024
"""Percent-encoded: the largest file has 128 KiB."""
BEGIN: Final = """id: eu-orders
reason: ''
scope: {catalogs: [lake], names: [sales.orders]}
filter: row.region == 'EU'
masks:
- {column: email, action: show-last-4}
schemas:
  orders:
    fields:
    - {id: 1, name: region, required: false, type: string}
    - {id: 2, name: email, required: false, type: string}
"""
"""The file that a new one begins with: a filter and a mask of one table."""


@router.get(PATH)
@visited
async def restrictions(visit: Visit) -> Response:
    """List the restrictions, and the drafts that wait for a review."""
    found = await visit.read(restriction_routes.list_restrictions)
    drafts = await waiting_drafts(visit, restriction_routes.list_restriction_drafts, "restriction-drafts")
    twins = twins_of(visit.request.scope["path"], {})
    return visit.page(
        "restrictions.html", restrictions=found["restrictions"], drafts=drafts, twins=twins, note=NOT_ENFORCED
    )


@router.get(f"{PATH}/_drafts.{{form}}")
@visited
async def drafts(visit: Visit, form: str) -> Response:
    """Answer with the drafts that wait for a review, for programs and spreadsheets."""
    return await answer_list(visit, RESTRICTION_DRAFTS, "restriction-drafts", form)


@router.get(f"{PATH}/_new")
@visited
async def new_restriction(visit: Visit) -> Response:
    """Show the form with an example to begin with."""
    await visit.read(restriction_routes.list_restrictions)  # who may read none is told so here, not after writing
    return await _editor(visit, text=BEGIN)


@router.get(f"{PATH}/{{restriction_id}}")
@visited
async def restriction(visit: Visit, restriction_id: str) -> Response:
    """Show a restriction: the draft that waits, and the versions that it has had."""
    seen = await _seen(visit, restriction_id)
    if not seen.steps and seen.draft is None:
        await visit.read(restriction_routes.list_restriction_versions, restriction_id)  # says that there is none
    steps = seen.steps[::-1]
    return visit.page(
        "restriction.html",
        seen=seen,
        steps=[(step, before, written(step)) for step, before in zip_longest(steps, steps[1:])],
        names=await names_of_authors(visit, seen, RestrictionDraft),
        draft_diff=None if seen.draft is None else diff_lines(written(seen.newest), written(seen.draft)),
        is_own=seen.draft is not None and seen.draft["author"] == visit.caller.actor,
        reviews=await requires_review(visit),
        note=NOT_ENFORCED,
    )


@router.get(f"{PATH}/{{restriction_id}}/diff")
@visited
async def diff(visit: Visit, restriction_id: str) -> Response:
    """Compare two versions of a restriction, or one with its draft."""
    seen = await _seen(visit, restriction_id)
    sides = visit.asked("from", "to")
    compared = {name: written(seen.side(name)) for name in sides.values()}
    ends = [name for name in sides.values() if not compared[name]]
    lines = diff_lines(*(compared[name] for name in sides.values()))
    return visit.page(
        "drafted_diff.html", what="restriction", base=PATH, seen=seen, sides=sides, lines=lines, ends=ends
    )


@router.get(f"{PATH}/{{restriction_id}}/edit")
@visited
async def edit_restriction(visit: Visit, restriction_id: str) -> Response:
    """Show the form with the draft that waits, or else the newest version, or the one that is asked for."""
    seen = await _seen(visit, restriction_id)
    wanted = visit.asked("version")["version"]
    base = seen.side(wanted) if wanted else seen.draft or seen.newest
    if base is None:
        raise NotFoundError(
            f"restriction {restriction_id!r:.80}: expected one to edit, found none", kind="NotFoundException"
        )
    if base["schemas"] is None:
        raise ConflictError(
            f"restriction {restriction_id}: expected contents to edit, found its end: choose one of its versions",
            kind="RetiredException",
        )
    reason = base["reason"] if base is seen.draft else ""
    text = format_members({"id": restriction_id, "reason": reason}) + written(base)
    versions = seen.versions
    return await _editor(
        visit, text=text, draft_version=versions["draft_version"], policy_version=versions["policy_version"]
    )


@router.post(f"{PATH}/_write")
@visited
async def write(visit: Visit) -> Response:
    """Draft or save what was written: `do` says which."""
    sent = await form_of(visit.request, size_bytes_max=FORM_SIZE_BYTES_MAX)
    text = sent.get("text", "").replace("\r\n", "\n")
    draft_version, version = version_of(sent, "draft_version"), version_of(sent, "policy_version")
    file: RestrictionFile | None = None
    try:
        file = parse_restriction(text.encode("utf-8", "replace"), name="text")
        body = {**file.members, "reason": file.reason}
        if sent.get("do") == "save" and version:
            await visit.send(restriction_routes.change_restriction, file.id, body={**body, "version": version})
        elif sent.get("do") == "save":
            await visit.send(restriction_routes.create_restriction, body={**body, "id": file.id})
        else:
            body["version"] = draft_version
            await visit.send(restriction_routes.draft_restriction, file.id, body=body)
    except GatewayError as error:
        problem = _problem_of(error, text, file)
        return await _editor(
            visit,
            error.status,
            text=text,
            problem=problem,
            draft_version=draft_version,
            policy_version=version,
        )
    return redirect(f"{PATH}/{file.id}")


@router.post(f"{PATH}/{{restriction_id}}/review")
@visited
async def review(visit: Visit, restriction_id: str) -> Response:
    """Approve or refuse the draft."""
    sent = await form_of(visit.request)
    body = {
        "version": version_of(sent, "version"),
        "verdict": sent.get("verdict", ""),
        "reason": sent.get("reason", "").strip(),
    }
    await visit.send(restriction_routes.review_restriction, restriction_id, body=body)
    # What was drafted and refused was never saved: there is no page of it any more.
    is_there = (await _seen(visit, restriction_id)).steps
    return redirect(f"{PATH}/{restriction_id}" if is_there else PATH)


@router.post(f"{PATH}/{{restriction_id}}/retire")
@visited
async def retire(visit: Visit, restriction_id: str) -> Response:
    """Retire a restriction, or propose that, where another person has to approve it."""
    sent = await form_of(visit.request)
    if sent.get("do") == "draft":
        body = {
            "retire": True,
            "reason": sent.get("reason", "").strip(),
            "version": version_of(sent, "draft_version"),
        }
        await visit.send(restriction_routes.draft_restriction, restriction_id, body=body)
    else:
        await visit.send(restriction_routes.delete_restriction, restriction_id)
    return redirect(f"{PATH}/{restriction_id}")


def written(members: Mapping[str, Any] | None) -> str:
    """
    Return what a restriction or a draft says, given as routes show it, as the text of a file; empty for none.
    """
    shown = {name: members[name] for name in MEMBERS if members[name]} if members is not None else {}
    return format_members(shown) if shown else ""


async def _seen(visit: Visit, restriction_id: str) -> Seen:
    return await seen_of(
        visit,
        restriction_id,
        versions=restriction_routes.list_restriction_versions,
        draft=restriction_routes.show_restriction_draft,
    )


async def _editor(
    visit: Visit,
    status: int = 200,
    *,
    text: str,
    problem: Problem | None = None,
    draft_version: int = 0,
    policy_version: int = 0,
) -> Response:
    return visit.page(
        "restriction_editor.html",
        status,
        text=text,
        problem=problem,
        draft_version=draft_version,
        policy_version=policy_version,
        reviews=await requires_review(visit),
        note=NOT_ENFORCED,
    )


def _problem_of(error: GatewayError, text: str, file: RestrictionFile | None) -> Problem:
    """Return what is wrong, at its line and column of the text, if one place is to blame."""
    placed = file.refused(error) if file is not None and isinstance(error, RestrictionRefusedError) else error
    if isinstance(placed, PolicyFileError) and placed.place is not None:
        return problem_at("text", text, placed.reason, *placed.place)
    return Problem(field="", words=str(error))
