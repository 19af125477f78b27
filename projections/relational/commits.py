# SPDX-License-Identifier: Apache-2.0
"""
The table of commits: one row for every decision, with its outcome. For the console and the API.

A row is keyed by the index of its decision; the outcome, which names the decision by group id and key, completes it.
The principal comes from a payload part of the decision, is stored nowhere else, and goes when that part is erased.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

from ledger.format.canonical import Json
from ledger.format.entry import Entry
from ledger.format.event import uuid_text
from ledger.format.events import CommitDecided, CommitDecision, CommitOutcome, CommitSettled, PayloadErased
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.entries import (
    PRINCIPAL,
    LogEntry,
    decision_of,
    encode_json,
    principals_erased,
    read_principal,
    recorded_text,
)
from projections.processing.digest import GenerationDigest, time_text
from projections.processing.projection import Transaction, iterate_rows

QUERIES: Final = load_queries("projections", "commits.sql")
COMMITS: Final = "commits"
COMMITS_VERSION: Final = 1
ROWS_MAX: Final = 1_000
EXAMINED_MAX: Final = 1_000
"""Commits of a table among which those of a snapshot, or of some actions, are looked for."""
NOT_MADE: Final = frozenset({CommitOutcome.FAILED, CommitOutcome.CONFLICTED, CommitOutcome.REFUSED})
"""The outcomes of decisions that have changed nothing: whoever added their snapshots, it was not by them."""
INDEX_END: Final = 2**53 - 1
"""Above every index."""

_Row: TypeAlias = dict[str, Any]
_OUTCOME: Final = ("settled_index", "settled_at", "outcome", "evidence", "metadata_location", "metadata_sha256")


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One decision on one table, view or namespace (`key`), and its outcome (None until settled)."""

    index: int
    group_id: UUID
    key: str
    recorded_at: datetime
    actor: str
    principal: str | None
    principal_source: str
    operation: str
    actions: tuple[str, ...]
    alias: str
    namespace: tuple[str, ...]
    name: str | None
    decision: str
    reason_id: str | None
    reason_version: int | None
    as_of: int
    policy_set: str
    request: str
    base: str | None
    table_uuid: str | None
    snapshots: tuple[str, ...]
    settled_index: int | None
    settled_at: datetime | None
    outcome: str | None
    evidence: str | None
    metadata_location: str | None
    metadata_sha256: str | None

    @property
    def added(self) -> tuple[str, ...]:
        """The snapshots that it may have added: none if it was not approved, or not made, whoever has added them."""
        is_made = self.decision == CommitDecision.APPROVED and self.outcome not in NOT_MADE
        return self.snapshots if is_made else ()


class CommitsProjection:
    """Decisions and outcomes as rows (implements `Projection`)."""

    name: str = COMMITS
    version: int = COMMITS_VERSION
    part: str | None = PRINCIPAL

    async def prepare(self, transaction: Transaction) -> None:
        """Do nothing: a generation is the rows with its number."""

    async def apply(self, entries: Sequence[LogEntry], transaction: Transaction) -> None:
        """Insert decisions, set the last outcome of each, and remove erased principals."""
        decided: dict[tuple[int, str], list[_Row]] = {}
        settled: dict[tuple[int, str], _Row] = {}
        whole: set[int] = set()
        erased: list[Json] = []
        for item in entries:
            match item.event:
                case CommitDecided() as event:
                    decided.setdefault((item.entry.group_id.int, item.entry.key), []).append(_decided_row(item, event))
                    if item.entry.index - item.entry.position >= entries[0].entry.index:
                        whole.add(item.entry.group_id.int)
                case CommitSettled() as event:
                    decision = decision_of(item.entry, event)
                    at = decision.int, item.entry.key
                    settled[at] = _settled_row(item.entry, event, decision, before=settled.get(at))
                case PayloadErased() as event:
                    if (principals := principals_erased(item.entry, event)) is not None:
                        erased.append(principals.row())
                case _:
                    pass  # not about a commit
        # An outcome nearly always comes in the batch of its decision: written with it, the row is written once. Only
        # where the group of the decision began before the batch may there be rows of it already.
        for at, outcome in settled.items():
            for row in decided.get(at, []):
                _settle(row, outcome)
        later = [row for at, row in settled.items() if at not in decided or at[0] not in whole]
        if decided:
            await _execute(transaction, "insert_decided", [row for rows in decided.values() for row in rows])
        if later:
            await _execute(transaction, "settle", later)
        if erased:
            await _execute(transaction, "erase_principals", erased)

    async def digest(self, transaction: Transaction) -> bytes:
        """Return the digest of all rows in log order."""
        digest = GenerationDigest(projection=self.name, version=self.version)
        async for rows in iterate_rows(transaction.connection, QUERIES["digest_commits"], _where(transaction)):
            for row in rows:
                digest.add(*(time_text(value) if isinstance(value, datetime) else value for value in row))
        return digest.digest()

    async def drop(self, transaction: Transaction) -> None:
        """Delete the generation's rows."""
        await transaction.connection.execute(QUERIES["drop_commits"], _where(transaction))


async def read_commits(
    connection: Connection,
    *,
    key: str | None = None,
    decision: str | None = None,
    before: int = INDEX_END,
    limit: int = 100,
) -> list[Commit]:
    """
    Return the last commits below index `before`, newest first, that the connection's role may see.

    `key` limits them to an event key (`table:…`), `decision` to a value of `ledger.format.events.CommitDecision`.
    """
    parameters = {"key": key, "decision": decision, "before": before, "limit": min(limit, ROWS_MAX)}
    query = QUERIES["commits" if key is None else "commits_of_key"]
    return [commit_of(row) for row in await (await connection.execute(query, parameters)).fetchall()]


