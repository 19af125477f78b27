# SPDX-License-Identifier: Apache-2.0
"""
One connection: a request arrives, is answered, and the next one may come.

It is always in one stage. Each stage that waits for the peer has a deadline, and an effect when it passes:

    TLS      the handshake is not complete            closed (`tls.py`)
    IDLE     nothing of a request has arrived         closed
    HEAD     a part of its head has                   408
    BODY     its head has, its body not yet           408, unless it keeps the least rate
    ANSWER   it has arrived and is being answered     none here: the application has its own
    DRAIN    it was answered, the connection ends     closed

Guarantee: one request at a time. Bytes that arrive after a request and before its answer are never parsed as another
request: the answer says `Connection: close`. So if a proxy and this server read a request differently, no second
request comes of it (request smuggling).

A client that is still sending when it is refused would lose the answer if the connection were closed at once: TCP
resets a connection that is closed with unread bytes, and the answer is lost. So further bytes are read and discarded
for a while (RFC 9112, section 9.6), bounded in number and time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final, cast
from urllib.parse import unquote

from starlette.types import ASGIApp, Scope
from uvicorn.server import ServerState

from gateway.http.server.body import Body
from gateway.http.server.clients import parse_address, peer_of
from gateway.http.server.connections import Connections
from gateway.http.server.exchange import Exchange, format_error
from gateway.http.server.head import END_OF_HEAD, Head, RefusedRequestError, check_partial_head, parse_head
from projections.egress.addresses import Address

REFUSED_TIMEOUT_S: Final = 5.0
"""How long a connection beyond the limit may take to read its refusal."""
STOPPING_TIMEOUT_S: Final = 1.0
"""How long a connection that only drains delays a shutdown."""
CLIENT_CERTIFICATE: Final = "lakeproof.client_certificate"
"""The extension of an ASGI scope that has the client's certificate, which TLS has verified, in DER."""
PEER: Final = "lakeproof.peer"
"""The extension of an ASGI scope that has the address of the connection, whatever a proxy says of its client; only a
request with a `Client-Cert` has it, and no request of another process of this gateway."""
RETRY_AFTER: Final = ((b"retry-after", b"1"),)
_CRLF: Final = b"\r\n"


class Stage(Enum):
    """The stage of a connection; see above."""

    TLS = auto()
    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    ANSWER = auto()
    DRAIN = auto()
    CLOSED = auto()


