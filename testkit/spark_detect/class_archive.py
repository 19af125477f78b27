# SPDX-License-Identifier: Apache-2.0
"""
An archive of the classes that detection's Spark loads, with which a virtual machine starts in half the time.

`python -m testkit.spark_detect.class_archive` makes it in the virtual environment; `make tests` does so once. Tests
hand it to the virtual machines that they start. One that cannot use it loads its classes from the jars, as it does
elsewhere: Java compares its own version and the jars with what the archive says of them.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_detect.driver.java import find_java
from spark_detect.driver.session import start_session
from spark_detect.errors import JavaError

ARCHIVE: Final = Path(sys.prefix) / f"spark-{version('pyspark')}.jsa"
MASTER: Final = "local[2,4]"
NAME: Final = "lakeproof_archive"


def archive_variables() -> Mapping[str, str]:
    """Return the variables under which Spark's launcher uses the archive; none if there is no archive."""
    return {"SPARK_SUBMIT_OPTS": f"-XX:SharedArchiveFile={ARCHIVE} -Xlog:disable"} if ARCHIVE.exists() else {}


class RowSource(DataSource):
    """A stream of one row: Spark loads for it what it loads for detection."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NAME

    def schema(self) -> str:
        """Return the columns of a row."""
        return "number BIGINT, text STRING, numbers ARRAY<BIGINT>, counts ARRAY<ARRAY<BIGINT>>"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        """Return the reader."""
        return RowReader()


class RowReader(DataSourceStreamReader):
    """Reads one row."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's
        """Return the beginning."""
        return {"row": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's
        """Return the end."""
        return {"row": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:  # noqa: ARG002
        """Return one partition."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002
        """Return the row."""
        yield 1, "one", [1], [[1]]


def make_archive(java_home: Path) -> None:
    """Run a query as detection's; the virtual machine writes down at its end what it has loaded."""
    fresh = ARCHIVE.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={fresh} -Xlog:disable"
    folder = Path(tempfile.mkdtemp(prefix="lp-archive-"))

    def take(rows: DataFrame, _batch: int) -> None:
        rows.toArrow()

    try:
        session = start_session(master=MASTER, java_home=java_home, folder=folder / "spark")
        session.dataSource.register(RowSource)
        writing = session.readStream.format(NAME).load().writeStream.foreachBatch(take)
        query = (
            writing.option("checkpointLocation", str(folder / "checkpoint")).trigger(processingTime="0 seconds").start()
        )
        query.processAllAvailable()
        query.stop()
        session.stop()
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.shutdown()
        gateway.proc.stdin.close()  # what Spark's virtual machine waits for
        gateway.proc.wait()
        fresh.replace(ARCHIVE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    try:
        home = find_java(None, os.environ)
    except JavaError as error:
        sys.stderr.write(f"{error}\n")
    else:
        # Pickled by the name of this module, which the processes of Spark import.
        from testkit.spark_detect import class_archive

        class_archive.make_archive(home)
