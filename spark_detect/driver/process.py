# SPDX-License-Identifier: Apache-2.0
"""
The process of Spark's driver: one session with one query, until a signal stops it. `supervise.py` starts it.

It reports each event in one line on stdout. Any error that ends the query ends the process, with such a line and exit
code 1. The database knows which work is left, so recovery is to start the process again. One error is retried here: a
Python process of Spark that was not ready in time. That happens on a busy machine, where a new virtual machine would
not be ready sooner.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Final

from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession

from spark_detect.driver.query import running_query
from spark_detect.driver.session import start_session
from spark_detect.driver.supervise import ENDED, Say
from spark_detect.job_folder import JobFolder
from spark_detect.planning.batches import Batches
from spark_detect.recording.appender_thread import AppenderThread
from spark_detect.recording.recorder import RecordedCounts, Recorder

ENDED_WELL, FAILED = 0, 1
WAIT_S: Final = 0.5
REASON_LENGTH_MAX: Final = 300
LATE: Final = "Python worker failed to connect back"
"""The message of Spark about a Python process that was not ready within ten seconds, a limit that cannot be set."""
LATE_RETRIES_MAX: Final = 5
QUERY_DETAILS: Final = "=== Streaming Query ==="
"""The line of an error message of Spark at which the cause ends and details of the query begin."""


def run(job: JobFolder, stop: threading.Event, say: Say) -> RecordedCounts:
    """
    Run the query until `stop` is set; return how much was recorded. `say` is called with each line for the operator.

    Raises:
        PySparkException, Py4JError: if the query or Spark itself has ended.
        DetectionError: if the files of the job cannot be read.
        LedgerError, psycopg.Error: if the log or the database cannot be used.
    """
    driver = job.driver()
    shutil.rmtree(job.spark, ignore_errors=True)  # of a process that was killed
    session = start_session(master=driver.master, java_home=Path(driver.java_home), folder=job.spark)
    try:
        batches = Batches(driver.detector_dsn, bytes_max=driver.batch_bytes_max)
        with AppenderThread(driver.appender_dsn) as appender:
            recorder = Recorder(batches, appender, clock=lambda: datetime.now(UTC))
            say(f"detection runs on Spark {session.version} ({driver.master})")
            for retries in range(LATE_RETRIES_MAX + 1):
                error = _run_query(session, job, recorder, stop)
                if error is None:
                    break
                if LATE not in str(error) or retries == LATE_RETRIES_MAX:
                    raise error
                say(
                    "Spark did not wait for its Python process, which took more than ten seconds to start: trying again"
                )
        batches.close()
        return recorder.recorded
    finally:
        session.stop()


def _run_query(session: SparkSession, job: JobFolder, recorder: Recorder, stop: threading.Event) -> Exception | None:
    """Run the query until `stop` is set or the query ends; return the error that ended it, or None."""
    with running_query(session, job.folder, job.checkpoint, recorder) as query:
        while query.isActive and not stop.wait(WAIT_S):
            pass
        error: Exception | None = query.exception()
        return error


def main() -> int:
    """Run the job whose folder the first argument names; return the exit code."""
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    job = JobFolder(Path(sys.argv[1]))
    try:
        done = run(job, stop, _say)
    except Exception as error:  # noqa: BLE001 - the top of the process: whatever ends it is reported in one line
        traceback.print_exc()  # stderr is a file
        if stop.is_set():
            return ENDED_WELL
        _say(f"{ENDED}{reason_of(error)}")
        # A checkpoint that Spark cannot read would end it again, and nothing depends on it.
        shutil.rmtree(job.checkpoint, ignore_errors=True)
        return FAILED
    _say(
        f"detection recorded {done.scans} scans ({done.failed} failed) and {done.findings} findings "
        f"in {done.batches} batches"
    )
    return ENDED_WELL


def reason_of(error: Exception) -> str:
    """
    Return the root cause of an error in one line of at most 300 characters.

    Of a chain of causes, the root cause is the last. Stack traces and Spark's details of the query are left out.
    """
    if isinstance(error, ConnectionError | Py4JNetworkError):
        return "Spark's virtual machine has died"
    message = str(error).partition(QUERY_DETAILS)[0].splitlines()
    lines = [line.strip().removeprefix("Caused by: ") for line in message]
    lines = [line for line in lines if line and not line.startswith("at ")]
    causes = [line for line in lines if "Error" in line.split(":")[0] or "Exception" in line.split(":")[0]]
    text = causes[-1] if causes else (lines or [type(error).__name__])[0]
    return " ".join(text.split())[:REASON_LENGTH_MAX]


def _say(text: str) -> None:
    with suppress(BrokenPipeError):  # whoever read it is gone
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Spark's gateway may leave threads that wait for a virtual machine that is gone.
    os._exit(code)
