# SPDX-License-Identifier: Apache-2.0
"""
What a tenant may know of itself, over HTTP: its log and how much is in force (`/v1/tenant`), and what became of files
and messages (`/v1/purges`, `/v1/drops`, `/v1/dead-letters`); and why a mutation was decided as it was
(`/v1/decisions/{decision}/explanation`).

To access rules `/v1/tenant` is a read of the configuration (`CONFIG_TENANT`). The others are reads of the log, whose
content they tell. Each shows at most so many things, and says if there are more.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final, Protocol
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.admin.limits import check_text
from gateway.commit.gateway import Gateway
from gateway.errors import BadRequestError, UnavailableError
from gateway.http.admin_routes import may_read
from gateway.http.log_routes import INPUTS, VIEW
from gateway.http.request import authenticate, check_access
from gateway.http.tenant_view import tenant_shown
from gateway.identity import Principal
from gateway.purging.dropped import read_dropped
from gateway.purging.listing import read_purges
from gateway.replaying.explaining import explain, explanation_shown, find_decision
from ledger.store.session import Connection

router = APIRouter(prefix="/v1")

PURGE_ENTRIES_MAX: Final = 2_000
DROPS_MAX: Final = 1_000
LETTERS_MAX: Final = 500
FILTER_LENGTH_MAX: Final = 200
INDEX: Final = re.compile(r"0|[1-9][0-9]{0,14}")


class ReadsDeadLetters(Protocol):
    """What reads dead letters, which belong to the streams, as JSON: oldest first, of one source if it is given."""

    async def __call__(
        self, connection: Connection, log_id: int, source: str | None, limit: int
    ) -> list[dict[str, Any]]:
        """Return at most `limit` that the connection's role may see."""


@router.get("/tenant")
async def show_tenant(request: Request) -> Response:
    """Show the caller's tenant: its log, how much is in force for it, and its settings."""
    gateway, caller = await may_read(request, "tenant")
    return JSONResponse(await tenant_shown(gateway, caller.tenant, caller.log_id))


@router.get("/purges")
async def list_purges(request: Request) -> Response:
    """List the newest tables that were dropped with their files, oldest first, and how far that is."""
    gateway, caller = await _may_read_log(request)
    found = await read_purges(gateway, caller.log_id, entries_max=PURGE_ENTRIES_MAX)
    return JSONResponse({"purges": [purge.row() for purge in found.purges], "has_older": not found.is_whole})


@router.get("/drops")
async def list_drops(request: Request) -> Response:
    """List tables and views that were dropped while their files stayed, newest first; `alias` asks for one catalog."""
    gateway, caller = await _may_read_log(request)
    alias = _filter(request, "alias")
    reading: asyncio.Lock = request.app.state.reading_drops
    if reading.locked():
        # It reads the whole log: one at a time in a process.
        raise UnavailableError("drops are listed for somebody else now: try again")
    async with reading:
        found = await read_dropped(
            gateway, caller.log_id, storage=gateway.catalogs.files.properties, alias=alias, drops_max=DROPS_MAX
        )
    return JSONResponse({"drops": [table.row() for table in found.tables], "has_older": not found.is_whole})


@router.get("/decisions/{decision}/explanation")
async def explain_decision(request: Request, decision: str) -> Response:
    """
    Explain a decision: its inputs, rule by rule with the value of each part, and the proof that it is in the log.

    The log gives out no inputs, which have who asked and for what: they are a right of their own.
    """
    gateway, caller = await _may_read_log(request)
    await check_access(gateway, caller, request, INPUTS)
    index = await _decision_index(gateway, caller, decision)
    found = await explain(gateway, caller.tenant, caller.log_id, index)
    return JSONResponse(explanation_shown(found))


async def _decision_index(gateway: Gateway, caller: Principal, decision: str) -> int:
    """Return the index that a path names, by itself or by the id of a group."""
    if INDEX.fullmatch(decision):
        return int(decision)
    try:
        group_id = UUID(decision)
    except ValueError as error:
        text = f"expected the id of a decision's group, or the index of its entry, found {decision!r:.80}"
        raise BadRequestError(text, field="decision") from error
    return await find_decision(gateway, caller.tenant, caller.log_id, group_id)


@router.get("/dead-letters")
async def list_dead_letters(request: Request) -> Response:
    """List messages that the streams have given up, oldest first, and why; `source` asks for those of one source."""
    gateway, caller = await _may_read_log(request)
    source = _filter(request, "source")
    async with gateway.database.as_role(gateway.roles.tenant(caller.tenant)) as connection:
        read: ReadsDeadLetters = request.app.state.dead_letters
        letters = await read(connection, caller.log_id, source, LETTERS_MAX + 1)
    return JSONResponse({"dead-letters": letters[:LETTERS_MAX], "has_more": len(letters) > LETTERS_MAX})


async def _may_read_log(request: Request) -> tuple[Gateway, Principal]:
    gateway, caller = await authenticate(request)
    await check_access(gateway, caller, request, VIEW)
    return gateway, caller


def _filter(request: Request, name: str) -> str | None:
    """
    Return a parameter of the query, None if there is none.

    Raises:
        BadRequestError: if it is empty, longer than anything that it may name, or has control characters.
    """
    value = request.query_params.get(name)
    return None if value is None else check_text(value, field=name, length_max=FILTER_LENGTH_MAX)
