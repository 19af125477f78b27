# SPDX-License-Identifier: Apache-2.0
"""
Bounds the connections of a process: how many there may be, and which one is closed for a new one.

A connection that waits for its peer (for a request, the rest of one, or reading of the answer) may be closed at any
time, as HTTP allows (RFC 9112, section 9.5). So a new connection replaces one of those: of the peer with the most
connections, the one that has waited longest. A peer that opens more and more displaces only its own. If none can be
closed the new one is answered 503. A request that is being answered is never interrupted for another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway.http.server.clients import Proxies

REFUSED_MAX: Final = 64
"""Connections beyond the limit that get an answer; further ones are closed without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """
    Limits on the number of connections, and on the time that one may take.

    A transfer may take `stall_timeout_s`, and longer as long as it keeps `rate_min_bytes_per_s`: a large body over a
    slow link arrives, one that trickles does not.
    """

    connections_max: int = 768
    connections_per_peer_max: int = 384
    head_timeout_s: float = 15.0
    idle_timeout_s: float = 30.0
    stall_timeout_s: float = 30.0
    rate_min_bytes_per_s: int = 8192
    drain_timeout_s: float = 30.0
    drain_bytes_max: int = 32 * 1024 * 1024
    """Bytes that are read and discarded of a request that was refused before it had arrived."""


class Bounded(Protocol):
    """A connection as `Connections` sees it."""

    @property
    def peer(self) -> bytes:
        """The key by which it is counted."""

    @property
    def since_s(self) -> float:
        """When it began to wait."""

    @property
    def owes_us(self) -> bool:
        """Whether the next step is the peer's."""

    def give_way(self) -> None:
        """End at once."""


@dataclass(slots=True, kw_only=True)
class Connections:
    """The open connections, within `bounds`. All of its state belongs to one event loop."""

    bounds: Bounds = field(default_factory=Bounds)
    proxies: Proxies = field(default_factory=Proxies)
    on_refused: Callable[[], None] = lambda: None
    _open: dict[Bounded, None] = field(default_factory=dict)
    """In the order in which they came: it decides between those that began to wait in the same tick of the loop's
    clock, which is a millisecond of uvloop's."""
    _counts: Counter[bytes] = field(default_factory=Counter)
    _refused: set[Bounded] = field(default_factory=set)

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def admit(self, new: Bounded) -> bool:
        """Admit a new connection, instead of another if there are too many; False if none can be closed."""
        self._add(new)
        if self._has_place(new):
            return True
        self._remove(new)
        self.on_refused()
        self._refused.add(new)
        return False

    @property
    def is_overrun(self) -> bool:
        """Whether too many connections are being refused to answer one more."""
        return len(self._refused) > REFUSED_MAX

    def count_as(self, connection: Bounded, peer: bytes, change: Callable[[], None]) -> bool:
        """Count a connection under another peer from now on (`change` sets it); False if that peer has too many."""
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
        """Remove a connection that has ended."""
        self._refused.discard(connection)
        if connection in self._open:
            self._remove(connection)

    def _has_place(self, new: Bounded) -> bool:
        if self._counts[new.peer] > self.bounds.connections_per_peer_max:
            return self._displace([one for one in self._open if one.peer == new.peer], new)
        if len(self._open) > self.bounds.connections_max:
            return self._displace(self._open, new)
        return True

    def _displace(self, some: Iterable[Bounded], new: Bounded) -> bool:
        waited_for = [one for one in some if one is not new and one.owes_us]
        if not waited_for:
            return False
        chosen = max(waited_for, key=lambda one: (self._counts[one.peer], -one.since_s))
        if self._counts[chosen.peer] < self._counts[new.peer]:
            return False  # the new connection's peer has more than any other whose connection could be closed
        self._remove(chosen)
        chosen.give_way()
        return True

    def _add(self, connection: Bounded) -> None:
        self._open[connection] = None
        self._counts[connection.peer] += 1

    def _remove(self, connection: Bounded) -> None:
        self._open.pop(connection, None)
        self._counts[connection.peer] -= 1
        if not self._counts[connection.peer]:
            del self._counts[connection.peer]
