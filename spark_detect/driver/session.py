# SPDX-License-Identifier: Apache-2.0
"""
The one Spark session: what it is started with, and why.

Spark moves tasks and counts here, nothing else, so whatever costs time for the sake of queries is off. Its own log
stays away from the screen: warnings of Spark come with stack traces that say nothing to whoever runs detection.
"""

from __future__ import annotations

import os
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
    # A plan that runs for one row is not worth compiling.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "1",
    # The other one makes a rename durable where HDFS needs it, and takes half of a batch's time.
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
    Start Spark; `folder` is a directory for what it writes. There is one session in a process.

    Java's home, the Python of the workers and where they find this package go through the environment: the virtual
    machine inherits it, and its workers do in turn.
    """
    os.environ["JAVA_HOME"] = str(java_home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    paths = [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    is_local = master.startswith("local")
    if is_local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
