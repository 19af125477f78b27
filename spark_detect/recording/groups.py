# SPDX-License-Identifier: Apache-2.0
"""
The groups of a scan: `scan.completed` with its findings, or `scan.failed`, under the mark's guard. Pure.

A group holds at most 1,024 events and 2 MiB. If there are more findings, the strongest are kept, and `scan.completed`
counts all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ledger.format.event import GROUP_EVENTS_MAX, GROUP_SIZE_BYTES_MAX, SYSTEM_ACTOR, PreparedEvent
from ledger.format.events import (
    DetectionFound,
    EventData,
    Identifier,
    ScanCompleted,
    ScanFailed,
    ScanFault,
    UnreadColumn,
    UnreadReason,
    prepare_event,
)
from ledger.format.sequence import Group
from projections.entries import storable
from spark_detect.classify import ColumnCounts, classify
from spark_detect.errors import DetectionError
from spark_detect.marks import scan_group_id, scan_guard
from spark_detect.tasks import UNREAD_MAX, Scan, ScannedColumn, TaskResult

FINDINGS_SIZE_BYTES_MAX: Final = GROUP_SIZE_BYTES_MAX - 128 * 1024
"""Of a group, so that its first event fits as well."""
LOCATION_LENGTH_MAX: Final = 4_096
COLUMN_LENGTH_MAX: Final = 1_024
"""Names come from tables; one that is longer is cut, so that no event is too large to be recorded."""
UNREAD_LENGTH_MAX: Final = 100
"""Characters of the path of an unread column that a scan names: a character may take six bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPostponed:
    """The storage did not answer: nothing is recorded, and the range is worked on again."""


def record_scan(scan: Scan, results: Sequence[TaskResult], *, now: datetime) -> Group | ScanPostponed:
    """
    Return the group that tells what came of `scan`.

    A fault is the scan's, however much was read besides; of several, the first in the order of files. A storage that
    did not answer outweighs a fault: the next attempt tells both.

    Raises:
        DetectionError: if a task's result is missing.
    """
    if len(results) != scan.tasks:
        raise DetectionError(
            f"scan of snapshot {scan.snapshot} of {scan.key}: expected {scan.tasks} results, found {len(results)}"
        )
    if any(result.is_postponed for result in results):
        return ScanPostponed()
    faults = [(result.at_fault or "", result.fault) for result in results if result.fault is not None]
    if faults:
        at_fault, fault = min(faults)
        return _group(scan, (_event(scan, _failed(scan, fault, at_fault), now),))
    totals = _totals(results)
    found, kept = _findings(scan, totals, now)
    return _group(scan, (_event(scan, _completed(scan, results, totals, found), now), *kept))


def _group(scan: Scan, events: tuple[PreparedEvent, ...]) -> Group:
    return Group(id=scan_group_id(scan), then=events, guard=(scan_guard(scan),))


def _failed(scan: Scan, fault: ScanFault, at_fault: str) -> ScanFailed:
    return ScanFailed(
        fault=fault,
        file=storable(at_fault[:LOCATION_LENGTH_MAX]) or None,
        identifier=_identifier(scan),
        metadata_location=storable(scan.metadata_location[:LOCATION_LENGTH_MAX]),
        ruleset=scan.ruleset,
        snapshot=scan.snapshot,
        table_uuid=scan.table_uuid,
    )


def _completed(
    scan: Scan, results: Sequence[TaskResult], totals: Mapping[int, ColumnCounts], findings: int
) -> ScanCompleted:
    rows = sum(result.rows for result in results)
    unread = _unread(scan, totals)
    named = (*unread, *scan.cut)[:UNREAD_MAX]
    return ScanCompleted(
        bytes_read=sum(result.bytes_read for result in results),
        cells=sum(result.cells for result in results),
        columns=len(totals.keys() - {column.field_id for column in scan.columns if column.unread is not None}),
        columns_unread=len(unread) + scan.columns_cut,
        files=scan.files,
        findings=findings,
        gaps=scan.gaps,
        identifier=_identifier(scan),
        metadata_location=storable(scan.metadata_location[:LOCATION_LENGTH_MAX]),
        rows=scan.rows if scan.is_sampled else rows,
        rows_sampled=rows if scan.is_sampled else None,
        ruleset=scan.ruleset,
        snapshot=scan.snapshot,
        table_uuid=scan.table_uuid,
        unread=tuple(_unread_column(column) for column in named if column.unread is not None),
    )


def _totals(results: Iterable[TaskResult]) -> dict[int, ColumnCounts]:
    """Return the counts of each column, of all tasks together."""
    totals: dict[int, ColumnCounts] = {}
    for result in results:
        for field_id, numbers in zip(result.field_ids, result.counts, strict=True):
            counts = ColumnCounts.from_ints(numbers)
            totals[field_id] = totals[field_id] + counts if field_id in totals else counts
    return totals


def _unread(scan: Scan, totals: Mapping[int, ColumnCounts]) -> list[ScannedColumn]:
    """Return the columns that were not looked at; one of bytes in which there is no value is none of them."""
    return [
        column
        for column in scan.columns
        if column.unread is not None
        and (column.unread is not UnreadReason.BINARY or scan.is_sampled or _has_values(column, totals))
    ]


def _has_values(column: ScannedColumn, totals: Mapping[int, ColumnCounts]) -> bool:
    counts = totals.get(column.field_id)
    return counts is not None and counts.values > 0


def _unread_column(column: ScannedColumn) -> UnreadColumn:
    return UnreadColumn(
        column=storable(column.path[:UNREAD_LENGTH_MAX]),
        field_id=column.field_id,
        reason=column.unread or UnreadReason.UNKNOWN_TYPE,
    )


def _findings(scan: Scan, totals: Mapping[int, ColumnCounts], now: datetime) -> tuple[int, list[PreparedEvent]]:
    """Return how many findings there are, and the events of those that are kept, strongest first."""
    paths = {column.field_id: column.path for column in scan.columns}
    found = [
        (field_id, one) for field_id, counts in totals.items() for one in classify(paths.get(field_id, ""), counts)
    ]
    found.sort(key=lambda item: (-item[1].confidence_percent, -item[1].matches, item[0], item[1].kind))
    kept: list[PreparedEvent] = []
    size_bytes = 0
    for field_id, one in found[: GROUP_EVENTS_MAX - 1]:
        event = DetectionFound(
            column=storable(paths.get(field_id, "")[:COLUMN_LENGTH_MAX]),
            confidence_percent=one.confidence_percent,
            field_id=field_id,
            kind=one.kind,
            matches=one.matches,
            ruleset=scan.ruleset,
            snapshot=scan.snapshot,
            table_uuid=scan.table_uuid,
            values=one.values,
        )
        prepared = _event(scan, event, now)
        size_bytes += len(prepared.event)
        if size_bytes > FINDINGS_SIZE_BYTES_MAX:
            break
        kept.append(prepared)
    return len(found), kept


def _identifier(scan: Scan) -> Identifier | None:
    if scan.identifier is None:
        return None
    name = scan.identifier.name
    return replace(
        scan.identifier,
        alias=storable(scan.identifier.alias),
        namespace=tuple(map(storable, scan.identifier.namespace)),
        name=None if name is None else storable(name),
    )


def _event(scan: Scan, event: EventData, now: datetime) -> PreparedEvent:
    return prepare_event(event, key=scan.key, actor=SYSTEM_ACTOR, occurred_at=now)
