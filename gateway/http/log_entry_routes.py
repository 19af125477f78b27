# SPDX-License-Identifier: Apache-2.0
"""
The log for people and programs: its entries (`/v1/log/entries`), one of them with its proof and what belongs to it,
what comes (`/v1/log/follow`), figures (`/v1/log/stats`), and how far it is anchored (`/v1/anchors`).

An entry about a table, view or namespace is there for whoever may load that, every other one for whoever may read the
log. Figures and anchors are about the whole log: they take the right to read it. An entry's own bytes tell its index,
and with it how many entries came before, and how many were appended with it.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.errors import BadRequestError, NotFoundError, UnavailableError
from gateway.http.events.page import GoneError
from gateway.http.log_routes import CHANGING, VARY, VIEW
from gateway.http.looking.as_of import as_of_asked, check_as_of
from gateway.http.looking.cursors import format_cursor, parse_index_cursor
from gateway.http.looking.entries import FILTERS, asked_of, entry_shown, read_page
from gateway.http.looking.figures import Figures
from gateway.http.looking.following import EventStream, Followers, follow, resumed_at
from gateway.http.looking.query import AS_OF, CURSOR, LIMIT, Query, parse_index
from gateway.http.looking.reading import Looking, look, own_log, sight_of
from gateway.http.looking.shown import Shown
from gateway.http.looking.sight import Sight
from gateway.http.request import check_access
from gateway.replaying.explaining import find_inclusion, inclusion_shown
from ledger.errors import KeyDirectoryError
from ledger.format.entry import Entry, parse_entry
from ledger.format.merkle import leaf_hash
from ledger.proving.search import QUERIES, Order
from ledger.store.read import Log, read_entries_at, read_entry, read_head
from ledger.store.session import Connection
from projections.relational.belonging import read_belonging_of_entry

router = APIRouter(prefix="/v1")

ORDER: Final = "order"
PROOF_TIMEOUT_S: Final = 1.0
"""How long a signer has to sign a checkpoint that covers an entry: a new one is shown without its proof meanwhile."""
RELATED_MAX: Final = 500

_log = logging.getLogger(__name__)


class ReadsAnchors(Protocol):
    """What reads how far a log is anchored, as JSON: whom the installation trusts is not the gateway's to know."""

    async def __call__(self, log_id: int, /) -> dict[str, Any]:
        """Return it of one log."""


@router.get("/log/entries")
async def list_entries(request: Request) -> Response:
    """
    List entries of the log, the newest first, or with `order=oldest` in the order of the log.

    Only entries that the caller may see are there. A page may be short, or empty, with more behind its cursor. With
    `as_of`, those behind that index are left out.
    """
    looking = await look(request)
    query = Query(request, *FILTERS, AS_OF, ORDER, LIMIT, CURSOR)
    order, limit = query.one_of(ORDER, Order) or Order.NEWEST, query.limit()
    asked, key = await asked_of(looking, query), await looking.key()
    at = None if query.cursor is None else parse_index_cursor(key, query.cursor, context=query.context)
    async with looking.reading() as connection:
        log = await own_log(connection, looking.caller)
        if at is not None and at > (await read_head(connection, log.log_id)).size:
            raise GoneError("the log was restored, and does not have the entry that the cursor names: begin without it")
        if (as_of := as_of_asked(query)) is not None:
            await check_as_of(connection, log.log_id, as_of)
            asked = replace(asked, as_of=as_of)
        page = await read_page(connection, log, looking.sight, asked, order=order, limit=limit, at=at)
    cursor = None if page.is_last else format_cursor(key, page.at, context=query.context)
    return Shown({"log": log.origin, "entries": [entry_shown(each) for each in page.entries], "cursor": cursor})


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEntry:
    """An entry that the caller may see, by what `sight` says; `stored` are its bytes."""

    log: Log
    stored: bytes
    entry: Entry
    sight: Sight


async def find_entry(looking: Looking, connection: Connection, index: int) -> SeenEntry:
    """
    Return the entry at `index` of the caller's log.

    Raises:
        NotFoundError: if there is none, or the caller may not see it.
    """
    log = await own_log(connection, looking.caller)
    head = await read_head(connection, log.log_id)
    sight = await looking.sight.as_new_as(head.control_index)
    if index < head.size:
        stored = await read_entry(connection, log.log_id, index)
        entry = parse_entry(stored)
        if await sight.sees_entry(entry.type, entry.key):
            return SeenEntry(log=log, stored=stored, entry=entry, sight=sight)
    ends = f": the log has {head.size:,} entries" if index >= head.size and await sight.reads_log() else ""
    raise NotFoundError(
        f"entry {index}: expected an entry of the log that you may see, found none{ends}", kind="NotFoundException"
    )


