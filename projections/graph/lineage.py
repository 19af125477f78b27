# SPDX-License-Identifier: Apache-2.0
"""
The lineage that a graph draws: decided by the code of the lineage projection, on rows that belong to the graph.

Each generation of a graph has lineage rows of its own (`lineage_of_graph`), so a graph neither waits for the cursor of
the lineage projection nor changes with it. Both fold the same entries by the same rules, so they refuse the same
cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ledger.store.queries import load_queries
from projections.entries import LogEntry
from projections.graph.runs import ResolvedLineage
from projections.lineage.edges import lineage_of_graph
from projections.lineage.projection import LineageProjection, draw
from projections.processing.projection import Transaction

QUERIES: Final = load_queries("projections", "graph.sql")
_LINEAGE: Final = LineageProjection()


async def draw_lineage(entries: Sequence[LogEntry], transaction: Transaction) -> dict[int, ResolvedLineage]:
    """
    Apply `entries` to the graph's own lineage; return what each `lineage.received` among them resolved to, by index.
    """
    own = lineage_of_graph(transaction)
    judged = await draw(entries, own)
    keys = {key for each in judged for key in each.incomplete}
    parameters = {"log_id": own.log.log_id, "generation": own.generation, "keys": sorted(keys)}
    rows = await (await own.connection.execute(QUERIES["lineage_omitted"], parameters)).fetchall() if keys else []
    omitted: dict[str, int] = dict(rows)
    return {
        each.update.event.entry.index: ResolvedLineage(
            keys=each.update.event.keys,
            drawn=each.edges,
            columns=each.columns,
            state=each.update.state,
            # The counts after the whole batch; entries that add to them set them again.
            omitted={key: omitted[key] for key in sorted(each.incomplete)},
        )
        for each in judged
    }


async def prepare_lineage(transaction: Transaction) -> None:
    """
    Create the lineage of a new generation of the graph.
    """
    await _LINEAGE.prepare(lineage_of_graph(transaction))


async def drop_lineage(transaction: Transaction) -> None:
    """
    Remove the lineage of a generation of the graph.
    """
    await _LINEAGE.drop(lineage_of_graph(transaction))
