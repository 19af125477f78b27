# SPDX-License-Identifier: Apache-2.0
"""
`lakeproof up`: one process that serves everything, as tasks on one event loop, until a signal stops it.

The gateway listens before the process says that it is ready. A task that meets corruption ends the process: people must
decide what to do with a damaged log. So does an appender that can append no more. After Ctrl-C and SIGTERM, requests
that have begun are finished, then the tasks stop in order.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address

import uvicorn

from gateway.commit.large_requests import SWITCH_INTERVAL_S
from gateway.commit.metrics import Measures
from gateway.http.app import create_app
from gateway.http.server.clients import Proxies
from gateway.http.server.configuration import server_config
from gateway.http.server.connections import Bounds, Connections
from gateway.reconcile.reconciler import Reconciler
from lakeproof.anchor_settings import NOT_PUBLISHED, is_published_outside
from lakeproof.detecting import keep_detecting
from lakeproof.ending import stop_on_signals
from lakeproof.erasing import erase_again, keep_erasing
from lakeproof.errors import ServerError, first_of_group
from lakeproof.installation import open_installation
from lakeproof.messages import Say
from lakeproof.projecting import PROJECTIONS
from lakeproof.services import Services, now, open_services
from lakeproof.serving.anchoring import open_anchoring
from lakeproof.serving.former_rules import warn_of_doubtful_rules
from lakeproof.serving.garbage_collection import short_collections
from lakeproof.serving.metrics import read_metrics
from lakeproof.serving.policy_engine import STARTED_WITHIN_S, start_policy_engine
from lakeproof.serving.publishing import open_publisher
from lakeproof.serving.system_log import record_in_system_log
from lakeproof.serving.upgrading import replace_older
from lakeproof.settings import Settings
from lakeproof.signing import open_signer
from lakeproof.streaming import open_streams
from projections.lineage.cycle_events import keep_appending_cycles
from projections.lineage.projection import LINEAGE
from projections.processing.runner import ProjectionRunner
from spark_detect.driver.supervise import DetectionState

BACKLOG = 1024
"""Connections that the system accepts before we do."""
WITHOUT_TLS = (
    "warning: the gateway listens on {host} without TLS, so whoever is on the way to it reads its clients' keys and "
    "can use them: put a proxy with TLS in front of it, and set LAKEPROOF_HOST to 127.0.0.1, or to an address that "
    "only the proxy reaches"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A process that serves: the URL of its gateway, and the event that stops it."""

    url: str
    stop: asyncio.Event
    services: Services
    runner: ProjectionRunner
    detection: DetectionState = field(default_factory=DetectionState)
    """The state of detection in this process."""


@asynccontextmanager
async def serving(
    services: Services, say: Say = lambda _: None, *, measures: Measures | None = None
) -> AsyncIterator[Serving]:
    """
    Serve everything while the context is open; `measures` replaces the gateway's own.

    Raises:
        ServerError: if the gateway's port is in use.
        SettingsError: if the witness policy, the roots of the time-stamping authority or a place to publish to cannot
            be used.
        LedgerError, ProjectionError: if a task met corruption, or the appender has ended.
    """
    settings = services.installation.settings
    with closing(listen(settings.host, settings.port)) as listener:
        if not ip_address(listener.getsockname()[0]).is_loopback:
            say(WITHOUT_TLS.format(host=settings.host))
        await services.gateway.catalogs.files.prepare(settings.warehouse)
        async with _serving_on(listener, services, say, measures or Measures()) as served:
            yield served


