# SPDX-License-Identifier: Apache-2.0
"""
The end of a batch: results become groups in the log, and then its ranges are finished.

A range is finished only after every scan of it is durable. A crash in between leads to a batch that finds everything
marked, and nothing is recorded twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from ledger.format.sequence import Group
from spark_detect.planning.batches import Batches
from spark_detect.recording.appender_thread import AppenderThread
from spark_detect.recording.groups import record_scan
from spark_detect.tasks import Range, Scan, TaskResult

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class RecordedCounts:
    """What was recorded since the start."""

    batches: int = 0
    scans: int = 0
    failed: int = 0
    findings: int = 0
    postponed: int = 0


class Recorder:
    """Records batches; blocking. `recorded` counts."""

    def __init__(self, batches: Batches, appender: AppenderThread, *, clock: Callable[[], datetime]) -> None:
        self._batches = batches
        self._appender = appender
        self._clock = clock
        self.recorded = RecordedCounts()

    def record(self, results: Iterable[TaskResult]) -> None:
        """
        Append what the tasks of a batch have counted, then finish its ranges; those whose storage was away are put off.

        Raises:
            DetectionError: if a result is missing.
            LedgerError: if the log cannot be written.
            psycopg.Error: if a range cannot be finished; it will be tried again.
        """
        by_scan: dict[str, list[TaskResult]] = {}
        for result in results:
            by_scan.setdefault(result.scan, []).append(result)
        groups: list[tuple[int, Group]] = []
        done: dict[Range, bool] = {}
        now = self._clock()
        for text, those in by_scan.items():
            scan = Scan.parse(text)
            group = record_scan(scan, those, now=now)
            is_recorded = isinstance(group, Group)
            done[scan.range] = done.get(scan.range, True) and is_recorded
            if isinstance(group, Group):
                groups.append((scan.range.log_id, group))
                self._count(group)
        self._appender.append(groups)
        for each, is_recorded in done.items():
            if is_recorded:
                self._batches.finish(each)
            else:
                self.recorded.postponed += 1
                self._batches.postpone(each)
        self.recorded.batches += bool(by_scan)

    def _count(self, group: Group) -> None:
        self.recorded.scans += 1
        self.recorded.failed += group.then[0].type == "scan.failed"
        self.recorded.findings += len(group.then) - 1
