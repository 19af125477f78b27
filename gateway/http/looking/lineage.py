# SPDX-License-Identifier: Apache-2.0
"""
Lineage for one caller: an edge is there if both of its ends may be seen.

Jobs, engines and runs are lineage's own: an edge names them to whoever may read lineage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.http.looking.shown import members, plain
from gateway.http.looking.sight import Sight
from projections.lineage.openlineage import WHOLE_DATASET
from projections.lineage.read import ColumnLineage, Cycle, Lineage, LineageEdge, RunSeen

_OF_JOBS = ("job", "run_id", "engine", "state", "event_time")


async def lineage_shown(lineage: Lineage, sight: Sight) -> dict[str, Any]:
    """
    Return the lineage around one table or data set, as far as the caller may see it.
    """
    ends = [(each.source, each.target) for each in (*lineage.upstream, *lineage.downstream)]
    ends += [(each.source, each.target) for each in lineage.columns]
    await sight.prepare(key for pair in ends for key in pair)

    return {
        "key": lineage.key,
        "upstream": await edges_shown(lineage.upstream, sight),
        "downstream": await edges_shown(lineage.downstream, sight),
        "columns": [column_shown(each) for each in lineage.columns if await sight.sees_all((each.source, each.target))],
        "cycles": [
            cycle_shown(each) for each in lineage.cycles if await sight.sees_all((each.source, each.target, *each.path))
        ],
        "omitted": [
            {"key": key, **members(omitted)} for key, omitted in lineage.omitted.items() if await sight.sees(key)
        ],
        "is_cut": lineage.is_cut,
    }


async def edges_shown(edges: Sequence[LineageEdge], sight: Sight) -> list[dict[str, Any]]:
    """
    Return edges of lineage whose both ends the caller may see; by which jobs, to whoever may read lineage.
    """
    with_jobs = await sight.reads_lineage()
    await sight.prepare(key for each in edges for key in (each.source, each.target))
    return [edge_shown(each, with_jobs=with_jobs) for each in edges if await sight.sees_all((each.source, each.target))]


def edge_shown(edge: LineageEdge, *, with_jobs: bool) -> dict[str, Any]:
    """Return an edge whose ends the caller may see."""
    shown = members(edge)
    return shown if with_jobs else {**shown, **dict.fromkeys(_OF_JOBS)}


def column_shown(column: ColumnLineage) -> dict[str, Any]:
    """Return a column edge whose ends the caller may see."""
    shown = members(column)
    return {**shown, "target_column": None} if column.target_column == WHOLE_DATASET else shown


def cycle_shown(cycle: Cycle) -> dict[str, Any]:
    """Return a refused edge whose path the caller may see."""
    shown: dict[str, Any] = plain({name: value for name, value in members(cycle).items() if name != "group_id"})
    return shown


async def runs_shown(runs: Sequence[RunSeen], sight: Sight) -> list[dict[str, Any]]:
    """
    Return runs for whoever may read lineage: of what each reads and writes, what the caller may see.
    """
    await sight.prepare(key for run in runs for key in (*run.inputs, *run.outputs))
    return [
        {
            **members(run),
            "inputs": [each for each in run.inputs if await sight.sees(each)],
            "outputs": [each for each in run.outputs if await sight.sees(each)],
        }
        for run in runs
    ]
