# SPDX-License-Identifier: Apache-2.0
"""
The streaming query: what the executors count goes, batch by batch, through the driver into the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ledger.format.events import ScanFault
from spark_detect.driver.source import FOLDER_OPTION, NAME, ScanSource
from spark_detect.recording.recorder import Recorder
from spark_detect.tasks import TaskResult


@contextmanager
def running_query(session: SparkSession, job: Path, checkpoint: Path, recorder: Recorder) -> Iterator[StreamingQuery]:
    """
    Run the query while the context is open.

    `checkpoint` may be a folder that was never used, or any that was: nothing depends on what is in it.
    """

    def record(results: DataFrame, _batch: int) -> None:
        recorder.record(from_rows(results))

    session.dataSource.register(ScanSource)
    stream = session.readStream.format(NAME).option(FOLDER_OPTION, str(job)).load()
    writing = stream.writeStream.foreachBatch(record).option("checkpointLocation", str(checkpoint))
    query = writing.trigger(processingTime="0 seconds").start()
    try:
        yield query
    finally:
        query.stop()


def from_rows(results: DataFrame) -> list[TaskResult]:
    """
    Return the results that the rows of a batch are.
    """
    table: pa.Table = results.toArrow()
    return [_result(row) for row in table.to_pylist()]


def _result(row: dict[str, Any]) -> TaskResult:
    fault = row["fault"]
    return TaskResult(
        **{
            **row,
            "fault": None if fault is None else ScanFault(fault),
            "field_ids": tuple(row["field_ids"]),
            "counts": tuple(tuple(numbers) for numbers in row["counts"]),
        }
    )
