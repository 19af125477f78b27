# SPDX-License-Identifier: Apache-2.0
"""
A tenant's purges as its log has them, open and completed, and what the last attempt at an open one has met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from gateway.commit.gateway import Gateway
from ledger.format import canonical
from ledger.format.entry import parse_entry
from ledger.format.events import PurgeCompleted, PurgeRequested, from_data
from ledger.store.queries import load_queries

_QUERIES: Final = load_queries("gateway", "purges.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """
    A purge: what was asked for and when, and what it has done if it is completed.

    Of an open one `deleted` are the files that attempts have noted, `problem` is why the last one was not finished, and
    `next_attempt_at` when it is attempted again (None: at once, or at work).
    """

    purge: UUID
    requested: PurgeRequested
    requested_at: datetime
    completed: PurgeCompleted | None
    deleted: int = 0
    problem: str | None = None
    next_attempt_at: datetime | None = None

    def row(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        identifier, done, next_at = self.requested.identifier, self.completed, self.next_attempt_at
        return {
            "purge": str(self.purge),
            "table": ".".join((identifier.alias, *identifier.namespace, str(identifier.name))),
            "table_uuid": self.requested.table_uuid,
            "places": list(self.requested.places),
            "requested_at": canonical.format_time(self.requested_at),
            "state": "open" if done is None else "completed",
            "deleted": self.deleted if done is None else done.deleted,
            "bytes_deleted": None if done is None else done.bytes_deleted,
            "kept": None if done is None else done.kept,
            "missing": None if done is None else done.missing,
            "problem": self.problem if done is None else done.fault,
            "next_attempt_at": None if next_at is None else canonical.format_time(next_at),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Purges:
    """Purges, oldest first; `is_whole` is False if there may be older ones that were not looked at."""

    purges: Sequence[Purge]
    is_whole: bool


async def read_purges(gateway: Gateway, log_id: int, *, entries_max: int | None = None) -> Purges:
    """
    Return the purges in a tenant's log: all, or those in the newest `entries_max` entries on purges.

    Raises:
        UnavailableError: if the database cannot be reached.
        FormatError: if an entry is not what was appended.
    """
    where = {"log_id": log_id, "limit": entries_max}
    async with gateway.database.as_role(gateway.roles.auditor) as connection:
        rows = await (await connection.execute(_QUERIES["purge_entries"], where)).fetchall()
    async with gateway.database.as_role(gateway.roles.gateway) as connection:
        attempts = await (await connection.execute(_QUERIES["problems"], where)).fetchall()
    entries = [parse_entry(bytes(data)) for (data,) in rows]
    completed = {
        done.purge: done
        for entry in entries
        if entry.type == PurgeCompleted.TYPE
        for done in [from_data(PurgeCompleted, entry.data)]
    }
    met = {purge: found for purge, *found in attempts}
    purges = []
    for entry in entries:
        if entry.type == PurgeRequested.TYPE:
            done = completed.get(str(entry.group_id))
            next_at, deleted, problem = met.get(entry.group_id, (None, 0, None)) if done is None else (None, 0, None)
            purges.append(
                Purge(
                    purge=entry.group_id,
                    requested=from_data(PurgeRequested, entry.data),
                    requested_at=entry.recorded_at,
                    completed=done,
                    deleted=deleted,
                    problem=problem,
                    next_attempt_at=next_at,
                )
            )
    return Purges(purges=purges, is_whole=entries_max is None or len(rows) < entries_max)
