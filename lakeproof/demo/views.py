# SPDX-License-Identifier: Apache-2.0
"""
The acts of the read models: what graph and metrics show, and a rebuild while a reader reads.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from gateway.database import Database
from lakeproof.demo.scene_run import WRITES_MAX, SceneRun
from lakeproof.projecting import GRAPH, attest
from projections.graph.read import open_graph
from projections.graph.write import graph_name
from projections.processing.generations import rebuild


async def projections_show(run: SceneRun) -> None:
    """Query the graph and the metrics."""
    await run.projected()
    writes = await run.writes()
    refused = [write for write in writes if write.decision == "rejected"]
    if not refused or not all(write.decided_by for write in refused):
        raise AssertionError("expected the graph to know which policy refused each rejected commit")
    run.say(f"   openCypher, who wrote what, under which policy: {len(writes)} writes, such as")
    for write in (writes[0], *refused):
        said, rules = ("refused by", write.decided_by) if write.decided_by else ("judged by", write.in_force)
        named = ", ".join(f"{rule.id} v{rule.version}" for rule in rules)
        run.say(f"     {write.index}: {write.principal}, {write.operation} {write.target}")
        run.say(f"         {write.outcome or write.decision}, {said} {named}")
    shown = [
        line
        for line in (await run.api.metrics()).splitlines()
        if line.startswith("lakeproof_commits_total") and run.founded.tenant.hex in line
    ]
    if not any('decision="rejected"' in line for line in shown):
        raise AssertionError("expected /metrics to count the refused commits")
    run.say(f"   /metrics has {len(shown)} counters for this tenant, such as")
    for line in [line for line in shown if 'decision="rejected"' in line]:
        run.say(f"     {line}")


async def projection_is_rebuilt(run: SceneRun) -> None:
    """Rebuild the graph while a reader reads it."""
    services = run.serving.services
    roles = services.installation.roles
    reading = GraphReader(database=services.gateway.database, reader=run.reader, expected=len(await run.writes()))
    switched: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    reading_task = asyncio.create_task(reading.read_until(switched))
    try:
        rebuilt = await rebuild(
            services.installation.as_role(roles.projector),
            GRAPH,
            await run.log(),
            append=partial(attest, services),
            opener=services.opener,
        )
        switched.set_result(graph_name(run.founded.tenant, rebuilt.attested.generation))
        await reading_task
    finally:
        reading_task.cancel()
    if reading.gaps or len(reading.names) < 2:
        raise AssertionError(f"{reading.gaps} of {reading.reads} reads saw a gap; graphs read: {reading.names}")
    attested = rebuilt.attested
    run.say(f"   generation {rebuilt.replaced} -> {attested.generation}, from {attested.size:,} entries")
    run.say(f"   digests equal: {attested.digest}")
    run.say(f"   {reading.reads} reads of both meanwhile, none saw a gap; the attestation is in the log")


@dataclass(slots=True, kw_only=True)
class GraphReader:
    """Reads as the tenant's `reader` role; `expected` is how many writes every read must show at least."""

    database: Database
    reader: str
    expected: int
    reads: int = 0
    gaps: int = 0
    names: set[str] = field(default_factory=set)
    """The graphs that were read, by name."""

    async def read_until(self, switched: asyncio.Future[str]) -> None:
        """Read repeatedly until the graph that `switched` names has been read, too."""
        while not (switched.done() and switched.result() in self.names):
            async with self.database.as_role(self.reader) as connection:
                graph = await open_graph(connection)
                count = len(await graph.writes(limit=WRITES_MAX))
            self.names.add(graph.name)
            self.reads += 1
            self.gaps += count < self.expected
