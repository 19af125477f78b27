"""
Refusals that come before any decision: a read that is not permitted, credentials that are not known.

They are recorded as `access.refused`, bounded: the same refusal is recorded once a minute with the number of times it
happened since, so that a flood of bad requests cannot fill the log.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from gateway.identifiers import Target
from ledger.errors import LedgerError
from ledger.event import SYSTEM_ACTOR, Event, prepare, random_group_id
from ledger.events import AccessRefused, Reason, to_data
from ledger.sequence import Group

INTERVAL_S: Final = 60.0
REMEMBERED_MAX: Final = 10_000

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Count:
    recorded_at: datetime
    since: int


class Refusals:
    """Counts refusals and records them at intervals. One per process; owned by the event loop."""

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
        self._counts: OrderedDict[tuple[int, str, str, str, Reason | None], _Count] = OrderedDict()

    async def unauthenticated(self, operation: str) -> None:
        """Count a request without known credentials; it belongs to no tenant, so the system log has it."""
        await self._refused(self._system_log_id, SYSTEM_ACTOR, operation, None, None, "gateway:")

    async def not_permitted(
        self, log_id: int, actor: str, operation: str, target: Target | None, reason: Reason | None
    ) -> None:
        """Count a request that no access rule permitted, or one forbade."""
        await self._refused(log_id, actor, operation, target, reason, target.key if target else "gateway:")

    async def _refused(
        self, log_id: int, actor: str, operation: str, target: Target | None, reason: Reason | None, key: str
    ) -> None:
        now = self._clock()
        counted = (log_id, actor, operation, key, reason)
        count = self._counts.get(counted)
        if count is not None and (now - count.recorded_at).total_seconds() < INTERVAL_S:
            count.since += 1
            return
        times = 1 if count is None else 1 + count.since
        self._counts[counted] = _Count(recorded_at=now, since=0)
        self._counts.move_to_end(counted)
        if len(self._counts) > REMEMBERED_MAX:
            self._counts.popitem(last=False)
        await self._record(log_id, actor, operation, target, reason, key, times)

    async def _record(
        self, log_id: int, actor: str, operation: str, target: Target | None, reason: Reason | None, key: str, times: int
    ) -> None:
        now = self._clock()
        data = AccessRefused(
            operation=operation, identifier=target.identifier() if target else None, reason=reason, count=times
        )
        event = prepare(
            Event(
                type=AccessRefused.TYPE,
                version=AccessRefused.VERSION,
                key=key,
                actor=actor,
                occurred_at=now,
                data=to_data(data),
            )
        )
        try:
            await self._append(log_id, Group(id=self._group_id(now), then=(event,)))
        except LedgerError as error:
            # The request is refused either way; nothing was let through that needs a record before it.
            _log.warning("a refusal could not be recorded: %s", error)

    def _group_id(self, now: datetime) -> UUID:
        return random_group_id(now_ms=int(now.timestamp() * 1000), random=self._random(10))
