# SPDX-License-Identifier: Apache-2.0
"""
PostgreSQL with Apache AGE: an embedded server of our own, and the check of a server of the user's.

Guarantee: after `start` exactly one server runs for this home, it answers, and it is durable (`fsync` and
`synchronous_commit` on). It listens on a Unix socket only, and asks for passwords there, too: the mode of a directory
should not be all that keeps two users of a machine apart.

The server is a daemon of its own. If our process is killed it stays up, and the next start attaches to it. Every
process that uses it holds a lock, which the kernel releases when the process ends, however it ends. `stop` stops the
server unless another process still uses it.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from lakeproof.errors import ServerError
from lakeproof.messages import Say
from lakeproof.postgres.account import DEFAULT_ACCOUNT
from lakeproof.postgres.age import PG_MAJOR
from lakeproof.postgres.directories import ROOT_FOLDER, open_server_files
from lakeproof.postgres.file_lock import Presence, exclusive, is_alone
from lakeproof.postgres.files import SOCKET_NAME, ServerFiles
from lakeproof.postgres.process import ServerPrograms, postmaster_pid, server_settings, stop_process

PG_MAJOR_MIN = 17
LOCK_TIMEOUT_S = 600
ANSWER_TIMEOUT_S = 300
CONNECT_TIMEOUT_S = 10
POLL_S = 0.02


class EmbeddedServer:
    """The PostgreSQL server of one home directory."""

    def __init__(
        self,
        home: Path,
        age: Path,
        *,
        account: str = DEFAULT_ACCOUNT,
        folder: Path = ROOT_FOLDER,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        """
        Name the server of `home`; nothing is started or written.

        `age` is what `fetch_age` returned. Root's server runs as `account`, with its directory in `folder`.
        `overrides` are server settings, by name, that win over ours when the server is started (not when it is attached
        to).
        """
        self._home = home
        self._age = age
        self._account = account
        self._folder = folder
        self._overrides = dict(overrides or {})
        self._files: ServerFiles | None = None
        self._presence: Presence | None = None

    @property
    def files(self) -> ServerFiles:
        """
        Where this server's files lie.

        Raises:
            ServerError: before the first start.
        """
        if self._files is None:
            raise ServerError("the embedded server was never started: call start first")
        return self._files

    @property
    def admin_dsn(self) -> str:
        """The connection string of the owner, a superuser; it holds the password, so never log it."""
        return admin_dsn_of(self.files)

    @property
    def running(self) -> bool:
        """Whether the server's process exists."""
        return self._files is not None and postmaster_pid(self._files.data) is not None

    def start(self, say: Say) -> None:
        """
        Start the server, or attach to it if it runs already.

        Raises:
            ServerError: if it cannot be started.
        """
        try:
            self._files = open_server_files(self._home, say, account=self._account, folder=self._folder)
            with exclusive(self._files.lock, timeout_s=LOCK_TIMEOUT_S):
                # Before the start, so that an interrupted start can call `stop`.
                self._presence = self._presence or Presence(self._files.users)
                self._start_or_attach(self._files, say)
        except ServerError:
            self._leave()
            raise
        except TimeoutError as error:
            raise ServerError(f"another process is starting or stopping this server ({error}): end it first") from error
        except OSError as error:
            raise ServerError(_cannot_use(self._home, error)) from error

    def stop(self) -> None:
        """
        Stop the server, fast at first and immediately if that takes too long; leave it if another process uses it.

        Raises:
            ServerError: if it does not stop.
        """
        if self._presence is None:
            return
        try:
            with exclusive(self.files.lock, timeout_s=LOCK_TIMEOUT_S):
                self._leave()
                if is_alone(self.files.users):
                    stop_process(self.files.data)
        except OSError as error:
            raise ServerError(
                f"PostgreSQL in {self.files.data} cannot be stopped ({error}): stop it yourself"
            ) from error

    def _leave(self) -> None:
        presence, self._presence = self._presence, None
        if presence is not None:
            presence.leave()

    def _start_or_attach(self, files: ServerFiles, say: Say) -> None:
        if files.data.exists():
            _check_major(files.data)
        password = files.password()
        if _attach(files):
            say(f"PostgreSQL runs already (socket in {files.run})")
            return
        programs = ServerPrograms(files)
        age = files.readable_copy(self._age, "lib", "share", "age.json", name="age", stamp=Path("age.json"))
        programs.configure({**server_settings(files, age), **self._overrides})
        if not files.data.exists():
            say(f"making a PostgreSQL {PG_MAJOR} cluster in {files.data}")
            programs.make_cluster(password)
        programs.start()
        try:
            _check_that_it_works(files, age)
        except ServerError:
            stop_process(files.data)  # or the next start would attach to a server that does not work
            raise
        say(f"PostgreSQL {PG_MAJOR} with Apache AGE runs (socket in {files.run})")


