# SPDX-License-Identifier: Apache-2.0
"""
What engines report of their work on a table, without anybody checking it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from ledger.format.events.commits import Identifier


class ReportKind(StrEnum):
    """What an engine has done."""

    SCAN = "scan"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsReported:
    """
    An engine's metrics of a scan or a commit (Iceberg REST specification, reportMetrics): a claim of the caller.

    `operation` is that of a commit, `snapshot` the one that was scanned or added (decimal string). Part: report.
    """

    TYPE: ClassVar[str] = "metrics.reported"
    VERSION: ClassVar[int] = 1

    identifier: Identifier
    kind: ReportKind
    operation: str | None
    snapshot: str
