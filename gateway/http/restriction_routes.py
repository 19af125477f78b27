# SPDX-License-Identifier: Apache-2.0
"""
Row filters and column masks over HTTP. They are configuration of a kind of its own (`CONFIG_RESTRICTION`).

Every answer about a restriction says that reads do not enforce it yet. A draft is configuration of a kind of its own
(`CONFIG_RESTRICTION_DRAFT`), as that of a policy is; a review that approves saves it, and takes the right for that.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.admin.application import Admin
from gateway.admin.edits import Editor
from gateway.admin.policy_diff import DRAFT
from gateway.admin.shown import restriction_draft_shown, restriction_shown, restriction_step_shown
from gateway.admin.versions import one_step
from gateway.control.aggregates import Restriction
from gateway.control.drafts import Draft
from gateway.errors import BadRequestError
from gateway.http.admin_routes import Body, body_as, created, edit, may_read, verdict_of
from gateway.identity import Principal
from ledger.format.canonical import Json
from ledger.format.events import RestrictionContents

router = APIRouter(prefix="/v1")


class RestrictionContentsBody(Body):
    """
    What an author writes of a restriction: `filter` is CEL over `row` and `principal` (null: all rows).

    `masks` say what is done to columns. It is checked against each of `schemas`, and `examples` are rows that some
    caller must see, or must not. `reason` is for the record.
    """

    filter: str | None = None
    masks: list[Any] | None = None
    schemas: dict[str, Any]
    examples: list[Any] | None = None
    scope: dict[str, Any] | None = None
    reason: str = ""

    def members(self) -> dict[str, Json]:
        """Return the contents as they are parsed."""
        return {
            "filter": self.filter,
            "masks": self.masks,
            "schemas": self.schemas,
            "examples": self.examples,
            "scope": self.scope,
        }


class RestrictionBody(RestrictionContentsBody):
    """A restriction to create."""

    id: str


class RestrictionChangeBody(RestrictionContentsBody):
    """New contents of a restriction, all of them; with `version`, only if that is its newest version."""

    version: int | None = None


class RestrictionDraftBody(Body):
    """
    What is proposed for a restriction: contents as for one that is created, or with `retire` its end.

    `reason` is for the reviewer, and for the record. With `version`, only if that is the draft that waits for a review
    (0: if none does).
    """

    filter: str | None = None
    masks: list[Any] | None = None
    schemas: dict[str, Any] | None = None
    examples: list[Any] | None = None
    scope: dict[str, Any] | None = None
    reason: str = ""
    retire: bool = False
    version: int | None = None

    def members(self) -> dict[str, Json] | None:
        """Return the contents as they are parsed, None for a retirement."""
        if self.retire:
            if self.model_fields_set - {"retire", "reason", "version"}:
                raise BadRequestError("expected no contents for the end of a restriction, found some", field="retire")
            return None
        if self.schemas is None:
            raise BadRequestError("expected at least one schema, found none", field="schemas")
        return RestrictionContentsBody(
            filter=self.filter, masks=self.masks, schemas=self.schemas, examples=self.examples, scope=self.scope
        ).members()


class RestrictionReviewBody(Body):
    """A review of the version `version` of a draft: `verdict` is `approve` or `refuse`, `reason` is for the record."""

    version: int
    verdict: str
    reason: str = ""


@router.get("/restriction-drafts")
async def list_restriction_drafts(request: Request) -> Response:
    """List the drafts of restrictions that wait for a review."""
    gateway, caller = await may_read(request, "restriction_draft")
    drafts = await gateway.admin.list_restriction_drafts(caller.log_id)
    return JSONResponse({"restriction-drafts": [restriction_draft_shown(draft) for draft in drafts]})


@router.get("/restriction-drafts/{restriction_id}")
async def show_restriction_draft(request: Request, restriction_id: str) -> Response:
    """Show the draft of a restriction that waits for a review, and who wrote it."""
    gateway, caller = await may_read(request, "restriction_draft", restriction_id)
    draft = await gateway.admin.get_restriction_draft(caller.log_id, restriction_id=restriction_id)
    author = await gateway.admin.restriction_draft_author(caller.log_id, draft)
    return JSONResponse(restriction_draft_shown(draft, author=author))


@router.put("/restriction-drafts/{restriction_id}")
async def draft_restriction(request: Request, restriction_id: str) -> Response:
    """Propose contents for a restriction, or its end; it takes the place of an earlier draft, and nothing is saved."""
    body = await body_as(request, RestrictionDraftBody)
    members = body.members()

    async def draft(admin: Admin, caller: Principal, by: Editor) -> Draft[RestrictionContents]:
        return await admin.draft_restriction(
            caller.log_id,
            by,
            restriction_id=restriction_id,
            members=members,
            reason=body.reason,
            version=body.version,
        )

    written = await edit(request, "restriction_draft", restriction_id, draft)
    return JSONResponse(restriction_draft_shown(written, author=request.state.caller.actor))


@router.post("/restriction-drafts/{restriction_id}/review")
async def review_restriction(request: Request, restriction_id: str) -> Response:
    """Approve a draft, which saves it, or refuse it. Another person than its author approves it."""
    body = await body_as(request, RestrictionReviewBody)
    verdict = verdict_of(body.verdict)

    async def review(admin: Admin, caller: Principal, by: Editor) -> Restriction | None:
        return await admin.review_restriction(
            caller.log_id,
            by,
            restriction_id=restriction_id,
            version=body.version,
            verdict=verdict,
            reason=body.reason,
        )

    saved = await edit(request, "restriction", restriction_id, review)
    shown = None if saved is None or saved.retired else restriction_shown(saved)
    return JSONResponse({"id": restriction_id, "draft": body.version, "verdict": body.verdict, "restriction": shown})


@router.post("/restrictions")
async def create_restriction(request: Request) -> Response:
    """Save a row filter and column masks; what cannot become Iceberg's is refused with line and column."""
    body = await body_as(request, RestrictionBody)

    async def create(admin: Admin, caller: Principal, by: Editor) -> Restriction:
        return await admin.create_restriction(
            caller.log_id, by, restriction_id=body.id, members=body.members(), reason=body.reason
        )

    return created(restriction_shown(await edit(request, "restriction", body.id, create)))


