# SPDX-License-Identifier: Apache-2.0
"""
What is known of tables: `/v1/tables`, and of one `/v1/tables/{alias}/{namespace}/{table}` with its history, findings,
lineage, policies and schemas. Walks from it have a module of their own (`walk_routes.py`).

A table is there for whoever may load it, whatever else a request asks. Names in paths are percent-encoded, the levels
of a namespace are separated by %1F, as in the catalog's paths.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from gateway.admin.shown import policy_shown
from gateway.catalogs.catalog import Snapshots
from gateway.commit.judgement import policies_for
from gateway.control.plane import ControlState
from gateway.http import reads
from gateway.http.admin_routes import may_read
from gateway.http.answer_tags import entity_tag, tagged, unchanged
from gateway.http.looking.as_of import as_of_asked, check_as_of, control_as_of, seen_as_called
from gateway.http.looking.cursors import format_cursor, parse_index_cursor, parse_key_cursor
from gateway.http.looking.graphs import answers_shown, asking_graph
from gateway.http.looking.lineage import lineage_shown
from gateway.http.looking.query import AS_OF, CURSOR, LIMIT, Query
from gateway.http.looking.reading import Looking, look
from gateway.http.looking.shown import Shown, commit_shown, row_shown
from gateway.http.looking.sight import Sight, target_of
from gateway.identifiers import Target, parse_alias, parse_target
from gateway.policy.variables import CommitView
from ledger.format.events import DetectionKind
from ledger.store.session import Connection
from projections.lineage.projection import LINEAGE
from projections.lineage.read import HOPS, HOPS_MAX, read_lineage
from projections.relational.as_of import read_names_then, read_tables_named
from projections.relational.commits import COMMITS, INDEX_END, read_history, read_history_of_actions
from projections.relational.finding_reviews import FindingState
from projections.relational.findings import (
    FINDINGS,
    Finding,
    ScanSummary,
    read_found_in_tables,
    read_last_findings_of_table,
    read_scans_of_table,
)
from projections.relational.table_names import TAGS, ListedTable, Owner, read_live_names, read_owners, read_tables

router = APIRouter(prefix="/v1")

TABLE: Final = "/{alias}/{namespace}/{table}"
NAME_LENGTH_MAX: Final = 500
EXAMINED_MAX: Final = 500
"""Tables that are judged for one page: it may be short, with more behind its cursor."""
SCHEMA_ACTIONS: Final = frozenset(
    {"CATALOG_CREATE_ENTITY", "CATALOG_REGISTER_ENTITY", "META_ADD_SCHEMA", "META_SET_CURRENT_SCHEMA"}
)
"""Actions of commits that give a table a schema."""


@router.get("/tables")
async def list_tables(request: Request) -> Response:
    """
    List tables that have a name now, by name: of one catalog, with a text in their name, with findings of one kind,
    with a tag, or of one owner; with `as_of` those that had one at that entry, and what was known of them then.

    A tag is a kind of personal data that was found for certain and that nobody has dismissed, or `pii` for any. An
    owner made the table or registered it: an actor, or who that is for whoever may read inputs.
    """
    looking = await look(request)
    query = Query(request, "catalog", "name", "finding", "tag", "owner", AS_OF, LIMIT, CURSOR)
    owner, knows_people = query.text("owner", length_max=NAME_LENGTH_MAX), await looking.sight.reads_inputs()
    alias, limit, key = query.text("catalog"), query.limit(), await looking.key()
    after = "" if query.cursor is None else parse_key_cursor(key, query.cursor, context=query.context)
    finding, tagged_with, as_of = query.one_of("finding", DetectionKind), query.known("tag", TAGS), as_of_asked(query)
    async with looking.reading() as connection:
        if as_of is not None:
            await check_as_of(connection, looking.caller.log_id, as_of, FINDINGS, COMMITS)
        tag = await entity_tag(looking, connection, request, FINDINGS, COMMITS)
        if (same := unchanged(request, tag)) is not None:
            return same
        found, going_on = await page_of_tables(
            looking.sight,
            connection,
            after=after,
            alias=None if alias is None else parse_alias(alias, field="catalog"),
            text=query.text("name", length_max=NAME_LENGTH_MAX),
            kind=finding,
            tag=tagged_with,
            owner=None if owner is None else Owner(name=owner, may_be_principal=knows_people),
            limit=limit,
            as_of=as_of,
        )
        uuids = [each.table_uuid for each in found]
        kinds = await read_found_in_tables(connection, looking.caller.log_id, uuids, as_of=as_of)
        owners = await read_owners(connection, looking.caller.log_id, uuids, as_of=as_of)
    tables = [
        {
            **names_shown(each.key),
            "table_uuid": each.table_uuid,
            "named_index": each.index,
            "findings": [asdict(kind) for kind in kinds.get(each.table_uuid, ())],
            "owner": owner_shown(owners.get(each.table_uuid), with_principal=knows_people),
        }
        for each in found
    ]
    cursor = None if going_on is None else format_cursor(key, going_on, context=query.context)
    return tagged({"tables": tables, "cursor": cursor}, tag)


async def page_of_tables(
    sight: Sight,
    connection: Connection,
    *,
    after: str,
    alias: str | None,
    text: str | None,
    kind: str | None,
    tag: str | None = None,
    owner: Owner | None = None,
    limit: int,
    as_of: int | None = None,
) -> tuple[list[ListedTable], str | None]:
    """
    Return tables that the caller may see, as `read_tables` does, and the key behind which there may be more.

    As of an entry, a table has to be one that the caller may see under its present name, too.
    """
    rows, following = await read_tables(
        connection,
        sight.caller.log_id,
        after=after,
        alias=alias,
        text=text,
        kind=kind,
        tag=tag,
        owner=owner,
        limit=EXAMINED_MAX,
        as_of=as_of,
    )
    called = {each.table_uuid: each.key for each in rows}
    if as_of is not None:
        names = await read_names_then(connection, sight.caller.log_id, [each.table_uuid for each in rows], index=as_of)
        called |= {uuid: now for uuid, (_, now) in names.items() if now is not None}
    await sight.prepare({*(each.key for each in rows), *called.values()})
    found: list[ListedTable] = []
    for each in rows:
        if len(found) == limit:
            return found, found[-1].key
        if await sight.sees_all((each.key, called[each.table_uuid])):
            found.append(each)
    return found, following


@router.get(f"/tables{TABLE}")
async def show_table(request: Request, alias: str, namespace: str, table: str) -> Response:
    """
    Answer for a table: who wrote it, made from what, allowed by which policy, what was found in it, who reads it.
    """
    looking, target = await find_table(request, alias, namespace, table)
    Query(request)
    return Shown(await table_shown(looking, target))


async def table_shown(looking: Looking, target: Target) -> dict[str, Any]:
    """
    Return what the graph answers for a table, which the caller may see. Raises as `asking_graph`.
    """
    async with asking_graph(looking) as (graph, lag_entries):
        state = await graph.table(target.key)
        answers = await graph.answers(target.key, known=state)
        shown = await answers_shown(answers, state, looking.sight)
    return {**names_shown(target.key), **shown, "lag_entries": lag_entries}


@router.get(f"/tables{TABLE}/history")
async def list_table_history(request: Request, alias: str, namespace: str, table: str) -> Response:
    """
    List the decisions on a table and their outcomes, the newest first; with `as_of` as they were at that entry.
    """
    looking, target = await find_table(request, alias, namespace, table)
    query = Query(request, AS_OF, LIMIT, CURSOR)
    as_of, limit, key = as_of_asked(query), query.limit(), await looking.key()
    before = INDEX_END if as_of is None else as_of + 1
    if query.cursor is not None:
        before = min(before, parse_index_cursor(key, query.cursor, context=query.context))
    with_principal = await looking.sight.reads_inputs()
    async with looking.reading() as connection:
        if as_of is not None:
            await check_as_of(connection, looking.caller.log_id, as_of, COMMITS)
        tag = await entity_tag(looking, connection, request, COMMITS)
        if (same := unchanged(request, tag)) is not None:
            return same
        commits = await read_history(connection, looking.caller.log_id, target.key, before=before, limit=limit)
    cursor = None if len(commits) < limit else format_cursor(key, commits[-1].index, context=query.context)
    shown = [commit_shown(each, with_principal=with_principal, as_of=as_of) for each in commits]
    return tagged({**names_shown(target.key), "decisions": shown, "cursor": cursor}, tag)


@router.get(f"/tables{TABLE}/findings")
async def list_table_findings(request: Request, alias: str, namespace: str, table: str) -> Response:
    """
    List what was found last in each column of a table, of each kind, and the last scans: without one of a snapshot,
    that nothing was found says nothing about it. With `as_of` of the table that had this name at that entry, and as it
    was known then; only whether the caller may review is of now.
    """
    looking, target = await find_table(request, alias, namespace, table)
    query = Query(request, "confidence", "state", AS_OF, LIMIT)
    limit, confidence = query.limit(), query.number("confidence", least=0, most=100) or 0
    state, may_review, as_of = query.one_of("state", FindingState), False, as_of_asked(query)
    log_id = looking.caller.log_id
    async with looking.reading() as connection:
        found: list[Finding] = []
        scans: list[ScanSummary] = []
        if as_of is None:
            uuids = [name.table_uuid for name in await read_live_names(connection, log_id, keys=[target.key])]
        else:
            await check_as_of(connection, log_id, as_of, FINDINGS)
            uuids = await read_tables_named(connection, log_id, target.key, index=as_of)
        for uuid in uuids:
            found += await read_last_findings_of_table(
                connection,
                log_id,
                table_uuid=uuid,
                confidence_percent_min=confidence,
                state=state,
                limit=limit,
                as_of=as_of,
            )
            scans += await read_scans_of_table(connection, log_id, table_uuid=uuid, limit=limit, as_of=as_of)
            may_review = may_review or await looking.sight.may_review(target, uuid)
        if as_of is not None:
            found = await seen_as_called(looking.sight, connection, found, as_of=as_of)
            scans = await seen_as_called(looking.sight, connection, scans, as_of=as_of)
    return Shown(
        {
            **names_shown(target.key),
            "findings": [row_shown(each) for each in found],
            "scans": [row_shown(each) for each in scans],
            "may_review": may_review,
        }
    )


@router.get(f"/tables{TABLE}/lineage")
async def show_table_lineage(request: Request, alias: str, namespace: str, table: str) -> Response:
    """Show what a table was made from, and what was made from it, within `hops`, at most `limit` edges of each."""
    looking, target = await find_table(request, alias, namespace, table)
    query = Query(request, "hops", LIMIT)
    hops, limit = hops_of(query), query.limit()
    async with looking.reading() as connection:
        tag = await entity_tag(looking, connection, request, LINEAGE)
        if (same := unchanged(request, tag)) is not None:
            return same
        lineage = await read_lineage(connection, looking.caller.log_id, target.key, hops=hops, limit=limit)
    return tagged(await lineage_shown(lineage, looking.sight), tag)


@router.get(f"/tables{TABLE}/policies")
async def list_table_policies(request: Request, alias: str, namespace: str, table: str) -> Response:
    """
    List the policies in force whose scope covers a table, with `as_of` those that were when that entry was recorded; it
    takes the right to read policies, too.
    """
    looking, target = await find_table(request, alias, namespace, table)
    as_of = as_of_asked(Query(request, AS_OF))
    gateway, _ = await may_read(request, "policy")
    state, now = looking.sight.state, gateway.clock()
    async with looking.reading() as connection:
        names = await read_live_names(connection, looking.caller.log_id, keys=[target.key])
        if as_of is not None:
            state, now = await control_as_of(connection, looking.caller.log_id, as_of)
    uuid = names[0].table_uuid if names else None
    policies = policies_of(state, target, uuid=uuid, now=now)
    return Shown({**names_shown(target.key), "policies": policies})


def policies_of(state: ControlState, target: Target, *, uuid: str | None, now: datetime) -> list[dict[str, Any]]:
    """
    Return the policies in force whose scope covers a table, as they are shown to whoever may read policies; without a
    `uuid`, which is not known then, those by uuids, too.
    """
    view = CommitView(
        catalog=target.alias,
        namespace=target.namespace,
        name=target.name or "",
        kind=target.kind,
        operation="table.commit",
    )
    table = {} if uuid is None else {"table-uuid": uuid}
    return [policy_shown(each, now=now) for each in policies_for(state.at(now), view, table=table)]


@router.get(f"/tables{TABLE}/schema-history")
async def show_schema_history(request: Request, alias: str, namespace: str, table: str) -> Response:
    """
    Show the schemas that a table has had, as its metadata has them, and the decisions that were to add one or set one,
    the newest first.
    """
    looking, target = await find_table(request, alias, namespace, table)
    query, key = Query(request, CURSOR), await looking.key()
    before = INDEX_END if query.cursor is None else parse_index_cursor(key, query.cursor, context=query.context)
    with_principal = await looking.sight.reads_inputs()
    gateway, caller = looking.gateway, looking.caller
    catalog = gateway.catalog(caller.tenant, looking.sight.state, target.alias)
    found = await reads.Reader(
        caller=caller, catalog=catalog, target=target, row=None, judge=gateway.judge, state=looking.sight.state
    ).show(Snapshots.REFS)
    schemas, current = await asyncio.to_thread(_schemas, found.body)
    async with looking.reading() as connection:
        commits, following = await read_history_of_actions(
            connection, caller.log_id, target.key, actions=SCHEMA_ACTIONS, before=before
        )
    return Shown(
        {
            **names_shown(target.key),
            "current_schema_id": current,
            "schemas": schemas,
            "changes": [commit_shown(each, with_principal=with_principal) for each in commits],
            "cursor": None if following is None else format_cursor(key, following, context=query.context),
        }
    )


async def find_table(request: Request, alias: str, namespace: str, table: str) -> tuple[Looking, Target]:
    """
    Return who looks, and the table that a path names, which the caller may load.

    Raises:
        ForbiddenError: if access rules do not permit to load it, whether or not it exists.
    """
    looking, target = await look(request), parse_target(alias, namespace, table)
    await looking.sight.check(target)
    return looking, target


def hops_of(query: Query) -> int:
    """Return how far a walk goes. Raises as `Query.number`."""
    return query.number("hops", least=1, most=HOPS_MAX) or HOPS


def names_shown(key: str) -> dict[str, Any]:
    """Return the names of a table, given its key."""
    target = target_of(key)
    names: dict[str, Any] = {"key": key, "catalog": None, "namespace": [], "name": None}
    if target is not None:
        names |= {"catalog": target.alias, "namespace": list(target.namespace), "name": target.name}
    return names


def owner_shown(owner: tuple[str, str | None] | None, *, with_principal: bool) -> dict[str, str | None] | None:
    """Return who made a table, as `read_owners` has it; None if that is not known."""
    return None if owner is None else {"actor": owner[0], "principal": owner[1] if with_principal else None}


def _schemas(body: bytes | None) -> tuple[list[dict[str, Any]], int | None]:
    """Return the schemas in an answer of loadTable, and the id of the current one."""
    metadata = orjson.loads(body or b"{}").get("metadata", {})
    return [dict(each) for each in metadata.get("schemas", ())], metadata.get("current-schema-id")
