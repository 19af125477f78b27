# SPDX-License-Identifier: Apache-2.0
"""
The PostgreSQL servers and the directories that benches use, and that are removed after them.

They are on disk if the figures must hold for a server as people run it, and in memory if many faults are injected and
the disk does not matter. Paths are short, because the path of a socket may have 107 bytes.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from select import select

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from lakeproof.postgres.age import fetch_age
from lakeproof.postgres.process import postmaster_pid
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.settings import load_settings
from testkit.environment import PROJECT


@contextmanager
def embedded_server() -> Iterator[str]:
    """Run a server of this bench's own, on disk; yields its owner's connection string."""
    with directory_on_disk() as directory, _running(directory / "home") as server:
        yield server.admin_dsn


@contextmanager
def server_in_memory() -> Iterator[EmbeddedServer]:
    """Run a server of this bench's own, in memory if there is room: what is measured is not the disk."""
    with directory_in_memory() as directory, _running(directory / "home") as server:
        yield server


@contextmanager
def _running(home: Path) -> Iterator[EmbeddedServer]:
    age = fetch_age(load_settings(os.environ, directory=PROJECT).cache, print)
    server = EmbeddedServer(home, age, folder=home.parent / "servers")
    try:
        server.start(print)
        yield server
    finally:
        server.stop()


def stop_at_once(server: EmbeddedServer) -> None:
    """Do what `pg_ctl stop -m immediate` does, and start again: the server recovers from its write-ahead log."""
    pid = postmaster_pid(server.files.data)
    assert pid is not None
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGQUIT)
    select([process], [], [])  # until it has ended
    os.close(process)
    server.start(lambda _: None)


def new_database(admin_dsn: str, name: str) -> str:
    """Make an empty database on the server; returns its owner's connection string."""
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return make_conninfo(admin_dsn, dbname=name)


@contextmanager
def directory_on_disk() -> Iterator[Path]:
    """Yield a directory in $TMPDIR, else /tmp, whose path is short enough for a socket if that is short."""
    with _directory(Path(tempfile.gettempdir()), "lp-bench-") as directory:
        yield directory


def directory_until_exit() -> Path:
    """
    Return a directory like that of `directory_on_disk`, which goes when this process ends.

    Where many files are created: ext4 without a journal does not use the inodes of files again that were deleted in the
    last minutes, and looks at all of them for each new file. After a few thousand, a new file takes 0.6 ms, not 0.02.
    """
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(directory_on_disk())


@contextmanager
def directory_in_memory() -> Iterator[Path]:
    """Yield a directory in memory, if there is such, whose path is short enough for a socket."""
    memory = Path("/dev/shm")  # noqa: S108 - a private directory is made in it
    with _directory(memory if memory.is_dir() else None, "lp-") as directory:
        yield directory


@contextmanager
def _directory(parent: Path | None, prefix: str) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    directory.chmod(0o711)  # the server's user may be another than ours
    try:
        yield directory
    finally:
        # A process that is ending may still write: an error here must not hide what the bench has found.
        shutil.rmtree(directory, ignore_errors=True)
