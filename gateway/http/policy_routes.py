# SPDX-License-Identifier: Apache-2.0
"""
What has been of a policy, and what may become of it: its versions, what differs between two, its draft and the review.

A draft is configuration of a kind of its own (`CONFIG_POLICY_DRAFT`): who may write drafts need not be one who may put
policies in force. A review that approves puts one in force, and takes the right for that (`CONFIG_POLICY`).
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.admin.application import Admin
from gateway.admin.edits import Editor
from gateway.admin.policy_diff import DRAFT
from gateway.admin.policy_edits import PolicyText
from gateway.admin.shown import draft_shown, policy_step_shown
from gateway.admin.versions import one_step
from gateway.control.aggregates import Policy
from gateway.control.drafts import Draft
from gateway.errors import BadRequestError
from gateway.http.admin_routes import Body, body_as, edit, may_read, saved_policy, time_of, verdict_of
from gateway.identity import Principal
from gateway.policy.examples import parse_examples
from gateway.policy.scopes import parse_scope
from ledger.format.events import PolicyContents

router = APIRouter(prefix="/v1")


class PolicyDraftBody(Body):
    """
    What is proposed for a policy: contents as for one that is created, or with `retire` its end.

    `reason` is for the reviewer, and for the record.

    With `version`, only if that is the draft that waits for a review (0: if none does); with `policy_version`, only if
    that is the newest version of the policy (0: if there is none).
    """

    expression: str | None = None
    message: str | None = None
    scope: dict[str, Any] | None = None
    examples: list[Any] | None = None
    reason: str = ""
    retire: bool = False
    version: int | None = None
    policy_version: int | None = None

    def text(self) -> PolicyText | None:
        """Return the contents parsed, None for a retirement."""
        if self.retire:
            if self.model_fields_set - {"retire", "reason", "version", "policy_version"}:
                raise BadRequestError("expected no contents for the end of a policy, found some", field="retire")
            return None
        if self.expression is None or self.message is None:
            missing = "expression" if self.expression is None else "message"
            raise BadRequestError("expected a text, found none", field=missing)
        return PolicyText(
            expression=self.expression,
            message=self.message,
            scope=parse_scope(self.scope),
            examples=parse_examples(self.examples),
        )


class PolicyReviewBody(Body):
    """
    A review of the version `version` of a draft: `verdict` is `approve` or `refuse`, `reason` is for the record.

    What is approved is in force from the time `activate_at` on (RFC 3339; null: at once).
    """

    version: int
    verdict: str
    reason: str = ""
    activate_at: str | None = None


@router.get("/policies/{policy_id}/versions")
async def list_policy_versions(request: Request, policy_id: str) -> Response:
    """List the versions that a policy has had, oldest first, each with its author and reason; also of a retired one."""
    gateway, caller = await may_read(request, "policy", policy_id)
    steps = await gateway.admin.policy_versions(caller.log_id, policy_id=policy_id)
    return JSONResponse({"versions": [policy_step_shown(step) for step in steps]})


@router.get("/policies/{policy_id}/versions/{version}")
async def show_policy_version(request: Request, policy_id: str, version: str) -> Response:
    """Show one version of a policy, in force or not."""
    gateway, caller = await may_read(request, "policy", policy_id)
    steps = await gateway.admin.policy_versions(caller.log_id, policy_id=policy_id)
    return JSONResponse(policy_step_shown(one_step(steps, version)))


@router.get("/policies/{policy_id}/diff")
async def diff_policy(request: Request, policy_id: str) -> Response:
    """Show what differs between two versions of a policy (`from`, `to`), or between one and the draft (`to=draft`)."""
    older, newer = request.query_params.get("from"), request.query_params.get("to")
    gateway, caller = await may_read(request, "policy", policy_id)
    if DRAFT in {older, newer}:
        await may_read(request, "policy_draft", policy_id)
    shown = await gateway.admin.diff_policy(caller.log_id, policy_id=policy_id, older=older, newer=newer)
    return JSONResponse({"id": policy_id, **shown})


@router.get("/policy-drafts")
async def list_policy_drafts(request: Request) -> Response:
    """List the drafts that wait for a review."""
    gateway, caller = await may_read(request, "policy_draft")
    drafts = await gateway.admin.list_drafts(caller.log_id)
    return JSONResponse({"policy-drafts": [draft_shown(draft) for draft in drafts]})


@router.get("/policy-drafts/{policy_id}")
async def show_policy_draft(request: Request, policy_id: str) -> Response:
    """Show the draft of a policy that waits for a review, and who wrote it."""
    gateway, caller = await may_read(request, "policy_draft", policy_id)
    draft = await gateway.admin.get_draft(caller.log_id, policy_id=policy_id)
    return JSONResponse(draft_shown(draft, author=await gateway.admin.draft_author(caller.log_id, draft)))


@router.put("/policy-drafts/{policy_id}")
async def draft_policy(request: Request, policy_id: str) -> Response:
    """Propose contents for a policy, or its end; it takes the place of an earlier draft, and is not in force."""
    body = await body_as(request, PolicyDraftBody)
    text = body.text()

    async def draft(admin: Admin, caller: Principal, by: Editor) -> Draft[PolicyContents]:
        return await admin.draft_policy(
            caller.log_id,
            by,
            policy_id=policy_id,
            text=text,
            reason=body.reason,
            version=body.version,
            policy_version=body.policy_version,
        )

    written = await edit(request, "policy_draft", policy_id, draft)
    return JSONResponse(draft_shown(written, author=request.state.caller.actor))


@router.post("/policy-drafts/{policy_id}/review")
async def review_policy(request: Request, policy_id: str) -> Response:
    """Approve a draft, which puts it in force, or refuse it. Another person than its author approves it."""
    body = await body_as(request, PolicyReviewBody)
    verdict = verdict_of(body.verdict)
    activate_at = time_of(body.activate_at)

    async def review(admin: Admin, caller: Principal, by: Editor) -> Policy | None:
        return await admin.review_policy(
            caller.log_id,
            by,
            policy_id=policy_id,
            version=body.version,
            verdict=verdict,
            reason=body.reason,
            activate_at=activate_at,
        )

    policy = await edit(request, "policy", policy_id, review)
    shown = None if policy is None else await saved_policy(request, policy)
    return JSONResponse({"id": policy_id, "draft": body.version, "verdict": body.verdict, "policy": shown})
