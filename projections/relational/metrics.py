# SPDX-License-Identifier: Apache-2.0
"""
Metrics as a projection: SQL for history (by hour, table and actor), samples for Prometheus (totals of all tenants).

`counting.py` decides what is counted and when; this module stores it. A count is keyed by the SHA-256 of its canonical
dimensions, since a table's key may be longer than an index entry can be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.events import (
    AlertDelivered,
    AlertRaised,
    CommitObserved,
    DetectionFound,
    LineageCycleFound,
    LineageReceived,
    ScanCompleted,
    ScanFailed,
    TriggerReceived,
)
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.entries import LogEntry, encode_json
from projections.exposition import Metric, MetricKind, Sample
from projections.processing import cursors
from projections.processing.digest import GenerationDigest, time_text
from projections.processing.projection import Transaction, iterate_rows
from projections.relational.counting import Dimensions, OpenCommit, count_entries, groups_settled

QUERIES: Final = load_queries("projections", "metrics.sql")
METRICS: Final = "metrics"
METRICS_VERSION: Final = 3
ROWS_MAX: Final = 10_000
TABLES: Final = ("counts", "hours", "totals", "refusals", "events", "open")
"""What a generation has, by the names of its queries."""


@dataclass(frozen=True, slots=True)
class EventMetric:
    """The counter of one type of event, and the labels that tell its events apart."""

    name: str
    labels: tuple[str, ...]
    help: str


EVENTS: Final[Mapping[str, EventMetric]] = {
    TriggerReceived.TYPE: EventMetric(
        "lakeproof_triggers_total", ("source",), "What came from outside and says that a table may have changed."
    ),
    CommitObserved.TYPE: EventMetric(
        "lakeproof_ungoverned_commits_total",
        (),
        "Snapshots that no approved decision names, or only decisions that were not made.",
    ),
    ScanCompleted.TYPE: EventMetric("lakeproof_scans_completed_total", (), "Snapshots that were scanned."),
    ScanFailed.TYPE: EventMetric("lakeproof_scans_failed_total", ("fault",), "Snapshots that could not be scanned."),
    DetectionFound.TYPE: EventMetric(
        "lakeproof_findings_total", ("kind", "confidence_percent"), "Columns that look like personal data, by scan."
    ),
    AlertRaised.TYPE: EventMetric(
        "lakeproof_alerts_raised_total", ("kind",), "Findings that people are to be told of."
    ),
    AlertDelivered.TYPE: EventMetric("lakeproof_alerts_delivered_total", ("sink",), "Alerts that a sink has taken."),
    LineageReceived.TYPE: EventMetric("lakeproof_lineage_events_total", ("kind",), "OpenLineage events in the log."),
    LineageCycleFound.TYPE: EventMetric(
        "lakeproof_lineage_cycles_total", (), "Edges of lineage that were not drawn: each would close a cycle."
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCount:
    """How many commits there were of these dimensions."""

    dimensions: Dimensions
    count: int


class MetricsProjection:
    """Counts of commits, refusals and other events (implements `Projection`)."""

    name: str = METRICS
    version: int = METRICS_VERSION
    part: str | None = None

    async def prepare(self, transaction: Transaction) -> None:
        """Do nothing: a generation is the rows that bear its number."""

    async def apply(self, entries: Sequence[LogEntry], transaction: Transaction) -> None:
        """Add what the entries count."""
        added = count_entries(entries, await _open_of_groups(transaction, entries))
        if added.closed:
            await transaction.connection.execute(
                QUERIES["delete_open"], {**_where(transaction), "indices": sorted(added.closed)}
            )
        await _execute(transaction, "upsert_open", [_open_row(commit) for commit in added.opened.values()])
        await _execute(transaction, "add_counts", _keyed(map(_count_row, added.counts), added.counts.values()))
        hours: Counter[tuple[str, ...]] = Counter()
        for of, count in added.counts.items():
            hours[canonical.format_time(of.hour), of.operation, of.decision, of.outcome, of.reason] += count
        await _execute(transaction, "add_totals", _hour_rows(hours))
        refused = (_named(("operation", "reason"), of) for of in added.refusals)
        await _execute(transaction, "add_refusals", _keyed(refused, added.refusals.values()))
        events: list[Json] = [{**of._asdict(), "count": count} for of, count in added.events.items()]
        await _execute(transaction, "add_events", events)

    async def digest(self, transaction: Transaction) -> bytes:
        """Return the digest of all counts and open commits."""
        digest = GenerationDigest(projection=self.name, version=self.version)
        for table in TABLES:
            async for rows in iterate_rows(transaction.connection, QUERIES[f"digest_{table}"], _where(transaction)):
                for row in rows:
                    digest.add(*map(_as_json, row))
        return digest.digest()

    async def drop(self, transaction: Transaction) -> None:
        """Delete the generation's rows."""
        for table in TABLES:
            await transaction.connection.execute(QUERIES[f"drop_{table}"], _where(transaction))


