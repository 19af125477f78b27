# SPDX-License-Identifier: Apache-2.0
"""Scans of a table, and what their tasks count."""

from __future__ import annotations

from ledger.format.events import (
    Identifier,
)
from spark_detect.classify import RULESET, ColumnCounts, Pattern, PatternCounts
from spark_detect.tasks import Range, Scan, ScannedColumn, TaskResult

EMAILS = ColumnCounts(
    values=100,
    patterns=tuple(
        PatternCounts(candidates=100, valid=100, cells=100, spread=2**32 - 1) if p is Pattern.EMAIL else PatternCounts()
        for p in Pattern
    ),
)


def scan(*, columns: int = 1, tasks: int = 1, path: str = "email{}") -> Scan:
    return Scan(
        range=Range(log_id=1, from_index=3, to_index=4),
        key="table:lake/crm/people",
        identifier=Identifier(alias="lake", namespace=("crm",), name="people"),
        metadata_location="file:///lake/1.metadata.json",
        table_uuid="5f0c0b7e-4c9c-4a57-a6f0-0c5d7a1f5f0e",
        snapshot="7302847561029384756",
        ruleset=RULESET,
        request=None,
        gaps=(),
        files=2,
        rows=200,
        is_sampled=False,
        columns=tuple(ScannedColumn(field_id=n, path=path.format(n)) for n in range(1, columns + 1)),
        columns_cut=0,
        cut=(),
        tasks=tasks,
    )


def result(what: Scan, counts: ColumnCounts = EMAILS) -> TaskResult:
    return TaskResult(
        scan=what.format(),
        rows=100,
        cells=100,
        bytes_read=1_000,
        field_ids=tuple(column.field_id for column in what.columns),
        counts=tuple(counts.to_ints() for _ in what.columns),
    )
