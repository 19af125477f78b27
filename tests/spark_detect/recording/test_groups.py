# SPDX-License-Identifier: Apache-2.0
"""
What a scan says in the log: its figures, its findings, and what is left out when there are too many.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ledger.format import canonical
from ledger.format.entry import Branch
from ledger.format.event import GROUP_EVENTS_MAX, GROUP_SIZE_BYTES_MAX
from ledger.format.events import (
    DetectionFound,
    ScanCompleted,
    ScanFailed,
    ScanFault,
    UnreadReason,
    from_data,
)
from ledger.format.sequence import Group
from spark_detect.classify import ColumnCounts
from spark_detect.errors import DetectionError
from spark_detect.recording.groups import ScanPostponed, record_scan
from spark_detect.tasks import Range, Scan, ScannedColumn
from testkit.spark_detect.scans import EMAILS, result, scan

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def events(group: Group | ScanPostponed) -> list[object]:
    assert isinstance(group, Group)
    kinds = {kind.TYPE: kind for kind in (ScanCompleted, ScanFailed, DetectionFound)}
    return [from_data(kinds[event.type], canonical.decode(event.data)) for event in group.then]


def test_counts_of_all_tasks_add_up() -> None:
    what = scan(tasks=2)
    completed, found = events(record_scan(what, [result(what), result(what)], now=NOW))
    assert isinstance(completed, ScanCompleted)
    assert (completed.rows, completed.cells, completed.bytes_read, completed.columns, completed.findings) == (
        200,
        200,
        2_000,
        1,
        1,
    )
    assert isinstance(found, DetectionFound)
    assert (found.column, found.matches, found.values, found.confidence_percent) == ("email1", 200, 200, 92)


def test_columns_that_were_not_looked_at_are_told_with_the_reason() -> None:
    photo, note, late = (
        ScannedColumn(field_id=number, path=path, unread=reason)
        for number, path, reason in (
            (2, "photo", UnreadReason.BINARY),
            (3, "note", UnreadReason.VARIANT),
            (10_001, "late", UnreadReason.CUT),
        )
    )
    what = scan()
    what = replace(what, columns=(*what.columns, photo, note), columns_cut=2, cut=(late,))
    assert Scan.parse(what.format()) == what
    found = replace(result(scan()), scan=what.format(), field_ids=(1, 2), counts=(EMAILS.to_ints(), EMAILS.to_ints()))
    completed = events(record_scan(what, [found], now=NOW))[0]
    assert isinstance(completed, ScanCompleted)
    assert (completed.columns, completed.columns_unread) == (1, 4)
    assert [(one.column, one.reason) for one in completed.unread] == [
        ("photo", "binary"),
        ("note", "variant"),
        ("late", "cut"),
    ]
    # In a column of bytes without a value there was nothing to be looked at.
    empty = replace(found, counts=(EMAILS.to_ints(), ColumnCounts().to_ints()))
    completed = events(record_scan(what, [empty], now=NOW))[0]
    assert isinstance(completed, ScanCompleted)
    assert (completed.columns_unread, completed.unread[0].column) == (3, "note")


def test_a_sample_says_how_many_rows_it_read() -> None:
    what = replace(scan(), is_sampled=True)
    completed = events(record_scan(what, [result(what)], now=NOW))[0]
    assert isinstance(completed, ScanCompleted)
    assert (completed.rows, completed.rows_sampled) == (200, 100)


def test_one_fault_fails_the_scan_and_names_the_first_file() -> None:
    what = scan(tasks=3)
    results = [
        result(what),
        replace(result(what), fault=ScanFault.FILE_UNREADABLE, at_fault="b"),
        replace(result(what), fault=ScanFault.FILE_MISSING, at_fault="a"),
    ]
    (failed,) = events(record_scan(what, results, now=NOW))
    assert isinstance(failed, ScanFailed)
    assert (failed.fault, failed.file) == (ScanFault.FILE_MISSING, "a")


def test_a_storage_that_is_away_records_nothing_whatever_else_is_wrong() -> None:
    what = scan(tasks=2)
    results = [
        replace(result(what), fault=ScanFault.FILE_MISSING, at_fault="a"),
        replace(result(what), is_postponed=True),
    ]
    assert record_scan(what, results, now=NOW) == ScanPostponed()


def test_a_missing_result_is_no_scan() -> None:
    what = scan(tasks=2)
    with pytest.raises(DetectionError, match="expected 2 results, found 1"):
        record_scan(what, [result(what)], now=NOW)


def test_the_same_scan_has_the_same_group_and_a_request_another() -> None:
    what = scan()
    first = record_scan(what, [result(what)], now=NOW)
    moved = replace(what, range=Range(log_id=1, from_index=9, to_index=12), metadata_location="elsewhere")
    asked = replace(what, request="018f2e3a-1111-7222-8333-444455556666")
    second, third = (record_scan(each, [result(each)], now=NOW) for each in (moved, asked))
    assert isinstance(first, Group)
    assert isinstance(second, Group)
    assert isinstance(third, Group)
    assert first.id == second.id != third.id
    assert [call.guard for call in (*first.guard, *third.guard)] == ["scan.first", "scan.requested"]
    assert first.branch(Branch.ELSE) == ()


@pytest.mark.parametrize(("columns", "path"), [(3_000, "email{}"), (1_023, "x" * 5_000 + ".email{}")])
def test_of_too_many_findings_the_strongest_are_kept_and_all_are_counted(columns: int, path: str) -> None:
    what = scan(columns=columns, path=path)
    weak = ColumnCounts(values=100)
    counts = tuple((EMAILS if n % 2 else weak).to_ints() for n in range(columns))
    group = record_scan(what, [replace(result(what), counts=counts)], now=NOW)
    assert isinstance(group, Group)
    assert len(group.then) <= GROUP_EVENTS_MAX
    assert group.size_bytes <= GROUP_SIZE_BYTES_MAX
    completed, *found = events(group)
    assert isinstance(completed, ScanCompleted)
    strengths = [event.confidence_percent for event in found if isinstance(event, DetectionFound)]
    assert completed.findings >= len(found)
    assert strengths == sorted(strengths, reverse=True)
    assert strengths[0] == 92


def test_names_that_no_event_can_hold_are_recorded_as_far_as_they_go() -> None:
    what = replace(scan(path="x" * 100_000 + ".e\x00mail{}"), metadata_location="s3://x/" + "y" * 100_000)
    completed, *found = events(record_scan(what, [result(what)], now=NOW))
    assert isinstance(completed, ScanCompleted)
    assert len(completed.metadata_location) == 4_096
    assert [len(event.column) for event in found if isinstance(event, DetectionFound)] == [1_024]
