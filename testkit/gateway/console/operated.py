# SPDX-License-Identifier: Apache-2.0
"""A tenant with something to look after: tables, findings, lineage and dead letters; and who does the work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.jobs import JobKind
from lakeproof.services import Services
from lakeproof.serving.asked_work import evidence_for, policy_replay_for, rebuild_for
from lakeproof.streaming import open_streams
from ledger.store.read import Log
from streams.connections import connect_storing
from streams.handler import DeadLetter, Message
from streams.state.dead_letters import put
from testkit.gateway.jobs import doing, files_of
from testkit.gateway.two_views import TwoViews, open_two_views
from testkit.servers.forked_workers import fork_worker
from testkit.servers.gateways import Gateway, app_of, keep_signing

REASON = "expected JSON, found '<script>alert(1)</script>' at byte 0: send the message again as the specification says"


@asynccontextmanager
async def open_operated(services: Services) -> AsyncIterator[TwoViews]:
    """Yield the tenant; jobs that are asked for are done meanwhile, and its logs are signed."""
    app = app_of(services.gateway, installation=services.installation)
    async with open_two_views(services, app) as views, keep_signing(views.gateway), open_streams(services) as streams:
        works = {
            JobKind.EVIDENCE: evidence_for(services, files_of(services)),
            JobKind.REBUILD: rebuild_for(services),
            JobKind.REPLAY: streams.replay_asked,
            JobKind.POLICY_REPLAY: policy_replay_for(services, spawn=fork_worker),
        }
        async with doing(services, works):
            yield views


async def give_up(gateway: Gateway, source: str, *ids: str) -> None:
    """Put messages among the dead letters of a source."""
    log = await log_of(gateway)
    dead = [DeadLetter(message=Message(id=id_, log=log, value=b"<script>"), reason=REASON, attempts=3) for id_ in ids]
    installation = gateway.services.installation
    dsn = installation.as_role(installation.roles.streams)
    async with connect_storing(dsn) as connection, connection.transaction():
        await put(connection, source, dead)


async def log_of(gateway: Gateway) -> Log:
    """The log of the gateway's tenant."""
    (log,) = [each for each in await gateway.services.logs() if each.log_id == gateway.acme.log_id]
    return log
