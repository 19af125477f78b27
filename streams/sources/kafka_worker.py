# SPDX-License-Identifier: Apache-2.0
"""
Faust on Kafka: gives the messages of topics to handlers. The one place that knows Faust.

Delivery is at least once; the ids of the groups absorb duplicates. Guarantee: the offset of a message is committed only
after its groups are in the log, or it is a dead letter. Faust can lose messages in several ways, so:

- messages are acknowledged here (`noack_take`): Faust would acknowledge a batch whose agent is cancelled in it;
- keys and values are raw: Faust would skip one that cannot be decoded before any handler saw it;
- no exception leaves the agent, since Faust would commit the current message: what is unavailable is retried for as
  long as it takes, poison becomes a dead letter, and any other error ends the process with nothing acknowledged;
- there is one agent, and its topics exist before it starts;
- Faust's web server, which has no authentication, is off;
- a watchdog ends the process if messages wait and nothing is committed: some fatal errors are silent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

import faust
import psycopg
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from ledger.store.read import Log
from ledger.store.session import back_off_s
from streams.connections import connect_reading, connect_storing
from streams.errors import StreamError, TransientError
from streams.execution import handle_batch
from streams.handler import Append, Handler, Message
from streams.processing.counters import Counters
from streams.sources.watchdog import Watchdog
from streams.state import dead_letters
from streams.state.leases import handler_duty

BATCH_MESSAGES_MAX: Final = 500
BATCH_WAIT_S: Final = 0.05
COMMIT_INTERVAL_S: Final = 0.5
COMMIT_EVERY_MESSAGES: Final = 500
SESSION_TIMEOUT_S: Final = 10.0
WATCH_S: Final = 5.0
MESSAGE_SIZE_BYTES_MAX: Final = 2 * 1024 * 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A topic, the log that its messages are of, and what handles them."""

    topic: str
    log: Log
    handler: Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaWorker:
    """
    Handles the messages of `routes`; `dsn` works as the streams' role. All of it runs on the event loop of `run`, which
    alone changes `counters`.

    `group` is the consumer group, `member` this process's name in it: the same after a restart, so that its partitions
    wait for it, and no other's at the same time. `directory` is where Faust keeps files of its own.
    """

    brokers: str
    group: str
    member: str
    routes: Sequence[Route]
    dsn: str
    append: Append
    directory: Path
    counters: Counters = field(default_factory=Counters)

    async def run(self, stop: asyncio.Event, *, ready: Callable[[], None] = lambda: None) -> None:
        """
        Handle messages until `stop` is set; `ready` is called once the worker takes part in the group.

        A topic that does not exist yet is left out until the worker runs anew.

        Raises:
            StreamError: if none of the topics exists, or the worker stalls: start the process again.
            LedgerError: if the log is corrupt.
        """
        routes = await self._existing()
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        app = self._app(routes, failed)
        stopping = asyncio.create_task(stop.wait())
        watching = asyncio.create_task(self._watch(routes))
        await app.start()
        try:
            ready()
            waits: list[asyncio.Future[Any]] = [stopping, failed, watching]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for ended in (failed, watching):
                if ended.done():
                    ended.result()
        finally:
            stopping.cancel()
            watching.cancel()
            await app.stop()

    def _app(self, routes: Sequence[Route], failed: asyncio.Future[None]) -> Any:
        app = faust.App(
            self.group,
            broker=[f"kafka://{broker}" for broker in self.brokers.split(",")],
            store="memory://",
            datadir=str(self.directory),
            autodiscover=False,
            key_serializer="raw",
            value_serializer="raw",
            web_enabled=False,
            topic_disable_leader=True,
            stream_wait_empty=False,
            consumer_auto_offset_reset="earliest",
            consumer_group_instance_id=self.member,
            consumer_max_fetch_size=MESSAGE_SIZE_BYTES_MAX,
            broker_commit_interval=COMMIT_INTERVAL_S,
            broker_commit_every=COMMIT_EVERY_MESSAGES,
            broker_session_timeout=SESSION_TIMEOUT_S,
            broker_heartbeat_interval=SESSION_TIMEOUT_S / 5,
        )
        by_topic = {route.topic: route for route in routes}
        topic = app.topic(*by_topic, key_serializer="raw", value_serializer="raw")

        async def take(stream: Any) -> None:
            try:
                async for events in stream.noack_take(BATCH_MESSAGES_MAX, within=BATCH_WAIT_S):
                    await self._handle_events(by_topic, events)
                    for event in events:
                        event.ack()
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - nothing may leave an agent; whoever runs the worker gets it
                if not failed.done():
                    failed.set_exception(error)
                await asyncio.Event().wait()

        app.agent(topic, concurrency=1, name=f"{self.group}.take")(take)
        return app

    async def _handle_events(self, by_topic: Mapping[str, Route], events: Sequence[Any]) -> None:
        """Carry out a batch, topic by topic; what is away is waited for."""
        of_topic: dict[str, list[Any]] = defaultdict(list)
        for event in events:
            of_topic[event.message.topic].append(event.message)
        for topic, received in of_topic.items():
            route = by_topic[topic]
            batch = [
                Message(id=f"{topic}/{one.partition}/{one.offset}", log=route.log, value=one.value or b"")
                for one in received
            ]
            await self._until_done(route.handler, batch)

    async def _until_done(self, handler: Handler, batch: Sequence[Message]) -> None:
        failures = 0
        while True:
            try:
                await self._carry_out(handler, batch)
            except (TransientError, psycopg.OperationalError) as error:
                pause_s = back_off_s(failures)
                _log.warning("messages wait, tried again in %g s: %s", pause_s, error)
                await asyncio.sleep(pause_s)
                failures += 1
            else:
                return

    async def _carry_out(self, handler: Handler, batch: Sequence[Message]) -> None:
        async with connect_reading(self.dsn) as reading:
            outcome = await handle_batch(handler, batch, reading, self.append)
        if outcome.dead:
            async with connect_storing(self.dsn) as storing, storing.transaction():
                await dead_letters.put(storing, handler_duty(handler.name), outcome.dead)
        self.counters.messages_handled += len(batch)
        self.counters.groups_appended += outcome.groups
        self.counters.dead_letters += len(outcome.dead)

    async def _existing(self) -> Sequence[Route]:
        """Return the routes whose topic exists: of one that is made after Faust has started, it would read nothing."""
        try:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.brokers)
            try:
                await admin.start()
                known = set(await admin.list_topics())
            finally:
                await admin.close()
        except KafkaError as error:
            raise StreamError(f"Kafka at {self.brokers} cannot be reached: {error}") from error
        existing = [route for route in self.routes if route.topic in known]
        missing = ", ".join(sorted(route.topic for route in self.routes if route.topic not in known))
        if not existing:
            raise StreamError(f"expected the topics {missing or 'of tenants'}, found none of them: create one first")
        if missing:
            _log.warning("topics that do not exist are not read: %s", missing)
        return existing

    async def _watch(self, routes: Sequence[Route]) -> None:
        """
        Observe what the group has committed, with a consumer that belongs to no group.

        Raises:
            StalledError: if it commits nothing although messages wait.
        """
        watchdog = Watchdog()
        while True:
            await asyncio.sleep(WATCH_S)
            try:
                committed, end = await self._progress(routes)
            except (KafkaError, OSError):
                continue  # the brokers are away: the consumer itself waits for them
            watchdog.observe(now_s=monotonic(), committed=committed, end=end)

    async def _progress(self, routes: Sequence[Route]) -> tuple[int, int]:
        """Return how many messages the group has committed, and how many there are, over all partitions."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self.brokers)
        admin = AIOKafkaAdminClient(bootstrap_servers=self.brokers)
        try:
            await consumer.start()
            await admin.start()
            partitions = [
                TopicPartition(route.topic, number)
                for route in routes
                for number in await self._partitions(admin, route.topic)
            ]
            ends = await consumer.end_offsets(partitions)
            # What has expired needs no commit.
            begins = await consumer.beginning_offsets(partitions)
            offsets = await admin.list_consumer_group_offsets(self.group)
        finally:
            await consumer.stop()
            await admin.close()
        done = {**begins, **{tp: max(offsets[tp].offset, begins[tp]) for tp in partitions if tp in offsets}}
        return sum(done.values()), sum(ends.values())

    @staticmethod
    async def _partitions(admin: AIOKafkaAdminClient, topic: str) -> list[int]:
        (described,) = await admin.describe_topics([topic])
        return [partition["partition"] for partition in described["partitions"]]