async def read_last_refused(connection: Connection, log_id: int, *, limit: int) -> list[Commit]:
    """
    Return the last commits of a log that were rejected or undecidable, newest first.
    """
    parameters = {"log_id": log_id, "limit": min(limit, ROWS_MAX)}
    return [commit_of(row) for row in await (await connection.execute(QUERIES["last_refused"], parameters)).fetchall()]


async def read_commits_of_group(connection: Connection, group_id: UUID) -> list[Commit]:
    """
    Return the commits that one group decided, in order.
    """
    rows = await connection.execute(QUERIES["commits_of_group"], {"group_id": group_id})
    return [commit_of(row) for row in await rows.fetchall()]


async def read_history(
    connection: Connection, log_id: int, key: str, *, before: int = INDEX_END, limit: int = 100
) -> list[Commit]:
    """
    Return the last commits of one table, view or namespace of a log below index `before`, newest first.
    """
    parameters = {"log_id": log_id, "key": key, "before": before, "limit": min(limit, ROWS_MAX)}
    return [commit_of(row) for row in await (await connection.execute(QUERIES["history"], parameters)).fetchall()]


async def read_history_of_actions(
    connection: Connection, log_id: int, key: str, *, actions: Collection[str], before: int = INDEX_END
) -> tuple[list[Commit], int | None]:
    """
    Return the commits of one table, view or namespace of a log that do one of `actions`, newest first, among the last
    `EXAMINED_MAX` below index `before`; and the index below which to go on, None if there were no more.
    """
    where = {"log_id": log_id, "key": key, "before": before}
    row = await (await connection.execute(QUERIES["history_floor"], {**where, "skipped": EXAMINED_MAX - 1})).fetchone()
    floor = None if row is None else int(row[0])
    parameters = {**where, "floor": floor or 0, "actions": sorted(actions)}
    rows = await connection.execute(QUERIES["history_of_actions"], parameters)
    return [commit_of(each) for each in await rows.fetchall()], floor


async def read_commit_at(connection: Connection, index: int) -> Commit | None:
    """
    Return the commit that the entry at `index` decided; None if that is no decision, or not projected yet.
    """
    row = await (await connection.execute(QUERIES["commit_at"], {"index": index})).fetchone()
    return None if row is None else commit_of(row)


async def read_commits_of_snapshots(
    connection: Connection, log_id: int, *, table_uuid: str, snapshots: Sequence[str], before: int
) -> list[Commit]:
    """
    Return the commits that were to add some snapshots to one table, oldest first.

    They are looked for among its last `EXAMINED_MAX` commits below index `before`.
    """
    parameters = {
        "log_id": log_id,
        "table_uuid": table_uuid,
        "snapshots": list(snapshots),
        "before": before,
        "examined": EXAMINED_MAX,
    }
    rows = await connection.execute(QUERIES["commits_of_snapshots"], parameters)
    return [commit_of(row) for row in await rows.fetchall()]


def _settle(row: _Row, outcome: _Row) -> None:
    """Set the outcome of a decision in its row, as the query `settle` does."""
    if row["index"] < outcome["settled_index"]:
        table_uuid = row["table_uuid"] if outcome["table_uuid"] is None else outcome["table_uuid"]
        row |= {name: outcome[name] for name in _OUTCOME} | {"table_uuid": table_uuid}


def _decided_row(item: LogEntry, event: CommitDecided) -> _Row:
    entry = item.entry
    return {
        "index": entry.index,
        "group_id": uuid_text(entry.group_id),
        "key": entry.key,
        "recorded_at": recorded_text(entry),
        "actor": entry.actor,
        "principal": read_principal(item),
        "principal_source": event.principal_source,
        "operation": event.operation,
        "actions": list(event.actions),
        "alias": event.identifier.alias,
        "namespace": list(event.identifier.namespace),
        "name": event.identifier.name,
        "decision": event.decision.value,
        "reason_id": None if event.reason is None else event.reason.id,
        "reason_version": None if event.reason is None else event.reason.version,
        "as_of": event.as_of,
        "policy_set": event.policy_set,
        "request": event.request,
        "base": event.base,
        "table_uuid": event.table_uuid,
        "snapshots": list(event.snapshots),
    }


def _settled_row(entry: Entry, event: CommitSettled, decision: UUID, *, before: _Row | None) -> _Row:
    """Return an outcome as a row; one without a table's uuid keeps that of the outcome `before`."""
    return {
        "group_id": uuid_text(decision),
        "key": entry.key,
        "settled_index": entry.index,
        "settled_at": recorded_text(entry),
        "outcome": event.outcome.value,
        "evidence": event.evidence.value,
        "metadata_location": event.metadata_location,
        "metadata_sha256": event.metadata_sha256,
        "table_uuid": before["table_uuid"] if event.table_uuid is None and before is not None else event.table_uuid,
    }


async def _execute(transaction: Transaction, query: str, rows: Sequence[Json]) -> None:
    text = encode_json(rows)
    await transaction.connection.execute(QUERIES[query], {**_where(transaction), "rows": text})


def _where(transaction: Transaction) -> Mapping[str, object]:
    return {"log_id": transaction.log.log_id, "generation": transaction.generation}


def commit_of(row: Sequence[Any]) -> Commit:
    """
    Return the commit of a row of this module's queries.
    """
    values = dict(zip(Commit.__dataclass_fields__, row, strict=True))
    for name in ("actions", "namespace", "snapshots"):
        values[name] = tuple(values[name])
    for name in ("recorded_at", "settled_at"):
        values[name] = None if values[name] is None else values[name].astimezone(UTC)
    return Commit(**values)
