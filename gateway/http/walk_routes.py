# SPDX-License-Identifier: Apache-2.0
"""
Walks from a table, each by its name (`/v1/traverse/{preset}/…`); what a change of it affects has a path of its own, too
(`/v1/impact/…`). Agents take the same walks (`graph.traverse`).

A walk begins at a table that the caller may load, and tells of what else the caller may see.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gateway.errors import BadRequestError
from gateway.http.looking.graphs import asking_graph, impact_shown, propagation_shown
from gateway.http.looking.lineage import lineage_shown
from gateway.http.looking.query import LIMIT, Query
from gateway.http.looking.reading import Looking
from gateway.http.looking.shown import Shown, commit_shown
from gateway.http.table_routes import TABLE, find_table, hops_of, table_shown
from gateway.identifiers import Target
from projections.graph.traversals import impact_analysis, pii_propagation
from projections.lineage.read import read_lineage
from projections.relational.commits import INDEX_END, read_history

router = APIRouter(prefix="/v1")

EXPLAINING_MAX: Final = 5
"""Decisions that `explain_a_number` names."""


class Preset(StrEnum):
    """The walks by name."""

    AI_AGENT_CONTEXT = "ai_agent_context"
    IMPACT_ANALYSIS = "impact_analysis"
    PII_PROPAGATION = "pii_propagation"
    EXPLAIN_A_NUMBER = "explain_a_number"


LIMITED: Final = frozenset({Preset.IMPACT_ANALYSIS, Preset.PII_PROPAGATION, Preset.EXPLAIN_A_NUMBER})
"""Walks with lists of which at most `limit` of each kind are shown, the nearest first."""


@router.get(f"/impact{TABLE}")
async def show_impact(request: Request, alias: str, namespace: str, table: str) -> Response:
    """
    Show what a change of a table affects within `hops`: tables and columns made from it, and who reads them, at most
    `limit` of each.
    """
    return await _walk(request, Preset.IMPACT_ANALYSIS, alias, namespace, table)


@router.get(f"/traverse/{{preset}}{TABLE}")
async def traverse(request: Request, preset: str, alias: str, namespace: str, table: str) -> Response:
    """
    Walk from a table within `hops`. `ai_agent_context`: what it is, who writes and reads it, what was found in it;
    `impact_analysis`: what a change of it affects; `pii_propagation`: where its personal data may have gone;
    `explain_a_number`: what it was made from, and the last decisions that made it so.
    """
    try:
        chosen = Preset(preset)
    except ValueError as error:
        known = ", ".join(each.value for each in Preset)
        raise BadRequestError(f"expected one of {known}, found {preset!r:.80}", field="preset") from error
    return await _walk(request, chosen, alias, namespace, table)


async def _walk(request: Request, preset: Preset, alias: str, namespace: str, table: str) -> Response:
    looking, target = await find_table(request, alias, namespace, table)
    names = ("hops", LIMIT) if preset in LIMITED else ("hops",)
    query = Query(request, *names)
    hops, limit = hops_of(query), query.limit()
    match preset:
        case Preset.AI_AGENT_CONTEXT:
            shown = await table_shown(looking, target)
        case Preset.EXPLAIN_A_NUMBER:
            shown = await _number_explained(looking, target, hops=hops, limit=limit)
        case Preset.IMPACT_ANALYSIS:
            async with asking_graph(looking) as (graph, lag_entries):
                shown = await impact_shown(
                    await impact_analysis(graph, target.key, hops=hops, limit=limit), looking.sight
                )
            shown["lag_entries"] = lag_entries
        case Preset.PII_PROPAGATION:
            async with asking_graph(looking) as (graph, lag_entries):
                shown = await propagation_shown(
                    await pii_propagation(graph, target.key, hops=hops, limit=limit), looking.sight
                )
            shown["lag_entries"] = lag_entries
    return Shown({"preset": preset.value, **shown})


async def _number_explained(looking: Looking, target: Target, *, hops: int, limit: int) -> dict[str, Any]:
    """Return what a table was made from, and the last decisions on it."""
    log_id, with_principal = looking.caller.log_id, await looking.sight.reads_inputs()
    async with looking.reading() as connection:
        commits = await read_history(connection, log_id, target.key, before=INDEX_END, limit=EXPLAINING_MAX)
        found = await read_lineage(connection, log_id, target.key, hops=hops, limit=limit)
        lineage = await lineage_shown(found, looking.sight)
    return {
        "table": target.key,
        "made_from": lineage["upstream"],
        "columns": lineage["columns"],
        "omitted": lineage["omitted"],
        "is_cut": lineage["is_cut"],
        "last_decisions": [commit_shown(each, with_principal=with_principal) for each in commits],
    }
