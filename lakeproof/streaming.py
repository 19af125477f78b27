# SPDX-License-Identifier: Apache-2.0
"""
The streams of this installation: which handlers run, where the outbox leads, which queues are read.

`open_streams` wires them from services and settings; `Streams.run` runs them in whichever process: next to the gateway
in `lakeproof up`, or alone in `lakeproof streams run`. Leases keep several such processes out of each other's way.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx

from gateway.database import Database
from gateway.jobs import Job, JobKind
from lakeproof.console import say_aside
from lakeproof.ending import end_with_appender, stop_on_signals
from lakeproof.errors import first_of_group
from lakeproof.installation import Installation, open_existing_installation
from lakeproof.services import Services, now, open_services, storage_properties
from lakeproof.settings import Settings, load_settings
from lakeproof.tls_settings import gateway_trust
from lakeproof.working import Progress, jobs_of, keep_working
from projections.egress.client import open_client
from projections.exposition import format_metrics
from streams.connections import connect_reading
from streams.handler import Handler
from streams.handlers.alerts import AlertReceipt, Alerts
from streams.handlers.cloud_events import KAFKA, Publish
from streams.handlers.lineage import ReceiveLineage
from streams.handlers.observe import ObserveCommits
from streams.handlers.s3_events import ReceiveS3Events
from streams.metadata.reader import MetadataReaderPool
from streams.processing.counters import Counters
from streams.processing.replay import ReplayedLetter, ReplayResult, replay
from streams.processing.runner import HandlerRunner
from streams.processing.sender import Sender
from streams.sinks.webhook import WEBHOOK, WebhookSink
from streams.sources.poller import Poller
from streams.state.dead_letters import count_letters
from streams.state.metrics import read_metrics
from streams.state.outbox import QueuedMessage, Sink, SinkResult

if TYPE_CHECKING:  # at run time Kafka's client and S3's are imported only where they are used: an extra brings them
    from streams.sinks.kafka import KafkaSink
    from streams.sources.sqs import SqsSource


REPLAYED_MAX: Final = 200
"""Messages of a replay of which it is kept what became of them; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The streams of one process, wired; nothing runs before `run`."""

    services: Services
    runner: HandlerRunner
    sender: Sender
    queue: SqsSource | None
    poller: Poller | None
    replayed_by: Sequence[Handler]
    """The handlers of dead letters: of the logs, and of the queues and topics."""
    counters: Counters = field(default_factory=Counters)

    @property
    def dsn(self) -> str:
        """The connection string of the streams' role."""
        return streams_dsn(self.services)

    @property
    def handlers(self) -> Sequence[str]:
        """The names of the handlers that pass the logs."""
        return [handler.name for handler in self.runner.handlers]

    async def run(self, stop: asyncio.Event) -> None:
        """
        Run the streams until `stop` is set; what has begun is finished.

        Raises:
            LedgerError: if a log is corrupt.
        """
        notifier = self.services.notifier
        handling, sending = notifier.subscribe(), notifier.subscribe()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.runner.run(stop, handling), name="streams")
                tasks.create_task(self.sender.run(stop, sending), name="outbox")
                work = keep_working(jobs_of(self.services), JobKind.REPLAY, self.replay_asked, stop)
                tasks.create_task(work, name="replays")
                if self.queue is not None:
                    tasks.create_task(self.queue.run(stop), name="S3 events")
                if self.poller is not None:
                    tasks.create_task(self.poller.run(stop), name="poller")
        finally:
            notifier.unsubscribe(handling)
            notifier.unsubscribe(sending)

    async def replay_asked(self, job: Job, progress: Progress) -> Mapping[str, Any]:
        """
        Handle the dead letters again that a request has asked for, of its own log; return what became of them.
        """
        source, letter = job.asked["source"], job.asked["id"]
        async with connect_reading(self.dsn) as reading:
            counted = await count_letters(reading)
        of_log = [each for each in counted if each.log.log_id == job.log_id and source in {None, each.source}]
        total = sum(each.count for each in of_log) if letter is None else 1
        counts: dict[str, int] = {}
        replayed: list[dict[str, str]] = []
        async for each in replay(
            self.dsn, self.replayed_by, self.services.gateway.append, log_id=job.log_id, source=source, id=letter
        ):
            counts[each.result.value] = counts.get(each.result.value, 0) + 1
            if len(replayed) < REPLAYED_MAX:
                replayed.append(replayed_shown(each))
            done = sum(counts.values())
            progress.reached(done, max(done, total))
        return {"counts": counts, "letters": replayed}


