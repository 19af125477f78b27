"""
What a scan says in the log: `scan.completed` with its findings, or `scan.failed`. One group, under the mark's guard.

Pure.

A group holds 1,024 events and 2 MiB at most. Of more findings the strongest are kept, and `scan.completed` counts all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ledger.event import GROUP_EVENTS_MAX, GROUP_SIZE_BYTES_MAX, SYSTEM_ACTOR, Event, PreparedEvent, prepare
from ledger.events import DetectionFound, EventData, Identifier, ScanCompleted, ScanFailed, ScanFault, to_data
from ledger.sequence import Group
from projections.entries import storable
from spark_detect.classify import ColumnCounts, classify
from spark_detect.errors import DetectionError
from spark_detect.marks import scan_group_id, scan_guard
from spark_detect.tasks import Scan, TaskResult

FINDINGS_SIZE_BYTES_MAX: Final = GROUP_SIZE_BYTES_MAX - 128 * 1024
"""Of a group, so that its first event fits as well."""
LOCATION_LENGTH_MAX: Final = 4_096
COLUMN_LENGTH_MAX: Final = 1_024
"""Names come from tables; one that is longer is cut, so that no event is too large to be recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Postponed:
    """The storage did not answer: nothing is recorded, and the range is worked on again."""


def record_scan(scan: Scan, results: Sequence[TaskResult], *, now: datetime) -> Group | Postponed:
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
        return Postponed()
    faults = [(result.at_fault or "", result.fault) for result in results if result.fault is not None]
    if faults:
        at_fault, fault = min(faults)
        return _group(scan, (_event(scan, _failed(scan, fault, at_fault), now),))
    found, kept = _findings(scan, results, now)
    return _group(scan, (_event(scan, _completed(scan, results, found), now), *kept))


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


def _completed(scan: Scan, results: Sequence[TaskResult], findings: int) -> ScanCompleted:
    rows = sum(result.rows for result in results)
    return ScanCompleted(
        bytes_read=sum(result.bytes_read for result in results),
        cells=sum(result.cells for result in results),
        columns=len({field_id for result in results for field_id in result.field_ids}),
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
    )


def _findings(scan: Scan, results: Iterable[TaskResult], now: datetime) -> tuple[int, list[PreparedEvent]]:
    """Return how many findings there are, and the events of those that are kept, strongest first."""
    totals: dict[int, ColumnCounts] = {}
    for result in results:
        for field_id, numbers in zip(result.field_ids, result.counts, strict=True):
            counts = ColumnCounts.from_ints(numbers)
            totals[field_id] = totals[field_id] + counts if field_id in totals else counts
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
    return prepare(
        Event(
            type=event.TYPE,
            version=event.VERSION,
            key=scan.key,
            actor=SYSTEM_ACTOR,
            occurred_at=now,
            data=to_data(event),
        )
    )
