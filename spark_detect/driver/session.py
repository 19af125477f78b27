# SPDX-License-Identifier: Apache-2.0
"""
Starts the Spark session with its settings.

Spark moves only tasks and counts here, so everything that costs time to make queries fast is off. Spark's own log is
off, too: its warnings come with stack traces, which do not help an operator of detection.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

PACKAGE: Final = Path(__file__).resolve().parents[2]

JAVA_OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m"
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    # Compiling a plan does not pay off for the few rows of a batch.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "1",
    # The default manager makes a rename durable on HDFS, and takes half of a batch's time.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "spark_detect.driver.daemon",
    "spark.log.level": "OFF",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
}

LOG_SETTINGS: Final = """\
rootLogger.level = off
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n%ex{0}
"""


def start_session(*, master: str, java_home: Path, folder: Path) -> SparkSession:
    """
    Start Spark and return its session; a process can have one.

    `master` is a Spark master URL, `java_home` the directory of the JDK, and `folder` a directory for everything that
    Spark writes. The Java home, the Python of the workers and the path of this package are passed in the environment,
    which the virtual machine and its workers inherit.
    """
    os.environ["JAVA_HOME"] = str(java_home)
    paths = [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    is_local = master.startswith("local")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    python = local_python(folder, os.environ["PYTHONPATH"]) if is_local else sys.executable
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    if is_local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    logging_file = folder / "log4j2.properties"
    logging_file.write_text(LOG_SETTINGS, encoding="utf-8")
    java_options = f"{JAVA_OPTIONS} -Dlog4j2.configurationFile={logging_file.as_uri()} -Djava.io.tmpdir={folder}"
    builder = SparkSession.builder.appName("lakeproof detection").master(master)
    for name, value in SETTINGS.items():
        if is_local or name not in {"spark.driver.host", "spark.driver.bindAddress"}:
            builder = builder.config(name, value)
    builder = builder.config("spark.local.dir", str(folder)).config("spark.sql.warehouse.dir", str(folder / "none"))
    session: SparkSession = builder.config("spark.driver.extraJavaOptions", java_options).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def local_python(folder: Path, path: str) -> str:
    """
    Return a program in `folder` that starts this Python with `path` as PYTHONPATH, whatever it is told.

    Spark puts archives first on it, with PySpark and what that needs, which are installed here, too. From an archive
    each process that Spark starts would compile them anew, for half a second.
    """
    program = folder / "python"
    text = f'#!/bin/sh\nPYTHONPATH={shlex.quote(path)} exec {shlex.quote(sys.executable)} "$@"\n'
    program.write_text(text, encoding="utf-8")
    program.chmod(0o700)
    return str(program) if os.access(program, os.X_OK) else sys.executable  # a place may be closed to programs
