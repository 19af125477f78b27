# SPDX-License-Identifier: Apache-2.0
"""
Java for tests, and servers that run on it: started on ports that were free, proven to be ours, ended with the test.

It is Java 17, on which Spark, Kafka 4 and the Iceberg fixture run; Nessie needs a newer one. A server is believed to be
ready only when its own process listens on its port: another's answer on a port that was taken meanwhile would prove
nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from spark_detect.driver.java import find_java as find_java_home
from spark_detect.driver.java import java_homes, java_version
from spark_detect.errors import JavaError
from testkit.environment import missing

READY_TIMEOUT_S: Final = 180.0
STOP_TIMEOUT_S: Final = 60.0
"""At its end a server may write its archive of classes first."""
POLL_S: Final = 0.02
ENDED: Final = 128 + signal.SIGTERM
"""What Java exits with after SIGTERM."""
LISTEN: Final = "0A"
"""The state of a listening socket in /proc/net/tcp."""


class ServerNotReadyError(Exception):
    """A server ended before it was ready, or was not ready in time; holds the end of what it said."""


def find_java() -> Path:
    """Return the program `java` of a Java 17: LAKEPROOF_JAVA_HOME's, JAVA_HOME's, the path's, or an installed one's."""
    chosen = os.environ.get("LAKEPROOF_JAVA_HOME")
    try:
        return find_java_home(Path(chosen) if chosen else None, os.environ) / "bin" / "java"
    except JavaError as error:
        missing(str(error))


def find_newer_java(least: int) -> Path:
    """Return the program `java` of a Java that is at least of version `least`, wherever one is."""
    found = {home: java_version(home) for home in dict.fromkeys(java_homes(os.environ))}
    newer = [home for home, version in found.items() if version is not None and version >= least]
    if not newer:
        versions = ", ".join(f"Java {version} in {home}" for home, version in found.items() if version) or "none"
        missing(f"a Java of version {least} or newer is needed, found {versions}")
    return newer[0] / "bin" / "java"


def find_compiling_java() -> Path:
    """Return `find_java`, which can run programs from their sources: a JDK, not a JRE."""
    java = find_java()
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True)
    if "jdk.compiler" not in modules.stdout:
        missing(f"{java} has no compiler: a JDK is needed, not a JRE")
    return java


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on at this moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def java_server(
    arguments: Sequence[str | Path],
    *,
    directory: Path,
    port: int,
    is_ready: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
    libraries: Path | None = None,
    java: Path | None = None,
) -> Iterator[int]:
    """
    Run `java` (without it Java 17) with `arguments` in `directory` while the context is open.

    Yields its process id once it is ready.

    Ready means that this very process listens on `port`, and `is_ready`. It ends with SIGTERM, or, if whoever started
    it is killed, with the reaper's SIGKILL; then `directory`, which is a temporary one, goes too.

    With `libraries`, a folder of the cache with the jars, the classes that the first server has loaded are archived
    next to it at the end: those that are started later load them from there, which takes half of the processor time.

    Raises:
        ServerNotReadyError: if it ended, or was not ready in time.
    """
    said, classes = directory / "server.log", directory / "classes.jsa"
    java = java or find_java()
    archive = None if libraries is None else _archive(libraries, java)
    options = [] if archive is None else _archive_options(archive, classes)
    with said.open("wb") as log:
        process = subprocess.Popen(
            # Else what it unpacks, and its reports on itself, stay in /tmp.
            [java, f"-Djava.io.tmpdir={directory}", "-XX:-UsePerfData", *options, *arguments],
            cwd=directory,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    reaper = _reaper(process.pid, directory)
    try:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not (_listens(process.pid, port) and is_ready()):
            if process.poll() is not None or time.monotonic() > deadline:
                end = said.read_text(errors="replace")[-2_000:]
                raise ServerNotReadyError(f"expected a server on port {port}, found exit {process.returncode}: {end}")
            time.sleep(POLL_S)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reaper.kill()
        reaper.communicate()
    if archive is not None and process.returncode == ENDED and classes.exists():
        fresh = archive.with_name(f"{archive.name}.{uuid4().hex}.new")
        shutil.copyfile(classes, fresh)
        fresh.replace(archive)


def _archive(libraries: Path, java: Path) -> Path:
    """Return where the archive of classes of these jars is, or will be: each Java has one of its own."""
    release = java.resolve().parents[1] / "release"
    version = hashlib.sha256(release.read_bytes() if release.exists() else b"").hexdigest()[:8]
    return libraries.with_name(f"{libraries.name}-{version}.jsa")


def _archive_options(archive: Path, fresh: Path) -> list[str]:
    """Return the options under which Java uses the archive, or makes one; it uses none that does not fit."""
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"]
    return [f"-XX:ArchiveClassesAtExit={fresh}", "-Xlog:disable"]


def _reaper(pid: int, directory: Path) -> subprocess.Popen[bytes]:
    """Start a process that kills `pid` and removes what it wrote, if this one is gone: it waits for a pipe's end."""
    arguments = ["sh", "-c", 'cat; kill -KILL "$1"; rm -rf "$2"', "reaper", str(pid), str(directory)]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)


def _listens(pid: int, port: int) -> bool:
    """Return whether `pid` itself has the socket that listens on `port`, as /proc has it (proc(5), net/tcp)."""
    tables = [table.read_text() for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")) if table.exists()]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    inodes = {row[9] for row in rows if row[3] == LISTEN and int(row[1].rpartition(":")[2], 16) == port}
    return not _open_files(pid).isdisjoint(f"socket:[{inode}]" for inode in inodes)


def _open_files(pid: int) -> set[str]:
    """What a process has open; nothing if it has ended."""
    found = set()
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # it was closed since the folder was read
                found.add(str(link.readlink()))
    return found
