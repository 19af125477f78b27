# SPDX-License-Identifier: Apache-2.0
"""
Trino's own server with its connector for Iceberg, on one node: coordinator and worker in one process.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from testkit.servers.java import find_newer_java, free_ports, java_server
from testkit.servers.maven import POMS, jars

JAVA_LEAST: Final = 25
PROGRAM: Final = Path(__file__).parent / "java_clients" / "Trino.java"
OPTIONS: Final = ("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-modules", "jdk.incubator.vector")
"""Small, and with a compiler that is fast itself: statements of tests have a few rows."""
PLUGIN: Final = ("META-INF/services/io.trino.spi.Plugin", "io.trino.plugin.iceberg.IcebergPlugin\n")
"""What a plugin's archive has besides the jars that Maven knows (java.util.ServiceLoader)."""
SERVER: Final = """\
coordinator=true
node-scheduler.include-coordinator=true
node.environment=test
node.bind-ip=127.0.0.1
node.internal-address=127.0.0.1
http-server.http.port={port}
discovery.uri=http://127.0.0.1:{port}
plugin.dir={folder}/plugins
catalog.config-dir={folder}/catalogs
query.max-memory-per-node=256MB
memory.heap-headroom-per-node=128MB
"""


def trino_version() -> str:
    """Return the version of Trino that is run."""
    (version,) = re.findall(r"<artifactId>trino-main</artifactId><version>(\d+)<", (POMS / "trino.xml").read_text())
    return str(version)


@contextmanager
def start_trino(catalogs: Mapping[str, str]) -> Iterator[int]:
    """Yield the port of a server with these catalogs: the properties of each by its name."""
    libraries, plugin = jars("trino"), jars("trino-iceberg")
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="lp-trino-") as name:
        folder = Path(name)
        _lay_out(folder, port, plugin, catalogs)
        arguments = (*OPTIONS, f"-Dconfig={folder}/server", "-cp", f"{libraries}/*", PROGRAM, trino_version())
        with java_server(
            arguments,
            directory=folder,
            port=port,
            is_ready=lambda: _is_started(port),
            libraries=libraries,
            java=find_newer_java(JAVA_LEAST),
        ):
            yield port


def _lay_out(folder: Path, port: int, plugin: Path, catalogs: Mapping[str, str]) -> None:
    """Make the folder that a server is started in, as its documentation has it."""
    (folder / "server").write_text(SERVER.format(port=port, folder=folder), encoding="utf-8")
    iceberg = folder / "plugins" / "iceberg"
    iceberg.mkdir(parents=True)
    for jar in plugin.glob("*.jar"):
        (iceberg / jar.name).symlink_to(jar)
    with zipfile.ZipFile(iceberg / "services.jar", "w") as services:
        services.writestr(*PLUGIN)
    (folder / "catalogs").mkdir()
    for alias, properties in catalogs.items():
        (folder / "catalogs" / f"{alias}.properties").write_text(properties, encoding="utf-8")


def _is_started(port: int) -> bool:
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/v1/info", trust_env=False)
    except httpx.TransportError:
        return False
    return answer.is_success and answer.json()["starting"] is False
