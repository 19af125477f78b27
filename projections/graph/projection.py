"""
The graph as a projection: what `model.py` says of the entries, written by `write.py`, one graph a generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from projections.digest import GenerationDigest
from projections.entries import LogEntry
from projections.errors import NotProjectedError
from projections.graph.model import changes_of
from projections.graph.write import create_graph, digest_graph, drop_graph, graph_name, write_changes
from projections.projection import Transaction

GRAPH: Final = "graph"
GRAPH_VERSION: Final = 1


class GraphProjection:
    """Who wrote what, under which policy: a property graph a tenant (implements `Projection`)."""

    name: str = GRAPH
    version: int = GRAPH_VERSION

    async def prepare(self, transaction: Transaction) -> None:
        """Make the empty graph, readable by the tenant's reader role."""
        log = transaction.log
        if log.reader is None:
            raise NotProjectedError(f"log {log.origin}: expected a tenant's log with a reader role, found none")
        await create_graph(transaction.connection, _graph(transaction), reader=log.reader)

    async def apply(self, entries: Sequence[LogEntry], transaction: Transaction) -> None:
        """Write what the entries mean."""
        await write_changes(transaction.connection, _graph(transaction), changes_of(entries))

    async def digest(self, transaction: Transaction) -> bytes:
        """Return the digest of all vertices and edges by natural keys."""
        digest = GenerationDigest(projection=self.name, version=self.version)
        await digest_graph(transaction.connection, _graph(transaction), digest)
        return digest.digest()

    async def drop(self, transaction: Transaction) -> None:
        """Drop the graph."""
        await drop_graph(transaction.connection, _graph(transaction))


def _graph(transaction: Transaction) -> str:
    log = transaction.log
    if log.tenant is None:
        raise NotProjectedError(f"log {log.origin}: expected a tenant's log, found one without a tenant")
    return graph_name(log.tenant, transaction.generation)
