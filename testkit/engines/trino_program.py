# SPDX-License-Identifier: Apache-2.0
"""
Trino as an engine of tests: its own server, and in the process that `start_trino_engine` starts its own client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from testkit.engines.sql_engine import SqlEngine, read_given, serve_statements, start_engine
from testkit.servers.python_packages import python_packages
from testkit.servers.trino import start_trino


@contextmanager
def start_trino_engine(catalogs: Mapping[str, str]) -> Iterator[SqlEngine]:
    """Yield Trino with these catalogs, the properties of each by its name; fetches server, connector and client."""
    environment = {"PYTHONPATH": str(python_packages("trino"))}
    with (
        start_trino(catalogs) as port,
        start_engine(__name__, {"port": port}, environment=environment) as engine,
    ):
        yield engine


def _main() -> None:
    from trino.dbapi import connect

    port = read_given()["port"]
    connections: dict[int, Any] = {}

    def execute(session: int, statement: str) -> list[Any]:
        if session not in connections:
            connections[session] = connect(host="127.0.0.1", port=port, user="ada")
        rows: list[Any] = connections[session].cursor().execute(statement).fetchall()
        return rows

    serve_statements(execute)


if __name__ == "__main__":
    _main()
