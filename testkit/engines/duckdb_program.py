# SPDX-License-Identifier: Apache-2.0
"""
DuckDB with its iceberg extension as an engine of tests, in the process that `start_duckdb` starts.

The extensions come from wheels, and are installed before the first statement: `INSTALL iceberg` then finds them there
instead of at DuckDB's own server.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testkit.engines.sql_engine import SqlEngine, read_given, serve_statements, start_engine
from testkit.servers.python_packages import python_packages


@contextmanager
def start_duckdb() -> Iterator[SqlEngine]:
    """Yield DuckDB without a catalog; fetches it and its extensions."""
    packages = python_packages("duckdb")
    with tempfile.TemporaryDirectory(prefix="lp-duckdb-") as folder:
        given = {"packages": str(packages), "folder": folder}
        with start_engine(__name__, given, environment={"PYTHONPATH": str(packages)}) as engine:
            yield engine


def _main() -> None:
    import duckdb

    given = read_given()
    database = duckdb.connect(config={"extension_directory": given["folder"], "threads": 1, "memory_limit": "500MB"})
    for extension in Path(given["packages"]).glob("duckdb_extension_*/extensions/*/*.duckdb_extension"):
        database.execute(f"INSTALL '{extension}'")
    connections = {0: database}

    def execute(session: int, statement: str) -> list[Any]:
        connection = connections.setdefault(session, database) if session == 0 else database.cursor()
        rows: list[Any] = connection.execute(statement).fetchall()
        return rows

    serve_statements(execute)


if __name__ == "__main__":
    _main()
