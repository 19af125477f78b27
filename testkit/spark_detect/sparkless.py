# SPDX-License-Identifier: Apache-2.0
"""
Detection without Spark: the same plans, tasks and groups, one after the other in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from spark_detect.files.parquet_scan import run_task
from spark_detect.job_folder import Driver, Lake
from spark_detect.planning.batches import Batches
from spark_detect.planning.planner import Planner
from spark_detect.recording.appender_thread import AppenderThread
from spark_detect.recording.recorder import RecordedCounts, Recorder


def scan_once(driver: Driver, lake: Lake, *, clock: Callable[[], datetime]) -> RecordedCounts:
    """
    Work on everything that waits in the logs, batch by batch, until nothing does; return what was recorded. Blocking.

    Raises:
        LedgerError: if the log cannot be written.
        psycopg.Error: if the database cannot be reached.
    """
    batches = Batches(driver.detector_dsn, bytes_max=driver.batch_bytes_max)
    planner = Planner(batches, lake, bytes_max=driver.batch_bytes_max)
    try:
        with AppenderThread(driver.appender_dsn) as appender:
            recorder = Recorder(batches, appender, clock=clock)
            while (batch := batches.pin(planner.weigh)) is not None:
                recorder.record([run_task(task, lake) for task in planner.plan(batch)])
            return recorder.recorded
    finally:
        planner.close()
        batches.close()
