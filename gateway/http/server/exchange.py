# SPDX-License-Identifier: Apache-2.0
"""
One request and its answer, between a connection and the application: ASGI's `receive` and `send`.

Guarantee: either one complete answer is sent or the connection ends. An answer that is complete before the request's
body has arrived says `Connection: close`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from itertools import chain
from typing import Final, Protocol

import orjson
from starlette.types import ASGIApp, Message, Scope

BUFFER_SIZE_BYTES_MAX: Final = 256 * 1024
"""Buffer for a body that the application does not read yet; beyond it the connection is not read either."""
EVENT_STREAM: Final = b"text/event-stream; charset=utf-8"
"""The type of an answer that never ends by itself (WHATWG HTML, section 9.2)."""
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES: Final = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}
JOINED_BYTES_MAX: Final = 64 * 1024
"""A first piece of a body up to this size is written with the head, as one piece: a packet less, for a copy."""
KEPT_VALUE_SIZE_BYTES_MAX: Final = 128
"""Headers of answers repeat. Those with a value up to this size are kept as they were formatted."""
_NEVER_REPEATS: Final = b"x-request-id"
"""The header that no two answers share: keeping it would push the others out."""
_OF_CONNECTIONS: Final = frozenset({b"connection", b"transfer-encoding"})
"""Headers of an answer that are the server's own matter."""
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")

_log = logging.getLogger(__name__)


class Wire(Protocol):
    """The connection as an exchange uses it."""

    def write(self, data: bytes) -> None:
        """Send `data`."""

    @property
    def is_writable(self) -> bool:
        """Whether the peer has read most of what was written."""

    async def drained(self) -> None:
        """Wait until it has."""

    def read_on(self) -> None:
        """Read the connection again, if it was paused because the buffer was full."""

    def may_stay_open(self) -> bool:
        """Return whether another request may follow an answer that begins now."""

    def answered(self, *, stays_open: bool) -> None:
        """The answer is complete."""

    def abort(self) -> None:
        """End the connection at once."""


def format_answer(
    status: int, headers: Iterable[tuple[bytes, bytes]], *, default_headers: list[tuple[bytes, bytes]], closes: bool
) -> bytes:
    """
    Return the head of an answer.

    Raises:
        ValueError: if a header contains a line break: what follows would be another header, or another answer.
    """
    lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    for name, value in chain(default_headers, headers):
        if name == _NEVER_REPEATS and value.isalnum():
            lines.append(b"x-request-id: %b\r\n" % value)
        elif len(value) <= KEPT_VALUE_SIZE_BYTES_MAX:
            lines.append(_kept_field(name, value))
        else:
            lines.append(_checked_field(name, value))
    lines.append(b"connection: close\r\n\r\n" if closes else b"\r\n")
    return b"".join(lines)


def _checked_field(name: bytes, value: bytes) -> bytes:
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise ValueError(f"expected a header of an answer, found {name!r}")
    return b"%b: %b\r\n" % (name, value)


_kept_field = lru_cache(maxsize=1_024)(_checked_field)


def format_error(
    status: int,
    message: str,
    *,
    default_headers: list[tuple[bytes, bytes]],
    is_to_head: bool = False,
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> bytes:
    """Return a complete answer of the server itself, in the form of the application's errors and the last one."""
    kinds = {408: "RequestTimeoutException", 503: "ServiceUnavailableException", 500: "InternalServerError"}
    error = {"message": message, "type": kinds.get(status, "BadRequestException"), "code": status}
    body = orjson.dumps({"error": error})
    fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *headers]
    return format_answer(status, fields, default_headers=default_headers, closes=True) + (b"" if is_to_head else body)


