"""
`lakeproof up`: one process that serves everything, as tasks on one loop, until it is told to stop.

The gateway listens before anything is said to be ready. A task that ends by corruption ends the process: what is wrong
with a log is for people to decide. Ctrl-C and SIGTERM finish the requests that have begun, then stop in order.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import uvicorn

from gateway.app import create_app
from gateway.measures import Measures
from lakeproof.chronicle import tell_system_log
from lakeproof.errors import ServerError
from lakeproof.foundation import open_foundation
from lakeproof.postgres import Say
from lakeproof.projecting import PROJECTIONS, metrics_text
from lakeproof.services import Services, open_services
from lakeproof.settings import Settings
from lakeproof.signing import open_signer
from projections.runner import Runner

_log = logging.getLogger(__name__)

KEEP_ALIVE_S = 30
SHUTDOWN_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A process that serves: where the gateway is reached, and the event that stops it."""

    url: str
    stop: asyncio.Event
    services: Services
    runner: Runner


@asynccontextmanager
async def serving(services: Services) -> AsyncIterator[Serving]:
    """
    Serve everything while the context is open.

    Raises:
        ServerError: if the gateway's port is in use.
        LedgerError, ProjectionError: if a task met corruption.
    """
    settings, installation = services.foundation.settings, services.foundation.installation
    listener = listen(settings.host, settings.port)
    runner = Runner(installation.as_role(installation.roles.projector), PROJECTIONS)
    signer = await open_signer(services)
    await tell_system_log(services, signer.verifier_key(services.system.origin))
    app = create_app(
        services.house,
        measures=Measures(),
        metrics=lambda: metrics_text(services.house.database, installation.roles.auditor),
        metrics_token=settings.metrics_token,
    )
    server = _Gateway(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
    )
    stop = asyncio.Event()
    wake = services.doorbell.subscribe()
    await services.engine.start()
    try:
        async with asyncio.TaskGroup() as tasks:
            doorbell = tasks.create_task(services.doorbell.run(), name="doorbell")
            tasks.create_task(runner.run(stop, wake), name="projections")
            tasks.create_task(signer.run(stop, interval_s=settings.checkpoint_interval_s), name="signer")
            gateway = tasks.create_task(server.serve([listener]), name="gateway")
            try:
                yield Serving(url=_url(listener), stop=stop, services=services, runner=runner)
            finally:
                stop.set()
                server.should_exit = True
                await asyncio.wait([gateway])
                doorbell.cancel()
    except ExceptionGroup as group:
        # One task met what stops the process; the others were only told to end.
        raise _first(group) from group
    finally:
        services.doorbell.unsubscribe(wake)
        listener.close()


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _first(group: ExceptionGroup[Exception]) -> Exception:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first


async def run_up(settings: Settings, say: Say) -> None:
    """
    Serve until SIGINT or SIGTERM.

    Raises:
        LakeproofError: if the server, the database or the port cannot be had.
        LedgerError, ProjectionError: if a task met corruption.
    """
    with open_foundation(settings, say) as foundation:
        async with open_services(foundation) as services, serving(services) as served:
            with stop_on_signals(served.stop):
                say(f"the gateway listens on {served.url}; Ctrl-C stops it")
                await served.stop.wait()
                say("stopping")


def listen(host: str, port: int) -> socket.socket:
    """
    Return a socket that listens on `host` and `port`.

    Raises:
        ServerError: if that address is in use or not this machine's.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ServerError(
            f"the gateway cannot listen on {host} port {port} ({error.strerror}): end what uses that port, "
            "or set LAKEPROOF_PORT"
        ) from error


@contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` at SIGINT and SIGTERM while the context is open."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


class _Gateway(uvicorn.Server):
    """uvicorn without handlers of its own for signals: the process has one place for them."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
