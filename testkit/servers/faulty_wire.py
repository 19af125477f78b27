# SPDX-License-Identifier: Apache-2.0
"""
A wire to a real HTTP server that fails as a test says: a request or its answer is lost, late, or replaced by another.

Speaks just enough of HTTP/1.1 (RFC 9112) to see one request whole: each goes to the server on a connection of its own,
and its answer is what the server says until it closes. So the same faults happen to a simulator and to a real server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self
from urllib.parse import urlsplit

HEAD_SIZE_BYTES_MAX: Final = 1 << 20
END_OF_HEAD: Final = b"\r\n\r\n"
MUTATIONS: Final = frozenset({"POST", "PUT", "DELETE"})


class Loss(StrEnum):
    """What becomes of a request and its answer."""

    REQUEST = "the request is lost: nothing is done"
    ANSWER = "it is carried out, its answer is lost"
    LATE = "nothing is answered, and it is carried out later"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Another answer than the server's: after it was carried out, or instead of that."""

    answer: bytes
    carried_out: bool


@dataclass(eq=False, kw_only=True)
class Fault:
    """What happens to the first request with one of `methods` whose target ends with `path`, and once only."""

    happens: Loss | Replaced
    path: str
    methods: frozenset[str] = MUTATIONS
    hit: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the request is here (`Loss.LATE`), or when what happens to it has happened."""
    deliver: asyncio.Event = field(default_factory=asyncio.Event)
    """With `Loss.LATE`: set it to let the request arrive."""
    delivered: asyncio.Event = field(default_factory=asyncio.Event)
    """With `Loss.LATE`: set when the server has answered it, to nobody."""

    def meets(self, request: Request) -> bool:
        return request.method in self.methods and request.target.partition("?")[0].endswith(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as it came."""

    method: str
    target: str
    data: bytes

    @property
    def is_mutation(self) -> bool:
        """Return whether it asks for a change."""
        return self.method in MUTATIONS


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """
    Return an HTTP answer that closes its connection.
    """
    fields = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close", **headers}
    lines = [f"HTTP/1.1 {status} -", *(f"{name}: {text}" for name, text in fields.items())]
    return "\r\n".join(lines).encode() + END_OF_HEAD + body


async def _nothing(_request: Request) -> None:
    """Do nothing with a request."""


def _as_it_is(request: Request) -> Request:
    return request


class FaultyWire:
    """
    Listens on loopback for what is to go to `upstream`, a base URL. An async context manager.

    `on_request` is awaited with each request before it reaches the server. Where its path does not say what a request
    asks for, `seen_as` gives it the method and the target by which a fault meets it; what is sent stays the same.
    """

    def __init__(
        self,
        upstream: str,
        *,
        on_request: Callable[[Request], Awaitable[None]] = _nothing,
        seen_as: Callable[[Request], Request] = _as_it_is,
    ) -> None:
        where = urlsplit(upstream)
        self._host, self._port = str(where.hostname), where.port
        self.on_request = on_request
        self._seen_as = seen_as
        self._server: asyncio.Server | None = None
        self._wires: set[asyncio.Task[None]] = set()
        self.fault: Fault | None = None
        self.always: dict[str, bytes] = {}
        """Answers that are given for good in place of the server's, by the path."""
        self.seen: list[Request] = []
        """The requests that reached the server, in order."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=HEAD_SIZE_BYTES_MAX)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for wire in self._wires:
            wire.cancel()
        await asyncio.gather(*self._wires, return_exceptions=True)

    @property
    def url(self) -> str:
        """Return the base URL under which the server is reached through this wire."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = asyncio.create_task(self._serve(reader, writer))
        self._wires.add(wire)
        wire.add_done_callback(self._wires.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):  # either side has gone; so does the other
                request = self._seen_as(await _read_request(reader))
                writer.write(await self._handle(request, writer))
                await writer.drain()
        finally:
            writer.close()

    async def _handle(self, request: Request, writer: asyncio.StreamWriter) -> bytes:
        """Return what is answered; nothing closes the connection without a word."""
        fault = self.fault
        if (said := self.always.get(request.target.partition("?")[0])) is not None:
            return said
        if fault is None or not fault.meets(request):
            return await self._forward(request)
        self.fault = None
        said = b""
        match fault.happens:
            case Loss.REQUEST:
                pass
            case Loss.ANSWER:
                await self._forward(request)
            case Loss.LATE:
                fault.hit.set()
                await fault.deliver.wait()
                writer.close()
                await self._forward(request)
                fault.delivered.set()
            case Replaced(answer=said, carried_out=True):
                await self._forward(request)
            case Replaced(answer=said):
                pass
        fault.hit.set()
        return said

    async def _forward(self, request: Request) -> bytes:
        self.seen.append(request)
        await self.on_request(request)
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(request.data)
            return await reader.read()
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Request:
    """Read one request; a body has a Content-Length, as our own client sends it (RFC 9112, section 6.2)."""
    head = await reader.readuntil(END_OF_HEAD)
    first, *fields = head.removesuffix(END_OF_HEAD).split(b"\r\n")
    method, target, _ = first.decode("ascii").split(" ")
    by_name = {name.strip().lower(): text.strip() for name, _, text in (field.partition(b":") for field in fields)}
    assert b"transfer-encoding" not in by_name, "this wire carries no chunks"
    body = await reader.readexactly(int(by_name.get(b"content-length", b"0")))
    kept = [line for line in fields if line.partition(b":")[0].strip().lower() != b"connection"]
    data = b"\r\n".join([first, *kept, b"Connection: close"]) + END_OF_HEAD + body
    return Request(method=method, target=target, data=data)
