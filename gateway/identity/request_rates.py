# SPDX-License-Identifier: Apache-2.0
"""
How many requests a second a tenant, and one of its callers, may make: counted over all gateway processes.

Each process counts in an area of its own of memory that all share, and adds up what the others have counted. An area
has one writer, so nothing is locked; a number that another process is writing may be missed, and is seen by the next
request. What counts is the last second, as the requests of this second and a part of those of the one before.

A caller or tenant for whom no slot is free is not limited: a process has slots for thousands in two seconds.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final
from uuid import UUID

from gateway.errors import TooManyRequestsError

SLOTS: Final = 8_192
"""Counters of one process; a power of two."""
PROBES: Final = 8
"""Slots in which a counter may be."""
_WORDS: Final = 4
"""Of a slot, 8 bytes each: the counter's number, the second, its requests, and those of the second before."""


class SharedCounts:
    """The areas of some processes. Make it before they are forked."""

    def __init__(self, processes: int) -> None:
        self.processes: Final = processes
        self._memory = mmap.mmap(-1, processes * SLOTS * _WORDS * 8)
        self.words: Final = memoryview(self._memory).cast("Q")

    def area(self, process: int) -> int:
        """Return the place of the first word of a process's area."""
        return process * SLOTS * _WORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Requests a second; 0 is no limit."""

    tenant: int = 0
    caller: int = 0


class RequestRates:
    """The limits as process number `own` applies them. `monotonic_s` must be the same clock in all processes."""

    def __init__(
        self,
        limits: Limits,
        counts: SharedCounts,
        own: int,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        on_refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._limits = limits
        self._words = counts.words
        self._own = counts.area(own)
        self._others = [counts.area(process) for process in range(counts.processes) if process != own]
        self._monotonic_s = monotonic_s
        self._on_refused = on_refused
        self._numbers: dict[tuple[UUID, str], tuple[int, int]] = {}

    def admit(self, tenant: UUID, actor: str) -> None:
        """
        Count a request of a caller of a tenant.

        Raises:
            TooManyRequestsError: if there were too many in the last second; it is not counted then.
        """
        of_tenant, of_caller = self._numbered(tenant, actor)
        limits = self._limits
        # The caller's own limit first: whoever is over it takes nothing of what the others may have.
        if limits.caller and not self._has_room(of_caller, limits.caller):
            self._refuse("caller", limits.caller)
        if limits.tenant and not self._has_room(of_tenant, limits.tenant):
            self._refuse("tenant", limits.tenant)
        for number, limit in ((of_caller, limits.caller), (of_tenant, limits.tenant)):
            if limit:
                self._count(number)

    def _refuse(self, scope: str, limit: int) -> None:
        self._on_refused(scope)
        whose = "your tenant" if scope == "tenant" else "you"
        raise TooManyRequestsError(f"expected at most {limit} requests a second of {whose}: try again in a second")

    def _numbered(self, tenant: UUID, actor: str) -> tuple[int, int]:
        known = self._numbers.get((tenant, actor))
        if known is None:
            if len(self._numbers) >= SLOTS:
                self._numbers.clear()
            known = _number(tenant.bytes), _number(tenant.bytes + actor.encode())
            self._numbers[tenant, actor] = known
        return known

    def _has_room(self, number: int, limit: int) -> bool:
        second, part = divmod(self._monotonic_s(), 1.0)
        before = now = 0
        for area in (self._own, *self._others):
            counted = self._read(area, number, int(second))
            now += counted[0]
            before += counted[1]
        return now + before * (1.0 - part) < limit

    def _read(self, area: int, number: int, second: int) -> tuple[int, int]:
        """Return the requests of this second, and of the one before, in an area."""
        words = self._words
        for probe in range(PROBES):
            at = area + ((number + probe) % SLOTS) * _WORDS
            if words[at] == number:
                if words[at + 1] == second:
                    return words[at + 2], words[at + 3]
                return 0, words[at + 2] if words[at + 1] == second - 1 else 0
        return 0, 0

    def _count(self, number: int) -> None:
        words, second, free = self._words, int(self._monotonic_s()), -1
        for probe in range(PROBES):
            at = self._own + ((number + probe) % SLOTS) * _WORDS
            if words[at] == number:
                if words[at + 1] != second:
                    words[at + 3] = words[at + 2] if words[at + 1] == second - 1 else 0
                    words[at + 2] = 0
                    words[at + 1] = second
                words[at + 2] += 1
                return
            if free < 0 and words[at + 1] < second - 1:
                free = at
        if free >= 0:
            words[free + 3], words[free + 2], words[free + 1] = 0, 1, second
            words[free] = number


def _number(data: bytes) -> int:
    """The number of a counter, not 0: 64 bits that nobody can choose to be another's."""
    return int.from_bytes(blake2b(data, digest_size=8, person=b"request-rate").digest(), "big") or 1
