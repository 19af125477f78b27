"""
A reader who looks at a tenant's graph without a pause while it is rebuilt, and counts what is missing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from gateway.database import Database
from projections.graph.read import open_graph

WRITES_MAX = 1_000


@dataclass(slots=True, kw_only=True)
class Onlooker:
    """Reads as the tenant's `reader` role; `expected` is how many writes every read must show at least."""

    database: Database
    reader: str
    expected: int
    reads: int = 0
    gaps: int = 0
    names: set[str] = field(default_factory=set)
    """The graphs that were read, by name."""

    async def look_until(self, switched: asyncio.Future[str]) -> None:
        """Read again and again, until the graph that `switched` names has been read as well."""
        while not (switched.done() and switched.result() in self.names):
            async with self.database.as_role(self.reader) as connection:
                graph = await open_graph(connection)
                count = len(await graph.writes(limit=WRITES_MAX))
            self.names.add(graph.name)
            self.reads += 1
            self.gaps += count < self.expected
