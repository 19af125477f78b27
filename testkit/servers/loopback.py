# SPDX-License-Identifier: Apache-2.0
"""
A real HTTP server for an application of a test: uvicorn on a free port of loopback, in the test's own event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.http.server.configuration import server_config
from gateway.http.server.connections import Connections
from gateway.http.server.tls import CurrentContext
from lakeproof.serving.listening import listen
from projections.egress.rules import EgressRules

LOOPBACK = EgressRules.parse("127.0.0.0/8")
"""Where every server of a test is: connections there are refused unless it is named."""
BROWSERS = {b"Firefox/": "Firefox", b"Chrome/": "Chromium"}
"""By a part of what they say of themselves in `User-Agent`."""
VISITS: Counter[str] = Counter()
"""How many requests for the console each browser has sent to gateways of this process."""


class _Server(uvicorn.Server):
    """uvicorn that leaves the signals to pytest, and ends when it is told to instead of with its next tick."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._told.set()

    async def main_loop(self) -> None:
        ticking = asyncio.create_task(super().main_loop())
        told = asyncio.create_task(self._told.wait())
        await asyncio.wait([ticking, told], return_when=asyncio.FIRST_COMPLETED)
        for task in (ticking, told):
            task.cancel()
        await asyncio.wait([ticking, told])

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serve(app: Starlette) -> AsyncIterator[str]:
    """Yield the URL under which `app` is served; whoever connects before it is ready waits in the socket's queue."""
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=5)
    async with serve_config(config) as url:
        yield url


@asynccontextmanager
async def serve_gateway(
    app: Starlette, connections: Connections | None = None, *, tls: CurrentContext | None = None
) -> AsyncIterator[str]:
    """Yield the URL under which a gateway is served as it is in earnest, over connections within their bounds."""
    async with serve_config(server_config(_counting(app), connections, tls=tls)) as url:
        yield url if tls is None else url.replace("http:", "https:")


def _counting(app: ASGIApp) -> ASGIApp:
    """Return the application, which counts who visits its console."""

    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/console"):
            agent = dict(scope["headers"]).get(b"user-agent", b"")
            VISITS.update(name for part, name in BROWSERS.items() if part in agent)
        await app(scope, receive, send)

    return counting


@asynccontextmanager
async def serve_config(config: uvicorn.Config) -> AsyncIterator[str]:
    """Yield the URL under which an application is served as `config` says."""
    listener = listen("127.0.0.1", 0)
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.end()
        await serving
        listener.close()
