# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from lakeproof.errors import ServerError
from lakeproof.postgres.account import DEFAULT_ACCOUNT
from lakeproof.postgres.directories import SOCKET_PATH_BYTES_MAX, home_of
from lakeproof.postgres.process import explain, postmaster_pid
from lakeproof.postgres.server import EmbeddedServer, ServerFacts, check_dsn, check_facts, check_server
from testkit.environment import PROJECT
from testkit.lakeproof.data_folders import make_data_folder

ShortDirectory = Callable[[], AbstractContextManager[Path]]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")


@pytest.fixture(scope="module")
def home(short_directory: ShortDirectory) -> Iterator[Path]:
    """The home of a server that tests may start, stop, kill and break, and leave stopped and whole."""
    with short_directory() as directory:
        yield directory / "home"


def server_of(home: Path, age: Path, *, folder: Path | None = None, account: str = DEFAULT_ACCOUNT) -> EmbeddedServer:
    """The server of a home; root's keeps its files beside the home, where the test's directory ends with them."""
    return EmbeddedServer(home, age, account=account, folder=folder or home.parent / "servers")


@contextmanager
def started(home: Path, age: Path, **where: Any) -> Iterator[EmbeddedServer]:
    server = server_of(home, age, **where)
    server.start(print)
    try:
        yield server
    finally:
        server.stop()


def one_value(dsn: str, query: LiteralString) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(sql.SQL(query)).fetchone()
    assert row is not None
    return row[0]


def refusal(home: Path, age: Path, **where: Any) -> str:
    with pytest.raises(ServerError) as caught:
        server_of(home, age, **where).start(print)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pid_of(server: EmbeddedServer) -> int:
    pid = postmaster_pid(server.files.data)
    assert pid is not None
    return pid


def test_a_second_start_keeps_the_data(home: Path, age: Path) -> None:
    with started(home, age) as server, psycopg.connect(server.admin_dsn) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 17 AS n")
    assert not server.running
    with started(home, age) as server:
        assert server.running
        assert one_value(server.admin_dsn, "SELECT n FROM kept") == 17


def test_the_server_is_durable_private_and_preloads_age(home: Path, age: Path) -> None:
    expected = {
        "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "listen_addresses": "",
        "shared_preload_libraries": "age", "max_connections": "200", "max_locks_per_transaction": "256",
        "wal_level": "replica", "password_encryption": "scram-sha-256", "data_checksums": "on",
    }  # fmt: skip
    with started(home, age) as server, psycopg.connect(server.admin_dsn) as connection:
        found: dict[str, str] = dict(
            connection.execute("SELECT name, setting FROM pg_settings WHERE name = ANY (%s)", [[*expected]])
        )
        check_server(connection)
    assert found == expected