def check_dsn(dsn: str) -> None:
    """
    Check that `dsn`, the owner's connection string of a server of the user's, leads to one that Lakeproof can use.

    Raises:
        ServerError: if it cannot be reached, or `check_server` refuses it.
    """
    try:
        with psycopg.connect(dsn, connect_timeout=CONNECT_TIMEOUT_S) as connection:
            check_server(connection)
    except psycopg.ProgrammingError as error:
        # libpq would repeat a piece of the text, and that may be the password.
        raise ServerError("LAKEPROOF_DSN is no connection string of PostgreSQL: correct it") from error
    except psycopg.Error as error:
        raise ServerError(f"LAKEPROOF_DSN leads to no server that answers ({_one_line(error)}): correct it") from error


def check_server(connection: psycopg.Connection) -> None:
    """
    Check that the server is PostgreSQL 17 or newer, durable, and has Apache AGE installed and preloaded.

    Raises:
        ServerError: if it is not; the message says what to change on it.
        psycopg.Error: if the connection fails.
    """
    row = connection.execute(
        """
        SELECT current_setting('server_version_num')::integer, current_setting('fsync'),
               EXISTS (SELECT FROM pg_available_extensions WHERE name = 'age'), session_user::text,
               (SELECT setting FROM pg_settings WHERE name = 'shared_preload_libraries')
        """
    ).fetchone()
    if row is None:
        raise ServerError("the server gave no answer about itself: use another PostgreSQL")
    version, fsync, has_age, user, preloaded = row
    check_facts(ServerFacts(version=version, fsync=fsync, has_age=has_age, user=user, preloaded=preloaded))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What `check_server` reads from a server."""

    version: int
    """As server_version_num: 170004 is 17.4."""
    fsync: str
    has_age: bool
    user: str
    preloaded: str | None
    """The setting shared_preload_libraries; None if this user may not see it."""


def check_facts(facts: ServerFacts) -> None:
    """
    Check the answers of `check_server`.

    Raises:
        ServerError: names the first requirement that is not met.
    """
    if facts.version // 10_000 < PG_MAJOR_MIN:
        found = f"{facts.version // 10_000}.{facts.version % 10_000}"
        raise ServerError(f"expected PostgreSQL {PG_MAJOR_MIN} or newer, found {found}: upgrade the server")
    if facts.fsync != "on":
        raise ServerError("the server runs with fsync = off and would lose what it has acknowledged: set fsync = on")
    if not facts.has_age:
        raise ServerError("the server does not have Apache AGE: install its package for that version of PostgreSQL")
    if facts.preloaded is None:
        raise ServerError(
            "this user may not see whether Apache AGE is preloaded: run "
            f'GRANT pg_read_all_settings TO "{facts.user}" as a superuser'
        )
    libraries = [name.strip().strip("\"'") for name in facts.preloaded.split(",") if name.strip()]
    if "age" not in {Path(name).stem for name in libraries}:
        line = f"shared_preload_libraries = '{','.join([*libraries, 'age'])}'"
        raise ServerError(
            f"Apache AGE is not preloaded: put the line  {line}  into postgresql.conf and restart the server"
        )


def _check_major(data: Path) -> None:
    found = (data / "PG_VERSION").read_text("ascii", "replace").strip()
    if found != str(PG_MAJOR):
        raise ServerError(
            f"{data} was made by PostgreSQL {found:.20} and the embedded server is {PG_MAJOR}: start the version of "
            "Lakeproof that made it, or choose another LAKEPROOF_HOME"
        )


def _attach(files: ServerFiles) -> bool:
    """
    Find a server that runs already, and wait until it answers; False if there is none.

    The process is looked for because a server in recovery does not answer yet; the socket is tried because the server
    of another container is not among our processes.
    """
    if postmaster_pid(files.data) is None and nobody_listens(_refusal(files)):
        return False
    return _wait_for_answer(files)


def _wait_for_answer(files: ServerFiles) -> bool:
    """Wait until the server takes connections; False if it ends instead."""
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while (refusal := _refusal(files)) is not None:
        pid = postmaster_pid(files.data)
        if pid is None and nobody_listens(refusal):
            return False
        if time.monotonic() > deadline:
            raise ServerError(f"PostgreSQL (pid {pid}) does not answer ({refusal}): end it with `kill -INT {pid}`")
        time.sleep(POLL_S)
    return True


def _refusal(files: ServerFiles) -> str | None:
    """Return why the server does not take a connection, or None if it does."""
    try:
        psycopg.connect(admin_dsn_of(files), connect_timeout=CONNECT_TIMEOUT_S).close()
    except psycopg.OperationalError as error:
        if "password" in str(error):  # wrong, or none in an empty file
            raise ServerError(
                f"the server refuses the password in {files.password_file}: restore that file from a backup"
            ) from error
        return _one_line(error)
    return None


def nobody_listens(refusal: str | None) -> bool:
    """
    Return whether no process listens on the socket; any other refusal comes from a server.
    """
    return refusal is not None and ("No such file" in refusal or "Connection refused" in refusal)


def admin_dsn_of(files: ServerFiles) -> str:
    """
    Return the connection string of the owner, a superuser; it holds the password, so never log it.

    Raises:
        ServerError: if a cluster exists, but its password does not.
    """
    port = SOCKET_NAME.rpartition(".")[2]
    password = files.password()
    return make_conninfo(host=str(files.run), port=port, user=files.owner, password=password, dbname="postgres")


def _check_that_it_works(files: ServerFiles, age: Path) -> None:
    """Wait for an answer; with a new copy of AGE, write one vertex, too, and roll it back."""
    if not _wait_for_answer(files):
        raise ServerError(f"PostgreSQL started and stopped again: look into {files.log}")
    passed, copy = files.directory / "age-passed.json", (age / "age.json").read_bytes()
    if passed.exists() and passed.read_bytes() == copy:
        return
    query = "SELECT k::text FROM cypher('smoke_test', $$ MERGE (n:Probe {k: 1}) RETURN n.k $$) AS (k agtype)"
    try:
        with psycopg.connect(admin_dsn_of(files)) as connection, connection.transaction(force_rollback=True):
            connection.execute("CREATE EXTENSION IF NOT EXISTS age")
            connection.execute("SET LOCAL search_path = ag_catalog")
            connection.execute("SELECT create_graph('smoke_test')")
            row = connection.execute(query).fetchone()
    except psycopg.Error as error:
        raise ServerError(
            f"Apache AGE does not work on this machine ({_one_line(error)}): set LAKEPROOF_DSN"
        ) from error
    if row != ("1",):
        raise ServerError(f"Apache AGE does not work on this machine (expected 1, found {row}): set LAKEPROOF_DSN")
    files.write_private(passed, copy.decode())


def _cannot_use(home: Path, error: OSError) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"the disk that holds {home} is full: free some space"
    return f"{home} cannot be used ({error}): repair that, or choose another LAKEPROOF_HOME"


def _one_line(error: psycopg.Error) -> str:
    return " ".join(str(error).split())