def replayed_shown(replayed: ReplayedLetter) -> dict[str, str]:
    """
    Return what became of a message, as JSON, with a reason of ours: what hosts answer stays with the messages, where an
    erasure looks for it.
    """
    is_ours = replayed.result in {ReplayResult.UNKNOWN, ReplayResult.GONE}
    letter = replayed.letter
    return {
        "source": letter.source,
        "id": letter.id,
        "result": replayed.result.value,
        "reason": replayed.reason if is_ours else "",
    }


@asynccontextmanager
async def open_streams(services: Services, *, gateway: str | None = None) -> AsyncIterator[Streams]:
    """
    Yield the streams that the settings ask for; without the URL of the gateway, no catalog is polled through it.

    Raises:
        StreamError: if a URL is not of its form, or its address is not allowed.
        SettingsError: if the gateway's certificate cannot be read.
    """
    settings, append = services.installation.settings, services.gateway.append
    dsn, counters = streams_dsn(services), Counters()
    async with AsyncExitStack() as stack:
        reads = await stack.enter_async_context(MetadataReaderPool())
        sinks: list[Sink] = []
        if settings.alert_webhook is not None:
            client = await stack.enter_async_context(open_client(settings.upstreams_allowed))
            sink = WebhookSink(settings.alert_webhook, client, clock=now)
            sink.check_egress(settings.upstreams_allowed)
            sinks.append(sink)
        if settings.kafka_brokers is not None:
            sinks.append(_LateKafka(settings.kafka_brokers, settings.kafka_outbox_topic, stack))
        sender = Sender(dsn, sinks, append, receipts={WEBHOOK: AlertReceipt(clock=now)}, on_sent=counters.add_sent)
        runner = HandlerRunner(
            dsn,
            log_handlers(services.installation, reads),
            append,
            workers=settings.streams_workers,
            on_batch=counters.add_batch,
            on_outbox=services.notifier.notify,
        )
        poller = None
        if gateway is not None:
            http = await stack.enter_async_context(gateway_client(gateway, settings))
            poller = Poller(dsn, append, http=http, secrets=services.installation.secrets, clock=now)
        s3_events = ReceiveS3Events(append, warehouse=settings.warehouse, clock=now)
        yield Streams(
            services=services,
            runner=runner,
            sender=sender,
            queue=_queue(services, s3_events),
            poller=poller,
            replayed_by=(*runner.handlers, s3_events, ReceiveLineage(clock=now, random=os.urandom)),
            counters=counters,
        )


def gateway_client(url: str, settings: Settings) -> httpx.AsyncClient:
    """Return a client of our own gateway, reached as it is, whatever proxy the environment names for others."""
    trust = gateway_trust(settings)
    if trust is None:
        return httpx.AsyncClient(base_url=url, timeout=settings.upstream_timeout_s, trust_env=False)

    async def refresh(_: httpx.Request) -> None:
        await asyncio.to_thread(trust.refresh)

    return httpx.AsyncClient(
        base_url=url,
        timeout=settings.upstream_timeout_s,
        trust_env=False,
        verify=trust.context,
        event_hooks={"request": [refresh]},
    )


def log_handler_names(installation: Installation) -> Sequence[str]:
    """
    Return the names of the handlers that pass the logs.
    """
    return [handler.name for handler in log_handlers(installation, MetadataReaderPool())]


