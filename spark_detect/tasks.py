# SPDX-License-Identifier: Apache-2.0
"""
What travels between planner, executors and recorder: scans, the tasks of each, and what a task returns.

A task's result is numbers and the names of what was counted: there is no place in it where a value could stand. Secrets
do not travel either: a catalog's options name them, and whoever opens a file reads them by that name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import orjson

from ledger.errors import FormatError
from ledger.format.events import Identifier, ScanFault, UnreadReason, from_data, to_data
from projections.relational.catalogs import CatalogRow
from spark_detect.errors import DetectionError

UNREAD_MAX: Final = 20
"""Unread columns that a scan names; it counts all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Entries from_index up to, not including, to_index of one log, pinned to a batch."""

    log_id: int
    from_index: int
    to_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedColumn:
    """
    A leaf of the table's schema: its field id and its path, and whether it holds texts.

    `unread` says why nothing in it is looked at, though it may hold what is looked for; its values are counted.
    """

    field_id: int
    path: str
    is_text: bool = False
    unread: UnreadReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """
    One snapshot to be scanned, and for which entries.

    `key` is the event key of the table, `request` the group id of a request for it, `files` and `rows` what the
    snapshot added, `is_sampled` whether only some of its row groups are read, `tasks` how many results there will be.
    `columns_cut` counts the columns that are beyond what a scan looks at; `cut` are the first of them.
    """

    range: Range
    key: str
    identifier: Identifier | None
    metadata_location: str
    table_uuid: str
    snapshot: str
    ruleset: str
    request: str | None
    gaps: tuple[str, ...]
    files: int
    rows: int
    is_sampled: bool
    columns: tuple[ScannedColumn, ...]
    columns_cut: int
    cut: tuple[ScannedColumn, ...]
    tasks: int

    def format(self) -> str:
        """Return the scan as JSON."""
        return orjson.dumps(to_data(self)).decode()

    @staticmethod
    def parse(text: str) -> Scan:
        """
        Return the scan that `format` wrote.

        Raises:
            DetectionError: if `text` is anything else.
        """
        try:
            return from_data(Scan, orjson.loads(text))
        except (orjson.JSONDecodeError, FormatError) as error:
            raise DetectionError(f"a scan that came back from an executor: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSlice:
    """Row groups of one Parquet file; None: all of them."""

    location: str
    row_groups: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """
    A part of a scan: slices of files, and the leaves to be read in them.

    `counts_rows` is false for all but one of the tasks that read different columns of the same rows. `fault` and
    `at_fault` tell what was found wrong already: then nothing is read.
    """

    scan: Scan
    catalog: CatalogRow
    slices: tuple[FileSlice, ...]
    columns: tuple[ScannedColumn, ...]
    counts_rows: bool = True
    fault: ScanFault | None = None
    at_fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """
    What a task counted: `counts` are the numbers of each column, by field id.

    `fault` says why the scan failed, at file `at_fault`; `is_postponed` that its storage did not answer.
    """

    scan: str
    fault: ScanFault | None = None
    at_fault: str | None = None
    is_postponed: bool = False
    rows: int = 0
    cells: int = 0
    bytes_read: int = 0
    field_ids: tuple[int, ...] = ()
    counts: tuple[tuple[int, ...], ...] = ()


RESULT_SCHEMA: Final = (
    "scan string, fault string, at_fault string, is_postponed boolean, rows bigint, cells bigint, bytes_read bigint, "
    "field_ids array<int>, counts array<array<bigint>>"
)
"""A result as a row of Spark, its members in the order of the dataclass."""
