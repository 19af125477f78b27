# SPDX-License-Identifier: Apache-2.0
"""
What the log has decided on a table's snapshots: up to the end of the log, although read models lag behind.

Guarantee: for a snapshot that is not returned, no approved decision was in the log when `read_decided` was called. The
rows of the projection of commits cover the entries before its cursor, the log itself those from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ledger.format.events import CommitDecided, CommitDecision, Identifier
from ledger.store.queries import load_queries
from ledger.store.read import read_head
from ledger.store.session import Connection
from projections.entries import read_log_entry
from streams.errors import TransientError

QUERIES: Final = load_queries("streams", "triggers.sql")

SNAPSHOTS_ASKED: Final = 1_000
"""Snapshots looked up in one statement."""
BEHIND_MAX: Final = 20_000
"""Entries looked through because the projection has not seen them; when it is further behind, it is awaited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovedSnapshots:
    """Which of the requested snapshots are approved, and how the table was last called (None: unknown)."""

    snapshots: frozenset[str]
    identifier: Identifier | None


async def read_decided(
    connection: Connection, log_id: int, *, table_uuid: str, snapshots: Sequence[str]
) -> ApprovedSnapshots:
    """
    Return what approved decisions of a log name of a table.

    `connection` must see what is committed while it is used, so it must not be in a snapshot of one moment.

    Raises:
        TransientError: if the projection of commits is not there yet, or far behind.
    """
    approved: set[str] = set()
    next_index: int | None = None
    for at in range(0, len(snapshots), SNAPSHOTS_ASKED):
        parameters = {
            "log_id": log_id,
            "table_uuid": table_uuid,
            "snapshots": list(snapshots[at : at + SNAPSHOTS_ASKED]),
        }
        row = await (await connection.execute(QUERIES["approved_snapshots"], parameters)).fetchone()
        if row is None:
            raise TransientError(f"projection commits of log {log_id}: expected a live generation, found none yet")
        approved.update(row[1])
        # Rows of a later moment answer for more; the earliest cursor says from where on the log itself is read.
        next_index = row[0] if next_index is None else min(next_index, row[0])
    if next_index is None:
        return ApprovedSnapshots(snapshots=frozenset(), identifier=None)
    behind = (await read_head(connection, log_id)).size - next_index
    if behind > BEHIND_MAX:
        raise TransientError(f"projection commits of log {log_id}: expected it near the end, found it {behind} behind")
    identifier = await _identifier(connection, log_id, table_uuid)
    rows = await connection.execute(QUERIES["decisions_from"], {"log_id": log_id, "from_index": next_index})
    for (entry,) in await rows.fetchall():
        match read_log_entry(bytes(entry), {}).event:
            case CommitDecided(decision=CommitDecision.APPROVED) as decided if decided.table_uuid in {table_uuid, None}:
                approved.update(decided.snapshots)
                if decided.table_uuid is not None and decided.identifier.name is not None:
                    identifier = decided.identifier
            case _:
                pass  # refused, or on another table
    return ApprovedSnapshots(snapshots=frozenset(approved.intersection(snapshots)), identifier=identifier)


async def read_groups(connection: Connection, log_id: int, groups: Sequence[UUID]) -> frozenset[UUID]:
    """
    Return which of `groups` are in the log.
    """
    there: set[UUID] = set()
    for at in range(0, len(groups), SNAPSHOTS_ASKED):
        parameters = {"log_id": log_id, "groups": list(groups[at : at + SNAPSHOTS_ASKED])}
        there.update(row[0] for row in await (await connection.execute(QUERIES["groups_there"], parameters)).fetchall())
    return frozenset(there)


async def _identifier(connection: Connection, log_id: int, table_uuid: str) -> Identifier | None:
    parameters = {"log_id": log_id, "table_uuid": table_uuid}
    row = await (await connection.execute(QUERIES["table_of_uuid"], parameters)).fetchone()
    return None if row is None else Identifier(alias=row[0], namespace=tuple(row[1]), name=row[2])
