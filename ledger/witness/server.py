# SPDX-License-Identifier: Apache-2.0
"""
A witness over HTTP (C2SP tlog-witness, "HTTP Interface"): submission and monitoring under one prefix.

    POST /add-checkpoint                   200 signature lines, 400, 403, 404, 409 with the size, 422
    GET /<hash of origin>/checkpoint       200 the checkpoint cosigned last, 404

Anyone may send requests: the log's signature decides. So every request is bounded in size and time, and an unknown one
gets a short response. 503 means that the disk failed, and that nothing was cosigned. `sign-subtree` is optional, and
not implemented.

Guarantee: whatever clients do or fail to do, no connection outlives its deadline, there are never more than
`connections_max`, and a new one is always accepted unless a complete request is being answered on every other. uvicorn
alone waits for a first request without end, counts silent clients as work, and keeps clients that do not read their
responses.

A connection is always in one of three stages, each with a deadline after which it is aborted: its next request arrives,
a request is answered, or it is idle. A client whose turn it is (to send a request, to send the rest of a body, to read
a response) may lose the connection at any time, which HTTP allows (RFC 9112, section 9.5). It is taken from the peer
that has most of them, and there from the one that has waited longest. So a peer that opens ever more connections
displaces only its own, and behind a proxy, where all come from one address, active clients are served.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import IPv6Address, ip_address
from typing import Any, ClassVar, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ledger.errors import LedgerError
from ledger.witness.rules import REQUEST_SIZE_BYTES_MAX, SIZE_CONTENT_TYPE, Refusal, RefusedError
from ledger.witness.witness import Witness

KEEP_ALIVE_S: Final = 75
_NETWORK_SIZE_BYTES: Final = 8
"""The part of an IPv6 address that identifies a peer: the rest can be chosen freely (RFC 4291, section 2.5.1)."""

BODY_TIMEOUT_S: Final = 10.0
ANSWERS_MAX: Final = 512
"""Responses in progress over all connections, including those of clients that have gone; more get 503."""
TEXT: Final = "text/plain; charset=utf-8"
_HASH: Final = re.compile("[0-9a-f]{64}")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """
    Bounds on connections: how many, and how long each stage may take.

    `head_timeout_s` is for the head of a request. The application bounds the body itself, and `answer_timeout_s` the
    whole response.
    """

    connections_max: int
    head_timeout_s: float
    answer_timeout_s: float
    idle_timeout_s: float


class ConnectionStage(Enum):
    """What a connection waits for."""

    HEAD = auto()
    ANSWER = auto()
    IDLE = auto()


class BoundedConnection(H11Protocol):
    """One connection within `limits`, a constant of the class, because uvicorn makes the connections."""

    limits: ClassVar[Limits] = Limits(
        connections_max=256, head_timeout_s=10.0, answer_timeout_s=60.0, idle_timeout_s=KEEP_ALIVE_S
    )

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        # Only the event loop's thread touches these: the protocol's callbacks and the timer of the deadline.
        self._stage: ConnectionStage | None = None
        self.since_s = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self.is_cut_off = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as H11Protocol has it
        """Start to wait for the first request; if there are too many connections, abort one."""
        super().connection_made(transport)
        self._enter(ConnectionStage.HEAD)
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """Process what has arrived; bytes that complete no head do not extend the deadline."""
        super().data_received(data)
        self._enter(ConnectionStage.ANSWER if self._is_answering else ConnectionStage.HEAD)

    def on_response_complete(self) -> None:
        """Wait for the next request, or answer it if it has arrived already."""
        self._enter(ConnectionStage.IDLE)
        super().on_response_complete()
        if self._is_answering:
            self._enter(ConnectionStage.ANSWER)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadline."""
        super().connection_lost(exc)
        self.is_cut_off = True
        if self._deadline is not None:
            self._deadline.cancel()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]  # None at first

    @property
    def waits_for_peer(self) -> bool:
        """Whether the next step is the peer's: to send a request or the rest of a body, or to read."""
        return not self._is_answering or self.cycle.more_body or self.flow.write_paused

    @property
    def peer(self) -> bytes:
        """The client: an IPv4 address, the network of an IPv6 one, or empty if that is not known."""
        if self.client is None:
            return b""
        address = ip_address(self.client[0].partition("%")[0])
        return address.packed[:_NETWORK_SIZE_BYTES] if isinstance(address, IPv6Address) else address.packed

    def _enter(self, stage: ConnectionStage) -> None:
        """Set the deadline of a stage; a stage that continues keeps its deadline."""
        if stage is self._stage or self.is_cut_off:
            return
        timeouts_s = {
            ConnectionStage.HEAD: self.limits.head_timeout_s,
            ConnectionStage.ANSWER: self.limits.answer_timeout_s,
            ConnectionStage.IDLE: self.limits.idle_timeout_s,
        }
        if self._deadline is not None:
            self._deadline.cancel()
        self._stage, self.since_s = stage, self.loop.time()
        self._deadline = self.loop.call_later(timeouts_s[stage], self.cut_off)

    def cut_off(self) -> None:
        """Abort the connection: closing it would wait until the peer has read what was written to it."""
        self.is_cut_off = True
        self.transport.abort()

    def _make_room(self) -> None:
        """If there are too many connections, abort one; this new one is a candidate, too."""
        open_ones = [one for one in self.connections if isinstance(one, BoundedConnection) and not one.is_cut_off]
        if len(open_ones) > self.limits.connections_max:
            counts = Counter(one.peer for one in open_ones)
            idle = [one for one in open_ones if one.waits_for_peer]
            max(idle, key=lambda one: (counts[one.peer], -one.since_s)).cut_off()


