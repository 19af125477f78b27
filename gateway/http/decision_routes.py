# SPDX-License-Identifier: Apache-2.0
"""
What the read models say of decisions and findings: `/v1/decisions/{decision}` with all that belongs to one, and
`/v1/findings`.

A decision, and what was found in a table, is there for whoever may load the table. Who asked, the verdicts and the
message to the client are contents of payload parts: they are there for whoever may read those (`inputs.load`).
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gateway.errors import BadRequestError, GatewayError, NotFoundError, UnavailableError
from gateway.http.answer_tags import entity_tag, tagged, unchanged
from gateway.http.looking.as_of import as_of_asked, check_as_of, seen_as_called
from gateway.http.looking.cursors import format_cursor, parse_index_cursor
from gateway.http.looking.lineage import edges_shown
from gateway.http.looking.query import AS_OF, CURSOR, LIMIT, NUMBER, Query
from gateway.http.looking.reading import Looking, look
from gateway.http.looking.shown import Shown, commit_shown, row_shown
from gateway.replaying.recorded import VERDICTS
from gateway.replaying.replay import verdicts_in
from ledger.format.events import DetectionKind
from ledger.store.read import read_head, read_parts
from ledger.store.session import Connection
from projections.errors import ProjectionError
from projections.graph.display_names import key_of_table
from projections.lineage.read import read_upstream
from projections.processing.cursors import read_live
from projections.relational.belonging import read_belonging
from projections.relational.commits import COMMITS, Commit, read_commit_at, read_commits_of_group
from projections.relational.finding_reviews import FindingState
from projections.relational.findings import FINDINGS, INDEX_END, Finding, read_findings_below

router = APIRouter(prefix="/v1")

MESSAGE: Final = "message"
LISTED_MAX: Final = 20
EXAMINED_MAX: Final = 500
"""Once so many findings were judged, the page ends: it may be short, with more behind its cursor."""


@router.get("/decisions/{decision}")
async def show_decision(request: Request, decision: str) -> Response:
    """
    Show a decision, given by the index of its entry or the id of its group: its outcome, the verdicts, the scans of
    what it added, what they found, the alerts, and what the table was made from.
    """
    looking = await look(request)
    Query(request)
    with_inputs = await looking.sight.reads_inputs()
    async with looking.reading() as connection:
        commit = await find_decision(looking, connection, decision)
        belonging = await read_belonging(connection, [commit])
        upstream = await read_upstream(connection, looking.caller.log_id, commit.key)
        opener = looking.gateway.opener
        parts = (
            await read_parts(
                connection,
                looking.caller.log_id,
                from_index=commit.index,
                to_index=commit.index + 1,
                opener=opener,
            )
            if with_inputs
            else {}
        )
    held = parts.get(commit.index, {})
    verdicts = verdicts_in(held[VERDICTS].payload) if VERDICTS in held else None
    message = held[MESSAGE].payload.decode("utf-8", "replace") if MESSAGE in held else None
    shown = {
        **commit_shown(commit, with_principal=with_inputs),
        "message": message,
        "verdicts": None
        if verdicts is None
        else [
            {
                "kind": each.kind,
                "id": each.id,
                "version": each.version,
                "outcome": each.outcome.value,
                "detail": each.detail,
            }
            for each in verdicts
        ],
        "scans": [row_shown(each) for each in belonging.scans if await looking.sight.sees(each.key or "")],
        "findings": [row_shown(each) for each in belonging.findings if await looking.sight.sees(each.key)],
        "alerts": [row_shown(each) for each in belonging.alerts if await looking.sight.sees(each.key)],
        "made_from": await edges_shown(upstream, looking.sight),
    }
    return Shown(shown)


@router.get("/findings")
async def list_findings(request: Request) -> Response:
    """
    List what scans have found, the newest first: one for each scan, column and kind; never a value.

    `table` asks for one table, `kind` for one kind of personal data, `confidence` for so many percent or more, and
    `state` for those that are `open`, `confirmed` or `dismissed`; `as_of` for all of that as it was at that entry.
    """
    looking = await look(request)
    query = Query(request, "table", "kind", "confidence", "state", AS_OF, LIMIT, CURSOR)
    table, limit, key = query.text("table"), query.limit(), await looking.key()
    try:
        table_key = None if table is None else key_of_table(table)
    except ProjectionError as error:
        raise BadRequestError(str(error), field="table") from error
    before = INDEX_END if query.cursor is None else parse_index_cursor(key, query.cursor, context=query.context)
    confidence = query.number("confidence", least=0, most=100) or 0
    kind, state, as_of = query.one_of("kind", DetectionKind), query.one_of("state", FindingState), as_of_asked(query)
    async with looking.reading() as connection:
        if as_of is not None:
            await check_as_of(connection, looking.caller.log_id, as_of, FINDINGS)
        tag = await entity_tag(looking, connection, request, FINDINGS)
        if (same := unchanged(request, tag)) is not None:
            return same
        found, following = await page_of_findings(
            looking,
            connection,
            before=before,
            key=table_key,
            kind=kind,
            state=state,
            confidence=confidence,
            limit=limit,
            as_of=as_of,
        )
    cursor = None if following is None else format_cursor(key, following, context=query.context)
    return tagged({"findings": [row_shown(each) for each in found], "cursor": cursor}, tag)


async def page_of_findings(
    looking: Looking,
    connection: Connection,
    *,
    before: int,
    key: str | None,
    kind: str | None,
    state: FindingState | None = None,
    confidence: int,
    limit: int,
    as_of: int | None = None,
) -> tuple[list[Finding], int | None]:
    """
    Return findings that the caller may see, as `read_findings_below` does, and the index below which there may be more.
    """
    found: list[Finding] = []
    examined = 0
    following: int | None = before
    while following is not None and len(found) < limit and examined < EXAMINED_MAX:
        asked = limit - len(found)
        rows, following = await read_findings_below(
            connection,
            looking.caller.log_id,
            before=following,
            key=key,
            kind=kind,
            state=state,
            confidence_percent_min=confidence,
            limit=asked,
            as_of=as_of,
        )
        examined += len(rows)
        if as_of is None:
            await looking.sight.prepare(each.key for each in rows)
            found += [each for each in rows if await looking.sight.sees(each.key)]
        else:
            found += await seen_as_called(looking.sight, connection, rows, as_of=as_of)
        if len(rows) < asked:
            break  # as many were looked through as one request may
    return found, following


async def find_decision(looking: Looking, connection: Connection, decision: str) -> Commit:
    """
    Return the decision that an index or the id of a group names.

    Raises:
        NotFoundError: if there is none, or the caller may not see it.
        BadRequestError: if it is neither.
        UnavailableError: if the read model has not come to it yet.
    """
    if NUMBER.fullmatch(decision):
        index = int(decision)
        commit = await read_commit_at(connection, index)
        if commit is not None and await looking.sight.sees(commit.key):
            return commit
        await _check_is_projected(looking, connection, index)
        raise _no_decision(decision)
    try:
        group_id = UUID(decision)
    except ValueError as error:
        text = f"expected the id of a decision's group, or the index of its entry, found {decision!r:.80}"
        raise BadRequestError(text, field="decision") from error
    group = await read_commits_of_group(connection, group_id)
    visible = [each for each in group if await looking.sight.sees(each.key)]
    if not visible:
        raise _no_decision(decision)
    if len(visible) > 1:
        listed = ", ".join(str(each.index) for each in visible[:LISTED_MAX])
        raise NotFoundError(
            f"group {group_id} has {len(visible)} decisions: name one by its index, of {listed}",
            kind="NotFoundException",
        )
    return visible[0]


async def _check_is_projected(looking: Looking, connection: Connection, index: int) -> None:
    """Check that the read model has come to an entry of the log: what it does not have there is not a decision."""
    log_id = looking.caller.log_id
    size = (await read_head(connection, log_id)).size
    live = await read_live(connection, COMMITS, log_id)
    if index < size and (live is None or index >= live.next_index):
        raise UnavailableError("the read model of decisions has not come to that entry yet: try again")


def _no_decision(decision: str) -> GatewayError:
    return NotFoundError(
        f"decision {decision}: expected a decision that you may see, found none", kind="NotFoundException"
    )
