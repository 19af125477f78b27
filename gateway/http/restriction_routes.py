# SPDX-License-Identifier: Apache-2.0
"""
Row filters and column masks over HTTP. They are configuration of a kind of its own (`CONFIG_RESTRICTION`).

Every answer says that reads do not enforce them yet.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.admin.application import Admin
from gateway.admin.edits import Editor
from gateway.admin.policy_edits import one_step
from gateway.admin.shown import restriction_shown, restriction_step_shown
from gateway.control.aggregates import Restriction
from gateway.http.admin_routes import Body, body_as, created, edit, may_read
from gateway.identity import Principal
from ledger.format.canonical import Json

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
    """Show what differs between two versions of a restriction (`from`, `to`)."""
    older, newer = request.query_params.get("from"), request.query_params.get("to")
    gateway, caller = await may_read(request, "restriction", restriction_id)
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
