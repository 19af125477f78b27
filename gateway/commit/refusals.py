# SPDX-License-Identifier: Apache-2.0
"""
Records refusals without a decision: reads that are not permitted, and unknown credentials.

They are recorded as `access.refused`, bounded: one refusal is recorded once per minute, with the number of times it
happened since. Of one caller at most a hundred different refusals are recorded per minute; the others are counted
together, without their targets. So a flood of bad requests cannot fill the log. The next record has what was counted
since the last one; a process that dies loses that count.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from gateway.commit.recorded_callers import INTERVAL, REMEMBERED_MAX, RecordedCallers
from gateway.identifiers import Target
from gateway.identity import Principal
from ledger.errors import LedgerError
from ledger.format.event import SYSTEM_ACTOR, format_key, random_group_id
from ledger.format.events import AccessRefused, CallerRefused, Reason, prepare_event
from ledger.format.sequence import Group

RECORDED_MAX: Final = 100
"""Refusals of one caller recorded in one interval."""

_KEY: Final = format_key("gateway", ("access",))
"""The key of refusals without a target."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """
    A refusal: caller, operation, target and reason; `target` and `reason` are None if several are counted together.

    `key_id` is the API key of the request; None if several are counted together, the caller is unknown, or has a token
    of an identity provider.
    """

    log_id: int
    actor: str
    key_id: str | None
    operation: str
    target: Target | None = None
    reason: Reason | None = None

    def together(self) -> _Refusal:
        """Return the refusal that counts all of this caller and operation together."""
        return replace(self, key_id=None, target=None, reason=None)


@dataclass(slots=True)
class _Count:
    """How often a refusal happened since it was recorded (None: never yet)."""

    recorded_at: datetime | None = None
    since: int = 0


class Refusals:
    """
    Counts refusals and records them at intervals. One per process; `_counts` and `_callers` belong to the event loop.
    """

    def __init__(
        self,
        append: Callable[[int, Group], Awaitable[object]],
        *,
        system_log_id: int,
        clock: Callable[[], datetime],
        random: Callable[[int], bytes],
    ) -> None:
        self._append = append
        self._system_log_id = system_log_id
        self._clock = clock
        self._random = random
        self._counts: OrderedDict[_Refusal, _Count] = OrderedDict()
        self._callers = RecordedCallers()

    async def unauthenticated(self, operation: str) -> None:
        """Count a request without known credentials; it belongs to no tenant, so the system log has it."""
        await self._refused(_Refusal(log_id=self._system_log_id, actor=SYSTEM_ACTOR, key_id=None, operation=operation))

    async def not_permitted(
        self, caller: Principal, operation: str, target: Target | None, reason: Reason | None
    ) -> None:
        """Count a request that no access rule permitted, or one forbade."""
        await self._refused(
            _Refusal(
                log_id=caller.log_id,
                actor=caller.actor,
                key_id=caller.key_id,
                operation=operation,
                target=target,
                reason=reason,
            )
        )

    async def _refused(self, refusal: _Refusal) -> None:
        now = self._clock()
        caller = self._callers.of(refusal.log_id, refusal.actor, now=now)
        known = self._counts.get(refusal)
        if caller.recorded >= RECORDED_MAX and (known is None or _is_due(known, now)) and refusal != refusal.together():
            self._forget(refusal)
            refusal = refusal.together()
        count = self._count(refusal)
        if not _is_due(count, now):
            count.since += 1
            return
        caller.recorded += 1
        times, count.since, count.recorded_at = count.since + 1, 0, now
        try:
            await self._record(refusal, times, now)
        except LedgerError as error:
            # The request is refused either way: nothing happened that needs a record before it.
            count.since += times
            _log.warning("a refusal could not be recorded: %s", error)

    def _count(self, refusal: _Refusal) -> _Count:
        count = self._counts.setdefault(refusal, _Count())
        self._counts.move_to_end(refusal)
        if len(self._counts) > REMEMBERED_MAX:
            self._forget(next(iter(self._counts)))
        return count

    def _forget(self, refusal: _Refusal) -> None:
        """Drop a refusal; what it counted and did not record is added to those that are counted together."""
        count = self._counts.pop(refusal, None)
        if count is not None and count.since and refusal != refusal.together():
            self._counts.setdefault(refusal.together(), _Count()).since += count.since

    async def _record(self, refusal: _Refusal, times: int, now: datetime) -> None:
        target = refusal.target
        data = _data(refusal, count=times)
        event = prepare_event(data, key=target.key if target else _KEY, actor=refusal.actor, occurred_at=now)
        await self._append(refusal.log_id, Group(id=self._group_id(now), then=(event,)))

    def _group_id(self, now: datetime) -> UUID:
        return random_group_id(now_ms=int(now.timestamp() * 1000), random=self._random(10))


def _data(refusal: _Refusal, *, count: int) -> AccessRefused | CallerRefused:
    identifier = refusal.target.identifier() if refusal.target else None
    if refusal.key_id is None:
        return AccessRefused(operation=refusal.operation, identifier=identifier, reason=refusal.reason, count=count)
    return CallerRefused(
        operation=refusal.operation, identifier=identifier, reason=refusal.reason, count=count, key=refusal.key_id
    )


def _is_due(count: _Count, now: datetime) -> bool:
    return count.recorded_at is None or now - count.recorded_at >= INTERVAL
