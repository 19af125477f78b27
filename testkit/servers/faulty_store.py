# SPDX-License-Identifier: Apache-2.0
"""
Object stores as they should not be: each answers a request for an object in one wrong way, or never.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Answer: TypeAlias = Callable[[str, asyncio.StreamWriter], Awaitable[None]]
"""Answers a request of that method."""

CHUNK: Final = b"0" * 65_536
DRIP_S: Final = 0.05


@dataclass(slots=True)
class FaultyStore:
    """A store that listens at `endpoint`, and how many requests it has got."""

    endpoint: str = ""
    requests: int = 0
    connected: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def faulty_store(answer: Answer) -> AsyncIterator[FaultyStore]:
    """Yield a store that gives this answer to everything; who is still connected at the end is cut off."""
    store = FaultyStore()
    open_: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_.add(task)
        store.connected.set()
        try:
            # Cut off at the end: what asyncio makes of a task that says so would be an error in its log.
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while request := await reader.readuntil(b"\r\n\r\n"):
                    store.requests += 1
                    await answer(request.split(b" ", 1)[0].decode("ascii", "replace"), writer)
                    await writer.drain()
        finally:
            open_.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    store.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield store
    finally:
        server.close()
        for task in list(open_):
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)
        await server.wait_closed()


def _head(length: int | None, *, status: str = "200 OK") -> bytes:
    size = b"" if length is None else b"Content-Length: %d\r\n" % length
    return (
        b"HTTP/1.1 "
        + status.encode()
        + b'\r\nETag: "1"\r\nLast-Modified: Fri, 20 Nov 2026 12:00:00 GMT\r\n'
        + size
        + b"\r\n"
    )


async def never(_method: str, _writer: asyncio.StreamWriter) -> None:
    """Accept, and say nothing."""
    await asyncio.Event().wait()


async def reset(_method: str, writer: asyncio.StreamWriter) -> None:
    """End the connection without a word (RST)."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raise ConnectionResetError


async def close(_method: str, _writer: asyncio.StreamWriter) -> None:
    """End the connection in an orderly way, and unanswered."""
    raise ConnectionResetError


async def drip_headers(_method: str, writer: asyncio.StreamWriter) -> None:
    """Begin an answer and continue it byte by byte, for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    await _drip(writer, b"X-Slow: 1\r\n")


async def drip_body(method: str, writer: asyncio.StreamWriter) -> None:
    """Announce an object, and send it byte by byte."""
    writer.write(_head(65_536, status="200 OK" if method == "HEAD" else "206 Partial Content"))
    if method != "HEAD":
        await _drip(writer, b"{")


async def half_a_body(method: str, writer: asyncio.StreamWriter) -> None:
    """Announce an object, send half of it, and leave."""
    writer.write(_head(1_000, status="200 OK" if method == "HEAD" else "206 Partial Content"))
    if method != "HEAD":
        writer.write(b"{" * 500)
        await writer.drain()
        raise ConnectionResetError


async def endless_headers(_method: str, writer: asyncio.StreamWriter) -> None:
    """Send headers without an end."""
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: " + CHUNK[:1_000] + b"\r\n")
        await writer.drain()


async def endless_body(method: str, writer: asyncio.StreamWriter) -> None:
    """Announce a small object, and send more than that without an end."""
    if method == "HEAD":
        writer.write(_head(100))
        return
    writer.write(_head(None, status="206 Partial Content"))
    while True:
        writer.write(CHUNK)
        await writer.drain()


async def huge(_method: str, writer: asyncio.StreamWriter) -> None:
    """Announce an object of 10 TB."""
    writer.write(_head(10 * 10**12))


async def junk(_method: str, writer: asyncio.StreamWriter) -> None:
    """Speak another protocol."""
    writer.write(b"SSH-2.0-OpenSSH_9.9\r\n" * 10)
    await writer.drain()
    raise ConnectionResetError


async def broken(_method: str, writer: asyncio.StreamWriter) -> None:
    """Say that the store is broken."""
    writer.write(_head(0, status="500 Internal Server Error"))


async def busy(_method: str, writer: asyncio.StreamWriter) -> None:
    """Say that the store is too busy."""
    writer.write(_head(0, status="503 Slow Down"))


async def denied(_method: str, writer: asyncio.StreamWriter) -> None:
    """Say that the object may not be read."""
    writer.write(_head(0, status="403 Forbidden"))


async def elsewhere(_method: str, writer: asyncio.StreamWriter) -> None:
    """Say that the object is at another address."""
    writer.write(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n")


async def _drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    while True:
        for byte in data:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(DRIP_S)


NEVER_ENDING: Final[tuple[Answer, ...]] = (never, drip_headers, drip_body, endless_headers, endless_body)
FAILING: Final[tuple[Answer, ...]] = (reset, close, half_a_body, junk, broken, busy, elsewhere)
REFUSING: Final[tuple[Answer, ...]] = (huge, denied)
