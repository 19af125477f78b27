# SPDX-License-Identifier: Apache-2.0
"""
Fair queueing of calls: one queue per tenant, and the tenant that has used the workers least is served first.

Guarantee: the waiting calls of one tenant never delay another's next call by more than the call at work, and never
displace it: a tenant's queue is bounded in calls and bytes, and if all queues together are full, the longest gives way.

Pure: no clock, no process. `Lines` schedules one lane (start-time fair queueing: a tenant's position is what it has
used so far, but a tenant that returns after a pause starts where the others are, so that turns cannot be saved up).
Turns bound how many calls another tenant must wait for, one, but not how long that one takes. `Credit` bounds that: a
token bucket of the time that calls take beyond a quick one. A tenant without credit is served in another lane.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

LINE_CALLS_MAX: Final = 256
LINE_BYTES_MAX: Final = 64 * 2**20
"""Of one tenant, in one lane: twice the largest request, so that one always fits after another."""
ALL_CALLS_MAX: Final = 2_048
ALL_BYTES_MAX: Final = 256 * 2**20

QUICK_S: Final = 0.01
"""The time that any call may take free of charge: others wait for it no longer than for a usual commit."""
CREDIT_S_MAX: Final = 0.5
"""The time that a tenant's calls may take beyond that, at once after a pause."""
SHARE: Final = 0.02
"""Seconds of credit that a tenant regains per second."""
DEBT_S_MAX: Final = 1.0
"""The largest debt of a tenant: once its policies are quick again, it is out of debt within a minute."""


class Waiting(Protocol):
    """A call that can wait: it belongs to a tenant's log and has a size."""

    @property
    def log_id(self) -> int:
        """The tenant's log."""

    @property
    def size_bytes(self) -> int:
        """Its memory while it waits."""


T = TypeVar("T", bound=Waiting)


class LineFullError(Exception):
    """A call cannot wait here; says which bound was reached."""


@dataclass(slots=True)
class _Line(Generic[T]):
    calls: deque[T] = field(default_factory=deque)
    size_bytes: int = 0