def test_nobody_connects_without_the_password(home: Path, age: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSFILE", "/dev/null")
    with started(home, age) as server:
        methods = one_value(server.admin_dsn, "SELECT array_agg(DISTINCT auth_method) FROM pg_hba_file_rules")
        assert methods == ["scram-sha-256"]
        for password in ("", "wrong"):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(server.admin_dsn, password=password)


def test_a_password_variable_of_another_server_changes_nothing(
    home: Path, age: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "of another server")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATABASE", "elsewhere")
    with started(home, age) as server:
        assert one_value(server.admin_dsn, "SELECT 1") == 1


def test_secrets_are_0600_and_directories_0700(home: Path, age: Path) -> None:
    with started(home, age) as server:
        files = server.files
        directories = [files.password_file.parent, files.data, files.log, files.run]
        secrets = [files.password_file, files.configuration, *files.log.iterdir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in directories} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert not list(files.directory.glob("*password*"))


def test_after_a_kill_of_the_server_the_next_start_recovers_what_was_committed(home: Path, age: Path) -> None:
    with started(home, age) as server:
        with psycopg.connect(server.admin_dsn) as connection:
            connection.execute("CREATE TABLE recovered AS SELECT 18 AS n")
        os.kill(pid_of(server), signal.SIGKILL)
        with started(home, age) as again:
            assert one_value(again.admin_dsn, "SELECT n FROM recovered") == 18


def test_start_on_the_same_object_brings_a_killed_server_back(home: Path, age: Path) -> None:
    with started(home, age) as server:
        first = pid_of(server)
        server.start(print)
        assert pid_of(server) == first
        os.kill(first, signal.SIGKILL)
        server.start(print)
        assert one_value(server.admin_dsn, "SELECT 1") == 1
    assert not server.running


def test_a_server_outlives_its_starters_kill_and_the_next_start_attaches_to_it(home: Path, age: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from lakeproof.postgres.server import EmbeddedServer\n"
        "home = Path(sys.argv[1])\n"
        "EmbeddedServer(home, Path(sys.argv[2]), folder=home.parent / 'servers').start(print)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, home, age], cwd=PROJECT, check=False)
    assert done.returncode == -signal.SIGKILL
    said: list[str] = []
    server = server_of(home, age)
    server.start(said.append)
    try:
        assert said == [f"PostgreSQL runs already (socket in {server.files.run})"]
        assert one_value(server.admin_dsn, "SELECT 1") == 1
    finally:
        server.stop()
    assert not server.running


def test_the_last_user_stops_the_server_and_no_earlier_one(home: Path, age: Path) -> None:
    with started(home, age) as first:
        with started(home, age) as second:
            assert pid_of(first) == pid_of(second)
        assert one_value(first.admin_dsn, "SELECT 1") == 1
    assert not first.running


def test_a_stop_is_not_kept_waiting_by_connections(home: Path, age: Path) -> None:
    with started(home, age) as server:
        connection = psycopg.connect(server.admin_dsn)
    with connection, pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")


def test_a_stale_process_id_of_a_stranger_does_not_stand_in_the_way(home: Path, age: Path) -> None:
    with started(home, age) as server:
        files = server.files
    (files.data / "postmaster.pid").write_text(f"{os.getpid()}\n{files.data}\n")
    (files.run / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n")
    assert not server.running
    with started(home, age) as server:
        assert one_value(server.admin_dsn, "SELECT 1") == 1


def test_a_corrupt_configuration_or_access_file_is_named(home: Path, age: Path) -> None:
    with started(home, age) as server:
        data = server.files.data
    configuration, access = data / "postgresql.conf", data / "pg_hba.conf"
    whole, admitted = configuration.read_text(), access.read_text()
    try:
        for line in ("work_mem = many", "no such line", "max_conections = 1", "work_mem = 1kB"):
            configuration.write_text(f"{whole}\n{line}\n")
            message = refusal(home, age)
            assert message.startswith("PostgreSQL's configuration is wrong ("), line
            assert line.split()[0] in message or "postgresql.conf" in message
        configuration.write_text(whole)
        access.write_text("local all all no-such-method\n")
        assert "pg_hba.conf" in refusal(home, age)
    finally:
        configuration.write_text(whole)
        access.write_text(admitted)


def test_a_wrong_or_missing_password_file_is_named_and_nothing_is_left_running(home: Path, age: Path) -> None:
    with started(home, age) as server:
        file = server.files.password_file
    whole = file.read_bytes()
    try:
        for damaged in (b"wrong\n", b"", b"\xff\n"):
            file.write_bytes(damaged)
            assert refusal(home, age) == (f"the server refuses the password in {file}: restore that file from a backup")
            assert not server.running
        file.unlink()
        assert refusal(home, age).startswith(f"{file} is missing")
    finally:
        file.write_bytes(whole)
        file.chmod(0o600)


def test_a_user_server_without_preloaded_age_or_without_fsync_is_refused(home: Path, age: Path) -> None:
    with started(home, age) as server, psycopg.connect(server.admin_dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET shared_preload_libraries = 'auto_explain'")
        connection.execute("ALTER SYSTEM SET fsync = off")
    with started(home, age) as server, psycopg.connect(server.admin_dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM RESET shared_preload_libraries")
        with pytest.raises(ServerError, match="set fsync = on"):
            check_server(connection)
        connection.execute("ALTER SYSTEM RESET fsync")
    dsn = server.admin_dsn
    with started(home, age) as server:
        check_dsn(dsn)
    overrides = {"shared_preload_libraries": "auto_explain"}
    overridden = EmbeddedServer(home, age, folder=home.parent / "servers", overrides=overrides)
    overridden.start(print)
    try:
        with pytest.raises(ServerError, match=r"put the line  shared_preload_libraries = 'auto_explain,age'  into"):
            check_dsn(dsn)
    finally:
        overridden.stop()


GOOD = ServerFacts(version=170_000, fsync="on", has_age=True, user="owner", preloaded="age")


@pytest.mark.parametrize("preloaded", ["age", "pg_stat_statements, age", '"$libdir/age"', "/opt/age.so,x"])
def test_every_way_to_preload_age_is_accepted(preloaded: str) -> None:
    check_facts(replace(GOOD, preloaded=preloaded))


@pytest.mark.parametrize(
    ("facts", "remedy"),
    [
        (replace(GOOD, version=160_009), "expected PostgreSQL 17 or newer, found 16.9: upgrade"),
        (replace(GOOD, fsync="off"), "set fsync = on"),
        (replace(GOOD, has_age=False), "install its package"),
        (replace(GOOD, preloaded=""), "put the line  shared_preload_libraries = 'age'  into postgresql.conf"),
        (replace(GOOD, preloaded="pager"), "shared_preload_libraries = 'pager,age'"),
        (replace(GOOD, preloaded=None), 'GRANT pg_read_all_settings TO "owner"'),
    ],
)
def test_a_user_server_that_does_not_do_is_told_what_to_change(facts: ServerFacts, remedy: str) -> None:
    with pytest.raises(ServerError) as caught:
        check_facts(facts)
    assert remedy in str(caught.value)


def test_a_user_server_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="LAKEPROOF_DSN leads to no server that answers") as caught:
        check_dsn(f"host={tmp_path} dbname=x")
    assert "\n" not in str(caught.value)


def test_a_connection_string_that_is_none_is_refused_without_repeating_it() -> None:
    with pytest.raises(ServerError, match="LAKEPROOF_DSN is no connection string") as caught:
        check_dsn("password='s3cret dbname")
    assert "s3cret" not in str(caught.value)


def test_a_data_directory_of_another_version_is_refused_and_not_touched(
    short_directory: ShortDirectory, age: Path
) -> None:
    with short_directory() as directory:
        data = make_data_folder(directory)
        (data / "PG_VERSION").write_text("16\n")
        message = refusal(directory / "home", age)
        assert message.startswith(f"{data} was made by PostgreSQL 16 and the embedded server is 18: ")
        assert [path.name for path in data.iterdir()] == ["PG_VERSION"]


def test_a_home_that_cannot_be_made_is_one_sentence(age: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "choose another LAKEPROOF_HOME" in refusal(tmp_path / "file" / "home", age)


def test_a_path_that_a_shell_or_a_search_path_would_read_otherwise_is_refused(
    short_directory: ShortDirectory, age: Path
) -> None:
    with short_directory() as directory:
        odd = directory / "$(true)"
        assert "choose a path without quotes" in refusal(odd / "home", age, folder=odd)
        copy = Path(shutil.copytree(age, directory / "a:b" / "age"))
        assert "without colons" in refusal(directory / "a:b" / "home", copy)


def test_a_long_home_with_odd_characters_gets_a_short_socket_and_keeps_it(
    short_directory: ShortDirectory, age: Path
) -> None:
    with short_directory() as directory:
        home = directory / ("it's, so {long} " + "x" * 100) / "home"
        with started(home, age, folder=home.parent) as server:
            run = server.files.run
            assert len(str(run / ".s.PGSQL.5432")) <= SOCKET_PATH_BYTES_MAX
            assert stat.S_IMODE(run.stat().st_mode) == 0o700
            assert one_value(server.admin_dsn, "SELECT 1") == 1
        with started(home, age, folder=home.parent) as server:
            assert server.files.run == run
        run.rmdir()
        with started(home, age, folder=home.parent) as server:
            assert server.files.run != run
            assert one_value(server.admin_dsn, "SELECT 1") == 1


@as_root
def test_roots_database_lies_outside_its_home_and_is_found_again(short_directory: ShortDirectory, age: Path) -> None:
    with short_directory() as directory:
        home, folder = directory / "closed" / "home", directory / "servers"
        (directory / "closed").mkdir(mode=0o700)
        with started(home, age, folder=folder) as server:
            room = server.files.directory
            assert room.parent == folder
            assert home_of(room) == home
            with psycopg.connect(server.admin_dsn) as connection:
                connection.execute("CREATE TABLE kept AS SELECT 19 AS n")
        with started(home, age, folder=folder) as server:
            assert server.files.directory == room
            assert one_value(server.admin_dsn, "SELECT n FROM kept") == 19
        moved = room.rename(room.with_name(room.name + "-moved"))
        message = refusal(home, age, folder=folder)
        assert message.startswith(f"the server's directory {room}, named in {home}/server.json, is gone")
        moved.rename(room)
        (home / "server.json").write_text("{")
        assert "server.json is damaged" in refusal(home, age, folder=folder)
        (home / "server.json").write_text(f'{{"room": "{room}"}}')


@as_root
def test_a_folder_that_others_can_change_or_the_server_cannot_enter_holds_no_database(
    short_directory: ShortDirectory, age: Path
) -> None:
    with short_directory() as directory:
        folder = directory / "servers"
        folder.mkdir()
        folder.chmod(0o777)
        assert "others than root can change what" in refusal(directory / "home", age, folder=folder)
        folder.chmod(0o700)
        assert "cannot enter" in refusal(directory / "home", age, folder=folder)
        assert not (directory / "home" / "server.json").exists()


@as_root
def test_roots_server_runs_as_an_account_of_its_own_and_its_binaries_are_not_its_own(home: Path, age: Path) -> None:
    with started(home, age) as server:
        status = (Path("/proc") / str(pid_of(server)) / "status").read_text()
        account = server.files.account
        assert account is not None
        assert account.name == DEFAULT_ACCOUNT
        assert f"Uid:\t{account.uid}\t{account.uid}\t{account.uid}\t{account.uid}\n" in status
        assert f"Gid:\t{account.gid}\t{account.gid}\t{account.gid}\t{account.gid}\n" in status
        assert server.files.directory.stat().st_uid == 0


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        (  # initdb 18.6 in a file system of 20 MB
            "FATAL:  could not extend file: wrote only 4096 of 8192 bytes\nHINT:  Check free disk space.\nPANIC:  x",
            "the disk that holds /x is full: free some space",
        ),
        (
            'LOG:  x\nFATAL:  could not write lock file "postmaster.pid": No space left on device\n',
            "the disk that holds /x is full: free some space",
        ),
        (  # postgres 18.6 on another major version's files
            "2026-11-20 13:00:00 UTC [7] FATAL:  database files are incompatible with server",
            "PostgreSQL does not start (database files are incompatible with server): look into /x/log",
        ),
        (
            'LOG:  x\n2026 UTC [7] FATAL:  data directory "/x/data" has wrong ownership\nHINT:  y',
            '/x/data is not private (data directory "/x/data" has wrong ownership): restore its owner and mode 0700',
        ),
        (
            "LOG:  a\nPANIC:  could not locate a valid checkpoint record at 0/1\n",
            "the database in /x is damaged (could not locate a valid checkpoint record at 0/1): restore a backup",
        ),
        (
            "initdb: could not look up effective user ID 999: user does not exist\n",
            (
                "PostgreSQL does not start (could not look up effective user ID 999: user does not exist): "
                "look into /x/log"
            ),
        ),
        ("", "PostgreSQL does not start and does not say why: look into /x/log"),
    ],
)
def test_what_a_failed_start_prints_becomes_one_sentence(printed: str, sentence: str) -> None:
    assert explain(printed, where=Path("/x")) == sentence


def test_an_ordinary_role_uses_cypher_without_loading_anything(admin_dsn: str) -> None:
    name, role = "test_ordinary_role", "test_ordinary"
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'of a throw-away server'")
        dsn = make_conninfo(admin_dsn, dbname=name)
        with psycopg.connect(dsn) as owner:
            owner.execute("CREATE EXTENSION age")
            owner.execute("SET search_path = public, ag_catalog")
            owner.execute("SELECT create_graph('seen')")
            owner.execute("SELECT create_vlabel('seen', 'City')")
            owner.execute(f"GRANT USAGE ON SCHEMA ag_catalog, seen TO {role}")
            owner.execute(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA seen TO {role}")
            owner.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA seen TO {role}")
        ordinary = make_conninfo(
            dsn, user=role, password="of a throw-away server", options="-c search_path=public,ag_catalog"
        )
        with psycopg.connect(ordinary) as connection:
            connection.execute("SELECT * FROM cypher('seen', $$ CREATE (:City {name: 'Kyiv'}) $$) AS (n agtype)")
            query = (
                "SELECT n::text FROM cypher('seen', $$ MATCH (c:City {name: $name}) RETURN c.name $$, %s) AS (n agtype)"
            )
            assert connection.execute(query, ('{"name": "Kyiv"}',)).fetchall() == [("Kyiv",)]
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT create_graph('another')")
        admin.execute(f"DROP DATABASE {name}")
        admin.execute(f"DROP ROLE {role}")
