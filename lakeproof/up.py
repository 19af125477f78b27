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
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import uvicorn

from gateway.app import create_app
from gateway.measures import Measures
from lakeproof.errors import ServerError
from lakeproof.projecting import PROJECTIONS, metrics_text
from lakeproof.services import Services
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
    signer = open_signer(services.foundation)
    app = create_app(
        services.house,
        measures=Measures(),
        metrics=lambda: metrics_text(services.house.database, installation.roles.projector),
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
    host, port = listener.getsockname()[:2]
    await services.house.engine.start()
    async with asyncio.TaskGroup() as tasks:
        background = [
            tasks.create_task(services.doorbell.run(), name="doorbell"),
            tasks.create_task(runner.run(stop, wake), name="projections"),
            tasks.create_task(signer.run(stop, interval_s=settings.checkpoint_interval_s), name="signer"),
        ]
        gateway = tasks.create_task(server.serve([listener]), name="gateway")
        try:
            yield Serving(
                url=f"http://{f'[{host}]' if ':' in host else host}:{port}", stop=stop, services=services, runner=runner
            )
        finally:
            stop.set()
            server.should_exit = True
            await asyncio.wait([gateway])
            background[0].cancel()


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
            f"the gateway cannot listen on {host} port {port} ({error.strerror}): end what uses it, or set LAKEPROOF_PORT"
        ) from error


async def until_stopped(stop: asyncio.Event, watched: Sequence[asyncio.Task[object]] = ()) -> None:
    """
    Wait until `stop` is set or one of `watched` has ended.
    """
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait([waiting, *watched], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


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
