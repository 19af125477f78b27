# SPDX-License-Identifier: Apache-2.0
"""
Which process checks which key with open decisions, and when again: the reconciler's rows, shared by all processes.

A process takes hold of a key before a check and releases it after, each in its own transaction: nothing is locked while
a catalog is read. The keys of a process that dies are free again at a time that was fixed beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from gateway.database import Database
from gateway.errors import UnavailableError
from gateway.tenant_logs import TenantLogs
from ledger.format.events import CommitObserved, TriggerReceived
from ledger.store.queries import load_queries
from ledger.store.read import Log
from ledger.store.roles import Roles

NEWS: Final = (CommitObserved.TYPE, TriggerReceived.TYPE)
"""Events about a table that make a new check worthwhile."""

_QUERIES = load_queries("gateway", "reconciler.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldKey:
    """
    A key that this process holds, and the results of earlier checks: their number since the newest decision, the time
    of the last one, up to which index the log was read, and the metadata file that was found if it was another
    decision's.
    """

    log: Log
    key: str
    checks: int
    checked_at: datetime | None
    read_to: int
    explained: str | None


class Schedule:
    """
    Schedules checks of all tenants' open decisions; a key is held for `hold_for` at most. All state is in rows.

    `logs` lends the connections with which it, and whoever makes a check, reads.
    """

    def __init__(
        self,
        database: Database,
        roles: Roles,
        *,
        clock: Callable[[], datetime],
        hold_for: timedelta,
        pauses: Sequence[timedelta],
    ) -> None:
        self.logs = TenantLogs(database, roles, work="open decisions")
        self._clock = clock
        self._hold_for = hold_for
        self._pauses = pauses
        self._news_from: dict[int, int] = {}

    async def hold(self, *, limit: int) -> list[HeldKey]:
        """
        Hold keys with open decisions past their deadline that are due, the longest overdue first.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        return await self._hold(limit=limit, due_before=self._clock())

    async def hold_all(self, *, limit: int) -> list[HeldKey]:
        """
        Hold keys with open decisions past their deadline, whether or not they are due. Raises as `hold`.
        """
        return await self._hold(limit=limit, due_before=datetime.max.replace(tzinfo=self._clock().tzinfo))

    async def _hold(self, *, limit: int, due_before: datetime) -> list[HeldKey]:
        now = self._clock()
        bounds = {"now": now, "held_until": now + self._hold_for, "due_before": due_before, "limit": limit}
        async with self.logs.working() as connection:
            rows = await (await connection.execute(_QUERIES["claim_due"], bounds)).fetchall()
        return [
            HeldKey(
                log=await self.logs.find(log_id),
                key=key,
                checks=checks,
                checked_at=checked_at,
                read_to=read_to,
                explained=explained,
            )
            for log_id, key, checks, checked_at, read_to, explained in rows
        ]

    async def end(self, held: HeldKey) -> None:
        """
        Release a key without open decisions. Raises as `hold`.
        """
        async with self.logs.working() as connection:
            await connection.execute(_QUERIES["release_settled"], _where(held))

    async def postpone(
        self,
        held: HeldKey,
        *,
        checked_at: datetime,
        read_to: int,
        explained: str | None,
        pause: timedelta | None = None,
    ) -> None:
        """
        Release a key until its next check is due, and store the results of this one. Raises as `hold`.

        It began at `checked_at`: decisions whose deadline came later are new to the next one. A `pause` of its own does
        not count among those that grow.
        """
        growing = self._pauses[min(held.checks, len(self._pauses) - 1)]
        learned = {
            "checked_at": checked_at,
            "looks": held.checks + (pause is None),
            "next_look_at": self._clock() + (growing if pause is None else pause),
            "read_to": read_to,
            "explained": explained,
        }
        async with self.logs.working() as connection:
            await connection.execute(_QUERIES["release_unknown"], _where(held) | learned)

    async def release(self, held: HeldKey) -> None:
        """
        Release a key for others at once; if that fails, the hold expires by itself.
        """
        with suppress(UnavailableError):
            async with self.logs.working() as connection:
                await connection.execute(_QUERIES["let_go"], _where(held))

    async def check_again(self, log_id: int, keys: Collection[str]) -> None:
        """
        Make keys due. Raises as `hold`.
        """
        async with self.logs.working() as connection:
            await connection.execute(_QUERIES["look_again"], {"log_id": log_id, "keys": list(keys)})

    async def read_news(self) -> None:
        """
        Make keys due that have news in their logs since the last call. Raises as `hold`.
        """
        async with self.logs.working() as connection:
            rows = await (await connection.execute(_QUERIES["waiting_keys"])).fetchall()
        self._news_from = {log_id: self._news_from.get(log_id, size) for log_id, size, _ in rows}
        for log_id, size, keys in rows:
            if self._news_from[log_id] < size:
                await self._read_news_of(await self.logs.find(log_id), size, keys)
                self._news_from[log_id] = size

    async def _read_news_of(self, log: Log, size: int, keys: Sequence[str]) -> None:
        bounds = {"log_id": log.log_id, "from_index": self._news_from[log.log_id], "to_index": size}
        filters = {"types": list(NEWS), "keys": list(keys)}
        async with self.logs.reading(log) as connection:
            rows = await (await connection.execute(_QUERIES["keys_in_the_news"], bounds | filters)).fetchall()
        if rows:
            await self.check_again(log.log_id, [key for (key,) in rows])


def _where(held: HeldKey) -> dict[str, object]:
    return {"log_id": held.log.log_id, "key": held.key}
