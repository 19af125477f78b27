"""
A witness on HTTP (C2SP tlog-witness, "HTTP Interface"): submission and monitoring under one prefix.

    POST /add-checkpoint                   200 signature lines, 400, 403, 404, 409 with the size, 422
    GET /<hash of origin>/checkpoint       200 the checkpoint cosigned last, 404

Anyone may ask: what counts is the log's signature. So every request is bounded in size and time, and what is unknown
gets a short answer. 503 says that the disk failed, and that nothing was cosigned. `sign-subtree` is optional, and not
here.

Guarantee: whatever those who connect do or leave undone, no connection outlives its deadline, there are never more than
`connections_max`, and a new one always finds room unless a complete request is being answered on every other. uvicorn
by itself waits for a first request without end, counts whoever is silent as work, and lets those who do not read what
they are told stay.

A connection is always in one of three stages, each with a deadline of its own, at which it is cut off: its next request
arrives, a request is answered, nothing goes on. Whoever still owes us something (a request, the rest of a body, reading
an answer) may lose the connection at any time, which HTTP allows (RFC 9112, section 9.5). It is taken from the peer
that has most of them, and there from the one that has waited longest: so one peer that opens ever more displaces itself
alone, and behind a proxy, where all come from one address, whoever asks is served.
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
"""Of an IPv6 address, what tells one peer from another: the rest anyone may choose freely (RFC 4291, section 2.5.1)."""

BODY_TIMEOUT_S: Final = 10.0
ANSWERS_MAX: Final = 512
"""Answers under way, those included whose asker has gone: beyond it the next ones are 503. Over all connections."""
TEXT: Final = "text/plain; charset=utf-8"
_HASH: Final = re.compile("[0-9a-f]{64}")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """
    Bounds on connections: how many, and how long each stage may take.

    A request has arrived, for `head_timeout_s`, when its head has: the application bounds the body itself, within
    `answer_timeout_s` of it all.
    """

    connections_max: int
    head_timeout_s: float
    answer_timeout_s: float
    idle_timeout_s: float


class ConnectionStage(Enum):
    """What a connection is waited for."""

    HEAD = auto()
    ANSWER = auto()
    IDLE = auto()


class BoundedConnection(H11Protocol):
    """One connection within `limits`, a constant of the class: uvicorn makes the connections."""

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
        self._stage: ConnectionStage | None = None
        self.since_s = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self.is_cut_off = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as H11Protocol has it
        """Begin to wait for the first request, if there is room."""
        super().connection_made(transport)
        self._enter(ConnectionStage.HEAD)
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take in what has arrived; bytes that complete no head buy no time."""
        super().data_received(data)
        self._enter(ConnectionStage.ANSWER if self._is_answering else ConnectionStage.HEAD)

    def on_response_complete(self) -> None:
        """Wait for the next request, or answer it if it has arrived already."""
        self._enter(ConnectionStage.IDLE)
        super().on_response_complete()
        if self._is_answering:
            self._enter(ConnectionStage.ANSWER)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        super().connection_lost(exc)
        self.is_cut_off = True
        if self._deadline is not None:
            self._deadline.cancel()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]  # None at first

    @property
    def owes_us(self) -> bool:
        """Whether the next step is the peer's: to ask, to send the rest of a body, or to read."""
        return not self._is_answering or self.cycle.more_body or self.flow.write_paused

    @property
    def peer(self) -> bytes:
        """Who has connected: an IPv4 address, the network of an IPv6 one, or empty if that is not known."""
        if self.client is None:
            return b""
        address = ip_address(self.client[0].partition("%")[0])
        return address.packed[:_NETWORK_SIZE_BYTES] if isinstance(address, IPv6Address) else address.packed

    def _enter(self, stage: ConnectionStage) -> None:
        """Set the deadline of a stage; of one that goes on it stays."""
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
        """End the connection now: to close it would wait until the peer has read what was written to it."""
        self.is_cut_off = True
        self.transport.abort()

    def _make_room(self) -> None:
        """If there are too many connections, cut off one; this one is new, and owes us a request itself."""
        there = [one for one in self.connections if isinstance(one, BoundedConnection) and not one.is_cut_off]
        if len(there) > self.limits.connections_max:
            counts = Counter(one.peer for one in there)
            waited_for = [one for one in there if one.owes_us]
            max(waited_for, key=lambda one: (counts[one.peer], -one.since_s)).cut_off()


def witness_app(witness: Witness) -> Starlette:
    """Return the application that serves `witness`."""

    async def add_checkpoint(request: Request) -> Response:
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await _read_body(request)
        except TimeoutError:
            return _hang_up(408, f"the request took more than {BODY_TIMEOUT_S:.0f} s to arrive\n")
        except ClientDisconnect:
            return _hang_up(400, "the request was cut\n")
        if body is None:
            return _hang_up(413, f"expected at most {REQUEST_SIZE_BYTES_MAX} bytes\n")
        return await asyncio.to_thread(_cosign, witness, body)

    async def checkpoint(request: Request) -> Response:
        origin_hash = request.path_params["origin_hash"]
        if not _HASH.fullmatch(origin_hash):
            return _answer(404, "expected SHA-256 of an origin in lower-case hex\n")
        try:
            note = await asyncio.to_thread(witness.cosigned_note, origin_hash)
        except LedgerError as error:
            return _unavailable(error)
        return _answer(404, "no checkpoint of that log was cosigned\n") if note is None else _answer(200, note)

    return Starlette(
        routes=[
            Route("/add-checkpoint", add_checkpoint, methods=["POST"]),
            Route("/{origin_hash}/checkpoint", checkpoint, methods=["GET"]),
        ]
    )


def serve(witness: Witness, *, host: str, port: int) -> None:
    """
    Serve `witness` until the process is told to end; requests under way are finished.

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
        ws="none",  # a connection that changed to another protocol would be out of bounds
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
        return _answer(200, witness.add_checkpoint(body))
    except RefusedError as error:
        if error.refusal is Refusal.CONFLICT:
            return _answer(error.refusal, f"{error.size}\n", content_type=SIZE_CONTENT_TYPE)
        if error.refusal is Refusal.INCONSISTENT:
            _log.warning("refused, and perhaps proof that a log forks: %s", error)
        return _answer(error.refusal, f"{' '.join(str(error).split())}\n")
    except LedgerError as error:  # whatever else it is, it is no cosignature
        return _unavailable(error)


async def _read_body(request: Request) -> bytes | None:
    """Return the body, None as soon as it is too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > REQUEST_SIZE_BYTES_MAX:
            return None
    return bytes(body)


def _unavailable(error: LedgerError) -> Response:
    _log.error("%s", error)
    return _answer(503, "the witness cannot cosign now\n")


def _hang_up(status: int, text: str) -> Response:
    """Answer and close the connection: the rest of the body would be read otherwise, however long it is."""
    answer = _answer(status, text)
    answer.headers["connection"] = "close"
    return answer


def _answer(status: int, content: str | bytes, *, content_type: str = TEXT) -> Response:
    # As a header, not a media type: to that of a text Starlette would add a charset, which the size must not have.
    return Response(content, status_code=status, headers={"content-type": content_type})
