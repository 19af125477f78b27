"""
The connections of a witness: how long one may keep it waiting, and which one gives way when there are too many.

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
from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import IPv6Address, ip_address
from typing import Any, ClassVar, Final

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

KEEP_ALIVE_S: Final = 75
_NETWORK_SIZE_BYTES: Final = 8
"""Of an IPv6 address, what tells one peer from another: the rest anyone may choose freely (RFC 4291, section 2.5.1)."""


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


class Stage(Enum):
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
        self._stage: Stage | None = None
        self.since_s = 0.0
        self._deadline: asyncio.TimerHandle | None = None
        self.is_cut_off = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as H11Protocol has it
        """Begin to wait for the first request, if there is room."""
        super().connection_made(transport)
        self._enter(Stage.HEAD)
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take in what has arrived; bytes that complete no head buy no time."""
        super().data_received(data)
        self._enter(Stage.ANSWER if self._is_answering else Stage.HEAD)

    def on_response_complete(self) -> None:
        """Wait for the next request, or answer it if it has arrived already."""
        self._enter(Stage.IDLE)
        super().on_response_complete()
        if self._is_answering:
            self._enter(Stage.ANSWER)

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

    def _enter(self, stage: Stage) -> None:
        """Set the deadline of a stage; of one that goes on it stays."""
        if stage is self._stage or self.is_cut_off:
            return
        timeouts_s = {
            Stage.HEAD: self.limits.head_timeout_s,
            Stage.ANSWER: self.limits.answer_timeout_s,
            Stage.IDLE: self.limits.idle_timeout_s,
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