class Lines(Generic[T]):
    """
    The calls that wait for one lane, by tenant.

    The queue of a tenant without waiting calls is dropped, together with its usage: its next call starts where the
    others are. `charge` adds what a call used once it is known.
    """

    def __init__(
        self,
        *,
        line_calls_max: int = LINE_CALLS_MAX,
        line_bytes_max: int = LINE_BYTES_MAX,
        all_calls_max: int = ALL_CALLS_MAX,
        all_bytes_max: int = ALL_BYTES_MAX,
    ) -> None:
        self._line_calls_max = line_calls_max
        self._line_bytes_max = line_bytes_max
        self._all_calls_max = all_calls_max
        self._all_bytes_max = all_bytes_max
        self._lines: dict[int, _Line[T]] = {}
        self._used_s: dict[int, float] = {}
        self._now_s = 0.0
        self._calls = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._calls

    def put(self, call: T) -> list[T]:
        """
        Add `call`; return the calls that give way to it, the newest of the longest queue, which the caller must fail.

        Raises:
            LineFullError: if its tenant's own line is full, or all are and its tenant's line is the longest.
        """
        line = self._lines.get(call.log_id) or _Line()
        if len(line.calls) >= self._line_calls_max:
            raise LineFullError(f"{len(line.calls)} calls of this tenant already wait")
        if line.size_bytes + call.size_bytes > self._line_bytes_max:
            raise LineFullError(f"calls of this tenant with {line.size_bytes} bytes already wait")
        gave_way: list[T] = []
        while self._calls >= self._all_calls_max or self._bytes + call.size_bytes > self._all_bytes_max:
            longest = self._longest()
            if longest == call.log_id or self._weight(line, call) >= self._weight(self._lines[longest]):
                for one in reversed(gave_way):
                    self._add(one)
                raise LineFullError(f"{self._calls} calls already wait, and this tenant's are the most")
            gave_way.append(self._lines[longest].calls[-1])
            self.remove(gave_way[-1])
        self._add(call)
        return gave_way

    def next(self) -> T:
        """
        Return the oldest call of the tenant that has used least; of equals, the one that has waited longer.

        Raises:
            IndexError: if nothing waits.
        """
        if not self._lines:
            raise IndexError("nothing waits")
        log_id = min(self._lines, key=self._used_s.__getitem__)  # of equals the first: queues are in order of arrival
        return self._lines[log_id].calls[0]

    def take(self) -> T:
        """Return the `next` call, which waits no more. Raises as that does."""
        call = self.next()
        self._now_s = max(self._now_s, self._used_s[call.log_id])
        self.remove(call)
        return call

    def remove(self, call: T) -> None:
        """Remove `call` from its queue, if it is still there."""
        line = self._lines.get(call.log_id)
        if line is None or call not in line.calls:
            return
        line.calls.remove(call)
        line.size_bytes -= call.size_bytes
        self._calls -= 1
        self._bytes -= call.size_bytes
        if not line.calls:
            del self._lines[call.log_id]
            self._forget()

    def charge(self, log_id: int, used_s: float) -> None:
        """Add what a call of a tenant has used of the lane."""
        self._used_s[log_id] = max(self._used_s.get(log_id, 0.0), self._now_s) + used_s
        self._forget()

    def _add(self, call: T) -> None:
        line = self._lines.get(call.log_id)
        if line is None:
            line = self._lines[call.log_id] = _Line()
            self._used_s[call.log_id] = max(self._used_s.get(call.log_id, 0.0), self._now_s)
        line.calls.append(call)
        line.size_bytes += call.size_bytes
        self._calls += 1
        self._bytes += call.size_bytes

    def _longest(self) -> int:
        return max(self._lines, key=lambda log_id: self._weight(self._lines[log_id]))

    def _weight(self, line: _Line[T], more: T | None = None) -> float:
        """Return the share of the total bounds that this queue takes: the larger one of calls and bytes."""
        calls, size_bytes = len(line.calls), line.size_bytes
        if more is not None:
            calls, size_bytes = calls + 1, size_bytes + more.size_bytes
        return max(calls / self._all_calls_max, size_bytes / self._all_bytes_max)

    def _forget(self) -> None:
        """Keep the usage only of tenants that wait, or are still ahead of where a new one starts."""
        for log_id in [one for one, used_s in self._used_s.items() if used_s <= self._now_s and one not in self._lines]:
            del self._used_s[log_id]


class Credit:
    """
    The time that tenants may still take of a lane beyond quick calls, in seconds of a worker. Clocks are arguments.
    """

    def __init__(
        self,
        *,
        quick_s: float = QUICK_S,
        credit_s_max: float = CREDIT_S_MAX,
        share: float = SHARE,
        debt_s_max: float = DEBT_S_MAX,
    ) -> None:
        self._quick_s = quick_s
        self._credit_s_max = credit_s_max
        self._share = share
        self._debt_s_max = debt_s_max
        self._left: dict[int, tuple[float, float]] = {}  # seconds left, and as of when

    def left_s(self, log_id: int, *, now_s: float) -> float:
        """Return a tenant's credit; below zero it is a debt."""
        left_s, at_s = self._left.get(log_id, (self._credit_s_max, now_s))
        return min(self._credit_s_max, left_s + (now_s - at_s) * self._share)

    def charge(self, log_id: int, used_s: float, *, now_s: float) -> None:
        """Charge what a call has used to its tenant's credit, unless it was quick."""
        beyond_s = used_s - self._quick_s
        if beyond_s > 0:
            self._left[log_id] = (max(-self._debt_s_max, self.left_s(log_id, now_s=now_s) - beyond_s), now_s)
        for other in [one for one in self._left if self.left_s(one, now_s=now_s) >= self._credit_s_max]:
            del self._left[other]  # an unknown tenant has full credit
