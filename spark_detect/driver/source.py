# SPDX-License-Identifier: Apache-2.0
"""
The stream that Spark runs: batches of the log in, results of tasks out. A Python data source of Spark 4.1.

One half lives in a process beside Spark's driver, for as long as the query does: it asks for batches and plans them.
The other half, `read`, runs in executors, and hands out counts. Spark calls `latestOffset` before `initialOffset` on a
fresh checkpoint, and `partitions` first of all, with two equal offsets or the last batch's, on one that is kept; what a
batch has to do is in the database, so any order will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_detect.errors import DetectionError
from spark_detect.files.parquet_scan import run_task
from spark_detect.job_folder import JobFolder
from spark_detect.planning.batches import Batches
from spark_detect.planning.planner import Planner
from spark_detect.tasks import RESULT_SCHEMA, Task, TaskResult

NAME: Final = "lakeproof_scans"
FOLDER_OPTION: Final = "folder"
"""The folder with the files of `job_folder.py`: the only option there is."""
IDLE_S: Final = 0.25
"""How long an empty trigger waits for a notification; a query that is to stop waits as long."""


class ScanSource(DataSource):
    """The data source, by the name of `NAME`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NAME

    def schema(self) -> str:
        """Return the columns of a result."""
        return RESULT_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        """Return the reader."""
        return ScanReader(Path(self.options[FOLDER_OPTION]))


@dataclass
class TaskPartition(InputPartition):
    """One task, and the folder that says how its files are opened. Pickled into Spark's plan: no secret is in it."""

    task: Task
    job: str


class ScanReader(DataSourceStreamReader):
    """Asks for batches and plans them, in Spark's own thread; `read` alone runs elsewhere."""

    def __init__(self, folder: Path) -> None:
        self._job = JobFolder(folder)
        self._opened: tuple[Batches, Planner] | None = None
        self._last: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Executors get a copy: connections stay here.
        return {"_job": self._job, "_opened": None, "_last": None}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's
        """Return the batch up to which everything is done with."""
        return {"batch": self._open()[0].finished()}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's
        """Pin a batch if something waits; else wait a moment for that. Returns the newest number."""
        batches, planner = self._open()
        batch = batches.pin(planner.weigh)
        if batch is None:
            batches.wait(IDLE_S)
            batch = batches.pin(planner.weigh)
        if batch is not None or self._last is None:
            self._last = batches.finished() if batch is None else batch
        return {"batch": self._last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the tasks of what is still to do up to batch `end`."""
        if start == end:
            return []
        tasks = self._open()[1].plan(end["batch"])
        return [TaskPartition(task=task, job=str(self._job.folder)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Run one task; yields its result."""
        if not isinstance(partition, TaskPartition):
            raise DetectionError(f"expected a partition of this source, found {type(partition).__name__}")
        yield to_row(run_task(partition.task, JobFolder(Path(partition.job)).lake()))

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: a batch is finished by whoever has recorded it."""

    def stop(self) -> None:
        """Close what was opened."""
        if self._opened is not None:
            batches, planner = self._opened
            planner.close()
            batches.close()
            self._opened = None

    def _open(self) -> tuple[Batches, Planner]:
        if self._opened is None:
            driver, lake = self._job.driver(), self._job.lake()
            batches = Batches(driver.detector_dsn, bytes_max=driver.batch_bytes_max)
            self._opened = batches, Planner(batches, lake, bytes_max=driver.batch_bytes_max)
        return self._opened


def to_row(result: TaskResult) -> tuple[Any, ...]:
    """
    Return a result as a row of `RESULT_SCHEMA`.
    """
    return astuple(result)
