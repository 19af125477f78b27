# SPDX-License-Identifier: Apache-2.0
"""
Takes lineage from Kafka: one topic per tenant, so Kafka's own rights decide who may send lineage for whom.

It runs in a process of its own (`lakeproof streams consume`), because some faults of a consumer group need a new
process. Several processes, each with its own name, share the work.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from lakeproof.errors import SettingsError
from lakeproof.services import Services, now
from streams.handlers.lineage import ReceiveLineage, append_once
from streams.processing.counters import Counters
from streams.sources.kafka_worker import KafkaWorker, Route

GROUP: Final = "lakeproof-lineage"
FOLDER: Final = "faust"
TENANTS_S: Final = 30.0
"""How often new tenants are looked for; with one, the worker restarts to read its topic, too."""


async def consume(services: Services, member: str, stop: asyncio.Event) -> Counters:
    """
    Take lineage from the topics of all tenants until `stop` is set; return what was taken.

    Raises:
        SettingsError: if no Kafka is configured.
        StreamError: if no topic can be read, or the consumer stalls: start the process again.
        LedgerError: if a log is corrupt.
    """
    settings, installation = services.installation.settings, services.installation
    if settings.kafka_brokers is None:
        raise SettingsError("LAKEPROOF_KAFKA_BROKERS is not set: name the brokers that lineage is taken from")
    counters = Counters()
    handler = ReceiveLineage(clock=now, random=os.urandom)
    while not stop.is_set():
        logs = [log for log in await services.logs() if log.tenant is not None]
        routes = [
            Route(topic=f"{settings.kafka_lineage_topic}.{log.tenant.hex}", log=log, handler=handler)
            for log in logs
            if log.tenant is not None
        ]
        worker = KafkaWorker(
            brokers=settings.kafka_brokers,
            group=GROUP,
            member=member,
            routes=routes,
            dsn=installation.as_role(installation.roles.streams),
            append=append_once(services.gateway.append, now),
            directory=settings.home / FOLDER / member,
            counters=counters,
        )
        over = asyncio.Event()
        watching = asyncio.create_task(_until_changed(services, len(logs), stop, over))
        try:
            await worker.run(over)
        finally:
            watching.cancel()
    return counters


async def _until_changed(services: Services, known: int, stop: asyncio.Event, over: asyncio.Event) -> None:
    """Set `over` when `stop` is set, or the number of tenants has changed."""
    stopping = asyncio.create_task(stop.wait())
    try:
        while not stopping.done():
            await asyncio.wait([stopping], timeout=TENANTS_S)
            if len([log for log in await services.logs() if log.tenant is not None]) != known:
                break
    finally:
        stopping.cancel()
        over.set()
