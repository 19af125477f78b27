"""
The lineage that a graph draws: decided by the lineage projection's own code, on rows of the graph's own.

Generation -n of the lineage tables belongs to generation n of the graph; the lineage projection's generations are
positive. So a graph neither waits for another projection's cursor nor changes with it, and what is a cycle to one is a
cycle to the other: both fold the same entries by the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ledger.store.queries import load_queries
from projections.entries import LogEntry
from projections.graph.runs import ResolvedLineage
from projections.lineage.projection import LineageProjection, draw
from projections.processing.projection import Transaction

QUERIES: Final = load_queries("projections", "graph.sql")
_LINEAGE: Final = LineageProjection()


async def draw_lineage(entries: Sequence[LogEntry], transaction: Transaction) -> dict[int, ResolvedLineage]:
    """
    Apply `entries` to the graph's own lineage; return what each `lineage.received` among them resolved to, by index.
    """
    own = _own(transaction)
    judged = await draw(entries, own)
    keys = {key for each in judged for key in each.incomplete}
    parameters = {"log_id": own.log.log_id, "generation": own.generation, "keys": sorted(keys)}
    rows = await (await own.connection.execute(QUERIES["lineage_omitted"], parameters)).fetchall() if keys else []
    omitted: dict[str, int] = dict(rows)
    return {
        each.telling.event.entry.index: ResolvedLineage(
            keys=each.telling.event.keys,
            drawn=each.edges,
            columns=each.columns,
            state=each.telling.state,
            # As it is behind the last of them: what later ones add is set again by them.
            omitted={key: omitted[key] for key in sorted(each.incomplete)},
        )
        for each in judged
    }


async def prepare_lineage(transaction: Transaction) -> None:
    """
    Make the lineage of a new generation of the graph.
    """
    await _LINEAGE.prepare(_own(transaction))


async def drop_lineage(transaction: Transaction) -> None:
    """
    Remove the lineage of a generation of the graph.
    """
    await _LINEAGE.drop(_own(transaction))


def _own(transaction: Transaction) -> Transaction:
    return replace(transaction, generation=-transaction.generation)