class Connection(asyncio.Protocol):
    """One connection, counted in `connections`; `state` is uvicorn's set of open connections. Event loop only."""

    def __init__(
        self, app: ASGIApp, connections: Connections, state: ServerState, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._app = app
        self._connections = connections
        self._bounds = connections.bounds
        self._state = state
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._address: Address | None = None
        self._client: tuple[str, int] | None = None
        """The peer's address and port, as ASGI has them."""
        self._scheme = "http"
        self._certificate: bytes | None = None
        self._server: tuple[str, int] | None = None
        self.peer = b""
        self.since_s = 0.0
        self._stage = Stage.IDLE
        self._timeout_s = 0.0
        self._keeps_alive = False
        self._deadline: asyncio.TimerHandle | None = None
        self._write_deadline: asyncio.TimerHandle | None = None
        self._head = bytearray()
        self._body: Body | None = None
        self._exchange: Exchange | None = None
        self._drained = 0
        self._reads = True
        self._not_read_since_s = 0.0
        self._writable_again: asyncio.Event | None = None
        """Set once the peer has read most of what was written; None while it has."""
        self._is_half_closed = False
        self._is_stopping = False

    # --- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request, or answer that there are too many connections."""
        # By its methods: the transports of uvloop are no subclasses of `asyncio.Transport`.
        self._transport = cast("asyncio.Transport", transport)
        peer, server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if isinstance(peer, tuple):
            self._address = parse_address(str(peer[0]))
            self._client = None if self._address is None else (str(self._address), int(peer[1]))
        if isinstance(server, tuple):
            self._server = (str(server[0]), int(server[1]))
        has_tls = transport.get_extra_info("sslcontext") is not None
        self._scheme = "https" if has_tls else "http"
        self.peer = b"" if self._address is None else peer_of(self._address)
        self._state.connections.add(self)  # type: ignore[arg-type]  # all that uvicorn calls of it is `shutdown`
        self._enter(Stage.TLS if has_tls else Stage.IDLE)
        # Another process of this gateway, on a Unix socket, has bounded its own connections.
        if isinstance(server, tuple) and not self._connections.admit(self):
            if has_tls or self._connections.is_overrun:  # an answer is not worth a handshake
                self.abort()
            else:
                self._refuse(503, "there are too many connections, from this address or in all: try again")

    def data_received(self, data: bytes) -> None:
        """Process bytes that have arrived."""
        match self._stage:
            case Stage.IDLE | Stage.HEAD:
                self._read_head(data)
            case Stage.BODY:
                self._read_body(data)
            case Stage.ANSWER:
                if self._body is not None:
                    self._body.feed(data)
                self._read_no_more()
            case Stage.DRAIN:
                self._drain(data)
            case Stage.TLS | Stage.CLOSED:
                pass

    def eof_received(self) -> bool:
        """The peer has finished sending. The answer to a complete request is still sent."""
        if self._stage is Stage.ANSWER:
            self._is_half_closed = True
            if self._exchange is not None:
                self._exchange.peer_finished()
            return True
        self._lose()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why it ended makes no difference
        """The connection is closed: cancel all timers and the exchange."""
        self._lose()
        self._stage = Stage.CLOSED
        self._state.connections.discard(self)
        self._connections.forget(self)
        for handle in (self._deadline, self._write_deadline):
            if handle is not None:
                handle.cancel()
        self._go_on_writing()

    def pause_writing(self) -> None:
        """Wait, with a bound, until the peer has read what was written."""
        self._writable_again = asyncio.Event()
        self._bound_writing()

    def resume_writing(self) -> None:
        """Write again."""
        self._go_on_writing()
        if self._write_deadline is not None and self._stage is not Stage.CLOSED:
            self._write_deadline.cancel()
            self._write_deadline = None

    def shutdown(self) -> None:
        """Called by uvicorn on shutdown: finish the current request; an answer without end is told to end."""
        self._is_stopping = True
        if self._stage in {Stage.IDLE, Stage.HEAD}:
            self._close()
        elif self._stage is Stage.TLS:
            self.abort()
        elif self._stage is Stage.ANSWER and self._exchange is not None:
            self._exchange.stop()
        elif self._stage is Stage.DRAIN:
            self._loop.call_later(STOPPING_TIMEOUT_S, self.abort)

    # --- for `TlsConnection`

    def agreed(self, certificate: bytes | None) -> None:
        """The handshake is complete; `certificate` is the client's, verified, in DER (None: it has shown none)."""
        self._certificate = certificate
        if self._stage is Stage.TLS:
            self._enter(Stage.IDLE)

    def end(self) -> None:
        """The peer's TLS has ended or is broken: send what is left to be sent, within a bound, and close."""
        self._close()

    def refuse_plain(self) -> None:
        """Answer a request that came without TLS."""
        self._refuse(400, "expected TLS, found plain HTTP: write https:// in the URL instead of http://")

    # --- for `Connections`

    @property
    def owes_us(self) -> bool:
        """Whether the next step is the peer's: to send a request or the rest of it, or to read."""
        return self._stage is not Stage.ANSWER or not self.is_writable

    def give_way(self) -> None:
        """End at once, to make room for another connection."""
        self.abort()

    # --- for `Exchange` (its protocol `Wire`)

    def write(self, data: bytes) -> None:
        """Send `data`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    @property
    def is_writable(self) -> bool:
        """Whether the peer has read most of what was written."""
        return self._writable_again is None

    async def drained(self) -> None:
        """Wait until it has."""
        if self._writable_again is not None:
            await self._writable_again.wait()

    def read_on(self) -> None:
        """Read again; time in which we did not read does not count against the peer."""
        if self._stage is Stage.BODY and not self._reads and self._transport is not None:
            self._reads = True
            self.since_s += self._loop.time() - self._not_read_since_s
            self._transport.resume_reading()
            self._arm()

    def may_stay_open(self) -> bool:
        """Return whether another request may follow an answer that begins now."""
        is_over = self._is_stopping or self._is_half_closed or not self._keeps_alive
        return not is_over and self._stage is Stage.ANSWER and self._body is not None and not self._body.has_more

    def answered(self, *, stays_open: bool) -> None:
        """Wait for the next request, or end."""
        self._state.total_requests += 1
        body = self._body
        ends = self._is_stopping or self._is_half_closed
        if stays_open and body is not None and not body.has_more and not ends:
            self._exchange = self._body = None
            self._enter(Stage.IDLE)
            self._read_again()
        elif body is not None and body.is_complete and not body.has_more:
            self._close()
        else:
            self._linger(self._bounds.drain_timeout_s)

    def abort(self) -> None:
        """End the connection at once."""
        self._stage = Stage.CLOSED
        if self._transport is not None:
            self._transport.abort()

    # --- reading

    def _read_head(self, data: bytes) -> None:
        end = -1 if self._head else data.find(END_OF_HEAD)
        if end < 0 or data.startswith(_CRLF):
            self._read_part_of_head(data)
            return
        # As a rule, a head arrives in one piece. There is no time in which the rest of it would have to come.
        end += len(END_OF_HEAD)
        try:
            self._begin(parse_head(data[:end]), data[end:])
        except RefusedRequestError as error:
            self._refuse(error.status, str(error), is_to_head=data.startswith(b"HEAD "))

    def _read_part_of_head(self, data: bytes) -> None:
        if self._stage is Stage.IDLE:
            self._enter(Stage.HEAD)
        scanned = len(self._head)
        self._head += data
        if self._head.startswith(_CRLF):
            # An empty line before a request is ignored (RFC 9112, section 2.2); a second one is not.
            del self._head[: len(_CRLF)]
            scanned = 0
            if not self._head:
                return
        end = self._head.find(END_OF_HEAD, max(scanned - len(END_OF_HEAD) + 1, 0))
        is_to_head = self._head.startswith(b"HEAD ")
        try:
            if end < 0:
                if self._head != b"\r":
                    check_partial_head(self._head, scanned=scanned)
                return
            end += len(END_OF_HEAD)
            head = parse_head(bytes(self._head[:end]))
            rest = bytes(self._head[end:])
            self._head.clear()
            self._begin(head, rest)
        except RefusedRequestError as error:
            self._refuse(error.status, str(error), is_to_head=is_to_head)

    def _begin(self, head: Head, rest: bytes) -> None:
        """Start the application on a request, whose body may still arrive."""
        proxies = self._connections.proxies
        client = proxies.client(self._address, head.headers) if proxies.networks else self._address
        if client is not self._address and client is not None and client != self._address:
            named = peer_of(client)
            if not self._connections.count_as(self, named, lambda: setattr(self, "peer", named)):
                raise RefusedRequestError(503, "there are too many connections from this address: try again")
        self._body = body = Body(head, self._deliver)
        self._exchange = exchange = Exchange(
            self,
            self._scope(head, client, self._scheme_of(head)),
            default_headers=self._state.default_headers,
            expects_continue=head.expects_continue,
        )
        self._keeps_alive = head.keeps_alive
        task = self._loop.create_task(exchange.run(self._app))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)
        if body.is_complete and not rest:
            self._enter(Stage.ANSWER)
            exchange.body_arrived()
        else:
            self._enter(Stage.BODY)
            self._read_body(rest)

    def _scheme_of(self, head: Head) -> str:
        """How the client's request came: over TLS to us, or to a trusted proxy that says so."""
        proxies = self._connections.proxies
        return "https" if proxies.networks and proxies.is_https(self._address, head.headers) else self._scheme

    def _scope(self, head: Head, client: Address | None, scheme: str) -> Scope:
        """The request as an ASGI scope; `client` is None if it is unknown."""
        peer = self._client if client is self._address else None
        path = head.path.decode("ascii")
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.version,
            "method": head.method,
            "scheme": scheme,
            "path": unquote(path) if "%" in path else path,
            "raw_path": head.path,
            "query_string": head.query,
            "root_path": "",
            "headers": head.headers,
            "client": peer or (None if client is None else (str(client), 0)),
            "server": self._server,
            "state": {},
        }
        if self._certificate is not None:
            scope["extensions"] = {CLIENT_CERTIFICATE: self._certificate}
        if head.has_client_cert and self._address is not None:
            scope.setdefault("extensions", {})[PEER] = self._address
        return scope

    def _read_body(self, data: bytes) -> None:
        body, exchange = self._body, self._exchange
        if body is None or exchange is None:
            return
        try:
            body.feed(data)
        except RefusedRequestError as error:
            self._refuse(error.status, str(error))
            return
        if body.is_complete:
            self._enter(Stage.ANSWER)
            exchange.body_arrived()
            if body.has_more:
                self._read_no_more()
        elif exchange.is_full:
            self._read_no_more()

    def _deliver(self, content: bytes) -> None:
        if self._exchange is not None:
            self._exchange.put(content)

    def _drain(self, data: bytes) -> None:
        """Discard further bytes; after the end of the body, or beyond the bound, nothing more is read."""
        self._drained += len(data)
        if self._drained > self._bounds.drain_bytes_max:
            self._read_no_more()
            self._close()
            return
        if self._body is not None and not self._body.is_complete:
            try:
                self._body.feed(data)
            except RefusedRequestError:
                self._body = None  # where the body ends is no longer known: only bytes and time bound the draining
                return
            if self._body.is_complete and not self._body.has_more:
                self._close()

    def _read_no_more(self) -> None:
        if self._reads and self._transport is not None and not self._transport.is_closing():
            self._reads = False
            self._not_read_since_s = self._loop.time()
            self._transport.pause_reading()

    def _read_again(self) -> None:
        if not self._reads and self._transport is not None and not self._transport.is_closing():
            self._reads = True
            self._transport.resume_reading()

    # --- ending

    def _refuse(self, status: int, message: str, *, is_to_head: bool = False) -> None:
        """Answer instead of the application, and end. If it has begun to answer, only end."""
        exchange = self._exchange
        if exchange is not None:
            is_to_head = is_to_head or exchange.is_to_head
            exchange.give_up()
        if exchange is not None and exchange.is_started:
            self.abort()
            return
        self.write(
            format_error(
                status,
                message,
                default_headers=self._state.default_headers,
                is_to_head=is_to_head,
                headers=RETRY_AFTER if status == 503 else (),
            )
        )
        if status in {400, 408}:
            self._body = None  # where the body ends is unknown, or not waited for
        self._linger(REFUSED_TIMEOUT_S if status == 503 else self._bounds.drain_timeout_s)

    def _linger(self, timeout_s: float) -> None:
        """Finish writing, and read on for a while, so that the answer is not lost."""
        self._enter(Stage.DRAIN, timeout_s=timeout_s)
        if self._transport is not None and not self._transport.is_closing():
            if self._transport.can_write_eof():
                with suppress(OSError):  # the connection is lost already, and `connection_lost` follows
                    self._transport.write_eof()
            self._read_again()

    def _close(self) -> None:
        """End the connection once the peer has read what was written, within a bound."""
        self._stage = Stage.CLOSED
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.close()
        self._bound_writing()

    def _bound_writing(self) -> None:
        if self._transport is not None and (waiting := self._transport.get_write_buffer_size()):
            if self._write_deadline is not None:
                self._write_deadline.cancel()
            timeout_s = self._bounds.stall_timeout_s + waiting / self._bounds.rate_min_bytes_per_s
            self._write_deadline = self._loop.call_later(timeout_s, self.abort)

    def _go_on_writing(self) -> None:
        if self._writable_again is not None:
            self._writable_again.set()
            self._writable_again = None

    def _lose(self) -> None:
        if self._exchange is not None and not self._exchange.is_complete:
            self._exchange.give_up()

    # --- deadlines

    def _enter(self, stage: Stage, *, timeout_s: float = 0.0) -> None:
        self._stage, self.since_s, self._timeout_s = stage, self._loop.time(), timeout_s
        if stage is not Stage.ANSWER:
            self._arm()

    def _due_s(self) -> float | None:
        """When the peer's deadline passes; None if the connection does not wait for the peer."""
        match self._stage:
            case Stage.IDLE:
                return self.since_s + self._bounds.idle_timeout_s
            case Stage.TLS | Stage.HEAD:
                return self.since_s + self._bounds.head_timeout_s
            case Stage.BODY if self._reads and self._body is not None:
                arrived = self._body.wire_size_bytes / self._bounds.rate_min_bytes_per_s
                return self.since_s + self._bounds.stall_timeout_s + arrived
            case Stage.DRAIN:
                return self.since_s + self._timeout_s
        return None

    def _arm(self) -> None:
        """Set a timer for the deadline. An earlier timer is kept: when it fires it checks, and is set again."""
        due_s = self._due_s()
        if due_s is None or (self._deadline is not None and self._deadline.when() <= due_s):
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_at(due_s, self._look)

    def _look(self) -> None:
        self._deadline = None
        due_s = self._due_s()
        if due_s is None:
            return
        if self._loop.time() < due_s:
            self._arm()
            return
        match self._stage:
            case Stage.TLS:
                self.abort()
            case Stage.IDLE:
                self._close()
            case Stage.HEAD:
                self._refuse(408, "expected a whole head in time")
            case Stage.BODY:
                self._refuse(408, "expected a body that arrives in time")
            case Stage.DRAIN:
                self._close()


def connections_made_by(app: ASGIApp, connections: Connections) -> Callable[..., Connection]:
    """Return the factory with which uvicorn makes connections, instead of its own protocol class."""

    def make(*, server_state: ServerState, _loop: asyncio.AbstractEventLoop | None = None, **_: object) -> Connection:
        return Connection(app, connections, server_state, _loop or asyncio.get_running_loop())

    return make
