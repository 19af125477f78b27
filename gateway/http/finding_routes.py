# SPDX-License-Identifier: Apache-2.0
"""
One finding, and what people say of it: `/v1/findings/{finding}`, and its review.

A finding is named by the index of its entry, and is there for whoever may load its table. To review it is a right of
its own on the table (`op == "REVIEW_FINDING"`), which no rule that names another operation gives.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.admin.edits import StaleEditError
from gateway.admin.finding_reviews import check_named, no_finding
from gateway.commit.commit_flow import STALE_MAX
from gateway.errors import BadRequestError, UnavailableError
from gateway.http.admin_routes import Body, body_as, editor_of
from gateway.http.looking.as_of import as_of_asked, check_as_of, seen_as_called
from gateway.http.looking.query import AS_OF, Query, parse_index
from gateway.http.looking.reading import Looking, look
from gateway.http.looking.shown import plain, row_shown
from gateway.http.looking.sight import target_of
from gateway.identifiers import Target
from ledger.format.events import FindingVerdict
from ledger.store.read import read_head
from ledger.store.session import Connection
from projections.processing.cursors import read_live
from projections.relational.commits import INDEX_END
from projections.relational.finding_reviews import read_review_history
from projections.relational.findings import FINDINGS, Finding, read_finding_at

router = APIRouter(prefix="/v1")

FINDING: Final = "/findings/{finding}"


class FindingReviewBody(Body):
    """
    A review of a finding: `verdict` is `confirmed` (it is personal data) or `dismissed` (it is none), `reason` is for
    the record.

    With `version`, only if that is the version of the newest review; 0 is that there is none.
    """

    verdict: str
    reason: str
    version: int | None = None


@router.get(FINDING)
async def show_finding(request: Request, finding: str) -> Response:
    """
    Show a finding, given by the index of its entry, and the reviews of its column and kind, the newest first; with
    `as_of` as all that was at that entry, also if a later scan has taken its place since.
    """
    looking, index = await look(request), parse_index(finding, field="finding")
    as_of = as_of_asked(Query(request, AS_OF))
    async with looking.reading() as connection:
        found = await (
            _find(looking, connection, index) if as_of is None else _find_as_of(looking, connection, index, as_of=as_of)
        )
        reviews = await read_review_history(
            connection,
            table_uuid=found.table_uuid,
            field_id=found.field_id,
            kind=found.kind,
            before=INDEX_END if as_of is None else as_of + 1,
        )
        found = replace(found, review=reviews[0] if reviews else None)
    return JSONResponse({**row_shown(found), "reviews": [plain(asdict(each)) for each in reviews]})


@router.post(f"{FINDING}/review")
async def review_finding(request: Request, finding: str) -> Response:
    """Say of a finding that it is real, or that it is none, and why; it takes the place of an earlier review."""
    body = await body_as(request, FindingReviewBody)
    index = parse_index(finding, field="finding")
    if body.verdict not in set(FindingVerdict):
        known = ", ".join(FindingVerdict)
        raise BadRequestError(f"expected one of {known}, found {body.verdict!r:.80}", field="verdict")
    looking = await look(request)
    async with looking.reading() as connection:
        found = await _find(looking, connection, index)
        target = await _named(looking, connection, found)
    for _ in range(STALE_MAX):
        await looking.sight.check_review(target, found.table_uuid)
        try:
            review = await looking.gateway.admin.review_finding(
                looking.caller.log_id,
                editor_of(looking.caller, looking.sight.state.as_of),
                finding=index,
                key=found.key,
                verdict=FindingVerdict(body.verdict),
                reason=body.reason,
                version=body.version,
            )
        except StaleEditError:
            looking = await look(request)
            continue
        shown: dict[str, Any] = {"finding": index, "verdict": review.verdict.value, "version": review.version}
        return JSONResponse({**shown, "reason": review.reason, "actor": looking.caller.actor})
    raise UnavailableError("access rules changed too often meanwhile; nothing was changed")


async def _find(looking: Looking, connection: Connection, index: int) -> Finding:
    """Return the finding at an index, if the caller may see it."""
    log_id = looking.caller.log_id
    found = await read_finding_at(connection, log_id, index)
    if found is not None and await looking.sight.sees(found.key):
        return found
    if found is None and index < (await read_head(connection, log_id)).size:
        live = await read_live(connection, FINDINGS, log_id)
        if live is None or index >= live.next_index:
            raise UnavailableError("the read model of findings has not come to that entry yet: try again")
    raise no_finding(index)


async def _find_as_of(looking: Looking, connection: Connection, index: int, *, as_of: int) -> Finding:
    """Return the finding at an index as it was at an entry, if the caller may see its table, then and now."""
    log_id = looking.caller.log_id
    await check_as_of(connection, log_id, as_of, FINDINGS)
    found = await read_finding_at(connection, log_id, index, as_of=as_of)
    seen = [] if found is None else await seen_as_called(looking.sight, connection, [found], as_of=as_of)
    if not seen:
        raise no_finding(index)
    return seen[0]


async def _named(looking: Looking, connection: Connection, found: Finding) -> Target:
    """Return what the table of a finding is called now."""
    await check_named(connection, looking.caller.log_id, found)
    target = target_of(found.key)
    if target is None:  # its key was shortened: no rule can be asked about it
        raise no_finding(found.index)
    return target
