"""
The first acts: a tenant is founded, an engine commits, policies refuse, two clients race.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from threading import Barrier

from lakeproof.demo import engine
from lakeproof.demo.api import ANALYSTS, BROKEN, FINANCE, TENANT_ID
from lakeproof.demo.engine import Client
from lakeproof.demo.stage import Stage
from lakeproof.projecting import PROJECTIONS
from lakeproof.tenants import found_tenant
from ledger.store.read import read_head


async def start(stage: Stage) -> None:
    """Found `demo-<n>`."""
    services = stage.serving.services
    stage.earlier = [log for log in await services.logs() if log.tenant is not None]
    name = f"demo-{len(stage.earlier) + 1}"
    stage.tenant = await found_tenant(
        services, name=name, identity="dana@example.com", roles=["data-eng"], alias=engine.ALIAS
    )
    await stage.projected()
    system = services.system
    async with services.gateway.database.as_role(services.installation.roles.auditor) as connection:
        told = (await read_head(connection, system.log_id)).size
    key = services.installation.verifier_key(system.origin)
    stage.say(f"   system log {system.origin}, {told} entries; signing key {key.key_id.hex()}")
    stage.say(f"   tenant {name}, log {stage.tenant.origin}")
    projections = ", ".join(projection.name for projection in PROJECTIONS)
    stage.say(f"   gateway {stage.serving.url}, catalog {engine.ALIAS!r}; projections {projections}")


async def engine_commits(stage: Stage) -> None:
    """Write and read with PyIceberg."""
    written = await asyncio.to_thread(engine.write_and_read, stage.client())
    head = await stage.head()
    stage.say(
        "   3 namespaces, 3 tables (one staged), a schema change, an overwrite, a delete: "
        f"{written.snapshots} snapshots"
    )
    stage.say(f"   read back {written.orders:,} orders and {written.customers:,} customers, as written")
    stage.say(f"   the log has {head:,} entries")


async def policy_refuses(stage: Stage) -> None:
    """Register P1 and P2, break each, and try to save P3."""
    for policy in (TENANT_ID, FINANCE):
        await stage.api.create("/v1/policies", policy)
        stage.say(f"   policy {policy['id']} is in force: {policy['message']}")
    await stage.api.create("/v1/access-rules", ANALYSTS)
    issued = await stage.api.create("/v1/keys", {"identity": "alex@example.com", "roles": ["analyst"]})
    said = await asyncio.to_thread(engine.drop_tenant_id, stage.client())
    stage.say(f"   dropping sales.orders.tenant_id: 403, {said}; the table is unchanged")
    analyst = Client(url=stage.serving.url, key=issued["secret"])
    said = await asyncio.to_thread(engine.write_budgets, analyst)
    stage.say(f"   an analyst writing finance.budgets: 403, {said}; the table is unchanged")
    said = await stage.api.refused("/v1/policies", BROKEN, status=422)
    stage.say(f"   policy {BROKEN['id']} was not saved: {said}")
    await stage.projected()
    rejected = [write.index for write in await stage.writes() if write.decision == "rejected"]
    if len(rejected) != 2:
        raise AssertionError(f"expected 2 rejected commits in the log, found {len(rejected)}")
    stage.refused_index = rejected[-1]
    stage.say(f"   both refusals are in the log, entries {rejected[-1]} and {rejected[0]}")


async def clients_race(stage: Stage) -> None:
    """Let two clients append to one table at once."""
    client = stage.client()
    before = await asyncio.to_thread(engine.count_orders, client)
    first = await stage.head()
    racers = (engine.Racer(), engine.Racer())
    start_together = Barrier(len(racers))
    await asyncio.gather(
        *(
            asyncio.to_thread(racer.race, client, 100_000 * (number + 1), start_together)
            for number, racer in enumerate(racers)
        )
    )
    after = await asyncio.to_thread(engine.count_orders, client)
    landed, conflicts = sum(racer.landed for racer in racers), sum(racer.conflicts for racer in racers)
    if after != before + landed * engine.RACE_ROWS:
        raise AssertionError(f"expected {before + landed * engine.RACE_ROWS} orders, found {after}")
    await stage.projected()
    told = Counter(write.outcome or write.decision for write in await stage.writes() if write.index >= first)
    if told["accepted"] != landed or told["conflicted"] < conflicts:
        raise AssertionError(f"expected {landed} accepted and {conflicts} or more conflicted commits, found {told}")
    stage.say(f"   {landed} commits landed, {after:,} orders, none lost")
    stage.say(
        f"   the log tells it: {told['accepted']} accepted, {told['conflicted']} conflicted; those were answered 409, "
        "and the client loaded the table again"
    )
