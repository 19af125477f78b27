# SPDX-License-Identifier: Apache-2.0
"""
What the log has decided on a table's snapshots: up to the end of the log, although read models lag behind.

A decision approves the snapshots that it names unless its outcome says that it was not made: failed, conflicted or
refused. While it has no outcome, or an unknown one, it may have been made. What is found out later about such a
decision, `observe.py` looks at again.

Guarantee: for a snapshot that is not returned, no decision that approves it was in the log when `read_decided` was
called. The rows of the projection of commits cover the entries before its cursor, the log itself those from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from ledger.format.events import CommitDecided, CommitDecision, CommitOutcome, CommitSettled, Identifier
from ledger.store.queries import load_queries
from ledger.store.read import read_head
from ledger.store.session import Connection
from projections.entries import LogEntry, decision_of, read_log_entry
from projections.relational.commits import NOT_MADE
from projections.relational.table_names import identifier_of
from streams.errors import TransientError

QUERIES: Final = load_queries("streams", "triggers.sql")

SNAPSHOTS_ASKED: Final = 1_000
"""Snapshots looked up in one statement."""
BEHIND_MAX: Final = 20_000
"""Entries looked through because the projection has not seen them; when it is further behind, it is awaited."""
BEFORE_ENTRIES: Final = 1_000
"""Entries before a decision in which triggers are looked for that were handled while it was open: they had waited."""
TRIGGERS_MAX: Final = 1_000
"""Triggers that are looked through for one outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovedSnapshots:
    """Which of the requested snapshots are approved, and how the table was last called (None: unknown)."""

    snapshots: frozenset[str]
    identifier: Identifier | None


@dataclass(slots=True, kw_only=True)
class _Approved:
    """What approved decisions on a table name, as far as the log was read; those that `file_of` names, in any case."""

    table_uuid: str
    file_of: UUID | None
    made: set[str] = field(default_factory=set)
    """Snapshots of decisions that were accepted, or that the file is named after."""
    open: dict[tuple[UUID, str], set[str]] = field(default_factory=dict)
    """Those of decisions, by group and key, that were not settled, or as unknown."""
    identifier: Identifier | None = None

    def add_rows(self, made: Sequence[str], open_: Sequence[Sequence[Any]]) -> None:
        """Add what the projection has."""
        self.made.update(made)
        for group, key, snapshots in open_:
            self.open.setdefault((UUID(group), key), set()).update(snapshots)

    def add(self, item: LogEntry) -> None:
        """Add an entry of the log, which is behind those that were added."""
        entry = item.entry
        match item.event:
            case CommitDecided(decision=CommitDecision.APPROVED) as decided if decided.table_uuid in {
                self.table_uuid,
                None,
            }:
                if entry.group_id == self.file_of:
                    self.made.update(decided.snapshots)
                self.open.setdefault((entry.group_id, entry.key), set()).update(decided.snapshots)
                if decided.table_uuid is not None and decided.base is not None and decided.identifier.name is not None:
                    self.identifier = decided.identifier
            case CommitSettled(outcome=CommitOutcome.ACCEPTED, metadata_location=str(), table_uuid=self.table_uuid):
                self.identifier = identifier_of(entry.key) or self.identifier
            case CommitSettled(outcome=outcome) as settled if outcome in NOT_MADE:
                self.open.pop((decision_of(entry, settled), entry.key), None)
            case _:
                pass  # refused, on another table, or known to be made

    def snapshots(self) -> frozenset[str]:
        """Return the snapshots that are approved."""
        return frozenset(self.made.union(*self.open.values()))


async def read_decided(
    connection: Connection, log_id: int, *, table_uuid: str, snapshots: Sequence[str], file_of: UUID | None = None
) -> ApprovedSnapshots:
    """
    Return what approved decisions of a log name of a table.

    `connection` must see what is committed while it is used, so it must not be in a snapshot of one moment. `file_of`
    is the decision for which the metadata file was written that has the snapshots, if that is known: it approves what
    it names in this file, even if nobody came to use it.

    Raises:
        TransientError: if the projection of commits is not there yet, or far behind.
    """
    approved = _Approved(table_uuid=table_uuid, file_of=file_of)
    next_index: int | None = None
    for at in range(0, len(snapshots), SNAPSHOTS_ASKED):
        parameters = {
            "log_id": log_id,
            "table_uuid": table_uuid,
            "snapshots": list(snapshots[at : at + SNAPSHOTS_ASKED]),
            "file_of": file_of,
        }
        row = await (await connection.execute(QUERIES["approved_snapshots"], parameters)).fetchone()
        if row is None:
            raise TransientError(f"projection commits of log {log_id}: expected a live generation, found none yet")
        approved.add_rows(row[1], row[2])
        # Rows of a later moment answer for more; the earliest cursor says from where on the log itself is read.
        next_index = row[0] if next_index is None else min(next_index, row[0])
    if next_index is None:
        return ApprovedSnapshots(snapshots=frozenset(), identifier=None)
    behind = (await read_head(connection, log_id)).size - next_index
    if behind > BEHIND_MAX:
        raise TransientError(f"projection commits of log {log_id}: expected it near the end, found it {behind} behind")
    approved.identifier = await _identifier(connection, log_id, table_uuid)
    rows = await connection.execute(QUERIES["commits_from"], {"log_id": log_id, "from_index": next_index})
    for (entry,) in await rows.fetchall():
        approved.add(read_log_entry(bytes(entry), {}))
    return ApprovedSnapshots(snapshots=approved.snapshots().intersection(snapshots), identifier=approved.identifier)


async def read_triggers_of(
    connection: Connection, log_id: int, settled: LogEntry, decision: UUID
) -> tuple[CommitDecided | None, list[LogEntry]]:
    """
    Return a decision on the key of its outcome `settled`, and the triggers that may have been handled before that
    outcome was known: those from shortly before the decision on, newest first.
    """
    entry = settled.entry
    which = {"log_id": log_id, "group_id": decision, "key": entry.key, "before": entry.index}
    row = await (await connection.execute(QUERIES["decision_of_group"], which)).fetchone()
    if row is None:
        return None, []
    decided = read_log_entry(bytes(row[0]), {})
    bounds = {
        "log_id": log_id,
        "from_index": decided.entry.index - BEFORE_ENTRIES,
        "before": entry.index,
        "limit": TRIGGERS_MAX,
    }
    rows = await (await connection.execute(QUERIES["triggers_between"], bounds)).fetchall()
    event = decided.event if isinstance(decided.event, CommitDecided) else None
    return event, [read_log_entry(bytes(each), {}) for (each,) in rows]


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
