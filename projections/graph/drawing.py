"""
The lineage that a graph draws: decided by the lineage projection's own code, on rows of the graph's own.

Generation -n of the lineage tables belongs to generation n of the graph; the lineage projection's generations are
positive. So a graph neither waits for another projection's cursor nor changes with it, and what is a cycle to one is a
cycle to the other: both fold the same entries by the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from ledger.events import LineageReceived
from ledger.queries import load_queries
from projections.entries import LogEntry
from projections.graph.labels import bounded_key
from projections.graph.runs import Resolved
from projections.lineage.projection import LineageProjection
from projections.projection import Transaction

QUERIES: Final = load_queries("projections", "graph.sql")
PAIRS_ASKED_MAX: Final = 5_000
_LINEAGE: Final = LineageProjection()


async def draw_lineage(entries: Sequence[LogEntry], transaction: Transaction) -> dict[int, Resolved]:
    """
    Apply `entries` to the graph's own lineage; return what each `lineage.received` among them resolved to, by index.
    """
    own = _own(transaction)
    await _LINEAGE.apply(entries, own)
    events = {item.entry.index: item.event for item in entries if isinstance(item.event, LineageReceived)}
    if not events:
        return {}
    parameters = {"log_id": own.log.log_id, "generation": own.generation, "indices": sorted(events)}
    rows = await own.connection.execute(QUERIES["lineage_keys"], parameters)
    keys: dict[int, list[str]] = dict(await rows.fetchall())
    pairs = {
        index: {
            (bounded_key(keys[index][source]), bounded_key(keys[index][target]))
            for source, target in product(event.inputs, event.outputs)
        }
        for index, event in events.items()
    }
    # An edge is never removed, and one that was refused stays refused: what is there now was there for each event.
    drawn = await _drawn(own, sorted(set().union(*pairs.values())))
    return {index: Resolved(keys=keys[index], drawn=pairs[index] & drawn) for index in events}


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


async def _drawn(own: Transaction, pairs: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return which of `pairs` (source, target) are edges."""
    drawn: set[tuple[str, str]] = set()
    for at in range(0, len(pairs), PAIRS_ASKED_MAX):
        asked = pairs[at : at + PAIRS_ASKED_MAX]
        parameters = {
            "log_id": own.log.log_id,
            "generation": own.generation,
            "sources": [source for source, _ in asked],
            "targets": [target for _, target in asked],
        }
        rows = await own.connection.execute(QUERIES["lineage_drawn"], parameters)
        drawn.update((source, target) for source, target in await rows.fetchall())
    return drawn


def _own(transaction: Transaction) -> Transaction:
    return replace(transaction, generation=-transaction.generation)