async def read_history(connection: Connection, *, since: datetime, limit: int = 1_000) -> list[CommitCount]:
    """
    Return the counts of commits decided from `since` on, newest hour first, that the connection's role may see.
    """
    rows = await connection.execute(QUERIES["history"], {"since": since, "limit": min(limit, ROWS_MAX)})
    names = Dimensions.__dataclass_fields__
    return [
        CommitCount(dimensions=Dimensions(**dict(zip(names, (hour.astimezone(UTC), *of), strict=True))), count=count)
        for hour, *of, count in await rows.fetchall()
    ]


async def read_hours(connection: Connection, log_id: int, *, since: datetime, limit: int = 1_000) -> list[CommitCount]:
    """
    Return the counts of commits of one log decided from `since` on, newest hour first, over all tables and actors:
    their `key` and `actor` are empty.
    """
    where = {"log_id": log_id, "since": since, "limit": min(limit, ROWS_MAX)}
    return [
        CommitCount(
            dimensions=Dimensions(
                hour=hour.astimezone(UTC),
                key="",
                actor="",
                operation=operation,
                decision=decision,
                outcome=outcome,
                reason=reason,
            ),
            count=count,
        )
        for hour, operation, decision, outcome, reason, count in await (
            await connection.execute(QUERIES["hours"], where)
        ).fetchall()
    ]


async def read_metrics(connection: Connection, projections: Iterable[str]) -> list[Metric]:
    """
    Return the metrics of all logs that the connection's role may see (an auditor: every one), and the projections' lag.
    """
    return [
        Metric(
            name="lakeproof_commits_total",
            kind=MetricKind.COUNTER,
            help="Commits at their end: decided against, or approved and settled.",
            samples=[
                Sample(
                    labels={
                        "tenant": tenant.hex,
                        "operation": operation,
                        "decision": decision,
                        "outcome": outcome,
                        "reason": reason,
                    },
                    value=count,
                )
                async for tenant, operation, decision, outcome, reason, count in _rows(connection, "totals")
            ],
        ),
        Metric(
            name="lakeproof_commits_open",
            kind=MetricKind.GAUGE,
            help="Approved commits without a final outcome; state unknown if it was asked for in vain.",
            samples=[
                Sample(
                    labels={
                        "tenant": tenant.hex,
                        "operation": operation,
                        "state": "unknown" if is_unknown else "forwarded",
                    },
                    value=count,
                )
                async for tenant, operation, is_unknown, count in _rows(connection, "open")
            ],
        ),
        Metric(
            name="lakeproof_access_refused_total",
            kind=MetricKind.COUNTER,
            help="Requests refused before any decision.",
            samples=[
                Sample(labels={"tenant": tenant.hex, "operation": operation, "reason": reason}, value=count)
                async for tenant, operation, reason, count in _rows(connection, "refusals")
            ],
        ),
        *await _events(connection),
        Metric(
            name="lakeproof_projection_lag_entries",
            kind=MetricKind.GAUGE,
            help="Entries in the log that the live generation does not hold yet.",
            samples=[
                Sample(labels={"tenant": each.log.tenant.hex, "projection": each.projection}, value=each.lag_entries)
                for each in await cursors.read_progress(connection, projections)
                if each.log.tenant is not None
            ],
        ),
    ]


