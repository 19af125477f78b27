# SPDX-License-Identifier: Apache-2.0
"""
The graph as a projection: what `model.py` says of the entries, written by `write.py`, one graph a generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from projections.entries import PRINCIPAL, LogEntry
from projections.errors import NotProjectedError
from projections.graph.lineage import draw_lineage, drop_lineage, prepare_lineage
from projections.graph.model import changes_of
from projections.graph.write import (
    create_graph,
    digest_graph,
    drop_graph,
    graph_name,
    read_table_uuids,
    read_things,
    write_changes,
)
from projections.processing.digest import GenerationDigest
from projections.processing.projection import Transaction
from projections.relational.table_names import drop_names, lookups_of, read_names, write_names

GRAPH: Final = "graph"
GRAPH_VERSION: Final = 5


class GraphProjection:
    """Who wrote what, under which policy: a property graph a tenant (implements `Projection`)."""

    name: str = GRAPH
    version: int = GRAPH_VERSION
    part: str | None = PRINCIPAL

    async def prepare(self, transaction: Transaction) -> None:
        """Make the empty graph, readable by the tenant's reader role."""
        log = transaction.log
        if log.reader is None:
            raise NotProjectedError(f"log {log.origin}: expected a tenant's log with a reader role, found none")
        await create_graph(transaction.connection, _graph(transaction), reader=log.reader)
        await prepare_lineage(transaction)

    async def apply(self, entries: Sequence[LogEntry], transaction: Transaction) -> None:
        """Write what the entries mean."""
        connection, graph = transaction.connection, _graph(transaction)
        lineage = await draw_lineage(entries, transaction)
        named = {key for resolved in lineage.values() for key in resolved.keys if key.startswith("table:")}
        stored_uuids = await read_table_uuids(connection, graph, named)
        names = await read_names(transaction, GRAPH, lookups_of(entries))
        changing = names.changing(entries)
        late = {each.table_uuid for each in changing or () if each.is_known}
        stored_things = await read_things(connection, graph, late)
        changes = changes_of(
            entries,
            lineage=lineage,
            stored_uuids=stored_uuids,
            names=names,
            names_change=changing is not None,
            stored_things=stored_things,
        )
        await write_changes(connection, graph, changes)
        await write_names(transaction, GRAPH, names)

    async def digest(self, transaction: Transaction) -> bytes:
        """Return the digest of all vertices and edges by natural keys."""
        digest = GenerationDigest(projection=self.name, version=self.version)
        await digest_graph(transaction.connection, _graph(transaction), digest)
        return digest.digest()

    async def drop(self, transaction: Transaction) -> None:
        """Drop the graph."""
        await drop_graph(transaction.connection, _graph(transaction))
        await drop_lineage(transaction)
        await drop_names(transaction, GRAPH)


def _graph(transaction: Transaction) -> str:
    log = transaction.log
    if log.tenant is None:
        raise NotProjectedError(f"log {log.origin}: expected a tenant's log, found one without a tenant")
    return graph_name(log.tenant, transaction.generation)
