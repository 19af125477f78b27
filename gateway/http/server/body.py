# SPDX-License-Identifier: Apache-2.0
"""
Parses the body of a request as its head declares it: bytes in, pieces of content out, and where it ends.

`Content-Length` is counted here; chunks are parsed by llhttp, which accepts nothing else (RFC 9112, section 7.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from gateway.http.server.head import Head, RefusedRequestError

OVERHEAD_BYTES_MAX: Final = 64 * 1024
"""The largest overhead of chunks: their heads, extensions and trailers; see also `_OVERHEAD_RATIO`."""
_OVERHEAD_RATIO: Final = 8
"""Bytes on the wire per byte of content: a chunk of one byte takes six."""
_HEAD_OF_CHUNKS: Final = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
"""llhttp needs a head before chunks. This one is minimal: the request's own was parsed before."""


class Body:
    """
    The body after one head. `deliver` is called with each piece of its content.

    `is_complete`: its end has arrived. `has_more`: bytes arrived after that end.
    """

    def __init__(self, head: Head, deliver: Callable[[bytes], None]) -> None:
        self._deliver = deliver
        self._left = head.content_length or 0
        self._chunks = HttpRequestParser(self) if head.is_chunked else None
        self.is_complete = not head.is_chunked and self._left == 0
        self.has_more = False
        self.wire_size_bytes = 0
        self._size_bytes = 0
        if self._chunks is not None:
            self._chunks.feed_data(_HEAD_OF_CHUNKS)

    def feed(self, data: bytes) -> None:
        """
        Parse bytes that have arrived.

        Raises:
            RefusedRequestError: if they are not chunks, or chunks with little content.
        """
        if self.is_complete:
            self._end(data)
            return
        self.wire_size_bytes += len(data)
        if self._chunks is None:
            mine = data[: self._left]
            self._left -= len(mine)
            self.is_complete = self._left == 0
            self._deliver(mine)
            self._end(data[len(mine) :])
            return
        self._feed_chunks(self._chunks, data)

    def _feed_chunks(self, chunks: HttpRequestParser, data: bytes) -> None:
        try:
            chunks.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self.is_complete:
                raise RefusedRequestError(400, f"expected chunks as HTTP/1.1 has them: {error}") from error
            self.has_more = True
        if not self.is_complete and self.wire_size_bytes > OVERHEAD_BYTES_MAX + _OVERHEAD_RATIO * self._size_bytes:
            raise RefusedRequestError(400, "expected chunks with content, found little else than their heads")

    def _end(self, behind: bytes) -> None:
        """Some clients end a body with an empty line that belongs to nothing (RFC 9112, section 2.2)."""
        self.has_more = self.has_more or bool(behind.strip(b"\r\n"))

    def on_body(self, content: bytes) -> None:
        """Called by the parser."""
        if not self.is_complete:
            self._size_bytes += len(content)
            self._deliver(content)

    def on_message_complete(self) -> None:
        """Called by the parser: where chunks end."""
        self.is_complete = True

    def on_message_begin(self) -> None:
        """Called by the parser: at the body's own head, and again if bytes follow after the end."""
        self.has_more = self.is_complete
