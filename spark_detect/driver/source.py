# SPDX-License-Identifier: Apache-2.0
"""
The stream that Spark reads: batches of the log in, results of tasks out. A Python data source of Spark 4.1.

One part runs in a Python process next to Spark's driver, for as long as the query does: it pins batches and plans their
tasks. The other part, `read`, runs in executors and returns counts.

What a batch has to do is in the database, so the order of Spark's calls does not matter. With a new checkpoint, Spark
calls `latestOffset` before `initialOffset`. With an existing one it calls `partitions` first, with two equal offsets or
with those of the last batch.

Spark starts one process each to create the source, to look up its reader, to plan and to read. Planner and scanner are
imported where they are used: the other processes would spend most of their time on those imports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_detect.errors import DetectionError
from spark_detect.job_folder import JobFolder
from spark_detect.planning.batches import Batches
from spark_detect.tasks import RESULT_SCHEMA, Task, TaskResult

if TYPE_CHECKING:
    from spark_detect.planning.planner import Planner

NAME: Final = "lakeproof_scans"
FOLDER_OPTION: Final = "folder"
"""The only option of the source: the folder with the files of `job_folder.py`."""
IDLE_S: Final = 0.25
"""How long a trigger without work waits for a notification; stopping the query may take as long."""


class ScanSource(DataSource):
    """The data source that Spark knows as `NAME`."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `readStream.format` takes."""
        return NAME

    def schema(self) -> str:
        """Return the columns of a result, as DDL."""
        return RESULT_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        """Return the reader of the stream."""
        return ScanReader(Path(self.options[FOLDER_OPTION]))


@dataclass
class TaskPartition(InputPartition):
    """One task, and the folder with the access to its files. Pickled into Spark's plan, so it holds no secret."""

    task: Task
    job: str


class ScanReader(DataSourceStreamReader):
    """Pins batches and plans their tasks, in Spark's thread; only `read` runs in executors."""

    def __init__(self, folder: Path) -> None:
        self._job = JobFolder(folder)
        self._opened: tuple[Batches, Planner] | None = None
        self._last: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Executors get a copy, without the connections.
        return {"_job": self._job, "_opened": None, "_last": None}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's
        """Return the number up to which every batch is finished, as an offset."""
        return {"batch": self._open()[0].finished()}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's
        """Pin a batch if there is work, else wait up to `IDLE_S` for some; return the newest batch, as an offset."""
        batches, planner = self._open()
        batch = batches.pin(planner.weigh)
        if batch is None:
            batches.wait(IDLE_S)
            batch = batches.pin(planner.weigh)
        if batch is not None or self._last is None:
            self._last = batches.finished() if batch is None else batch
        return {"batch": self._last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the unfinished tasks of all batches up to `end`, one partition each."""
        if start == end:
            return []
        tasks = self._open()[1].plan(end["batch"])
        return [TaskPartition(task=task, job=str(self._job.folder)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Run the task of a partition and yield its result as one row."""
        from spark_detect.files.parquet_scan import run_task  # here: see above

        if not isinstance(partition, TaskPartition):
            raise DetectionError(f"expected a partition of this source, found {type(partition).__name__}")
        yield to_row(run_task(partition.task, JobFolder(Path(partition.job)).lake()))

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: a batch is finished when its results are recorded."""

    def stop(self) -> None:
        """End the planner and close the database connection."""
        if self._opened is not None:
            batches, planner = self._opened
            planner.close()
            batches.close()
            self._opened = None

    def _open(self) -> tuple[Batches, Planner]:
        from spark_detect.planning.planner import Planner  # here: see above

        if self._opened is None:
            driver, lake = self._job.driver(), self._job.lake()
            batches = Batches(driver.detector_dsn, bytes_max=driver.batch_bytes_max)
            self._opened = batches, Planner(batches, lake, bytes_max=driver.batch_bytes_max)
        return self._opened


def to_row(result: TaskResult) -> tuple[Any, ...]:
    """
    Return a result as a row with the columns of `RESULT_SCHEMA`.
    """
    return astuple(result)
