# SPDX-License-Identifier: Apache-2.0
"""
What happened to a table, commit by commit: who, with which engine, what it changed, which policies judged it, and what
scans found in what it added (`/v1/tables/{alias}/{namespace}/{table}/timeline`).

It is the history, with what its metadata says of the snapshots that were added, as long as it has them. Clients and
policies are contents of payload parts: they are there for whoever may read those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.catalogs.catalog import Snapshots
from gateway.errors import GatewayError
from gateway.http import reads
from gateway.http.looking.cursors import format_cursor, parse_index_cursor
from gateway.http.looking.query import CURSOR, LIMIT, Query
from gateway.http.looking.reading import Looking
from gateway.http.looking.shown import commit_shown, row_shown
from gateway.http.table_routes import TABLE, find_table, names_shown
from gateway.identifiers import Target
from gateway.policy.engine import POLICY
from gateway.replaying.recorded import INPUTS, VERDICTS
from gateway.replaying.replay import verdicts_in
from ledger.format.event import Part
from ledger.format.json_object import parse_object
from ledger.store.read import read_parts_of
from ledger.store.session import Connection
from projections.relational.batched import read_findings_of_each
from projections.relational.commits import INDEX_END, ROWS_MAX, Commit, read_history

router = APIRouter(prefix="/v1")

COMMITS: Final = 25
COMMITS_MAX: Final = 50
"""In one answer: the parts of each are read."""
COUNTED: Final = ("added-records", "deleted-records", "added-data-files", "deleted-data-files", "total-records")
"""What is told of a snapshot's summary (Iceberg table specification, appendix F)."""
ENGINE: Final = ("engine-name", "engine-version")


@router.get(f"/tables{TABLE}/timeline")
async def show_timeline(request: Request, alias: str, namespace: str, table: str) -> Response:
    """
    List the decisions on a table, the newest first, each with the engine, what it changed, the policies that judged it,
    and what was found in what it added.
    """
    looking, target = await find_table(request, alias, namespace, table)
    query, key = Query(request, LIMIT, CURSOR), await looking.key()
    limit = query.number(LIMIT, least=1, most=COMMITS_MAX) or COMMITS
    before = INDEX_END if query.cursor is None else parse_index_cursor(key, query.cursor, context=query.context)
    summaries = await _summaries(looking, target)
    async with looking.reading() as connection:
        commits = await read_history(connection, looking.caller.log_id, target.key, before=before, limit=limit)
        shown = await _steps(looking, connection, commits, summaries)
    cursor = None if len(commits) < limit else format_cursor(key, commits[-1].index, context=query.context)
    return JSONResponse({**names_shown(target.key), "commits": shown, "cursor": cursor})


async def _steps(
    looking: Looking,
    connection: Connection,
    commits: Sequence[Commit],
    summaries: Mapping[str, Mapping[str, str]],
) -> list[dict[str, Any]]:
    """Return decisions, each with what belongs to it: what is read is read for all of them at once."""
    log_id, with_inputs = looking.caller.log_id, await looking.sight.reads_inputs()
    scanned = [("", ()) if each.table_uuid is None else (each.table_uuid, each.added) for each in commits]
    found = await read_findings_of_each(connection, log_id, scanned, limit=ROWS_MAX)
    parts: Mapping[int, Mapping[str, Part]] = {}
    if with_inputs:
        indices, opener = [each.index for each in commits], looking.gateway.opener
        parts = await read_parts_of(connection, log_id, indices, names=(INPUTS, VERDICTS), opener=opener)
    await looking.sight.prepare(one.key for each in found for one in each)
    return [
        {
            **commit_shown(commit, with_principal=with_inputs),
            **_changed(commit, summaries),
            **(_judged(parts.get(commit.index, {})) if with_inputs else {"client": None, "policies": None}),
            "findings": [row_shown(one) for one in findings if await looking.sight.sees(one.key)],
        }
        for commit, findings in zip(commits, found, strict=True)
    ]


def _changed(commit: Commit, summaries: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return what the table's metadata says of the snapshots that a commit added."""
    known = [(each, summaries[each]) for each in commit.added if each in summaries]
    return {
        "engine": next((engine for _, summary in known if (engine := _engine(summary))), None),
        "changes": [
            {
                "snapshot": snapshot,
                "operation": summary.get("operation"),
                "counts": {name: summary[name] for name in COUNTED if name in summary},
            }
            for snapshot, summary in known
        ],
    }


def _judged(parts: Mapping[str, Part]) -> dict[str, Any]:
    """Return what the parts of a decision say of its client, and of the policies that judged it."""
    held = {name: part.payload for name, part in parts.items()}
    verdicts = verdicts_in(held.get(VERDICTS))
    policies = None
    if verdicts is not None:
        policies = [
            {"id": each.id, "version": each.version, "outcome": each.outcome.value}
            for each in verdicts
            if each.kind == POLICY
        ]
    return {"client": _client(held.get(INPUTS)), "policies": policies}


async def _summaries(looking: Looking, target: Target) -> Mapping[str, Mapping[str, str]]:
    """Return the summaries of a table's snapshots by id; none of a table that cannot be loaded now."""
    gateway, caller, state = looking.gateway, looking.caller, looking.sight.state
    try:
        catalog = gateway.catalog(caller.tenant, state, target.alias)
        shown = await reads.Reader(
            caller=caller, catalog=catalog, target=target, row=None, judge=gateway.judge, state=state
        ).show(Snapshots.ALL)
    except GatewayError:
        return {}  # what the log says of it stays
    return await asyncio.to_thread(_summaries_in, shown.body or b"{}")


def _summaries_in(body: bytes) -> dict[str, dict[str, str]]:
    snapshots: Sequence[Mapping[str, Any]] = orjson.loads(body).get("metadata", {}).get("snapshots", ())
    return {
        str(each.get("snapshot-id")): {str(name): str(text) for name, text in (each.get("summary") or {}).items()}
        for each in snapshots
    }


def _engine(summary: Mapping[str, str]) -> str:
    return " ".join(summary[name] for name in ENGINE if summary.get(name))


def _client(inputs: bytes | None) -> str | None:
    """Return what a client calls itself, as the part `inputs` of a decision has it."""
    if inputs is None:
        return None
    client = parse_object(inputs, what=INPUTS, size_bytes_max=len(inputs)).get("client")
    return client if isinstance(client, str) and client else None
