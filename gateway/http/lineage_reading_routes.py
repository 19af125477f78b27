# SPDX-License-Identifier: Apache-2.0
"""
Lineage as it is read: around one table or data set (`/v1/lineage/{dataset}`), and runs (`/v1/runs`); and how far
everything is that follows the log (`/v1/status`).

A table is seen by whoever may load it. Data sets that are no tables, jobs and runs take the right to read lineage
(`op == "READ_ENTITY_VALUE" && contentType == "LINEAGE"`), the status that to read the log.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.admin.limits import check_text
from gateway.errors import BadRequestError, NotFoundError, UnavailableError
from gateway.http.log_routes import VIEW
from gateway.http.looking.cursors import format_cursor, parse_key_cursor
from gateway.http.looking.lineage import lineage_shown, runs_shown
from gateway.http.looking.query import CURSOR, LIMIT, Query
from gateway.http.looking.reading import look
from gateway.http.looking.shown import Shown
from gateway.http.looking.sight import target_of
from gateway.http.request import check_access
from gateway.identifiers import decode_segment
from gateway.policy.variables import CommitView
from projections.errors import ProjectionError
from projections.lineage.data_names import key_of_data
from projections.lineage.read import HOPS, HOPS_MAX, is_known_table, read_lineage, read_runs

router = APIRouter(prefix="/v1")

READING: Final = CommitView(catalog="", namespace=(), name="", kind="lineage", operation="lineage.load")
"""A request that reads lineage as access rules see it."""
DATASET_LENGTH_MAX: Final = 2_000


class ReadsStatus(Protocol):
    """What reads how far everything is that follows a log, as JSON: streams and detection are not the gateway's."""

    async def __call__(self, log_id: int, /) -> dict[str, Any]:
        """Return it of one log."""


@router.get("/lineage/{dataset:path}")
async def show_lineage(request: Request, dataset: str) -> Response:
    """
    Show what a table, view or data set was made from, and what was made from it, within `hops`, at most `limit` edges
    of each.

    It is named by its key (`table:lake/sales/orders`, `dataset:…`), or as `catalog.namespace.table`.
    """
    looking = await look(request)
    query = Query(request, "hops", LIMIT)
    hops, limit = query.number("hops", least=1, most=HOPS_MAX) or HOPS, query.limit()
    # A key has its own percent-encoding, and stands in the path as it is in the log.
    named = dataset if ":" in dataset else decode_segment(dataset, field="dataset")
    check_text(named, field="dataset", length_max=DATASET_LENGTH_MAX)
    try:
        key = key_of_data(named)
    except ProjectionError as error:
        raise BadRequestError(str(error), field="dataset") from error
    target = target_of(key)
    if target is None:
        await check_access(looking.gateway, looking.caller, request, READING)
    else:
        await looking.sight.check(target)
    async with looking.reading() as connection:
        lineage = await read_lineage(connection, looking.caller.log_id, key, hops=hops, limit=limit)
        if lineage.is_empty and not await is_known_table(connection, looking.caller.log_id, key):
            raise NotFoundError(f"{key:.200}: nothing is known of it", kind="NotFoundException")
    return Shown(await lineage_shown(lineage, looking.sight))


@router.get("/runs")
async def list_runs(request: Request) -> Response:
    """
    List runs that lineage tells of, by their ids from the highest down: those that hold a time are newest first.

    Of what a run reads and writes, only what the caller may see is there.
    """
    looking = await look(request)
    query = Query(request, LIMIT, CURSOR)
    await check_access(looking.gateway, looking.caller, request, READING)
    limit, key = query.limit(), await looking.key()
    before = None if query.cursor is None else parse_key_cursor(key, query.cursor, context=query.context)
    async with looking.reading() as connection:
        runs = await read_runs(connection, looking.caller.log_id, before=before, limit=limit)
    cursor = None if len(runs) < limit else format_cursor(key, runs[-1].run_id, context=query.context)
    return Shown({"runs": await runs_shown(runs, looking.sight), "cursor": cursor})


@router.get("/status")
async def show_status(request: Request) -> Response:
    """
    Show how far everything is that follows the tenant's log: the signer, each read model and stream, and detection.
    """
    looking = await look(request)
    Query(request)
    await check_access(looking.gateway, looking.caller, request, VIEW)
    read: ReadsStatus | None = request.app.state.status
    if read is None:
        raise UnavailableError("this process does not know how far what follows the log is")
    return JSONResponse(await read(looking.caller.log_id))
