# SPDX-License-Identifier: Apache-2.0
"""
A process that takes lineage from Kafka into the log, for tests that kill it. Arguments: one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from psycopg import AsyncConnection

from lakeproof.provision import Provisioned
from ledger.append.appender import Appender
from ledger.format.guards import GuardRegistry
from ledger.store.read import find_log
from ledger.store.roles import Roles
from streams.handlers.lineage import ReceiveLineage, append_once
from streams.sources.kafka_worker import KafkaWorker, Route


def now() -> datetime:
    return datetime.now(UTC)


async def main(arguments: dict[str, str]) -> None:
    installation = Provisioned(
        id=arguments["installation"],
        authority=arguments["authority"],
        roles=Roles(arguments["installation"]),
        dsn=arguments["dsn"],
    )
    dsn = installation.as_role(installation.roles.streams)
    async with await AsyncConnection.connect(dsn) as connection:
        log = await find_log(connection, arguments["origin"])
    handler = ReceiveLineage(clock=now, random=os.urandom)
    async with Appender(installation.as_role(installation.roles.appender), GuardRegistry([])) as appender:
        worker = KafkaWorker(
            brokers=arguments["brokers"],
            group=arguments["group"],
            member=arguments["member"],
            routes=(Route(topic=arguments["topic"], log=log, handler=handler),),
            dsn=dsn,
            append=append_once(appender.append, now),
            directory=Path(arguments["directory"]),
        )
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
        await worker.run(stop, ready=lambda: print("ready", flush=True))  # noqa: T201 - read by the test
        counters = worker.counters
        print(json.dumps([counters.messages_handled, counters.dead_letters]), flush=True)  # noqa: T201 - read by the test


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
