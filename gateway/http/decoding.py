# SPDX-License-Identifier: Apache-2.0
"""
Decompresses request bodies (`Content-Encoding: gzip`).

A body is expanded piece by piece as the application reads, and the application stops at its own cap: a small body that
expands without end is never expanded further than that. The compressed bytes have a cap as well, since they may expand
to nothing.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.errors import BadRequestError, TooLargeError, UnsupportedEncodingError

GZIP: Final = frozenset({b"gzip", b"x-gzip"})
PIECE_SIZE_BYTES: Final = 256 * 1024
_GZIP_MEMBER: Final = 16 + zlib.MAX_WBITS
"""To zlib: a gzip header, checked with its checksum and size at the end (RFC 1952)."""


class DecodesBodies:
    """Expands gzip; any other coding is refused when the application reads the body."""

    def __init__(self, app: ASGIApp, *, size_bytes_max: int) -> None:
        self._app = app
        self._size_bytes_max = size_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        codings = [value.strip().lower() for name, value in scope["headers"] if name == b"content-encoding"]
        if not codings or codings == [b"identity"]:
            await self._app(scope, receive, send)
            return
        # These headers describe the compressed body; the application reads the expanded one.
        headers = [pair for pair in scope["headers"] if pair[0] not in {b"content-encoding", b"content-length"}]
        if len(codings) == 1 and codings[0] in GZIP:
            expanding = _Expanding(receive, size_bytes_max=self._size_bytes_max)
            await self._app({**scope, "headers": headers}, expanding.receive, send)
            return

        async def refuse() -> Message:
            raise UnsupportedEncodingError("expected a body without Content-Encoding or in gzip, found another")

        await self._app({**scope, "headers": headers}, refuse, send)


class _Expanding:
    """One body: `receive` replaces the one that yields compressed bytes."""

    def __init__(self, receive: Receive, *, size_bytes_max: int) -> None:
        self._receive = receive
        self._size_bytes_max = size_bytes_max
        self._expander = zlib.decompressobj(_GZIP_MEMBER)
        self._left = b""
        self._more = True
        self._arrived = 0

    async def receive(self) -> Message:
        """
        Return the next piece.

        Raises:
            BadRequestError: if the body is not one whole gzip member and nothing else.
            TooLargeError: if it is over the cap even compressed.
        """
        while True:
            if not self._left and self._more:
                message = await self._receive()
                if message["type"] != "http.request":
                    return message
                self._left, self._more = message.get("body", b""), message.get("more_body", False)
                self._arrived += len(self._left)
                if self._arrived > self._size_bytes_max:
                    raise TooLargeError(f"expected a body of at most {self._size_bytes_max} bytes, found more")
            content = self._expand()
            is_over = self._expander.eof and not self._more and not self._left
            if is_over or content:
                await asyncio.sleep(0)  # yields: pieces that have arrived already must not hold up other requests
                return {"type": "http.request", "body": content, "more_body": not is_over}
            if not self._left and not self._more:
                raise BadRequestError("expected a whole body in gzip, found one that ends too early", field="body")

    def _expand(self) -> bytes:
        if self._expander.eof:
            if self._left:
                raise BadRequestError("expected one body in gzip, found bytes after its end", field="body")
            return b""
        try:
            content = self._expander.decompress(self._left, PIECE_SIZE_BYTES)
        except zlib.error as error:
            raise BadRequestError("expected a body in gzip, as its Content-Encoding says", field="body") from error
        self._left = self._expander.unconsumed_tail or self._expander.unused_data
        return content