@router.get("/log/entries/{index}")
async def show_entry(request: Request, index: str) -> Response:
    """
    Show one entry: its bytes, which of its payload parts still exist, the proof that it is in the log, and the entries
    that belong to it, such as the outcome of a decision, or the findings of a scan.
    """
    looking, at = await look(request), parse_index(index, field="index")
    Query(request)
    async with looking.reading() as connection:
        seen = await find_entry(looking, connection, at)
        log, stored, entry = seen.log, seen.stored, seen.entry
        place = {"log_id": log.log_id, "index": at}
        held = {name for (name,) in await (await connection.execute(QUERIES["parts_at"], place)).fetchall()}
        related = await _related(connection, seen.sight, log.log_id, entry)
    inclusion = await find_inclusion(looking.gateway, log, at, timeout_s=PROOF_TIMEOUT_S)
    shown = {
        "log": log.origin,
        **entry_shown(entry),
        "parts": [
            {"name": name, "commitment": commitment.hex(), "held": name in held}
            for name, commitment in sorted(entry.parts.items())
        ],
        "stored": base64.b64encode(stored).decode(),
        "leaf": leaf_hash(stored).hex(),
        "previous": entry.previous.hex(),
        "proof": inclusion_shown(inclusion),
        "related": related,
    }
    return JSONResponse(shown, headers={"Cache-Control": CHANGING, "Vary": VARY})


@router.get("/log/follow")
async def follow_log(request: Request) -> Response:
    """
    Follow the log: entries as they come, as server-sent events, without an end.

    It begins at the end of the log, with `from` at that index, and with the header `Last-Event-ID` behind that event.
    """
    return await followed(request, entry_shown)


async def followed(request: Request, show: Callable[[Entry], Mapping[str, Any]]) -> Response:
    """
    Answer a request with the entries that it follows; `show` returns the data of each.
    """
    looking = await look(request)
    query = Query(request, "type", "key", "actor", "from")
    at = resumed_at(request.headers.get("last-event-id"))
    asked = await asked_of(looking, query)
    field = "from" if at is None else "Last-Event-ID"
    if at is None and query.text("from") is not None:
        at = asked.from_index
    if at is not None:
        async with looking.reading() as connection:
            if at > (await read_head(connection, looking.caller.log_id)).size:
                # It would wait for what was never told: the id is of another log, or of one that was set back since.
                raise BadRequestError(
                    "expected the index of an entry of the log, found one beyond its end: leave it out to begin there",
                    field=field,
                )

    async def see() -> Sight:
        return await sight_of(looking.gateway, looking.caller, request)

    followers: Followers = request.app.state.followers
    events = follow(looking.gateway, looking.caller, asked, at=at, look=see, show=show)
    return EventStream(events, followers.admitted(looking.caller.tenant))


@router.get("/log/stats")
async def show_stats(request: Request) -> Response:
    """
    Show what the log holds, in figures. Entries are counted by type up to `counted`: of a long log, a first answer has
    not counted all of them.
    """
    looking = await _whole_log(request)
    figures: Figures = request.app.state.figures
    return JSONResponse(await figures.read(looking))


@router.get("/anchors")
async def show_anchors(request: Request) -> Response:
    """Show how far the log is signed and anchored in the installation's own log, and who has witnessed that one."""
    looking = await _whole_log(request)
    read: ReadsAnchors | None = request.app.state.anchors
    if read is None:
        raise UnavailableError("this process does not know how far logs are anchored")
    try:
        return JSONResponse(await read(looking.caller.log_id))
    except KeyDirectoryError as error:
        _log.error("anchors: %s", error)
        raise UnavailableError(
            "the keys of the installation cannot be read now: the gateway's own log says why"
        ) from error


async def _whole_log(request: Request) -> Looking:
    """Return who looks at what is about the whole log: whoever may read it."""
    looking = await look(request)
    Query(request)
    await check_access(looking.gateway, looking.caller, request, VIEW)
    return looking


async def _related(connection: Connection, sight: Sight, log_id: int, entry: Entry) -> list[dict[str, Any]]:
    """Return what belongs to an entry and what was appended with it, as far as the caller may see that."""
    belonging = await read_belonging_of_entry(connection, log_id, entry)
    first = entry.index - entry.position
    indices = {*range(first, first + entry.of), *belonging.indices()} - {entry.index}
    stored = await read_entries_at(connection, log_id, sorted(indices)[:RELATED_MAX])
    related = [parse_entry(each) for _, each in sorted(stored.items())]
    return [
        {"index": each.index, "type": each.type, "key": each.key, "same_group": each.group_id == entry.group_id}
        for each in related
        if await sight.sees_entry(each.type, each.key)
    ]
