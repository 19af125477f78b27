# SPDX-License-Identifier: Apache-2.0
"""
TLS between the TCP connection and a `Connection`, by OpenSSL in memory (`ssl.MemoryBIO`).

    TCP transport  ── bytes ──►  TlsConnection  ── content ──►  Connection

A `Connection` is made, and counted, when TCP's is: the handshake is its first stage, with a deadline. The event loop's
own TLS cannot do that: it calls a protocol when the handshake is over, so unfinished ones would have no bounds. Nor
does `loop.start_tls` help. It takes no bytes that were read before, so what a client without TLS has sent cannot be
looked at and answered. asyncio's also hands on content before it returns, when nobody is there to take it.

OpenSSL is given what has arrived and reads all complete records of it at once, so nothing readable is ever left behind
when reading pauses. What it writes is sent at once; the buffer of the TCP transport is the only one. It answers each
key update by itself, so a peer could make that buffer grow without a request: see `REPLIES_BYTES_MAX`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

from starlette.types import ASGIApp
from uvicorn.server import ServerState

from gateway.http.server.connection import Connection
from gateway.http.server.connections import Connections

RECORD_SIZE_BYTES_MAX: Final = 16 * 1024
"""Content of one record (RFC 8446, section 5.1)."""
FLUSHED_BYTES: Final = 256 * 1024
"""Records are handed to TCP from this size on: a large answer must not be held once more as a whole."""
REPLIES_BYTES_MAX: Final = 1024 * 1024
"""Answers to key updates (27 bytes each) that may wait for a peer to read; beyond it the connection is ended."""
_METHOD: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""First bytes of a request of plain HTTP; no record of TLS begins with one."""

CurrentContext: TypeAlias = Callable[[], ssl.SSLContext]
"""Returns what the next connection is served with."""


def tls_connections_made_by(
    app: ASGIApp, connections: Connections, context: CurrentContext
) -> Callable[..., asyncio.Protocol]:
    """Return the factory with which uvicorn makes connections that speak TLS."""

    def make(
        *, server_state: ServerState, _loop: asyncio.AbstractEventLoop | None = None, **_: object
    ) -> TlsConnection:
        loop = _loop or asyncio.get_running_loop()
        return TlsConnection(Connection(app, connections, server_state, loop), context())

    return make


class TlsConnection(asyncio.Protocol):
    """The protocol of a TCP transport, and the transport of `connection`. Event loop only."""

    def __init__(self, connection: Connection, context: ssl.SSLContext) -> None:
        self._connection = connection
        self._context = context
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        # None once the connection is lost: OpenSSL's state of 50 KB must not wait for a collection of garbage.
        self._tls: ssl.SSLObject | None = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._transport: asyncio.Transport | None = None
        self._has_begun = False
        """Something has arrived."""
        self._is_agreed = False
        self._is_plain = False
        self._is_ended = False
        """The peer sends nothing more that counts."""
        self._was_closed = False
        self._replied_bytes = 0
        """What OpenSSL has answered by itself since the peer had read everything."""

    # --- the side of TCP

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have the connection counted, before anything has arrived."""
        self._transport = cast("asyncio.Transport", transport)
        self._connection.connection_made(cast("asyncio.Transport", self))

    def data_received(self, data: bytes) -> None:
        """Process bytes that have arrived."""
        tls = self._tls
        if self._is_plain:
            self._connection.data_received(data)
            return
        if tls is None or self._is_ended:
            return
        if not self._has_begun:
            self._has_begun = True
            if data[0] in _METHOD:
                self._is_plain = True
                self._connection.refuse_plain()
                return
        self._incoming.write(data)
        if self._is_agreed or self._agree(tls):
            self._read(tls)

    def eof_received(self) -> bool:
        """The peer has finished sending."""
        if not self._is_agreed and not self._is_plain:
            return False
        return self._is_ended or self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._tls = None
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer does not read what is sent."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._connection.resume_writing()

    def _agree(self, tls: ssl.SSLObject) -> bool:
        """Go on with the handshake; return whether it is complete."""
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError:
            self._fail()
            return False
        self._is_agreed = True
        self._flush()
        self._connection.agreed(tls.getpeercert(binary_form=True))
        return True

    def _read(self, tls: ssl.SSLObject) -> None:
        """Hand on the content of all records that have arrived."""
        pieces = []
        try:
            while piece := tls.read(RECORD_SIZE_BYTES_MAX):
                pieces.append(piece)
            self._is_ended = True  # an alert says so (`close_notify`)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self._fail()
            return
        self._reply()
        if pieces:
            self._connection.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._is_ended and not self._connection.eof_received():
            self._connection.end()

    def _reply(self) -> None:
        """Send what OpenSSL answers by itself, to a peer that reads it."""
        if not self._outgoing.pending:
            return
        self._replied_bytes = self._outgoing.pending + (self._replied_bytes if self.get_write_buffer_size() else 0)
        if self._replied_bytes > REPLIES_BYTES_MAX:
            self.abort()
        else:
            self._flush()

    def _fail(self) -> None:
        """End after an error of OpenSSL, whose alert tells the peer why."""
        self._is_ended = True
        self._flush()
        self._connection.end()

    def _flush(self) -> None:
        if self._outgoing.pending and self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    # --- the side of `Connection`: what it uses of a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection; `sslcontext` is that of TLS."""
        if name == "sslcontext":
            return self._context
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Return whether nothing can be written any more."""
        return self._was_closed or self._transport is None or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send content."""
        if self._transport is None or self._tls is None:
            return
        if self._is_plain:
            self._transport.write(data)
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
                if self._outgoing.pending >= FLUSHED_BYTES:
                    self._flush()
        except ssl.SSLError:
            self.abort()
            return
        self._flush()

    def can_write_eof(self) -> bool:
        """Return whether the end of what is sent can be told before the connection is closed."""
        return self._is_plain or self._is_agreed

    def write_eof(self) -> None:
        """Tell the peer that nothing more is sent (RFC 8446, section 6.1); it may go on sending."""
        self._close_notify()
        if self._transport is not None:
            self._transport.write_eof()

    def close(self) -> None:
        """Tell the peer the end, and close the connection once everything was sent; its own alert is not awaited."""
        if not self.is_closing():
            self._was_closed = True
            self._close_notify()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Read nothing more for now."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _close_notify(self) -> None:
        if self._is_agreed and self._tls is not None:
            with suppress(ssl.SSLError):  # it was sent before, or the peer's alert has not arrived, which nobody awaits
                self._tls.unwrap()
            self._flush()
