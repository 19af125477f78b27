# SPDX-License-Identifier: Apache-2.0
"""
The duty of the gateway: answer requests that arrive on a socket, which other processes may accept from, too.

It is ready when a request through the socket was answered. When it is told to stop, it accepts nothing more, and
requests that have begun are finished.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import uvicorn

from gateway.agents import routes as agents
from gateway.commit.metrics import Measures
from gateway.console.pages import error_page
from gateway.console.routers import ROUTERS
from gateway.http.app import create_app
from gateway.http.peers import Peers
from gateway.http.server.clients import Proxies
from gateway.http.server.configuration import server_config
from gateway.http.server.connection import connections_made_by
from gateway.http.server.connections import Bounds, Connections
from gateway.identity.request_rates import Limits, RequestRates, SharedCounts
from lakeproof.anchored import anchors_reader
from lakeproof.dead_letters import read_dead_letters
from lakeproof.evidence import EvidenceMaker
from lakeproof.log_status import status_reader
from lakeproof.messages import Say
from lakeproof.projecting import read_projections
from lakeproof.services import Services
from lakeproof.serving.certificate import CurrentCertificate
from lakeproof.serving.duties.duty import Ready
from lakeproof.serving.metrics import read_metrics
from lakeproof.serving.policy_engine import STARTED_WITHIN_S, start_policy_engine
from lakeproof.serving.shared_metrics import ProcessMetrics
from lakeproof.settings import Settings
from lakeproof.tls_settings import GatewayTrust, gateway_trust, tls_files
from lakeproof.tracing import recording
from ledger.store.notifications import wait_for_any

PROBE_S: Final = 0.05
"""How often a request is tried until one is answered."""
PROBE_TIMEOUT_S: Final = 5.0
PROBE: Final = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


_log = logging.getLogger(__name__)


async def answer_requests(
    services: Services,
    stop: asyncio.Event,
    say: Say,
    ready: Ready,
    *,
    listener: socket.socket,
    measures: Measures | None = None,
    shared: ProcessMetrics | None = None,
    own: int = 0,
    sockets: Sequence[Path] = (),
    counts: SharedCounts | None = None,
) -> None:
    """
    Answer what arrives at `listener`; `measures` replaces the gateway's own.

    With a certificate in the settings it speaks TLS alone.

    `shared` is where other gateway processes see this one's metrics, and this one theirs. `sockets` are where they pass
    commits on to each other, of which this process has number `own`; without any it makes all commits itself. In
    `counts` all of them count requests (None: this one is alone).

    Raises:
        SettingsError: if the certificate cannot be served.
    """
    settings, gateway, measures = services.installation.settings, services.gateway, measures or Measures()

    files, trust = tls_files(settings), gateway_trust(settings)
    certificate = None if files is None else CurrentCertificate(files)

    def own_metrics() -> str:
        return measures.text() + gateway.judge.failed_programs.text()

    async def metrics(own: str) -> str:
        of_certificate = "" if certificate is None else certificate.metrics()
        return (own if shared is None else shared.collect(own)) + of_certificate + await read_metrics(services)

    limits = Limits(tenant=settings.requests_per_tenant, caller=settings.requests_per_caller)
    if limits != Limits():
        rates = RequestRates(limits, counts or SharedCounts(1), own, on_refused=measures.rate_limited)
        gateway.authenticator.admit = rates.admit
    peers = Peers(sockets, own, races=gateway.races, count=measures.passed_on) if sockets else None
    token = settings.metrics_token
    lend = partial(gateway.database.as_role, gateway.roles.auditor)
    app = create_app(
        gateway,
        measures=measures,
        metrics=metrics,
        metrics_token=token,
        dead_letters=read_dead_letters,
        anchors=anchors_reader(services.installation, lend),
        status=status_reader(services.installation, lend, gateway.clock),
        projections=read_projections,
        evidence=EvidenceMaker(services.installation, services.opener),
        peers=peers,
        pages=[*ROUTERS, agents.router],
        error_page=error_page,
    )
    connections = _connections(settings, measures)
    server = Server(server_config(app, connections, tls=None if certificate is None else certificate.context))
    async with recording(app, settings), asyncio.TaskGroup() as tasks:
        log_id, within_s = services.system.log_id, STARTED_WITHIN_S
        starting = start_policy_engine(services.engine, say, log_id=log_id, within_s=within_s)
        judging = tasks.create_task(starting, name="policy engine")
        await gateway.catalogs.files.prepare(settings.warehouse)
        await asyncio.wait([judging], timeout=STARTED_WITHIN_S)
        answering = tasks.create_task(server.serve([listener]), name="gateway")
        if shared is not None:
            tasks.create_task(shared.keep_publishing(own_metrics, stop), name="metrics")
        if certificate is not None:
            tasks.create_task(certificate.keep_current(stop), name="certificate")
        await _until_answered(listener, trust, stop)
        if peers is not None:
            connect = partial(connections_made_by(app, connections), server_state=server.server_state)
            tasks.create_task(_accept_passed_on(connect, sockets[own], stop), name="passed on")
        ready()
        await stop.wait()
        server.should_exit = True
        await asyncio.wait([answering])
        if peers is not None:
            peers.close()
        judging.cancel()


async def _accept_passed_on(connect: Callable[[], asyncio.Protocol], path: Path, stop: asyncio.Event) -> None:
    """Accept what other processes pass on, until `stop`."""
    try:
        server = await asyncio.get_running_loop().create_unix_server(connect, str(path))
    except OSError as error:
        _log.warning("other gateway processes cannot pass commits on to this one, and make them themselves: %s", error)
        return
    async with server:
        await stop.wait()


class Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the process has its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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


async def _until_answered(listener: socket.socket, trust: GatewayTrust | None, stop: asyncio.Event) -> None:
    """Return when the gateway on `listener` says that it is healthy, or `stop` is set."""
    host, port = listener.getsockname()[:2]
    while not stop.is_set():
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                if trust is not None:
                    trust.refresh()
                if await _is_healthy(host, port, trust):
                    return
        await wait_for_any(stop, None, timeout_s=PROBE_S)


async def _is_healthy(host: str, port: int, trust: GatewayTrust | None) -> bool:
    reader, writer = await asyncio.open_connection(host, port, ssl=None if trust is None else trust.context)
    try:
        if writer.is_closing():
            return False
        writer.write(PROBE)
        return (await reader.read()).startswith(b"HTTP/1.1 200 ")
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
