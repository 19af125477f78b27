# SPDX-License-Identifier: Apache-2.0
"""
Questions about the access rules in force: who may do something, what someone may do, and which rules do nothing.

To access rules these are reads of the access rules, and of the keys: an answer tells whose they are.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.admin.limits import ROLES_MAX
from gateway.asking.questions import ask_what, ask_who, what_shown, who_shown
from gateway.asking.rule_lint import lint_rules, linted_shown
from gateway.commit.gateway import Gateway
from gateway.errors import BadRequestError, UnavailableError
from gateway.http.admin_routes import may_read
from gateway.identity import Principal

router = APIRouter(prefix="/v1/access")


@router.get("/who")
async def ask_who_may(request: Request) -> Response:
    """Say who may do an operation on a target, and by which rule: holders of keys, and whom others vouch for."""
    gateway, caller = await may_ask(request)
    query = request.query_params
    operation = query.get("operation")
    if operation is None:
        raise BadRequestError("expected an operation, as in table.load, found none", field="operation")
    who = await ask_who(gateway, caller.tenant, caller.log_id, operation=operation, target=query.get("target"))
    return JSONResponse(who_shown(who))


@router.get("/what")
async def ask_what_may_be_done(request: Request) -> Response:
    """Say what the holder of a key, or a caller with exactly some roles, may do on a target, operation by operation."""
    gateway, caller = await may_ask(request)
    query = request.query_params
    roles = query.getlist("role")
    if len(roles) > ROLES_MAX:
        raise BadRequestError(f"expected at most {ROLES_MAX} roles, found {len(roles)}", field="role")
    what = await ask_what(
        gateway, caller.tenant, caller.log_id, target=query.get("target"), key_id=query.get("key"), roles=roles
    )
    return JSONResponse(what_shown(what))


@router.get("/lint")
async def lint_access_rules(request: Request) -> Response:
    """Say which access rules in force do nothing: they hold for no request, or others decide wherever they hold."""
    gateway, caller = await may_ask(request)
    linting: asyncio.Lock = request.app.state.linting_rules
    if linting.locked():
        # It takes a processor for seconds: one at a time in a process.
        raise UnavailableError("the rules of somebody are looked at now: try again")
    async with linting:
        linted = await lint_rules(gateway, caller.tenant, caller.log_id)
    return JSONResponse(linted_shown(linted))


async def may_ask(request: Request) -> tuple[Gateway, Principal]:
    """Authenticate the caller, and check that they may ask: that they may read the access rules, and the keys."""
    await may_read(request, "key")
    return await may_read(request, "access_rule")
