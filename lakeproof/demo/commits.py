# SPDX-License-Identifier: Apache-2.0
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
from lakeproof.demo.scene_run import SceneRun
from lakeproof.demo.timing import time_requests
from lakeproof.projecting import PROJECTIONS
from lakeproof.tenants import found_tenant
from ledger.store.read import read_head


async def start(run: SceneRun) -> None:
    """Found `demo-<n>`."""
    services = run.serving.services
    run.earlier = [log for log in await services.logs() if log.tenant is not None]
    name = f"demo-{len(run.earlier) + 1}"
    run.tenant = await found_tenant(
        services, name=name, identity="dana@example.com", roles=["data-eng"], alias=engine.ALIAS
    )
    await run.projected()
    system = services.system
    async with services.gateway.database.as_role(services.installation.roles.auditor) as connection:
        size = (await read_head(connection, system.log_id)).size
    key = services.installation.verifier_key(system.origin)
    run.say(f"   system log {system.origin}, {size} entries; signing key {key.key_id.hex()}")
    run.say(f"   tenant {name}, log {run.tenant.origin}")
    projections = ", ".join(projection.name for projection in PROJECTIONS)
    run.say(f"   gateway {run.serving.url}, catalog {engine.ALIAS!r}; projections {projections}")


async def engine_commits(run: SceneRun) -> None:
    """Write and read with PyIceberg."""
    written = await asyncio.to_thread(engine.write_and_read, run.client())
    waits = await time_requests(run.client())
    head = await run.head()
    run.say(
        "   3 namespaces, 3 tables (one staged), a schema change, an overwrite, a delete: "
        f"{written.snapshots} snapshots"
    )
    run.say(f"   read back {written.orders:,} orders and {written.customers:,} customers, as written")
    run.say(f"   a load took {waits.load_ms:.1f} ms, a small commit {waits.commit_ms:.1f} ms (medians)")
    run.say(f"   the log has {head:,} entries")


async def policy_refuses(run: SceneRun) -> None:
    """Register P1 and P2, break each, and try to save P3."""
    for policy in (TENANT_ID, FINANCE):
        await run.api.create("/v1/policies", policy)
        run.say(f"   policy {policy['id']} is in force: {policy['message']}")
    await run.api.create("/v1/access-rules", ANALYSTS)
    issued = await run.api.create("/v1/keys", {"identity": "alex@example.com", "roles": ["analyst"]})
    said = await asyncio.to_thread(engine.drop_tenant_id, run.client())
    run.say(f"   dropping sales.orders.tenant_id: 403, {said}; the table is unchanged")
    analyst = Client(url=run.serving.url, key=issued["secret"])
    said = await asyncio.to_thread(engine.write_budgets, analyst)
    run.say(f"   an analyst writing finance.budgets: 403, {said}; the table is unchanged")
    said = await run.api.refused("/v1/policies", BROKEN, status=422)
    run.say(f"   policy {BROKEN['id']} was not saved: {said}")
    await run.projected()
    rejected = [write.index for write in await run.writes() if write.decision == "rejected"]
    if len(rejected) != 2:
        raise AssertionError(f"expected 2 rejected commits in the log, found {len(rejected)}")
    run.refused_index = rejected[-1]
    run.say(f"   both refusals are in the log, entries {rejected[-1]} and {rejected[0]}")


async def clients_race(run: SceneRun) -> None:
    """Let two clients append to one table at once."""
    client = run.client()
    before = await asyncio.to_thread(engine.count_orders, client)
    first = await run.head()
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
    await run.projected()
    outcomes = Counter(write.outcome or write.decision for write in await run.writes() if write.index >= first)
    if outcomes["accepted"] != landed or outcomes["conflicted"] < conflicts:
        raise AssertionError(f"expected {landed} accepted and {conflicts} or more conflicted commits, found {outcomes}")
    run.say(f"   {landed} commits landed, {after:,} orders, none lost")
    run.say(
        f"   the log has them: {outcomes['accepted']} accepted, {outcomes['conflicted']} conflicted; those were "
        "answered 409, and the client loaded the table again"
    )