def log_handlers(installation: Installation, reads: MetadataReaderPool) -> Sequence[Handler]:
    """
    Return the handlers that pass the logs, as the settings ask for them; they read metadata files by `reads`.
    """
    settings = installation.settings
    handlers: list[Handler] = [
        Alerts(clock=now, sink=None if settings.alert_webhook is None else WEBHOOK),
        ObserveCommits(
            warehouse=settings.warehouse,
            ours=storage_properties(settings),
            secrets=installation.secrets,
            egress=settings.upstreams_allowed,
            clock=now,
            reads=reads,
        ),
    ]
    if settings.kafka_brokers is not None:
        handlers.append(Publish())
    return handlers


def gateway_url(settings: Settings) -> str | None:
    """
    Return where the gateway of this installation listens; None if its port is any free one.
    """
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{settings.scheme}://{host}:{settings.port}" if settings.port else None


def streams_dsn(services: Services) -> str:
    """
    Return the connection string of the streams' role.
    """
    installation = services.installation
    return installation.as_role(installation.roles.streams)


async def streams_metrics_text(database: Database, role: str, services: Services) -> str:
    """
    Return the streams' metrics over all logs that `role` may see, as Prometheus scrapes them.

    Raises:
        UnavailableError: if the database cannot be reached.
    """
    async with database.as_role(role) as connection:
        return format_metrics(await read_metrics(connection, log_handler_names(services.installation)))


async def run_until_signal(streams: Streams) -> Counters:
    """Run the streams, and the notifier that wakes them, until SIGINT or SIGTERM; return what they did."""
    stop = asyncio.Event()
    with stop_on_signals(stop):
        notifier = asyncio.create_task(streams.services.notifier.run(), name="notifications")
        try:
            await streams.run(stop)
        except ExceptionGroup as group:
            raise first_of_group(group) from group
        finally:
            notifier.cancel()
    return streams.counters


async def consume_until_signal(streams: Streams, member: str) -> Counters:
    """Take lineage from Kafka until SIGINT or SIGTERM; see `lakeproof.consuming.consume`."""
    from lakeproof.consuming import consume  # here: Faust is slow to import, and no other command needs it

    stop = asyncio.Event()
    with stop_on_signals(stop):
        return await consume(streams.services, member, stop)


@asynccontextmanager
async def open_home_streams() -> AsyncIterator[Streams]:
    """Yield the streams of the home's installation; see `open_existing_installation` for what it raises."""
    # Opening blocks the loop, on which nothing else runs yet.
    settings = load_settings(os.environ, directory=Path.cwd())
    with open_existing_installation(settings, say_aside) as installation:
        gateway = gateway_url(settings)
        async with (
            open_services(installation) as services,
            end_with_appender(services.appender),
            open_streams(services, gateway=gateway) as streams,
        ):
            yield streams


def _queue(services: Services, handler: ReceiveS3Events) -> SqsSource | None:
    settings = services.installation.settings
    if settings.s3_events_queue is None:
        return None
    from streams.sources.sqs import SqsQueue, SqsSource

    queue = SqsQueue(
        settings.s3_events_queue,
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        access_key_id=settings.s3_access_key_id,
        secret_access_key=settings.s3_secret_access_key,
    )
    return SqsSource(streams_dsn(services), queue, handler, services.gateway.append)


class _LateKafka:
    """The sink to Kafka, which connects when there is something to send: brokers that are away stop nothing else."""

    name: str = KAFKA

    def __init__(self, brokers: str, topic: str, stack: AsyncExitStack) -> None:
        from streams.sinks.kafka import KafkaSink

        self.batch_max: int = KafkaSink.batch_max
        self._brokers = brokers
        self._topic = topic
        self._stack = stack
        self._sink: KafkaSink | None = None

    async def send(self, messages: Sequence[QueuedMessage]) -> Sequence[SinkResult]:
        """
        Send messages (see `KafkaSink`).

        Raises:
            TransientError: if the brokers cannot be reached.
        """
        if self._sink is None:
            from streams.sinks.kafka import open_kafka_sink

            self._sink = await self._stack.enter_async_context(open_kafka_sink(self._brokers, self._topic))
        return await self._sink.send(messages)
