# SPDX-License-Identifier: Apache-2.0
"""
Detection: scans of snapshots, what they found, what people say of that, and which alerts were delivered.

A scan covers one snapshot of one table under one ruleset. It records counts only, never a value of a column.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from ledger.format.events.commits import Identifier


class DetectionKind(StrEnum):
    """What personal data looks like."""

    US_SSN = "us_ssn"
    EMAIL = "email"
    CREDIT_CARD = "credit_card"
    PHONE = "phone"
    IBAN = "iban"


class ScanFault(StrEnum):
    """Why a scan failed; it is not repeated unless requested."""

    METADATA_MISSING = "metadata_missing"
    METADATA_UNREADABLE = "metadata_unreadable"
    FILE_MISSING = "file_missing"
    FILE_UNREADABLE = "file_unreadable"
    FILE_ENCRYPTED = "file_encrypted"
    FORMAT_UNSUPPORTED = "format_unsupported"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequested:
    """A scan of `snapshot` (null: of all live files) is requested, even if it was scanned before."""

    TYPE: ClassVar[str] = "scan.requested"
    VERSION: ClassVar[int] = 1

    ruleset: str
    snapshot: str | None
    table_uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanCompletedV1:
    """
    A snapshot was scanned, as recorded before columns that were not examined were recorded.

    Empty texts counted as values then, and `columns` counted every column as examined.
    """

    TYPE: ClassVar[str] = "scan.completed"
    VERSION: ClassVar[int] = 1

    bytes_read: int
    cells: int
    columns: int
    files: int
    findings: int
    gaps: tuple[str, ...]
    identifier: Identifier | None
    metadata_location: str
    rows: int
    rows_sampled: int | None
    ruleset: str
    snapshot: str
    table_uuid: str


class UnreadReason(StrEnum):
    """Why a column was not examined, although it may hold personal data."""

    BINARY = "binary"
    VARIANT = "variant"
    UNKNOWN_TYPE = "unknown_type"
    CUT = "cut"
    """The table has more columns than one scan examines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadColumn:
    """A column that was not examined, by its path and its id in the table's schema."""

    column: str
    field_id: int
    reason: UnreadReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanCompleted:
    """
    A snapshot was scanned. In one group with all its findings, under the guard that marks it.

    `cells` are values that are neither null nor empty. `gaps` are the parents that had expired, whose live files were
    scanned with this one. `rows_sampled` is null if every row was read. `columns` counts those that were examined, or
    whose type cannot hold what is searched for. `columns_unread` counts the others, of which `unread` names as many as
    fit.
    """

    TYPE: ClassVar[str] = "scan.completed"
    VERSION: ClassVar[int] = 2

    bytes_read: int
    cells: int
    columns: int
    columns_unread: int
    files: int
    findings: int
    gaps: tuple[str, ...]
    identifier: Identifier | None
    metadata_location: str
    rows: int
    rows_sampled: int | None
    ruleset: str
    snapshot: str
    table_uuid: str
    unread: tuple[UnreadColumn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFailed:
    """A snapshot could not be scanned; `file` is the location of the faulty file. Under the same guard as a scan."""

    TYPE: ClassVar[str] = "scan.failed"
    VERSION: ClassVar[int] = 1

    fault: ScanFault
    file: str | None
    identifier: Identifier | None
    metadata_location: str
    ruleset: str
    snapshot: str
    table_uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionFound:
    """
    A column of a snapshot looks like personal data of one kind.

    `confidence_percent` is 65 for an indicative name alone, 55 for matching values alone, 92 for both. `matches` of
    `values` (not null) passed pattern and validator. `field_id` is the column's id in the table's schema, `column` its
    path.
    """

    TYPE: ClassVar[str] = "detection.found"
    VERSION: ClassVar[int] = 1

    column: str
    confidence_percent: int
    field_id: int
    kind: DetectionKind
    matches: int
    ruleset: str
    snapshot: str
    table_uuid: str
    values: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRaised:
    """An alert about a finding; `finding` is the group id of its scan. Raised once for each column and kind."""

    TYPE: ClassVar[str] = "alert.raised"
    VERSION: ClassVar[int] = 1

    column: str
    confidence_percent: int
    field_id: int
    finding: str
    kind: DetectionKind
    snapshot: str
    table_uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertDelivered:
    """`sink` accepted the alert that group `alert` raised, at the `attempt`-th attempt (from 1)."""

    TYPE: ClassVar[str] = "alert.delivered"
    VERSION: ClassVar[int] = 1

    alert: str
    attempt: int
    sink: str


class FindingVerdict(StrEnum):
    """What a review says of a finding."""

    CONFIRMED = "confirmed"
    """It is personal data."""
    DISMISSED = "dismissed"
    """It is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingReviewed:
    """
    Somebody who may do so says of the finding at index `finding` whether it is real; `reason` is theirs, never empty.

    The actor of the entry is the author. `snapshot`, `ruleset` and what else describes the finding are copied from it.
    The review holds for the column and kind, in this table, so also for what later scans find there; but a scan that is
    surer than the dismissed finding was (`confidence_percent`) opens it again. `version` counts the reviews of this
    column and kind, from 1, under a guard: the last one holds, and each was written by somebody who could know the one
    before it.
    """

    TYPE: ClassVar[str] = "finding.reviewed"
    VERSION: ClassVar[int] = 1

    column: str
    confidence_percent: int
    field_id: int
    finding: int
    kind: DetectionKind
    reason: str
    ruleset: str
    snapshot: str
    table_uuid: str
    verdict: FindingVerdict
    version: int