@router.get("/restrictions")
async def list_restrictions(request: Request) -> Response:
    """List the restrictions that are not retired."""
    gateway, caller = await may_read(request, "restriction")
    restrictions = await gateway.admin.list_restrictions(caller.log_id)
    return JSONResponse({"restrictions": [restriction_shown(one) for one in restrictions]})


@router.get("/restrictions/{restriction_id}")
async def show_restriction(request: Request, restriction_id: str) -> Response:
    """Show a restriction that is not retired."""
    gateway, caller = await may_read(request, "restriction", restriction_id)
    restriction = await gateway.admin.get_restriction(caller.log_id, restriction_id=restriction_id)
    return JSONResponse(restriction_shown(restriction))


@router.get("/restrictions/{restriction_id}/versions")
async def list_restriction_versions(request: Request, restriction_id: str) -> Response:
    """List the versions that a restriction has had, oldest first, each with its author; also of a retired one."""
    gateway, caller = await may_read(request, "restriction", restriction_id)
    steps = await gateway.admin.restriction_versions(caller.log_id, restriction_id=restriction_id)
    return JSONResponse({"versions": [restriction_step_shown(step) for step in steps]})


@router.get("/restrictions/{restriction_id}/versions/{version}")
async def show_restriction_version(request: Request, restriction_id: str, version: str) -> Response:
    """Show one version of a restriction, the newest or not."""
    gateway, caller = await may_read(request, "restriction", restriction_id)
    steps = await gateway.admin.restriction_versions(caller.log_id, restriction_id=restriction_id)
    return JSONResponse(restriction_step_shown(one_step(steps, version)))


@router.get("/restrictions/{restriction_id}/diff")
async def diff_restriction(request: Request, restriction_id: str) -> Response:
    """Show what differs between two versions of a restriction (`from`, `to`), or one and the draft (`to=draft`)."""
    older, newer = request.query_params.get("from"), request.query_params.get("to")
    gateway, caller = await may_read(request, "restriction", restriction_id)
    if DRAFT in {older, newer}:
        await may_read(request, "restriction_draft", restriction_id)
    shown = await gateway.admin.diff_restriction(caller.log_id, restriction_id=restriction_id, older=older, newer=newer)
    return JSONResponse({"id": restriction_id, **shown})


@router.put("/restrictions/{restriction_id}")
async def change_restriction(request: Request, restriction_id: str) -> Response:
    """Change the contents of a restriction."""
    body = await body_as(request, RestrictionChangeBody)

    async def change(admin: Admin, caller: Principal, by: Editor) -> Restriction:
        return await admin.change_restriction(
            caller.log_id,
            by,
            restriction_id=restriction_id,
            members=body.members(),
            reason=body.reason,
            version=body.version,
        )

    return JSONResponse(restriction_shown(await edit(request, "restriction", restriction_id, change)))


@router.delete("/restrictions/{restriction_id}")
async def delete_restriction(request: Request, restriction_id: str) -> Response:
    """Take a restriction away, for ever; the log keeps it, and its id is not used again."""

    async def retire(admin: Admin, caller: Principal, by: Editor) -> object:
        return await admin.retire_restriction(caller.log_id, by, restriction_id=restriction_id)

    await edit(request, "restriction", restriction_id, retire)
    return Response(status_code=204)
