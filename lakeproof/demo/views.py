"""
The acts of the read models: what graph and metrics show, and a rebuild under the eyes of a reader.
"""

from __future__ import annotations

import asyncio
from functools import partial

from lakeproof.demo.onlooker import Onlooker
from lakeproof.demo.stage import Stage
from lakeproof.projecting import GRAPH, attest
from projections.graph.write import graph_name
from projections.processing.generations import rebuild


async def projections_show(stage: Stage) -> None:
    """Ask the graph and the metrics."""
    await stage.projected()
    writes = await stage.writes()
    refused = [write for write in writes if write.decision == "rejected"]
    if not refused or not all(write.decided_by for write in refused):
        raise AssertionError("expected the graph to know which policy refused each rejected commit")
    stage.say(f"   openCypher, who wrote what, under which policy: {len(writes)} writes, such as")
    for write in (writes[0], *refused):
        said, rules = ("refused by", write.decided_by) if write.decided_by else ("judged by", write.in_force)
        named = ", ".join(f"{rule.id} v{rule.version}" for rule in rules)
        stage.say(f"     {write.index}: {write.principal}, {write.operation} {write.target}")
        stage.say(f"         {write.outcome or write.decision}, {said} {named}")
    shown = [
        line
        for line in (await stage.api.metrics()).splitlines()
        if line.startswith("lakeproof_commits_total") and stage.founded.tenant.hex in line
    ]
    if not any('decision="rejected"' in line for line in shown):
        raise AssertionError("expected /metrics to count the refused commits")
    stage.say(f"   /metrics has {len(shown)} counters for this tenant, such as")
    for line in [line for line in shown if 'decision="rejected"' in line]:
        stage.say(f"     {line}")


async def projection_is_rebuilt(stage: Stage) -> None:
    """Rebuild the graph while a reader reads it."""
    services = stage.serving.services
    roles = services.installation.roles
    onlooker = Onlooker(database=services.gateway.database, reader=stage.reader, expected=len(await stage.writes()))
    switched: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    looking = asyncio.create_task(onlooker.look_until(switched))
    try:
        rebuilt = await rebuild(
            services.installation.as_role(roles.projector),
            GRAPH,
            await stage.log(),
            append=partial(attest, services),
            opener=services.opener,
        )
        switched.set_result(graph_name(stage.founded.tenant, rebuilt.attested.generation))
        await looking
    finally:
        looking.cancel()
    if onlooker.gaps or len(onlooker.names) < 2:
        raise AssertionError(f"{onlooker.gaps} of {onlooker.reads} reads saw a gap; graphs read: {onlooker.names}")
    attested = rebuilt.attested
    stage.say(f"   generation {rebuilt.replaced} -> {attested.generation}, from {attested.size:,} entries")
    stage.say(f"   digests equal: {attested.digest}")
    stage.say(f"   {onlooker.reads} reads of both meanwhile, none saw a gap; the attestation is in the log")
