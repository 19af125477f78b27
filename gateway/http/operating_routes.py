# SPDX-License-Identifier: Apache-2.0
"""
What a tenant's operator looks after over HTTP: read models and their rebuilds (`/v1/projections`), dead letters and
their replay (`/v1/dead-letters/replay`), and decisions whose outcome is not known yet (`/v1/open-decisions`).

To look takes the right to read the log. To rebuild is a change of the configuration (`CONFIG_PROJECTION`, at
`.config.projection.<name>`), and so is to replay (`CONFIG_DEAD_LETTER`, at `.config.dead_letter`). Both are done by the
process whose work they are (`gateway/jobs.py`), for the caller's log alone.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.admin.limits import check_text
from gateway.commit.gateway import Gateway
from gateway.errors import ConflictError, NotFoundError, UnavailableError
from gateway.http.admin_routes import Body, body_as
from gateway.http.log_routes import CHANGING, VARY, VIEW
from gateway.http.looking.query import Query
from gateway.http.looking.reading import Looking, look
from gateway.http.request import authenticate, check_access
from gateway.identity import Principal
from gateway.jobs import Job, JobKind, Jobs, JobState, subject_of
from gateway.policy.variables import CommitView
from ledger.format import canonical
from ledger.format.entry import parse_entry
from ledger.store.queries import load_queries
from ledger.store.session import Connection

router = APIRouter(prefix="/v1")

OPEN_MAX: Final = 500
SOURCE_LENGTH_MAX: Final = 200
LETTER_LENGTH_MAX: Final = 2_000

_QUERIES: Final = load_queries("gateway", "open_decisions.sql")


class RebuildBody(Body):
    """A rebuild; with `replace` the new generation is taken without a comparison, whatever the live one says."""

    replace: bool = False


class ReplayBody(Body):
    """Which dead letters are handled again: of a `source`, of one with an `id`, or all."""

    source: str | None = None
    id: str | None = None


class ReadsProjections(Protocol):
    """What reads how far the read models of a log are, as JSON: which there are is not the gateway's to know."""

    async def __call__(self, connection: Connection, log_id: int, /) -> list[dict[str, Any]]:
        """Return them as far as the connection's role may see."""


@router.get("/projections")
async def list_projections(request: Request) -> Response:
    """List the read models of the tenant's log: generation, how far it is, and its newest rebuild."""
    looking = await _reader(request)
    return JSONResponse({"projections": await _projections(looking, request)})


@router.get("/projections/{projection}")
async def show_projection(request: Request, projection: str) -> Response:
    """Show a read model: generation, how far it is, and how far its newest rebuild is, or what came of it."""
    shown = await _projection(await _reader(request), request, projection)
    return JSONResponse(shown, headers={"Cache-Control": CHANGING, "Vary": VARY})


@router.post("/projections/{projection}/rebuild")
async def rebuild_projection(request: Request, projection: str) -> Response:
    """
    Build a read model again from the log, compare, and switch to it if it is the same; the live one is read meanwhile.

    Who asks while a rebuild is under way is answered that one.
    """
    _, caller = await _operator(request, "projection", projection)
    body = await body_as(request, RebuildBody)
    looking = await look(request)
    await _projection(looking, request, projection)
    jobs = _jobs(request)
    asked = {"replace": body.replace}
    job = await jobs.ask(caller.log_id, JobKind.REBUILD, projection, asked, actor=caller.actor)
    if job.state is JobState.CANCELLING or job.asked != asked:
        raise ConflictError("another rebuild of it is under way: wait until it has ended", kind="ConflictException")
    return _accepted(rebuild_shown(job), f"/v1/projections/{projection}")


@router.delete("/projections/{projection}/rebuild")
async def cancel_rebuild(request: Request, projection: str) -> Response:
    """Cancel the rebuild of a read model; the live generation stays what is read."""
    _, caller = await _operator(request, "projection", projection)
    jobs = _jobs(request)
    job = (await jobs.newest(caller.log_id, JobKind.REBUILD)).get(projection)
    if job is None or await jobs.cancel(job) is None:
        raise NotFoundError(f"projection {projection:.80}: no rebuild is under way", kind="NotFoundException")
    return Response(status_code=204)