def witness_app(witness: Witness) -> Starlette:
    """Return the application that serves `witness`."""

    async def add_checkpoint(request: Request) -> Response:
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await _read_body(request)
        except TimeoutError:
            return _respond_and_close(408, f"the request took more than {BODY_TIMEOUT_S:.0f} s to arrive\n")
        except ClientDisconnect:
            return _respond_and_close(400, "the request was cut\n")
        if body is None:
            return _respond_and_close(413, f"expected at most {REQUEST_SIZE_BYTES_MAX} bytes\n")
        return await asyncio.to_thread(_cosign, witness, body)

    async def checkpoint(request: Request) -> Response:
        origin_hash = request.path_params["origin_hash"]
        if not _HASH.fullmatch(origin_hash):
            return _respond(404, "expected SHA-256 of an origin in lower-case hex\n")
        try:
            note = await asyncio.to_thread(witness.cosigned_note, origin_hash)
        except LedgerError as error:
            return _respond_unavailable(error)
        return _respond(404, "no checkpoint of that log was cosigned\n") if note is None else _respond(200, note)

    return Starlette(
        routes=[
            Route("/add-checkpoint", add_checkpoint, methods=["POST"]),
            Route("/{origin_hash}/checkpoint", checkpoint, methods=["GET"]),
        ]
    )


def serve(witness: Witness, *, host: str, port: int) -> None:
    """
    Serve `witness` until the process is stopped; requests in progress are finished.

    Raises:
        OSError: if the address cannot be listened on.
    """
    config = server_config(witness_app(witness))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=128) as listener:
        uvicorn.Server(config).run([listener])


def server_config(app: Starlette, connection: type[BoundedConnection] = BoundedConnection) -> uvicorn.Config:
    """Return how an application is served to anyone, over connections that are bounded as `connection` says."""
    return uvicorn.Config(
        app,
        http=connection,
        ws="none",  # a connection that changed to another protocol would not be bounded
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        limit_concurrency=ANSWERS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=30,
    )


def _cosign(witness: Witness, body: bytes) -> Response:
    try:
        return _respond(200, witness.add_checkpoint(body))
    except RefusedError as error:
        if error.refusal is Refusal.CONFLICT:
            return _respond(error.refusal, f"{error.size}\n", content_type=SIZE_CONTENT_TYPE)
        if error.refusal is Refusal.INCONSISTENT:
            _log.warning("refused, and perhaps proof that a log forks: %s", error)
        return _respond(error.refusal, f"{' '.join(str(error).split())}\n")
    except LedgerError as error:  # any other error: nothing was cosigned
        return _respond_unavailable(error)


async def _read_body(request: Request) -> bytes | None:
    """Return the body, None as soon as it is too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > REQUEST_SIZE_BYTES_MAX:
            return None
    return bytes(body)


def _respond_unavailable(error: LedgerError) -> Response:
    _log.error("%s", error)
    return _respond(503, "the witness cannot cosign now\n")


def _respond_and_close(status: int, text: str) -> Response:
    """Respond and close the connection: otherwise the rest of the body would be read, however long it is."""
    response = _respond(status, text)
    response.headers["connection"] = "close"
    return response


def _respond(status: int, content: str | bytes, *, content_type: str = TEXT) -> Response:
    # As a header, not a media type: Starlette would add a charset to a text type, which the size must not have.
    return Response(content, status_code=status, headers={"content-type": content_type})
