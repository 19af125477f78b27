# SPDX-License-Identifier: Apache-2.0
"""
The parent of Spark's Python workers, with everything imported and compiled that they need, so that a fork has it.

Spark starts it by name (`spark.python.daemon.module`). Without it each new worker would import pyarrow and compile the
kernel before its first task. And Spark puts archives on the path, its own Python code and a jar of 5,000 files, whose
directories a worker reads anew before each task: that is 90 ms. Where PySpark is installed besides, they are left out.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path
from zipimport import zipimporter


def leave_out_archives() -> None:
    """Take archives off the path, if PySpark can be imported without them; before anything of it is imported."""
    folders = [path for path in sys.path if not Path(path).is_file()]
    if PathFinder.find_spec("pyspark", folders) and PathFinder.find_spec("py4j", folders):
        sys.path[:] = folders
        for path, finder in list(sys.path_importer_cache.items()):
            if isinstance(finder, zipimporter):
                del sys.path_importer_cache[path]


if __name__ == "__main__":
    leave_out_archives()
    from pyspark import daemon

    import spark_detect.driver.source
    import spark_detect.files.parquet_scan  # noqa: F401 - both for those that are forked
    from spark_detect.classify.columns import warm_up

    warm_up()
    daemon.manager()  # type: ignore[no-untyped-call]  # so it is in PySpark
