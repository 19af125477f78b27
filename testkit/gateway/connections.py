# SPDX-License-Identifier: Apache-2.0
"""A server with bounds on its connections, and clients that speak HTTP/1.1 byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from ssl import SSLContext
from typing import Self

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from gateway.http.server.connections import Bounds, Connections
from gateway.http.server.tls import CurrentContext
from testkit.gateway.raw_http import Answer, parse_answers
from testkit.servers.loopback import serve_gateway

SOON_S = 0.2
NEVER_S = 600.0
PATIENT = Bounds(head_timeout_s=NEVER_S, idle_timeout_s=NEVER_S, stall_timeout_s=NEVER_S, drain_timeout_s=NEVER_S)
"""Bounds within which nothing ends by itself: a test shortens the one that it is about."""


class Peer:
    """One connection of a client that takes its time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, url: str, *, local: str = "127.0.0.1", tls: SSLContext | None = None) -> Self:
        """Connect from an address of loopback, with TLS if there is a context for it."""
        target = httpx.URL(url)
        return cls(*await asyncio.open_connection(target.host, target.port, local_addr=(local, 0), ssl=tls))

    async def send(self, data: bytes) -> None:
        """Send `data`; raise ConnectionError if the connection is closed."""
        if self.writer.is_closing():  # uvloop's raises something else
            raise ConnectionResetError("the connection is closed")
        self.writer.write(data)
        await self.writer.drain()

    async def drip(self, data: bytes, *, every_s: float = 0.02) -> None:
        """Send one byte after the other until all are sent or nobody takes them."""
        with suppress(ConnectionError):
            for byte in data:
                await self.send(bytes([byte]))
                await asyncio.sleep(every_s)

    async def answer(self) -> Answer:
        """Return the next answer of a connection that stays open."""
        data = b""
        while True:
            more = await self.reader.read(65_536)
            data += more
            heard = parse_answers(data, method=b"GET", is_over=not more)
            if heard is not None and heard.answers:
                return heard.answers[0]
            assert more, "the connection was closed without an answer"

    async def rest(self) -> bytes:
        """Return what comes until the end of the connection."""
        data = b""
        with suppress(ConnectionError):
            while more := await self.reader.read(65_536):
                data += more
        return data

    async def close(self) -> None:
        """End it."""
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


class Site:
    """An application that answers when `go_on` is set, and how it is reached."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.url = ""
        self.bodies: list[bytes] = []
        self.requested = asyncio.Event()
        self.go_on = asyncio.Event()
        self.clients: list[str | None] = []
        self._peers: list[Peer] = []

    def app(self) -> Starlette:
        """The application."""

        async def now(request: Request) -> Response:
            self.clients.append(None if request.client is None else request.client.host)
            return PlainTextResponse("now")

        async def echo(request: Request) -> Response:
            self.bodies.append(await request.body())
            return PlainTextResponse("read")

        async def wait(_: Request) -> Response:
            self.requested.set()
            await self.go_on.wait()
            return PlainTextResponse("waited")

        async def large(_: Request) -> Response:
            return PlainTextResponse("x" * 32_000_000)

        async def stream(_: Request) -> Response:
            async def parts() -> AsyncIterator[bytes]:
                for part in (b"a", b"", b"bc"):
                    yield part

            return StreamingResponse(parts())

        async def split(_: Request) -> Response:
            return PlainTextResponse("x", headers={"X-Split": "a\r\nX-Other: b"})

        async def fail(_: Request) -> Response:
            raise ZeroDivisionError("a secret of the inside")

        async def fail_late(_: Request) -> Response:
            async def parts() -> AsyncIterator[bytes]:
                yield b"a"
                raise ZeroDivisionError

            return StreamingResponse(parts())

        pages = (now, wait, large, stream, split, fail, fail_late)
        routes = [Route(f"/{page.__name__}", page, methods=["GET", "POST"]) for page in pages]
        return Starlette(routes=[*routes, Route("/echo", echo, methods=["POST"])])

    async def connect(self, *, local: str = "127.0.0.1", tls: SSLContext | None = None) -> Peer:
        """Return a new connection."""
        self._peers.append(await Peer.connect(self.url, local=local, tls=tls))
        return self._peers[-1]

    async def close(self) -> None:
        """End what is left. Before the server stops, this spares it the wait for clients that do not go."""
        self.go_on.set()
        for peer in self._peers:
            await peer.close()


@asynccontextmanager
async def site(bounds: Bounds = PATIENT, *, tls: CurrentContext | None = None) -> AsyncIterator[Site]:
    """Yield a site whose connections are within `bounds`, with TLS if there is a context for it."""
    made = Site(Connections(bounds=bounds))
    async with asyncio.timeout(60):
        try:
            async with serve_gateway(made.app(), made.connections, tls=tls) as made.url:
                yield made
        finally:
            await made.close()


def patient(**bounds: float) -> Bounds:
    """Patient bounds but for some."""
    values = {name: getattr(PATIENT, name) for name in PATIENT.__dataclass_fields__}
    return Bounds(**{**values, **bounds})


def get(path: str, *headers: str) -> bytes:
    """A request without a body."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def post(path: str, *headers: str) -> bytes:
    """The head of a request with a body."""
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


async def feed(peer: Peer, data: bytes) -> None:
    """Send `data` again and again until the connection ends."""
    with suppress(ConnectionError):
        while True:
            await peer.send(data)
            await asyncio.sleep(0.001)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what the server does when it comes to it."""
    while not condition():  # noqa: ASYNC110 - what it waits for tells nobody
        await asyncio.sleep(0.005)
