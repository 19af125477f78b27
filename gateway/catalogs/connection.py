# SPDX-License-Identifier: Apache-2.0
"""
One connection to an upstream: a request is sent, its answer is read, and the next request may follow (RFC 9112).

llhttp parses. Guarantee: an answer is whole, or there is none. A connection is used again only if its last answer ended
where the upstream's bytes ended: whatever else an upstream sends is never taken for the answer to another request.
"""

from __future__ import annotations

import asyncio
import re
import select
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ledger.values import value_class

HEAD_SIZE_BYTES_MAX: Final = 64 * 1024
FRAMING_PER_BYTE_MAX: Final = 8
"""Chunked, a body of one byte per chunk has five bytes of framing for each."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TOKENS = re.compile(rf"(?:{_TOKEN.pattern})?")
_VALUE = re.compile(r"[ -~]*")
_TARGET = re.compile(r"/[!-~]*")
_GZIP: Final = zlib.MAX_WBITS | 16
_ENCODINGS: Final = {b"gzip": _GZIP, b"x-gzip": _GZIP, b"deflate": zlib.MAX_WBITS}


class AnswerError(Exception):
    """There is no whole answer: it is cut, too large, or not HTTP/1.1, or the connection was lost before its end."""


class AnswerTooLargeError(AnswerError):
    """The body of the answer is larger than it may be."""


@value_class
class Answer:
    """A whole answer; names of headers are in lower case, values of repeated ones are joined with a comma."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the value of a header; None if there is none."""
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1")


