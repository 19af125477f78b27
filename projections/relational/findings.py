# SPDX-License-Identifier: Apache-2.0
"""
Findings as tables: scans and what they found, reviews of that, alerts and their deliveries, sources of triggers, and
snapshots that were committed without the gateway. For the console, the API, alerting and detection itself.

`finding_rows.py` decides which rows an entry makes; this module stores and reads them. No value of a column is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from uuid import UUID

from psycopg import sql

from ledger.format.canonical import Json
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.entries import LogEntry, encode_json
from projections.keys import bounded_name
from projections.processing.digest import GenerationDigest, time_text
from projections.processing.projection import Transaction, iterate_rows
from projections.relational.as_of import QUERIES as PAST
from projections.relational.as_of import as_of as as_of_entry
from projections.relational.as_of import ever
from projections.relational.finding_reviews import QUERIES as REVIEWS
from projections.relational.finding_reviews import FindingReview, FindingState, read_reviews, state_of
from projections.relational.finding_rows import rows_of
from projections.relational.table_names import QUERIES as NAMES
from projections.relational.table_names import drop_names, lookups_of, past_row, read_names, write_names

_WRITTEN: Final = load_queries("projections", "findings.sql")
_OF_STATE: Final = _WRITTEN.pop("is_of_state")
"""A condition that several queries have."""
QUERIES: Final = {
    **{
        name: query.replace("{is_of_state}", _OF_STATE).replace("{is_called}", "true")
        for name, query in _WRITTEN.items()
    },
    **REVIEWS,
    **{name: query for name, query in PAST.items() if name.startswith(("insert_", "digest_", "drop_"))},
}
AS_OF: Final = {
    **{
        name: as_of_entry(_WRITTEN[name].replace("{is_of_state}", _OF_STATE).replace("{is_called}", PAST["is_called"]))
        for name in ("findings_below", "finding_at", "last_findings_of_table", "found_in_tables", "scans_of_table")
    },
    "finding_floor": ever(_WRITTEN["finding_floor"]),
}
"""The same queries, asked as of an entry."""
FINDINGS: Final = "findings"
FINDINGS_VERSION: Final = 4
ROWS_MAX: Final = 1_000
EXAMINED_MAX: Final = 20_000
"""Findings that are looked through for one page."""
INDEX_END: Final = 2**53 - 1
"""Above every index."""

TABLES: Final = (
    *("scans", "findings", "reviews", "alerts", "deliveries", "triggers", "ungoverned"),
    *("scans_past", "findings_past", "names_past"),
)
_NAMED: Final = ("scans", "findings", "alerts", "ungoverned")
"""Tables whose rows have the key of their table's name, which may become known later."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSummary:
    """The last scan of one snapshot under one ruleset; `key` is None for a table without a name so far."""

    table_uuid: str
    snapshot: str
    ruleset: str
    index: int
    recorded_at: datetime
    key: str | None
    status: str
    fault: str | None
    file: str | None
    metadata_location: str
    findings: int
    rows: int
    rows_sampled: int | None
    columns: int
    files: int
    cells: int
    bytes_read: int
    gaps: tuple[str, ...]
    columns_unread: int
    unread: tuple[Mapping[str, Json], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    Personal data of one kind that a scan found in one column: `matches` of `not_null` values. `review` is the last one
    of its column and kind.
    """

    index: int
    group_id: UUID
    recorded_at: datetime
    key: str
    table_uuid: str
    snapshot: str
    ruleset: str
    field_id: int
    column_path: str
    kind: str
    confidence_percent: int
    matches: int
    not_null: int
    review: FindingReview | None = None

    @property
    def state(self) -> FindingState:
        """Return whether somebody has said that it is real, or none."""
        if self.review is None:
            return FindingState.OPEN
        return state_of(
            self.review.verdict,
            reviewed_percent=self.review.confidence_percent,
            confidence_percent=self.confidence_percent,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundKind:
    """Personal data of one kind in a table: the highest confidence, and in how many columns."""

    kind: str
    confidence_percent: int
    columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert, and the sinks that it was delivered to, in the order of delivery."""

    index: int
    group_id: UUID
    recorded_at: datetime
    key: str
    finding: str
    table_uuid: str
    snapshot: str
    field_id: int
    column_path: str
    kind: str
    confidence_percent: int
    delivered_to: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ungoverned:
    """A snapshot that no decision approves: it was committed without the gateway."""

    index: int
    recorded_at: datetime
    key: str | None
    table_uuid: str
    snapshot: str
    parent: str | None
    operation: str | None
    metadata_location: str
    trigger: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerCounts:
    """How many triggers and files one source has reported."""

    source: str
    triggers: int
    files: int
    last_index: int
    last_at: datetime


class FindingsProjection:
    """Scans, findings, alerts and triggers as rows (implements `Projection`)."""

    name: str = FINDINGS
    version: int = FINDINGS_VERSION
    part: str | None = None

    async def prepare(self, transaction: Transaction) -> None:
        """Do nothing: a generation is the rows with its number."""

    async def apply(self, entries: Sequence[LogEntry], transaction: Transaction) -> None:
        """Add the rows of the entries, and the names of their tables."""
        rows = rows_of(entries)
        names = await read_names(transaction, self.name, lookups_of(entries))
        for item in entries:
            names.apply(item)
        await write_names(transaction, self.name, names)
        await _execute(transaction, "upsert_scans", list(rows.scans.values()))
        await _execute(transaction, "supersede_findings", list(rows.superseding.values()))
        await _execute(transaction, "insert_findings", list(rows.findings.values()))
        await _execute(transaction, "insert_findings_past", rows.findings_past)
        await _execute(transaction, "insert_scans_past", rows.scans_past)
        await _execute(transaction, "insert_table_names_past", [past_row(name, until) for name, until in names.past])
        await _execute(transaction, "insert_reviews", rows.reviews)
        await _execute(transaction, "insert_alerts", rows.alerts)
        await _execute(transaction, "insert_deliveries", list(rows.deliveries.values()))
        await _execute(transaction, "add_triggers", list(rows.triggers.values()))
        await _execute(transaction, "insert_ungoverned", list(rows.ungoverned.values()))
        # New rows get the current name of their table; existing rows the name that their table got in this batch.
        if about := sorted(rows.table_uuids() | names.changed):
            for table in _NAMED:
                query = sql.SQL(QUERIES["name_rows"]).format(table=sql.Identifier("projections", table))
                await transaction.connection.execute(query, {**_where(transaction), "uuids": about})

    async def digest(self, transaction: Transaction) -> bytes:
        """Return the digest of all rows, table by table, by natural keys."""
        digest = GenerationDigest(projection=self.name, version=self.version)
        for table in TABLES:
            async for rows in iterate_rows(transaction.connection, QUERIES[f"digest_{table}"], _where(transaction)):
                for row in rows:
                    digest.add(*(time_text(value) if isinstance(value, datetime) else value for value in row))
        named = {**_where(transaction), "projection": self.name}
        async for rows in iterate_rows(transaction.connection, NAMES["digest_names"], named):
            for row in rows:
                digest.add(*row)
        return digest.digest()

    async def drop(self, transaction: Transaction) -> None:
        """Delete the generation's rows."""
        for table in TABLES:
            await transaction.connection.execute(QUERIES[f"drop_{table}"], _where(transaction))
        await drop_names(transaction, self.name)


async def read_scans(
    connection: Connection, *, key: str | None = None, before: int = INDEX_END, limit: int = 100
) -> list[ScanSummary]:
    """
    Return the last scans below index `before`, newest first, that the connection's role may see: of one table, or all.
    """
    return await _read(connection, ScanSummary, "scans", key=key, before=before, limit=min(limit, ROWS_MAX))


async def read_findings(
    connection: Connection,
    *,
    key: str | None = None,
    confidence_percent_min: int = 0,
    before: int = INDEX_END,
    limit: int = 100,
) -> list[Finding]:
    """
    Return the last finding of each column and kind, newest first: of one table (its event key), or of all.
    """
    return await _read_findings(
        connection,
        "findings",
        key=key,
        confidence_percent_min=confidence_percent_min,
        before=before,
        limit=min(limit, ROWS_MAX),
    )


async def read_findings_below(
    connection: Connection,
    log_id: int,
    *,
    before: int,
    key: str | None = None,
    kind: str | None = None,
    state: FindingState | None = None,
    confidence_percent_min: int = 0,
    limit: int = 100,
    as_of: int | None = None,
) -> tuple[list[Finding], int | None]:
    """
    Return findings of a log below index `before`, newest first, one for each scan that found it, and where the next
    ones begin.

    Without a `key`, or as of an entry, at most `EXAMINED_MAX` findings are looked through. The index is None if there
    are no more. As of an entry, each has the key in its own entry (`read_names_then` has the name of then).
    """
    limit = min(limit, ROWS_MAX)
    if as_of is not None:
        before = min(before, as_of + 1)
    where: dict[str, Any] = {
        "log_id": log_id,
        "before": before,
        "kind": kind,
        "state": state and state.value,
        "confidence_percent_min": confidence_percent_min,
        "limit": limit,
        "key": key,
    }
    if key is not None and as_of is None:
        found = await _read_findings(connection, "findings_of_key_below", **where)
        return found, found[-1].index if len(found) == limit else None
    skipped = {"log_id": log_id, "before": before, "skipped": EXAMINED_MAX - 1, "as_of": as_of}
    row = await (await connection.execute(_asked("finding_floor", as_of), skipped)).fetchone()
    floor = 0 if row is None else int(row[0])
    found = await _read_findings(connection, "findings_below", as_of, **where, floor=floor)
    if len(found) == limit:
        return found, found[-1].index
    return found, None if row is None else floor


async def read_finding_at(
    connection: Connection, log_id: int, index: int, *, as_of: int | None = None
) -> Finding | None:
    """
    Return the finding whose entry is at an index; None if there is none, or if a later scan has taken its place. As of
    an entry, it has the key in its own one.
    """
    found = await _read_findings(connection, "finding_at", as_of, log_id=log_id, index=index)
    return found[0] if found else None


async def read_found_in_tables(
    connection: Connection, log_id: int, uuids: Sequence[str], *, as_of: int | None = None
) -> dict[str, list[FoundKind]]:
    """
    Return, by uuid, which kinds of personal data were found in some tables.
    """
    found: dict[str, list[FoundKind]] = {}
    asked = {"log_id": log_id, "uuids": list(uuids), "as_of": as_of}
    for uuid, kind, percent, columns in await (
        await connection.execute(_asked("found_in_tables", as_of), asked)
    ).fetchall():
        found.setdefault(uuid, []).append(FoundKind(kind=kind, confidence_percent=percent, columns=columns))
    return found


async def read_findings_of_snapshots(
    connection: Connection, *, table_uuid: str, snapshots: Sequence[str], limit: int = ROWS_MAX
) -> list[Finding]:
    """
    Return what was found in some snapshots of one table, under any ruleset.
    """
    found = await _read_of_snapshots(connection, Finding, "findings_of_snapshots", table_uuid, snapshots, limit)
    return await with_reviews(connection, found)


async def read_scans_of_snapshots(
    connection: Connection, *, table_uuid: str, snapshots: Sequence[str], limit: int = ROWS_MAX
) -> list[ScanSummary]:
    """
    Return the last scan of each of some snapshots of one table, under each ruleset.
    """
    return await _read_of_snapshots(connection, ScanSummary, "scans_of_snapshots", table_uuid, snapshots, limit)


async def read_last_findings_of_table(
    connection: Connection,
    log_id: int,
    *,
    table_uuid: str,
    confidence_percent_min: int = 0,
    state: FindingState | None = None,
    limit: int = 100,
    as_of: int | None = None,
) -> list[Finding]:
    """
    Return the last finding of each column and kind in the table of a uuid, newest first; as of an entry, each with the
    key in its own one.
    """
    where = {
        "log_id": log_id,
        "table_uuid": bounded_name(table_uuid),
        "confidence_percent_min": confidence_percent_min,
        "state": state and state.value,
    }
    return await _read_findings(connection, "last_findings_of_table", as_of, **where, limit=min(limit, ROWS_MAX))


async def read_scans_of_table(
    connection: Connection, log_id: int, *, table_uuid: str, limit: int = 100, as_of: int | None = None
) -> list[ScanSummary]:
    """
    Return the last scans of the table of a uuid, newest first; as of an entry, each with the key in its own one.
    """
    where = {"log_id": log_id, "table_uuid": bounded_name(table_uuid), "limit": min(limit, ROWS_MAX)}
    return await _read(connection, ScanSummary, "scans_of_table", as_of, **where)


async def read_alerts_of_snapshots(
    connection: Connection, *, table_uuid: str, snapshots: Sequence[str], limit: int = ROWS_MAX
) -> list[Alert]:
    """
    Return the alerts about some snapshots of one table, oldest first.
    """
    return await _read_of_snapshots(connection, Alert, "alerts_of_snapshots", table_uuid, snapshots, limit)


async def read_alerts(connection: Connection, *, before: int = INDEX_END, limit: int = 100) -> list[Alert]:
    """
    Return the last alerts below index `before`, newest first.
    """
    return await _read(connection, Alert, "alerts", before=before, limit=min(limit, ROWS_MAX))


async def read_ungoverned(connection: Connection, *, before: int = INDEX_END, limit: int = 100) -> list[Ungoverned]:
    """
    Return the last ungoverned snapshots below index `before`, newest first.
    """
    return await _read(connection, Ungoverned, "ungoverned", before=before, limit=min(limit, ROWS_MAX))


async def read_sources(connection: Connection) -> list[TriggerCounts]:
    """
    Return the counts of each source of triggers.
    """
    return await _read(connection, TriggerCounts, "triggers")


async def _execute(transaction: Transaction, query: str, rows: Sequence[Json]) -> None:
    if rows:
        text = encode_json(rows)
        await transaction.connection.execute(QUERIES[query], {**_where(transaction), "rows": text})


async def _read_of_snapshots(
    connection: Connection, cls: type[R], query: str, table_uuid: str, snapshots: Sequence[str], limit: int
) -> list[R]:
    names = [bounded_name(each) for each in snapshots]
    where: dict[str, Any] = {"table_uuid": bounded_name(table_uuid), "snapshots": names}
    return await _read(connection, cls, query, **where, limit=min(limit, ROWS_MAX))


async def _read_findings(
    connection: Connection, query: str, as_of: int | None = None, **parameters: object
) -> list[Finding]:
    return await with_reviews(connection, await _read(connection, Finding, query, as_of, **parameters), as_of=as_of)


async def with_reviews(connection: Connection, found: Sequence[Finding], *, as_of: int | None = None) -> list[Finding]:
    """
    Return findings with the last review of each.
    """
    about = ((one.table_uuid, one.field_id, one.kind) for one in found)
    reviews = await read_reviews(connection, about, as_of=as_of)
    return [replace(one, review=reviews.get((one.table_uuid, one.field_id, one.kind))) for one in found]


async def _read(
    connection: Connection, cls: type[R], query: str, as_of: int | None = None, **parameters: object
) -> list[R]:
    rows = await (await connection.execute(_asked(query, as_of), {**parameters, "as_of": as_of})).fetchall()
    return [row_of(cls, row) for row in rows]


def _asked(query: str, as_of: int | None) -> str:
    """Return a query as it is asked of now, or as of an entry."""
    return QUERIES[query] if as_of is None else AS_OF[query]


def row_of(cls: type[R], row: Sequence[Any]) -> R:
    """
    Return a row of this module's queries as one of its dataclasses.
    """
    members = cls.__dataclass_fields__  # type: ignore[attr-defined]  # each of them is a dataclass
    names = [name for name, member in members.items() if member.default is MISSING]
    return cls(**{name: _value(value) for name, value in zip(names, row, strict=True)})


def _value(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC)
        case list():
            return tuple(value)
        case _:
            return value


def _where(transaction: Transaction) -> Mapping[str, object]:
    return {"log_id": transaction.log.log_id, "generation": transaction.generation}
