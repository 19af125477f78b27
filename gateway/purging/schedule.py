# SPDX-License-Identifier: Apache-2.0
"""
Which process works on which purge, and when again: rows that all processes share.

A process holds a purge for a bounded time and holds it on while it works, each in a transaction of its own. The purges
of a process that dies are free again when that time is over. A purge that cannot be finished is due after a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from gateway.database import Database
from gateway.errors import GatewayError, UnavailableError
from gateway.purging.sweep import Counts
from gateway.tenant_logs import TenantLogs
from ledger.store.queries import load_queries
from ledger.store.read import Log
from ledger.store.roles import Roles

HOLD: Final = timedelta(seconds=180)
PROBLEM_LENGTH_MAX: Final = 1_000

_QUERIES: Final = load_queries("gateway", "purges.sql")


class NotHeldError(GatewayError):
    """Another process works on the purge by now: this one was too slow, and has to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPurge:
    """
    A purge that this process holds, and what attempts before have left: their number, files and bytes deleted, and
    what is to be recorded if only the last metadata file was left (JSON).
    """

    log: Log
    purge: UUID
    attempts: int
    deleted: int
    bytes_deleted: int | None
    swept: str | None


class PurgeSchedule:
    """
    The purges of all tenants; one is held for `HOLD` by this process, which is called `holder`.

    `logs` lends the connections with which it, and whoever works on a purge, reads.
    """

    def __init__(
        self,
        database: Database,
        roles: Roles,
        *,
        holder: str,
        clock: Callable[[], datetime],
        pauses: Sequence[timedelta],
    ) -> None:
        self.logs = TenantLogs(database, roles, work="purges")
        self._holder = holder
        self._clock = clock
        self._pauses = pauses

    async def hold(self, *, limit: int, busy: Collection[int] = ()) -> list[HeldPurge]:
        """
        Hold purges that are due, but for those of logs that are `busy`.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        now = self._clock()
        bounds = {"now": now, "held_until": now + HOLD, "holder": self._holder, "limit": limit, "busy": list(busy)}
        async with self.logs.working() as connection:
            await connection.execute(_QUERIES["forget_completed"], {"now": now})
            rows = await (await connection.execute(_QUERIES["claim_due"], bounds)).fetchall()
        return [
            HeldPurge(
                log=await self.logs.find(log_id),
                purge=purge,
                attempts=attempts,
                deleted=deleted,
                bytes_deleted=bytes_deleted,
                swept=swept,
            )
            for log_id, purge, attempts, deleted, bytes_deleted, swept in rows
        ]

    async def keep(self, held: HeldPurge, counts: Counts, *, swept: str | None = None) -> None:
        """
        Hold a purge on, and store what was done.

        Raises:
            NotHeldError: if another process holds it now.
            UnavailableError: as `hold`.
        """
        done = {"deleted": counts.deleted, "bytes_deleted": counts.bytes_deleted, "swept": swept}
        until = {"held_until": self._clock() + HOLD}
        async with self.logs.working() as connection:
            row = await (await connection.execute(_QUERIES["keep"], self._where(held) | done | until)).fetchone()
        if row is None:
            raise NotHeldError(f"purge {held.purge}: another process works on it")

    async def end(self, held: HeldPurge) -> None:
        """
        Release a purge that is completed. Raises as `hold`.
        """
        async with self.logs.working() as connection:
            await connection.execute(_QUERIES["completed"], self._where(held))

    async def postpone(self, held: HeldPurge, problem: str) -> None:
        """
        Release a purge until its next attempt is due, and store why this one was not finished. Raises as `hold`.
        """
        pause = self._pauses[min(held.attempts, len(self._pauses) - 1)]
        learned = {"next_attempt_at": self._clock() + pause, "problem": problem[:PROBLEM_LENGTH_MAX]}
        async with self.logs.working() as connection:
            await connection.execute(_QUERIES["postpone"], self._where(held) | learned)

    async def release(self, held: HeldPurge) -> None:
        """
        Release a purge for others at once; if that fails, the hold expires by itself.
        """
        with suppress(UnavailableError):
            async with self.logs.working() as connection:
                await connection.execute(_QUERIES["let_go"], self._where(held))

    def _where(self, held: HeldPurge) -> dict[str, object]:
        return {"log_id": held.log.log_id, "purge": held.purge, "holder": self._holder}