async def _events(connection: Connection) -> list[Metric]:
    """Return a counter for each type of event in `EVENTS`, with or without samples."""
    samples: dict[str, list[Sample]] = {event: [] for event in EVENTS}
    async for tenant, event, kind, degree, count in _rows(connection, "events"):
        labels = zip(EVENTS[event].labels, (kind, degree), strict=False)  # as many labels as the type has
        samples[event].append(Sample(labels={"tenant": tenant.hex, **dict(labels)}, value=count))
    return [
        Metric(name=metric.name, kind=MetricKind.COUNTER, help=metric.help, samples=samples[event])
        for event, metric in EVENTS.items()
    ]


async def _rows(connection: Connection, query: str) -> AsyncIterator[tuple[Any, ...]]:
    for row in await (await connection.execute(QUERIES[query])).fetchall():
        yield row


async def _open_of_groups(transaction: Transaction, entries: Sequence[LogEntry]) -> list[OpenCommit]:
    groups = groups_settled(entries)
    if not groups:
        return []
    rows = await transaction.connection.execute(QUERIES["open_of_groups"], {**_where(transaction), "group_ids": groups})
    return [
        OpenCommit(
            index=index,
            group_id=group_id,
            key=key,
            recorded_at=recorded_at.astimezone(UTC),
            actor=actor,
            operation=operation,
            reason=reason,
            is_unknown=is_unknown,
        )
        for index, group_id, key, recorded_at, actor, operation, reason, is_unknown in await rows.fetchall()
    ]


def _open_row(commit: OpenCommit) -> Json:
    return {
        "index": commit.index,
        "group_id": str(commit.group_id),
        "key": commit.key,
        "recorded_at": canonical.format_time(commit.recorded_at),
        "actor": commit.actor,
        "operation": commit.operation,
        "reason": commit.reason,
        "is_unknown": commit.is_unknown,
    }


def _count_row(of: Dimensions) -> dict[str, Json]:
    return {
        "hour": canonical.format_time(of.hour),
        "key": of.key,
        "actor": of.actor,
        "operation": of.operation,
        "decision": of.decision,
        "outcome": of.outcome,
        "reason": of.reason,
    }


def _hour_rows(counts: Mapping[tuple[str, ...], int]) -> list[Json]:
    """Return counts by hour as rows, each with the digest (`total`) of what it is without the hour."""
    names = ("hour", "operation", "decision", "outcome", "reason")
    rows: list[Json] = []
    for of, count in counts.items():
        row = _named(names, of)
        total = _digest({name: value for name, value in row.items() if name != "hour"})
        rows.append({**row, "digest": _digest(row), "total": total, "count": count})
    return rows


def _named(names: Sequence[str], values: Sequence[str]) -> dict[str, Json]:
    return dict(zip(names, values, strict=True))


def _keyed(dimensions: Iterable[dict[str, Json]], counts: Iterable[int]) -> list[Json]:
    """Return the rows to add, each with the digest of its dimensions."""
    return [{**of, "digest": _digest(of), "count": count} for of, count in zip(dimensions, counts, strict=True)]


def _digest(dimensions: dict[str, Json]) -> str:
    return sha256(canonical.encode(dimensions)).hexdigest()


def _as_json(value: Any) -> Json:
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return value  # type: ignore[no-any-return]  # the columns are texts, numbers and booleans otherwise


async def _execute(transaction: Transaction, query: str, rows: Sequence[Json]) -> None:
    if rows:
        text = encode_json(rows)
        await transaction.connection.execute(QUERIES[query], {**_where(transaction), "rows": text})


def _where(transaction: Transaction) -> Mapping[str, object]:
    return {"log_id": transaction.log.log_id, "generation": transaction.generation}