class Exchange:
    """One request on `wire`, from its head to the end of its answer."""

    def __init__(
        self,
        wire: Wire,
        scope: Scope,
        *,
        default_headers: list[tuple[bytes, bytes]],
        expects_continue: bool,
    ) -> None:
        self._wire = wire
        self._scope = scope
        self._default_headers = default_headers
        self._expects_continue = expects_continue
        self.is_to_head = scope["method"] == "HEAD"
        self._body = bytearray()
        self._news: asyncio.Event | None = None
        """Set at whatever `receive` may wait for; made when it does."""
        self._head = b""
        """The head of the answer until it is written, with the first piece of the body."""
        self._is_arrived = False
        self._was_handed_out = False
        self._is_gone = False
        self._is_stopping = False
        self._is_peer_finished = False
        self._is_event_stream = False
        self._stays_open = False
        self._is_chunked = False
        self._left: int | None = None
        self.is_started = False
        self.is_complete = False

    @property
    def is_full(self) -> bool:
        """Whether the buffer of the body is full."""
        return len(self._body) > BUFFER_SIZE_BYTES_MAX

    def put(self, content: bytes) -> None:
        """Add a piece of the body."""
        if not self.is_complete and not self._is_gone:
            self._body += content
            self._tell()

    def body_arrived(self) -> None:
        """The body is complete."""
        self._is_arrived = True
        self._tell()

    def give_up(self) -> None:
        """The client is gone, or the connection has answered by itself."""
        self._is_gone = True
        self._body.clear()
        self._tell()

    def stop(self) -> None:
        """Whoever waits for the end of the connection is told that it has come: the process ends, or nobody reads."""
        self._is_stopping = True
        self._tell()

    def peer_finished(self) -> None:
        """The peer sends no more. An answer that has an end it may still read; events without end, nobody reads."""
        self._is_peer_finished = True
        if self._is_event_stream:
            self.stop()

    def _tell(self) -> None:
        if self._news is not None:
            self._news.set()

    async def run(self, app: ASGIApp) -> None:
        """Run the application; without a complete answer the connection answers by itself, or ends."""
        try:
            await app(self._scope, self.receive, self.send)
            if not self.is_complete and not self._is_gone:
                raise RuntimeError("the application returned without a complete answer")  # noqa: TRY301 - as if it failed
        except Exception as error:  # noqa: BLE001 - the one place where whatever the application fails with ends
            _log.error("%s failed", self._scope["method"], exc_info=error)
            if not self.is_complete and not self._is_gone:
                self._fail()
        finally:
            if not self.is_complete and not self._is_gone:
                self._wire.abort()  # the task was cancelled: the process ends

    def _fail(self) -> None:
        if self.is_started:
            self._wire.abort()
            return
        text = "the gateway failed; its log says why"
        self._wire.write(format_error(500, text, default_headers=self._default_headers, is_to_head=self.is_to_head))
        self._finish(stays_open=False)

    async def receive(self) -> Message:
        """ASGI: the next piece of the body, or that the client is gone."""
        if self._expects_continue and not (self._body or self._is_arrived or self.is_started or self._is_gone):
            self._wire.write(CONTINUE)
        self._expects_continue = False
        while not self._can_tell:
            self._news = self._news or asyncio.Event()
            self._news.clear()
            self._wire.read_on()
            await self._news.wait()
        if self._is_over:
            return {"type": "http.disconnect"}
        content, self._body = bytes(self._body), bytearray()
        self._was_handed_out = self._is_arrived
        self._wire.read_on()
        return {"type": "http.request", "body": content, "more_body": not self._is_arrived}

    @property
    def _can_tell(self) -> bool:
        """After the end of the body, ASGI's `receive` waits for the end of the connection."""
        return self._is_over or bool(self._body) or (self._is_arrived and not self._was_handed_out)

    @property
    def _is_over(self) -> bool:
        """Whether nothing more comes; where the answer is to end early, not before the body was handed out."""
        return self.is_complete or self._is_gone or (self._is_stopping and self._was_handed_out)

    async def send(self, message: Message) -> None:
        """ASGI: the answer's head, then its body."""
        if not self._is_gone and not self._wire.is_writable:
            await self._wire.drained()
        if self._is_gone:
            return
        if message["type"] == "http.response.start" and not self.is_started:
            self._start(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body" and self.is_started and not self.is_complete:
            self._continue(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise RuntimeError(f"expected the next part of an answer, found {message['type']}")

    def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        length, kept = None, []
        for field in headers:
            name = field[0].lower()
            if name == b"content-length":
                length = int(field[1])
            if name not in _OF_CONNECTIONS:
                kept.append(field)
        self._stays_open = self._wire.may_stay_open()
        if self.is_to_head or status in {204, 304}:
            self._left = 0
        elif length is not None:
            self._left = length
        elif self._scope["http_version"] == "1.1":
            self._is_chunked = True
            self._is_event_stream = (b"content-type", EVENT_STREAM) in kept
            if self._is_event_stream and self._is_peer_finished:
                self.stop()
            kept.append((b"transfer-encoding", b"chunked"))
        else:
            self._stays_open = False  # the end of the connection is the end of the answer
        self._head = format_answer(status, kept, default_headers=self._default_headers, closes=not self._stays_open)
        self.is_started = True

    def _continue(self, content: bytes, *, is_last: bool) -> None:
        if self.is_to_head:
            content = b""
        if self._left is not None:
            self._left -= len(content)
            if self._left < 0 or (is_last and self._left):
                raise RuntimeError("expected as much of the answer as its Content-Length declares")
        if self._is_chunked:
            content = (b"%x\r\n%b\r\n" % (len(content), content) if content else b"") + (
                b"0\r\n\r\n" if is_last else b""
            )
        self._write(content)
        if is_last:
            self._finish(stays_open=self._stays_open)

    def _write(self, content: bytes) -> None:
        head, self._head = self._head, b""
        if head and len(content) > JOINED_BYTES_MAX:
            self._wire.write(head)
            self._wire.write(content)
        elif head or content:
            self._wire.write(head + content)

    def _finish(self, *, stays_open: bool) -> None:
        self.is_started = self.is_complete = True
        self._body.clear()
        self._tell()
        self._wire.answered(stays_open=stays_open)
