"""
All connections of a process: how many there may be, and which one gives way to a new one.

A connection whose peer owes us something (its next request, the rest of one, reading its answer) may be closed at any
time, which HTTP allows (RFC 9112, section 9.5). So a new one takes the place of one of those: of the peer that has
most, and there of the one that has waited longest. Whoever opens ever more displaces itself alone. Where nobody gives
way the new one is answered 503. A request that is being answered is never cut off for another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway.http.server.clients import Proxies

REFUSED_MAX: Final = 64
"""Connections beyond the bound that are told so; further ones are closed without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """
    How many connections, and how long one may keep us waiting.

    Whatever is received or sent may take `stall_timeout_s`, and beyond that as long as it moves at
    `rate_min_bytes_per_s`: a large body over a slow link arrives, one that drips does not.
    """

    connections_max: int = 768
    connections_per_peer_max: int = 384
    head_timeout_s: float = 15.0
    idle_timeout_s: float = 30.0
    stall_timeout_s: float = 30.0
    rate_min_bytes_per_s: int = 8192
    drain_timeout_s: float = 30.0
    drain_bytes_max: int = 32 * 1024 * 1024
    """What is read and thrown away of a request that was refused before it had arrived."""


class Bounded(Protocol):
    """A connection as it is counted."""

    @property
    def peer(self) -> bytes:
        """Who it is counted as."""

    @property
    def since_s(self) -> float:
        """When it began to wait for what it waits for."""

    @property
    def owes_us(self) -> bool:
        """Whether the next step is the peer's."""

    def give_way(self) -> None:
        """End at once."""


@dataclass(slots=True, kw_only=True)
class Connections:
    """The connections that are open, within `bounds`. Belongs to one event loop."""

    bounds: Bounds = field(default_factory=Bounds)
    proxies: Proxies = field(default_factory=Proxies)
    on_refused: Callable[[], None] = lambda: None
    _open: set[Bounded] = field(default_factory=set)
    _counts: Counter[bytes] = field(default_factory=Counter)
    _refused: set[Bounded] = field(default_factory=set)

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def admit(self, new: Bounded) -> bool:
        """Take a new connection in, in the place of another if there are too many; False if none gives way."""
        self._add(new)
        if self._has_place(new):
            return True
        self._remove(new)
        self.on_refused()
        self._refused.add(new)
        return False

    @property
    def is_overrun(self) -> bool:
        """Whether even those who are refused are too many to be told."""
        return len(self._refused) > REFUSED_MAX

    def count_as(self, connection: Bounded, peer: bytes, change: Callable[[], None]) -> bool:
        """Count a connection as another peer's from now on (`change` makes it so); False if that peer has too many."""
        if connection not in self._open or peer == connection.peer:
            return True
        self._remove(connection)
        change()
        self._add(connection)
        if not self._has_place(connection):
            self.on_refused()
            return False
        return True

    def forget(self, connection: Bounded) -> None:
        """Take note that a connection has ended."""
        self._refused.discard(connection)
        if connection in self._open:
            self._remove(connection)

    def _has_place(self, new: Bounded) -> bool:
        if self._counts[new.peer] > self.bounds.connections_per_peer_max:
            return self._displace({one for one in self._open if one.peer == new.peer}, new)
        if len(self._open) > self.bounds.connections_max:
            return self._displace(self._open, new)
        return True

    def _displace(self, some: set[Bounded], new: Bounded) -> bool:
        waited_for = [one for one in some if one is not new and one.owes_us]
        if not waited_for:
            return False
        chosen = max(waited_for, key=lambda one: (self._counts[one.peer], -one.since_s))
        if self._counts[chosen.peer] < self._counts[new.peer]:
            return False  # it has more than whoever would have to give way
        self._remove(chosen)
        chosen.give_way()
        return True

    def _add(self, connection: Bounded) -> None:
        self._open.add(connection)
        self._counts[connection.peer] += 1

    def _remove(self, connection: Bounded) -> None:
        self._open.discard(connection)
        self._counts[connection.peer] -= 1
        if not self._counts[connection.peer]:
            del self._counts[connection.peer]
