# SPDX-License-Identifier: Apache-2.0
"""
Apache Iceberg's own REST catalog server, with which its clients are tested: a real upstream, on files and SQLite.

It listens on all interfaces, which cannot be configured, so it lives no longer than the tests that use it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from testkit.servers.java import free_ports, java_server
from testkit.servers.maven import jars

MAIN: Final = "org.apache.iceberg.rest.RESTCatalogServer"
HEAP: Final = "-Xmx192m"
HEAP_WITH_FILES: Final = "-Xmx3g"
IN_MEMORY: Final = {
    "CATALOG_IO__IMPL": "org.apache.iceberg.inmemory.InMemoryFileIO",
    "CATALOG_TABLE__DEFAULT_WRITE_METADATA_PREVIOUS__VERSIONS__MAX": "10",
}
"""Names of the server's options, as its environment spells them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergRest:
    """A running server: its base URL, before /v1, and the file:// URI of its warehouse."""

    url: str
    warehouse: str
    pid: int


@contextmanager
def start_iceberg_rest(*, keeps_files_in_memory: bool = False) -> Iterator[IcebergRest]:
    """
    Yield an empty catalog server; its warehouse goes with it.

    On a local file system it starts a process, `chmod`, for each metadata file. In its own memory it does not; then
    only the server itself can read its files, and they are small: the metadata of a new table names the last ten files.
    """
    with tempfile.TemporaryDirectory(prefix="lp-iceberg-") as name:
        (port,) = free_ports(1)
        with serve_iceberg_rest(Path(name), port, keeps_files_in_memory=keeps_files_in_memory) as server:
            yield server


@contextmanager
def serve_iceberg_rest(directory: Path, port: int, *, keeps_files_in_memory: bool = False) -> Iterator[IcebergRest]:
    """
    Yield a catalog server on `port` with all that it keeps in `directory`: what one has left there, the next one has.

    That is not so of files in memory. The directory goes if whoever started the server is killed.
    """
    libraries = jars("iceberg-rest")
    (directory / "warehouse").mkdir(exist_ok=True)
    url, warehouse = f"http://127.0.0.1:{port}", f"file://{directory}/warehouse"
    environment = {
        "CATALOG_URI": f"jdbc:sqlite:{directory}/catalog.db",
        "CATALOG_WAREHOUSE": warehouse,
        "CATALOG_REST_PORT": str(port),
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",  # the first one with views
    }
    if keeps_files_in_memory:
        environment |= IN_MEMORY
    heap = HEAP_WITH_FILES if keeps_files_in_memory else HEAP
    arguments = [heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{libraries}/*", MAIN]
    with java_server(
        arguments,
        directory=directory,
        port=port,
        is_ready=lambda: _answers(url),
        environment=environment,
        libraries=libraries,
    ) as pid:
        yield IcebergRest(url=url, warehouse=warehouse, pid=pid)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v1/config", trust_env=False).is_success
    except httpx.TransportError:
        return False
