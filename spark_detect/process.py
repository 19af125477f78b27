"""
The process that is Spark's driver: one session, one query, until it is told to end. `supervise.py` starts it.

It says what happens in one line each on stdout. Whatever ends the query ends the process, with that line and 1; the
database knows what is still to do, so starting again is all the repair there is.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Final

import psycopg
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from ledger.errors import LedgerError
from projections.errors import ProjectionError
from spark_detect.appending import AppenderThread
from spark_detect.batches import Batches
from spark_detect.errors import DetectionError
from spark_detect.query import running_query
from spark_detect.recorder import Recorded, Recorder
from spark_detect.room import Room
from spark_detect.session import start_session

ENDED_WELL, FAILED = 0, 1
WAIT_S: Final = 0.5
REASON_LENGTH_MAX: Final = 300

Say = Callable[[str], None]


def run(room: Room, stop: threading.Event, say: Say) -> Recorded:
    """
    Run the query until `stop` is set; return what was recorded.

    Raises:
        PySparkException, Py4JError: if the query or Spark itself has ended.
        DetectionError: if the room is not furnished.
        LedgerError, psycopg.Error: if the log or the database cannot be used.
    """
    driver = room.driver()
    shutil.rmtree(room.spark, ignore_errors=True)  # of a process that was killed
    session = start_session(master=driver.master, java_home=Path(driver.java_home), folder=room.spark)
    try:
        batches = Batches(driver.detector_dsn, bytes_max=driver.batch_bytes_max)
        with AppenderThread(driver.appender_dsn) as appender:
            recorder = Recorder(batches, appender, clock=lambda: datetime.now(UTC))
            with running_query(session, room.folder, room.checkpoint, recorder) as query:
                say(f"detection runs on Spark {session.version} ({driver.master})")
                while query.isActive and not stop.wait(WAIT_S):
                    pass
                if error := query.exception():
                    raise error
        batches.close()
        return recorder.recorded
    finally:
        session.stop()


def main() -> int:
    """Run in the room that the first argument names; return the exit code."""
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    room = Room(Path(sys.argv[1]))
    try:
        done = run(room, stop, _say)
    except (PySparkException, Py4JError, DetectionError, LedgerError, ProjectionError, psycopg.Error, OSError) as error:
        traceback.print_exc()  # stderr is a file
        if stop.is_set():
            return ENDED_WELL
        _say(f"detection has ended: {_reason(error)}")
        # A checkpoint that Spark cannot read would end it again, and nothing depends on it.
        shutil.rmtree(room.checkpoint, ignore_errors=True)
        return FAILED
    _say(
        f"detection recorded {done.scans} scans ({done.failed} failed) and {done.findings} findings "
        f"in {done.batches} batches"
    )
    return ENDED_WELL


def _reason(error: Exception) -> str:
    """Return the last line that says something: Spark puts the cause behind its own story."""
    if isinstance(error, ConnectionError | Py4JNetworkError):
        return "Spark's virtual machine has died"
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    told = [line for line in lines if "Error" in line.split(":")[0] or "Exception" in line.split(":")[0]]
    text = (told or lines or [type(error).__name__])[-1]
    return " ".join(text.split())[:REASON_LENGTH_MAX]


def _say(text: str) -> None:
    with suppress(BrokenPipeError):  # nobody listens any more
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Spark's gateway may leave threads that wait for a virtual machine that is gone.
    os._exit(code)
