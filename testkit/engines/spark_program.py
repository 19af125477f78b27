# SPDX-License-Identifier: Apache-2.0
"""
Spark as an engine of tests, in the process that `start_spark` starts: a process has one virtual machine.

It is bounded (1 GB of heap, two threads of work) and listens on loopback alone. What it would compile for large data is
interpreted: statements of tests have a few rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from testkit.engines.sql_engine import SqlEngine, read_given, serve_statements, start_engine
from testkit.servers.java import find_java
from testkit.servers.maven import jars
from testkit.spark_detect.class_archive import archive_variables

RUNTIME: Final = "iceberg-spark"
AWS: Final = "iceberg-aws"
"""What it needs for S3 besides."""
OPTIONS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"


@contextmanager
def start_spark(settings: Mapping[str, str], libraries: Sequence[str] = (RUNTIME,)) -> Iterator[SqlEngine]:
    """Yield Spark with these settings, which name the catalogs, and the jars of `libraries`, fetched the first time."""
    files = ",".join(str(jar) for library in libraries for jar in sorted(jars(library).glob("*.jar")))
    java_home = str(find_java().parent.parent)
    with tempfile.TemporaryDirectory(prefix="lp-spark-") as folder:
        given = {"settings": {**settings, "spark.jars": files}, "folder": folder}
        environment = {"JAVA_HOME": java_home, "SPARK_LOCAL_IP": "127.0.0.1", **archive_variables()}
        with start_engine(__name__, given, environment=environment) as engine:
            yield engine


def _settings(folder: Path) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{OPTIONS} -Djava.io.tmpdir={folder} -Dderby.system.home={folder}",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "none"),
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }


def _main() -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    given = read_given()
    builder = SparkSession.builder.appName("engines").master("local[2]")
    for name, value in {**_settings(Path(given["folder"])), **given["settings"]}.items():
        builder = builder.config(name, value)
    sessions: dict[int, Any] = {0: builder.getOrCreate()}

    def execute(session: int, statement: str) -> list[Any]:
        if session not in sessions:
            sessions[session] = sessions[0].newSession()
        rows: list[Any] = sessions[session].sql(statement).collect()
        return rows

    serve_statements(execute)
    sessions[0].stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    # Spark has ended. Its virtual machine would wait ten seconds for the time to renew keys that a catalog has given.
    gateway.proc.kill()
    gateway.proc.wait()


if __name__ == "__main__":
    _main()
