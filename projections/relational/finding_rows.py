# SPDX-License-Identifier: Apache-2.0
"""
The rows that entries of triggers, streams, detection and reviews add to the findings. Pure.

A repeated scan replaces the findings of the scan before it, which belong to another group. What is replaced is past: it
is kept with the index of the entry that replaced it, `until`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.entry import Entry
from ledger.format.events import (
    AlertDelivered,
    AlertRaised,
    CommitObserved,
    DetectionFound,
    FindingReviewed,
    ScanCompleted,
    ScanCompletedV1,
    ScanFailed,
    TriggerReceived,
    to_data,
)
from projections.entries import LogEntry, storable
from projections.keys import bounded_name, table_key


@dataclass(slots=True)
class FindingRows:
    """The rows of a batch, in log order; what a later entry of the batch replaces is past."""

    scans: dict[tuple[str, ...], dict[str, Json]] = field(default_factory=dict)
    """Each with `until`, the index of the first one of the batch: a row that is stored holds up to there."""
    findings: dict[tuple[str, ...], dict[str, Json]] = field(default_factory=dict)
    superseding: dict[tuple[str, ...], dict[str, Json]] = field(default_factory=dict)
    """Which findings that are stored are replaced: those of other groups, or of one column and kind."""
    scans_past: list[dict[str, Json]] = field(default_factory=list)
    findings_past: list[dict[str, Json]] = field(default_factory=list)
    reviews: list[dict[str, Json]] = field(default_factory=list)
    alerts: list[dict[str, Json]] = field(default_factory=list)
    deliveries: dict[tuple[str, str], Json] = field(default_factory=dict)
    triggers: dict[str, dict[str, Any]] = field(default_factory=dict)
    ungoverned: dict[tuple[str, str], dict[str, Json]] = field(default_factory=dict)

    def table_uuids(self) -> set[str]:
        """Return the uuids of the tables whose rows are added."""
        added = (*self.scans.values(), *self.findings.values(), *self.alerts, *self.ungoverned.values())
        return {storable(str(row["table_uuid"])) for row in added}


def rows_of(entries: Iterable[LogEntry]) -> FindingRows:
    """
    Return the rows that `entries`, in log order, add.
    """
    rows = FindingRows()
    for item in entries:
        _add(rows, item)
    return rows


def _add(rows: FindingRows, item: LogEntry) -> None:
    entry = item.entry
    match item.event:
        case ScanCompleted() | ScanCompletedV1() as event:
            _add_scan(rows, entry, event, status="completed", fault=None, file=None)
        case ScanFailed() as event:
            _add_scan(rows, entry, event, status="failed", fault=event.fault.value, file=event.file)
        case DetectionFound() as event:
            _add_finding(rows, entry, event)
        case FindingReviewed() as event:
            rows.reviews.append(_review_row(entry, event))
        case AlertRaised() as event:
            rows.alerts.append(_alert_row(entry, event))
        case AlertDelivered() as event:
            row: dict[str, Json] = {
                "alert": bounded_name(event.alert),
                "sink": bounded_name(event.sink),
                "attempt": event.attempt,
            }
            rows.deliveries.setdefault((event.alert, event.sink), {**row, **_place(entry)})
        case TriggerReceived() as event:
            counted = rows.triggers.setdefault(
                event.source.value, {"source": event.source.value, "triggers": 0, "files": 0}
            )
            counted["triggers"] += 1
            counted["files"] += event.file_count
            counted |= {"last_index": entry.index, "last_at": canonical.format_time(entry.recorded_at)}
        case CommitObserved() as event:
            rows.ungoverned.setdefault((event.table_uuid, event.snapshot), _ungoverned_row(entry, event))
        case _:
            pass  # no finding


def _add_scan(
    rows: FindingRows,
    entry: Entry,
    event: ScanCompleted | ScanCompletedV1 | ScanFailed,
    *,
    status: str,
    fault: str | None,
    file: str | None,
) -> None:
    scan = _scan_key(event.table_uuid, event.snapshot, event.ruleset)
    named = dict(zip(("table_uuid", "snapshot", "ruleset"), scan, strict=True))
    group_id = str(entry.group_id)
    for at in [at for at, row in rows.findings.items() if at[:3] == scan and row["group_id"] != group_id]:
        rows.findings_past.append({**rows.findings.pop(at), "until": entry.index})
    superseding: dict[str, Json] = {**named, "group_id": group_id, "until": entry.index}
    rows.superseding.setdefault((*scan, group_id), superseding)
    before = rows.scans.get(scan)
    if before is not None:
        rows.scans_past.append({**before, "until": entry.index})
    row: dict[str, Json] = {
        **named,
        **_place(entry),
        "until": entry.index if before is None else before["until"],
        "key": table_key(event.identifier),
        "status": status,
        "fault": fault,
        "file": file,
        "metadata_location": event.metadata_location,
    }
    counts = ("findings", "rows", "columns", "files", "cells", "bytes_read")
    row |= {"columns_unread": 0, "unread": []}
    if isinstance(event, ScanCompleted):
        row |= {"columns_unread": event.columns_unread, "unread": [to_data(one) for one in event.unread]}
    if isinstance(event, ScanCompleted | ScanCompletedV1):
        row |= {name: getattr(event, name) for name in counts}
        row |= {"rows_sampled": event.rows_sampled, "gaps": list(event.gaps)}
    else:
        row |= dict.fromkeys(counts, 0) | {"rows_sampled": None, "gaps": []}
    rows.scans[scan] = row


def _add_finding(rows: FindingRows, entry: Entry, event: DetectionFound) -> None:
    scan = _scan_key(event.table_uuid, event.snapshot, event.ruleset)
    row = _finding_row(entry, event, scan)
    at = (*scan, str(event.field_id), event.kind.value)
    if (before := rows.findings.get(at)) is not None:
        rows.findings_past.append({**before, "until": entry.index})
    rows.findings[at] = row
    named = {name: row[name] for name in ("table_uuid", "snapshot", "ruleset", "field_id", "kind")}
    rows.superseding.setdefault(at, {**named, "until": entry.index})


def _finding_row(entry: Entry, event: DetectionFound, scan: tuple[str, str, str]) -> dict[str, Json]:
    return {
        **dict(zip(("table_uuid", "snapshot", "ruleset"), scan, strict=True)),
        **_place(entry),
        "field_id": event.field_id,
        "kind": event.kind.value,
        "group_id": str(entry.group_id),
        "key": entry.key,
        "column_path": event.column,
        "confidence_percent": event.confidence_percent,
        "matches": event.matches,
        "not_null": event.values,
    }


def _review_row(entry: Entry, event: FindingReviewed) -> dict[str, Json]:
    return {
        **_place(entry),
        "table_uuid": bounded_name(event.table_uuid),
        "field_id": event.field_id,
        "kind": event.kind.value,
        "version": event.version,
        "finding": event.finding,
        "actor": entry.actor,
        "verdict": event.verdict.value,
        "confidence_percent": event.confidence_percent,
        "reason": event.reason,
    }


def _alert_row(entry: Entry, event: AlertRaised) -> dict[str, Json]:
    return {
        **_place(entry),
        "group_id": str(entry.group_id),
        "key": entry.key,
        "finding": event.finding,
        "table_uuid": event.table_uuid,
        "snapshot": event.snapshot,
        "field_id": event.field_id,
        "column_path": event.column,
        "kind": event.kind.value,
        "confidence_percent": event.confidence_percent,
    }


def _ungoverned_row(entry: Entry, event: CommitObserved) -> dict[str, Json]:
    return {
        **_place(entry),
        "table_uuid": bounded_name(event.table_uuid),
        "snapshot": bounded_name(event.snapshot),
        "key": table_key(event.identifier),
        "metadata_location": event.metadata_location,
        "operation": event.operation,
        "parent": event.parent,
        "trigger": event.trigger,
    }


def _place(entry: Entry) -> dict[str, Json]:
    return {"index": entry.index, "recorded_at": canonical.format_time(entry.recorded_at)}


def _scan_key(table_uuid: str, snapshot: str, ruleset: str) -> tuple[str, str, str]:
    return bounded_name(table_uuid), bounded_name(snapshot), bounded_name(ruleset)
