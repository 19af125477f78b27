# SPDX-License-Identifier: Apache-2.0
"""
From a batch to its tasks: read the metadata that its entries name, ask for marks, share the work out.

Tables are planned side by side (`tables.py`). A storage that does not answer puts its range off, and nobody waits for
it longer than `PLAN_TIMEOUT_S`; a range that has ended several batches is worked on alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Final
from uuid import UUID

from ledger.format.events import CatalogCreated, ScanFault
from ledger.store.read import Log
from projections.errors import SecretMissingError, StorageUnavailableError
from spark_detect.job_folder import Lake
from spark_detect.marks import scan_group_id
from spark_detect.planning.batches import Batches, OpenRange
from spark_detect.planning.tables import TablePlanner, TableTargets
from spark_detect.planning.targets import ScanTarget, without_twins
from spark_detect.tasks import Range, Task

PLAN_TIMEOUT_S: Final = 15.0
PLANNERS: Final = 8
"""Tables whose metadata is read at a time: most of that is waiting for storage."""
ATTEMPTS_ALONE: Final = 4
"""From this attempt on a range is worked on alone: what ends every batch it is in must not hold the others up."""
ATTEMPTS_MAX: Final = 25
"""A range that has ended this many batches, the last ones alone, has a file that kills whoever reads it."""

_log = logging.getLogger(__name__)


class Planner:
    """
    Plans batches; blocking. `close` ends its threads.

    `_late` belongs to the one thread that calls `plan`; the planner's own threads run `TablePlanner` and touch none of
    these fields.
    """

    def __init__(self, batches: Batches, lake: Lake, *, bytes_max: int) -> None:
        self._batches = batches
        self._tables = TablePlanner(batches, lake, bytes_max=bytes_max)
        self._threads = ThreadPoolExecutor(PLANNERS, thread_name_prefix="planner")
        self._late: dict[Range, list[Future[list[Task]]]] = {}
        """Plans that were not ready in time; their ranges are postponed and use them when they are due again."""

    def close(self) -> None:
        """End the threads, whatever they still wait for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def weigh(self, log: Log, target: ScanTarget) -> int:
        """Return about how many bytes `target` leads to: 0 if that is not known now."""
        catalogs = self._catalogs(log)
        weighed = self._threads.submit(self._tables.weigh, log, target, catalogs)
        wait([weighed], timeout=PLAN_TIMEOUT_S)
        return weighed.result() if weighed.done() else 0

    def plan(self, batch: int) -> list[Task]:
        """
        Return the tasks of everything that `batch`, or any before it, has still to do.

        A scan that two plans lead to is the first one's. A range without any is finished here; one whose storage does
        not answer is put off.
        """
        open_ranges = self._batches.open_ranges(batch)
        if alone := [each for each in open_ranges if each.attempts >= ATTEMPTS_ALONE]:
            open_ranges = alone[:1]
        planning = [(each, self._late.pop(each.range, []) or self._begin(each)) for each in open_ranges]
        wait([future for _, futures in planning for future in futures], timeout=PLAN_TIMEOUT_S)
        tasks: list[Task] = []
        claimed: dict[UUID, tuple[Range, int]] = {}
        for each, futures in planning:
            if not all(future.done() for future in futures):
                self._late[each.range] = futures
                self._batches.postpone(each.range)
                continue
            plans = _gathered(futures)
            if plans is None:
                self._batches.postpone(each.range)
                continue
            # Two plans of one range may lead to one scan as well: entries that do not name their table are apart.
            planned = [
                task
                for number, tasks_of_plan in enumerate(plans)
                for task in tasks_of_plan
                if claimed.setdefault(scan_group_id(task.scan), (each.range, number)) == (each.range, number)
            ]
            if not planned:
                self._batches.finish(each.range)
            elif each.attempts >= ATTEMPTS_MAX:
                tasks += _given_up(planned)
            else:
                tasks += planned
        return tasks

    def _begin(self, each: OpenRange) -> list[Future[list[Task]]]:
        targets = without_twins(self._batches.targets(each.range))
        if not targets:
            return []
        catalogs = self._catalogs(each.log)
        tables: dict[str, list[ScanTarget]] = {}
        for target in targets:
            tables.setdefault(target.table, []).append(target)
        return [
            self._threads.submit(
                self._tables.plan, TableTargets(range=each.range, log=each.log, targets=those, catalogs=catalogs)
            )
            for those in tables.values()
        ]

    def _catalogs(self, log: Log) -> dict[str, CatalogCreated]:
        """
        Return every catalog of a log by alias, the retired too. From the log itself: a read model may be behind it, and
        a commit to a catalog that was just made would find none.
        """
        events = (item.event for item in self._batches.catalog_entries(log.log_id))
        return {event.id: event for event in events if isinstance(event, CatalogCreated)}


def _gathered(futures: Sequence[Future[list[Task]]]) -> list[list[Task]] | None:
    """Return the tasks of a range, plan by plan; None if a storage did not answer."""
    plans: list[list[Task]] = []
    for future in futures:
        try:
            plans.append(future.result())
        except (StorageUnavailableError, SecretMissingError) as error:
            _log.info("a range is put off: %s", error)
            return None
    return plans


def _given_up(tasks: Sequence[Task]) -> list[Task]:
    """Return a task for each scan that says that it has failed."""
    scans = {task.scan.format(): task for task in tasks}
    return [
        replace(task, scan=replace(task.scan, tasks=1), slices=(), columns=(), fault=ScanFault.FILE_UNREADABLE)
        for task in scans.values()
    ]