def format_request(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """
    Return a request; the length of its body is added to `headers`.

    Raises:
        ValueError: if a part of it has no form on the wire.
    """
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        message = "expected a method and a path"
        raise ValueError(message)
    # All at once: what is wrong in one of them is wrong in all of them together.
    if not (all(headers) and _TOKENS.fullmatch("".join(headers)) and _VALUE.fullmatch("".join(headers.values()))):
        wrong = next(name for name in headers if not (_TOKEN.fullmatch(name) and _VALUE.fullmatch(headers[name])))
        message = f"expected the header {wrong!r:.80} in printable ASCII"
        raise ValueError(message)
    lines = [f"{method} {target} HTTP/1.1", *[f"{name}: {value}" for name, value in headers.items()]]
    if body is not None or method == "POST":
        lines.append(f"Content-Length: {len(body or b'')}")
    return "\r\n".join([*lines, "\r\n"]).encode("ascii") + (body or b"")


@dataclass(slots=True, eq=False, kw_only=True)
class _Reading:
    """An answer while it arrives: the callbacks of llhttp."""

    answered: asyncio.Future[Answer]
    size_bytes_max: int
    headers: dict[bytes, bytes] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    received_bytes: int = 0
    status: int = 0
    ends_with_connection: bool = False
    keeps_alive: bool = False
    is_whole: bool = False
    is_followed: bool = False
    """Whether bytes of another answer have arrived behind it."""
    parser: HttpResponseParser = field(init=False)

    def __post_init__(self) -> None:
        self.parser = HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """
        Take the next bytes.

        Raises:
            AnswerError: if they are not the next ones of an answer, or it is too large.
        """
        self.received_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self.is_whole:
                raise AnswerError("expected an answer of HTTP/1.1") from error
            self.is_followed = True
        if self.size_bytes > self.size_bytes_max:
            raise AnswerTooLargeError
        if self.received_bytes > HEAD_SIZE_BYTES_MAX + (1 + FRAMING_PER_BYTE_MAX) * self.size_bytes:
            raise AnswerError(f"expected a head of at most {HEAD_SIZE_BYTES_MAX} bytes")

    def answer(self) -> Answer:
        """
        Return the whole answer.

        Raises:
            AnswerError: if its body cannot be decoded, or is too large then.
        """
        body = b"".join(self.pieces)
        window = _ENCODINGS.get(self.headers.get(b"content-encoding", b"").strip().lower())
        if window is not None and body:
            body = _inflated(body, window, size_bytes_max=self.size_bytes_max)
        return Answer(status=self.status, headers=self.headers, body=body)

    # --- llhttp's side

    def on_message_begin(self) -> None:
        self.is_followed = self.is_whole

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status or self.is_whole:
            return  # a trailer, or another answer's
        name = name.lower()
        self.headers[name] = value if name not in self.headers else self.headers[name] + b", " + value

    def on_headers_complete(self) -> None:
        if self.is_whole:
            return
        status = self.parser.get_status_code()
        if status < 200:
            self.headers.clear()  # an interim answer (RFC 9110, section 15.2): the real one follows
            return
        self.status = status
        coding = self.headers.get(b"transfer-encoding")
        if coding is not None and coding.strip().lower() != b"chunked":
            raise AnswerError("expected no transfer coding but chunked")
        self.keeps_alive = self.parser.should_keep_alive()  # only here: llhttp forgets the head with the body's end
        has_no_body = status in {204, 304}
        self.ends_with_connection = not has_no_body and coding is None and b"content-length" not in self.headers

    def on_body(self, piece: bytes) -> None:
        if not self.is_whole:
            self.pieces.append(piece)
            self.size_bytes += len(piece)

    def on_message_complete(self) -> None:
        if self.status:
            self.is_whole = True


class Connection(asyncio.Protocol):
    """A connection that was made by an event loop, to which everything here belongs."""

    def __init__(self) -> None:
        self.free_since_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._reading: _Reading | None = None
        self._poll = select.poll()

    @property
    def is_free(self) -> bool:
        """Return whether it may be used for a request."""
        return self._transport is not None and self._reading is None and not self._transport.is_closing()

    def is_silent(self) -> bool:
        """Return whether the upstream has neither closed it nor sent anything since the last answer."""
        return self.is_free and not self._poll.poll(0)

    async def ask(self, request: bytes, *, size_bytes_max: int) -> Answer:
        """
        Send a request and return the answer, whose body is at most `size_bytes_max`. Closes itself if there is none.

        Raises:
            AnswerError: if there is no whole answer.
        """
        transport = self._transport
        if transport is None or not self.is_free:
            raise AnswerError("the connection is closed")
        reading = _Reading(answered=asyncio.get_running_loop().create_future(), size_bytes_max=size_bytes_max)
        self._reading = reading
        try:
            transport.write(request)
            return await reading.answered
        finally:
            self._reading = None
            is_clean = reading.is_whole and not reading.is_followed and not transport.get_write_buffer_size()
            if not is_clean or not reading.keeps_alive:
                transport.abort()

    def close(self) -> None:
        """Close it; who waits for an answer gets none."""
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, over TLS once its handshake is done."""
        # By its methods: the transports of uvloop are no subclasses of `asyncio.Transport`.
        self._transport = cast("asyncio.Transport", transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Read the answer that is waited for; nobody waits for anything else."""
        reading = self._reading
        if reading is None or reading.answered.done():
            self.close()
            return
        try:
            reading.feed(data)
            if reading.is_whole:
                reading.answered.set_result(reading.answer())
        except AnswerError as error:
            reading.answered.set_exception(error)

    def eof_received(self) -> None:
        """The upstream sends no more: that is the end of an answer that says no other."""
        reading = self._reading
        if reading is None or reading.answered.done() or not reading.ends_with_connection:
            return
        reading.is_whole = True
        try:
            reading.answered.set_result(reading.answer())
        except AnswerError as error:
            reading.answered.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone, and with it the answer."""
        reading = self._reading
        if reading is not None and not reading.answered.done():
            # In TLS 1.3, what a server thinks of a client's certificate comes after the handshake (RFC 8446, 4.4.2.4).
            why = f" ({error.reason})" if isinstance(error, ssl.SSLError) and error.reason else ""
            reading.answered.set_exception(AnswerError(f"the connection was closed before the answer was whole{why}"))


def _inflated(body: bytes, window: int, *, size_bytes_max: int) -> bytes:
    inflating = zlib.decompressobj(window)
    try:
        inflated = inflating.decompress(body, size_bytes_max + 1)
    except zlib.error as error:
        raise AnswerError("expected a body in the coding that its head names") from error
    if len(inflated) > size_bytes_max:
        raise AnswerTooLargeError
    if not inflating.eof or inflating.unused_data:
        raise AnswerError("expected a whole body in the coding that its head names")
    return inflated