@router.post("/dead-letters/replay")
async def replay_dead_letters(request: Request) -> Response:
    """Handle dead letters again: one, all of a source, or all. Those that succeed are removed."""
    _, caller = await _operator(request, "dead_letter")
    body = await body_as(request, ReplayBody)
    if body.source is not None:
        check_text(body.source, field="source", length_max=SOURCE_LENGTH_MAX)
    if body.id is not None:
        check_text(body.id, field="id", length_max=LETTER_LENGTH_MAX)
    asked = {"source": body.source, "id": body.id}
    job = await _jobs(request).ask(caller.log_id, JobKind.REPLAY, subject_of(asked), asked, actor=caller.actor)
    return _accepted(replay_shown(job), "/v1/dead-letters/replay")


@router.get("/dead-letters/replay")
async def list_replays(request: Request) -> Response:
    """List what was asked to be replayed in the last day, the newest first, and what became of each message."""
    looking = await _reader(request)
    found = (await _jobs(request).newest(looking.caller.log_id, JobKind.REPLAY)).values()
    newest = sorted(found, key=lambda job: job.asked_at, reverse=True)
    return JSONResponse({"replays": [replay_shown(job) for job in newest]})


@router.get("/open-decisions")
async def list_open_decisions(request: Request) -> Response:
    """
    List approved changes of foreign catalogs whose outcome is not known yet, the oldest first.

    Each is `at work` until its `deadline`, then `due` to be looked for, and `unknown` once the catalog did not tell.
    """
    looking = await _reader(request)
    now = looking.gateway.clock()
    bounds = {"log_id": looking.caller.log_id, "now": now, "limit": OPEN_MAX + 1}
    async with looking.reading() as connection:
        rows = await (await connection.execute(_QUERIES["listed"], bounds)).fetchall()
    shown = []
    for decision, key, operation, state, deadline, stored in rows[:OPEN_MAX]:
        if await looking.sight.sees(key):
            entry = parse_entry(bytes(stored))
            shown.append(
                {
                    "decision": str(decision),
                    "index": entry.index,
                    "key": key,
                    "operation": operation,
                    "state": state,
                    "decided_at": canonical.format_time(entry.recorded_at),
                    "deadline": canonical.format_time(deadline),
                    "age_s": max(0, int((now - entry.recorded_at).total_seconds())),
                }
            )
    return JSONResponse({"open-decisions": shown, "has_more": len(rows) > OPEN_MAX})


def rebuild_shown(job: Job) -> dict[str, Any]:
    """
    Return a rebuild as JSON, with the generation that it has switched to if it is done.
    """
    return {**job.shown(), "replace": job.asked["replace"], "result": job.result}


def replay_shown(job: Job) -> dict[str, Any]:
    """
    Return a replay as JSON, with what became of each message if it is done.
    """
    return {**job.shown(), "source": job.asked["source"], "letter": job.asked["id"], "result": job.result}


async def _projections(looking: Looking, request: Request) -> list[dict[str, Any]]:
    read: ReadsProjections | None = request.app.state.projections
    if read is None:
        raise UnavailableError("this process does not know how far read models are")
    rebuilds = await _jobs(request).newest(looking.caller.log_id, JobKind.REBUILD)
    async with looking.reading() as connection:
        found = await read(connection, looking.caller.log_id)
    return [
        {**each, "rebuild": None if (job := rebuilds.get(each["projection"])) is None else rebuild_shown(job)}
        for each in found
    ]


async def _projection(looking: Looking, request: Request, name: str) -> dict[str, Any]:
    found = await _projections(looking, request)
    for each in found:
        if each["projection"] == name:
            return each
    known = ", ".join(str(each["projection"]) for each in found)
    raise NotFoundError(f"projection {name!r:.80}: expected one of {known}", kind="NotFoundException")


async def _reader(request: Request) -> Looking:
    """Return who looks at what is about the whole log: whoever may read it."""
    looking = await look(request)
    Query(request)
    await check_access(looking.gateway, looking.caller, request, VIEW)
    return looking


async def _operator(request: Request, kind: str, name: str = "") -> tuple[Gateway, Principal]:
    """Authenticate the caller, and check that they may have it done."""
    gateway, caller = await authenticate(request)
    view = CommitView(catalog="", namespace=(), name=name, kind=kind, operation=f"{kind}.configure")
    await check_access(gateway, caller, request, view)
    return gateway, caller


def _accepted(shown: dict[str, Any], place: str) -> Response:
    return JSONResponse(shown, status_code=202, headers={"Location": place, "Retry-After": "1"})


def _jobs(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.jobs
    return jobs