@asynccontextmanager
async def _serving_on(
    listener: socket.socket, services: Services, say: Say, measures: Measures
) -> AsyncIterator[Serving]:
    settings, installation = services.installation.settings, services.installation
    projector = installation.as_role(installation.roles.projector)
    decided = asyncio.Event()  # set when lineage was projected: there may be new cycles to report
    runner = ProjectionRunner(
        projector,
        PROJECTIONS,
        opener=services.opener,
        on_applied=lambda name, _: decided.set() if name == LINEAGE else None,
    )
    reconciler = Reconciler(services.gateway)
    signer = await open_signer(services.installation)
    await signer.sign_once()  # first: the appender accepts nothing before the logs are confirmed
    again = await erase_again(services)
    if again.erasures:
        say(f"{again.erasures} erasures were repeated: this database did not have them")
    for origin, error in {**again.failed, **signer.unconfirmed}.items():
        effect = "accepts no entries until they are" if origin in signer.unconfirmed else "accepts entries all the same"
        say(f"erasures of {origin} could not be repeated, and the log {effect}: {error}")
    for (tenant, alias), reason in services.gateway.catalogs.contested.items():
        say(
            f"catalog {alias} of tenant {tenant.hex} is not served: {reason}; move the place "
            "(lakeproof catalogs transfer) or retire the catalog, then start again"
        )
    await record_in_system_log(services, signer.keys)
    app = create_app(
        services.gateway,
        measures=measures,
        metrics=lambda: read_metrics(services),
        metrics_token=settings.metrics_token,
    )
    server = Server(server_config(app, _connections(settings, measures)))
    stop, detection = asyncio.Event(), DetectionState()
    bells = [services.notifier.subscribe() for _ in range(2)]
    try:
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            log_id, within_s = services.system.log_id, STARTED_WITHIN_S
            starting = start_policy_engine(services.engine, say, log_id=log_id, within_s=within_s)
            judging = tasks.create_task(starting, name="policy engine")
            await asyncio.wait([judging], timeout=STARTED_WITHIN_S)
            watching = tasks.create_task(services.appender.ended(), name="appender watched")
            notifier = tasks.create_task(services.notifier.run(), name="notifications")
            tasks.create_task(runner.run(stop, bells[0]), name="projections")
            tasks.create_task(
                keep_appending_cycles(projector, services.gateway.append, stop, decided, clock=now), name="cycles"
            )
            tasks.create_task(reconciler.run(stop, bells[1]), name="reconciler")
            tasks.create_task(signer.run(stop, interval_s=settings.checkpoint_interval_s), name="signer")
            tasks.create_task(keep_erasing(services, stop), name="erasures")
            anchoring = await stack.enter_async_context(open_anchoring(services))
            tasks.create_task(anchoring.run(stop), name="anchoring")
            tasks.create_task(open_publisher(services).run(stop), name="publishing")
            tasks.create_task(warn_of_doubtful_rules(services, say), name="doubtful rules")
            upgrading = tasks.create_task(replace_older(services, runner, PROJECTIONS), name="upgrading")
            if settings.streams:
                streams = await stack.enter_async_context(open_streams(services, gateway=_url(listener)))
                tasks.create_task(streams.run(stop), name="streams")
            if settings.detect:
                tasks.create_task(keep_detecting(services, stop, say, detection), name="detection")
            gateway = tasks.create_task(server.serve([listener]), name="gateway")
            try:
                url = _url(listener)
                yield Serving(url=url, stop=stop, services=services, runner=runner, detection=detection)
            finally:
                stop.set()
                server.should_exit = True
                await asyncio.wait([gateway])
            # Not after an error: the group cancels them then, and a second cancel would interrupt their clean-up.
            for endless in (upgrading, notifier, watching, judging):
                endless.cancel()
    except ExceptionGroup as group:
        # One task failed; the others were cancelled because of it.
        raise first_of_group(group) from group
    finally:
        for bell in bells:
            services.notifier.unsubscribe(bell)


def _connections(settings: Settings, measures: Measures) -> Connections:
    bounds = Bounds(
        connections_max=settings.connections_max,
        connections_per_peer_max=settings.connections_per_address_max,
        head_timeout_s=settings.head_timeout_s,
        idle_timeout_s=settings.idle_timeout_s,
        stall_timeout_s=settings.stall_timeout_s,
        rate_min_bytes_per_s=settings.rate_min_bytes_per_s,
        drain_timeout_s=settings.drain_timeout_s,
        drain_bytes_max=2 * settings.body_max_bytes,
    )
    connections = Connections(
        bounds=bounds, proxies=Proxies(networks=settings.trusted_proxies), on_refused=measures.connection_refused
    )
    measures.watch_connections(lambda: connections.count)
    return connections


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def run_up(settings: Settings, say: Say) -> None:
    """
    Serve until SIGINT or SIGTERM.

    Raises:
        LakeproofError: if the server, the database or the port cannot be had.
        LedgerError, ProjectionError: if a task met corruption.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    listen(settings.host, settings.port).close()  # before a database is made for a gateway that cannot listen
    with open_installation(settings, say) as installation:
        async with open_services(installation) as services, serving(services, say) as served:
            with stop_on_signals(served.stop), short_collections():
                if not is_published_outside(settings):
                    say(NOT_PUBLISHED)
                say(f"the gateway listens on {served.url}; Ctrl-C stops it")
                await served.stop.wait()
                say("stopping")


def listen(host: str, port: int) -> socket.socket:
    """
    Return a socket that listens on `host` and `port`.

    Raises:
        ServerError: if that address is in use or not this machine's.
    """
    with ExitStack() as stack:
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            # With TCP named: connections accepted from a socket of protocol 0 are not known to asyncio as TCP's, which
            # then leaves Nagle's algorithm on, and each answer over a kept connection waits for a delayed ACK (40 ms).
            listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            raise ServerError(
                f"the gateway cannot listen on {host} port {port} ({error.strerror}): end what uses that port, "
                "or set LAKEPROOF_PORT"
            ) from error
        stack.pop_all()
        return listener


class Server(uvicorn.Server):
    """uvicorn without its own signal handlers: `ending` has those of the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
