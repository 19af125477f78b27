# SPDX-License-Identifier: Apache-2.0
"""
Times Spark against an Iceberg REST catalog, in a process of its own because a process has one virtual machine.

It creates a table in a namespace that exists, inserts a few rows again and again, each a commit, and reads the table
back at the end. The first inserts are not counted: the virtual machine compiles then. The last line of the output is
JSON; times are in milliseconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from testkit.environment import PROJECT
from testkit.servers.java import find_java
from testkit.servers.maven import jars

WARM_UP: Final = 3
RUN_TIMEOUT_S: Final = 600


def time_spark(*, uri: str, warehouse: str, token: str, namespace: str, appends: int, rows: int) -> dict[str, Any]:
    """
    Return `append_ms` of each insert that is counted, and the number of `rows` read back; fetches Iceberg's jar.

    Raises:
        RuntimeError: if Spark failed.
    """
    (jar,) = jars("iceberg-spark").glob("iceberg-spark-runtime-*.jar")
    with tempfile.TemporaryDirectory(prefix="lp-spark-") as folder:
        given = {
            "uri": uri,
            "warehouse": warehouse,
            "token": token,
            "namespace": namespace,
            "appends": appends,
            "rows": rows,
            "jar": str(jar),
            "folder": folder,
        }
        environment = {**os.environ, "JAVA_HOME": str(find_java().parent.parent), "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            cwd=PROJECT,
            env=environment,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"Spark ended with {done.returncode}: {done.stdout[-1000:]}{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.rstrip().rpartition("\n")[2])
    return found


def _append(given: dict[str, Any]) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    folder = Path(given["folder"])
    settings = {
        "spark.jars": given["jar"],
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder} -Dderby.system.home={folder}",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "none"),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.bench": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.bench.type": "rest",
        "spark.sql.catalog.bench.uri": given["uri"],
        "spark.sql.catalog.bench.warehouse": given["warehouse"],
        **({"spark.sql.catalog.bench.token": given["token"]} if given["token"] else {}),
    }
    builder = SparkSession.builder.appName("bench").master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    table = f"bench.{given['namespace']}.spark"
    session.sql(f"CREATE TABLE {table} (id BIGINT, name STRING) USING iceberg")
    took_ms = []
    for number in range(WARM_UP + given["appends"]):
        first = number * given["rows"]
        values = ", ".join(f"({n}, 'name {n}')" for n in range(first, first + given["rows"]))
        began_s = time.perf_counter()
        session.sql(f"INSERT INTO {table} VALUES {values}")  # noqa: S608 - numbers
        took_ms.append(round(1_000 * (time.perf_counter() - began_s), 3))
    ((rows,),) = session.sql(f"SELECT count(*) FROM {table}").collect()  # noqa: S608 - a name of this bench
    session.stop()
    return {"append_ms": took_ms[WARM_UP:], "rows": rows}


if __name__ == "__main__":
    print(json.dumps(_append(json.load(sys.stdin))))  # noqa: T201 - the caller reads it
