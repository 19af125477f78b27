# SPDX-License-Identifier: Apache-2.0
"""Root's server belongs to an account of its own, to which what an earlier version gave to nobody is handed over."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from lakeproof.errors import ServerError
from lakeproof.postgres.account import DEFAULT_ACCOUNT, check_account, make_account, server_account
from lakeproof.postgres.directories import home_of, recorded_directory
from lakeproof.postgres.file_lock import Presence
from lakeproof.postgres.process import postmaster_pid
from lakeproof.postgres.server import EmbeddedServer

ShortDirectory = Callable[[], AbstractContextManager[Path]]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")

TAKE_OVER = """
cd "$1" || exit 1
echo 'local all all trust' > pg_hba.conf || exit 2
"""
"""What a process does that may write the server's files: whoever connects is let in as whom they say they are."""


def fields(**changed: object) -> pwd.struct_passwd:
    """An account as the system describes it: one for the server alone, but for what is `changed`."""
    given = {
        "name": "own",
        "passwd": "x",
        "uid": 4242,
        "gid": 4242,
        "gecos": "",
        "dir": "/",
        "shell": "/usr/sbin/nologin",
    }
    return pwd.struct_passwd((given | changed).values())


@contextmanager
def new_account(*options: str) -> Iterator[str]:
    """A system account of this test's own, removed again."""
    name = f"lp-test-{secrets.token_hex(4)}"
    subprocess.run(["useradd", "--system", "--no-create-home", *options, name], check=True)
    try:
        yield name
    finally:
        subprocess.run(["userdel", name], check=True)


@pytest.fixture
def directory(short_directory: ShortDirectory) -> Iterator[Path]:
    with short_directory() as directory:
        yield directory


def server_in(directory: Path, age: Path, account: str = DEFAULT_ACCOUNT) -> EmbeddedServer:
    return EmbeddedServer(directory / "home", age, account=account, folder=directory / "servers")


@contextmanager
def started(server: EmbeddedServer, said: list[str] | None = None) -> Iterator[EmbeddedServer]:
    server.start((said if said is not None else []).append)
    try:
        yield server
    finally:
        server.stop()


def refusal(server: EmbeddedServer) -> str:
    with pytest.raises(ServerError) as caught:
        server.start(print)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def let_in_without_password(server: EmbeddedServer) -> bool:
    dsn = make_conninfo(server.admin_dsn, password="not the password", passfile="/dev/null")
    try:
        with psycopg.connect(dsn) as connection:
            row = connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
            return row == (True,)
    except psycopg.OperationalError:
        return False


# Whose the server is


def test_a_process_of_nobody_cannot_take_the_database_over_and_one_of_the_servers_account_can(
    directory: Path, age: Path
) -> None:
    with started(server_in(directory, age)) as server:
        data, account = server.files.data, server.files.account
        assert account is not None
    hba = (data / "pg_hba.conf").read_bytes()
    as_nobody = subprocess.run(["sh", "-c", TAKE_OVER, "sh", data], user="nobody", group="nogroup", extra_groups=[])
    assert as_nobody.returncode == 1
    assert (data / "pg_hba.conf").read_bytes() == hba
    with started(server) as server:
        pid = postmaster_pid(data)
        run, configuration = str(server.files.run), str(server.files.configuration)
        for command in (["kill", "-HUP", str(pid)], ["ls", run], ["cat", configuration]):
            assert subprocess.run(command, user="nobody", group="nogroup", extra_groups=[]).returncode != 0
        assert not let_in_without_password(server)
    # This is why nothing else may run as that account.
    as_server = subprocess.run(
        ["sh", "-c", TAKE_OVER, "sh", data], user=account.uid, group=account.gid, extra_groups=[]
    )
    assert as_server.returncode == 0
    with started(server) as server:
        assert let_in_without_password(server)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"name": "root", "uid": 0, "gid": 0}, "has root's number"),
        ({"name": "toor", "uid": 0}, "has root's number"),
        ({"gid": 0}, "has root's number or group"),
        ({"name": "nobody", "uid": 65534}, "shared with every program"),
        ({"uid": 65534}, "shared with every program"),
        ({"name": "nobody"}, "shared with every program"),
        ({"shell": "/bin/bash"}, r"can be logged in to \(its shell is /bin/bash\)"),
        ({"shell": ""}, r"can be logged in to \(its shell is /bin/sh\)"),
        ({"uid": 1}, "has the same number as"),
    ],
)
def test_an_account_that_is_not_the_servers_alone_is_refused(changed: dict[str, object], reason: str) -> None:
    with pytest.raises(ServerError, match=rf"{reason}.*LAKEPROOF_SERVER_ACCOUNT"):
        check_account(fields(**changed))


@pytest.mark.parametrize("changed", [{}, {"shell": "/bin/false"}, {"shell": "/sbin/nologin"}, {"gid": 65534}])
def test_an_account_for_the_server_alone_is_accepted(changed: dict[str, object]) -> None:
    check_account(fields(**changed))


def test_nobody_and_root_and_an_account_that_is_not_there_start_nothing(directory: Path, age: Path) -> None:
    for name, reason in (
        ("nobody", "shared with"),
        ("root", "root's number"),
        ("lp-none", "there is no account 'lp-none'"),
    ):
        assert reason in refusal(server_in(directory, age, name))
        assert not (directory / "home").exists()


def test_a_server_runs_as_the_account_that_is_named(directory: Path, age: Path) -> None:
    with new_account("--user-group", "--shell", "/usr/sbin/nologin") as name:
        with started(server_in(directory, age, name)) as server:
            assert server.files.data.owner() == name
        assert "let LAKEPROOF_SERVER_ACCOUNT name its owner" in refusal(server_in(directory, age))


def test_the_default_account_is_made_as_a_system_account_without_a_shell_and_kept_if_it_is_there() -> None:
    name = f"lp-test-{secrets.token_hex(4)}"
    make_account(name)
    try:
        made = pwd.getpwnam(name)
        check_account(made)
        assert not Path(made.pw_dir).exists()
        make_account(name)
        assert pwd.getpwnam(name) == made
    finally:
        subprocess.run(["userdel", name], check=True)


def test_of_several_who_make_the_account_at_once_all_find_the_same_number() -> None:
    name = f"lp-test-{secrets.token_hex(4)}"

    def make() -> int:
        make_account(name)
        return pwd.getpwnam(name).pw_uid

    try:
        with ThreadPoolExecutor(8) as threads:
            numbers = {made.result() for made in [threads.submit(make) for _ in range(8)]}
        assert numbers == {pwd.getpwnam(name).pw_uid}
    finally:
        subprocess.run(["userdel", name], check=True)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "there is no useradd"),
        ("echo 'useradd: cannot lock /etc/passwd; try again later.' >&2; exit 1", "cannot lock /etc/passwd"),
        ("exit 9", "useradd ended with 9"),
    ],
)
def test_where_no_account_can_be_made_the_operator_is_told_the_ways_out(
    script: str | None, reason: str, tmp_path: Path
) -> None:
    if script is not None:
        (tmp_path / "useradd").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "useradd").chmod(0o755)
    with pytest.raises(ServerError, match=reason) as caught:
        make_account("lp-test-none", path=str(tmp_path))
    for way in ("useradd --system", "LAKEPROOF_SERVER_ACCOUNT", "an ordinary user", "LAKEPROOF_DSN"):
        assert way in str(caught.value)


def test_the_default_account_is_found_when_it_is_there() -> None:
    account = server_account(DEFAULT_ACCOUNT, print)
    assert (account.name, account.uid) == (DEFAULT_ACCOUNT, pwd.getpwnam(DEFAULT_ACCOUNT).pw_uid)
    assert server_account(DEFAULT_ACCOUNT, print) == account


# What an earlier version has made


@pytest.fixture
def former(directory: Path, age: Path) -> Path:
    """A stopped home as an earlier version of root's left it: its room inside, the cluster nobody's; holds a table."""
    with started(server_in(directory, age)) as server:
        room = server.files.directory
        with psycopg.connect(server.admin_dsn) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 23 AS n")
    home = directory / "home"
    (home / "server.json").unlink()
    (room / "home.json").unlink()
    room.rename(home / "postgres")
    home.chmod(0o711)
    for name in ("data", "log", "run", "lakeproof.conf", "age-passed.json"):
        give_to_nobody(home / "postgres" / name)
    return home


def give_to_nobody(path: Path) -> None:
    subprocess.run(["chown", "-R", "nobody:nogroup", path], check=True)


def kept(server: EmbeddedServer) -> object:
    with psycopg.connect(server.admin_dsn) as connection:
        return connection.execute("SELECT n FROM kept").fetchone()


def owners(folder: Path) -> set[str]:
    return {path.owner() for path in (folder, *folder.rglob("*"))}


def test_a_cluster_of_nobody_in_the_home_is_brought_out_and_handed_over_once_and_said(
    former: Path, directory: Path, age: Path
) -> None:
    said: list[str] = []
    with started(server_in(directory, age), said) as server:
        assert kept(server) == (23,)
        room = server.files.directory
        assert room.parent == directory / "servers"
        assert owners(server.files.data) == owners(server.files.log) == {DEFAULT_ACCOUNT}
    assert recorded_directory(former) == room
    assert home_of(room) == former
    assert not (former / "postgres").exists()
    assert stat.S_IMODE(former.stat().st_mode) == 0o700
    assert any(f"moved the database from {former}/postgres to {room}" in line for line in said)
    assert any("was the account nobody's" in line and "ledger verify" in line for line in said)
    assert any(f"{former} had mode 0711" in line for line in said)
    said.clear()
    with started(server_in(directory, age), said) as server:
        assert kept(server) == (23,)
    assert len(said) == 1


def test_a_cluster_of_nobody_outside_the_home_is_handed_over_where_it_is(
    former: Path, directory: Path, age: Path
) -> None:
    with started(server_in(directory, age)) as server:
        room = server.files.directory
    give_to_nobody(room / "data")
    with started(server_in(directory, age)) as server:
        assert server.files.directory == room
        assert kept(server) == (23,)
        assert owners(server.files.data) == {DEFAULT_ACCOUNT}


def test_a_move_and_a_hand_over_that_were_interrupted_are_finished(former: Path, directory: Path, age: Path) -> None:
    room = directory / "servers" / "1"
    room.parent.mkdir(exist_ok=True)
    (former / "server.json").write_text(f'{{"room": "{room}"}}')  # recorded, and not moved yet
    inside = next((former / "postgres" / "data" / "base").rglob("PG_VERSION"))
    shutil.chown(inside, DEFAULT_ACCOUNT)  # and some of it handed over
    (former / "postgres").chmod(0o700)
    with started(server_in(directory, age)) as server:
        assert server.files.directory == room
        assert kept(server) == (23,)
        assert owners(server.files.data) == {DEFAULT_ACCOUNT}


def plant(kind: str, data: Path, secret: Path) -> None:
    """Put into a data folder what is no file of the server's own."""
    match kind:
        case "link":
            (data / "planted").symlink_to(secret / "key")
        case "link to a folder":
            (data / "base" / "planted").symlink_to(secret)
        case "second name":
            (data / "planted").hardlink_to(secret / "key")
        case "pipe":
            os.mkfifo(data / "planted")
            os.chown(data / "planted", pwd.getpwnam("nobody").pw_uid, -1)
        case _:
            (data / "planted").write_text("root's")


def test_what_a_process_of_nobody_has_planted_never_changes_hands(former: Path, directory: Path, age: Path) -> None:
    data, secret = former / "postgres" / "data", directory / "secret"
    secret.mkdir()
    (secret / "key").write_text("root's")
    for kind in ("link", "link to a folder", "second name", "pipe", "root's"):
        plant(kind, data, secret)
        message = refusal(server_in(directory, age))
        assert "planted is no plain file or folder of the server's own" in message, kind
        assert owners(secret) == {"root"}
        recorded = recorded_directory(former)
        assert recorded is not None
        data = recorded / "data"  # the first start has moved it, and left it nobody's
        assert DEFAULT_ACCOUNT not in owners(data), f"nothing is half done: {kind}"
        next(recorded.rglob("planted")).unlink()
    with started(server_in(directory, age)) as server:
        assert kept(server) == (23,)


def test_while_another_process_uses_the_server_nothing_changes_hands(former: Path, directory: Path, age: Path) -> None:
    presence = Presence(former / "postgres" / "users")
    try:
        assert "runs for another process" in refusal(server_in(directory, age))
    finally:
        presence.leave()
    assert (former / "postgres" / "data").owner() == "nobody"
    assert recorded_directory(former) is None
    with started(server_in(directory, age)) as server:
        assert kept(server) == (23,)


def test_a_database_that_cannot_be_renamed_stays_where_it_is(former: Path, directory: Path, age: Path) -> None:
    other = Path("/var/tmp") if directory.stat().st_dev != Path("/var/tmp").stat().st_dev else Path("/dev/shm")  # noqa: S108
    if other.stat().st_dev == directory.stat().st_dev:
        pytest.skip("there is one file system only")
    folder = other / f"lp-test-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o711)
    try:
        server = EmbeddedServer(directory / "home", age, folder=folder)
        assert "is on another file system: let LAKEPROOF_SERVER_FOLDER name" in refusal(server)
        assert (former / "postgres" / "data").exists()
        assert recorded_directory(former) is None
    finally:
        folder.rmdir()
    with started(server_in(directory, age)) as server:
        assert kept(server) == (23,)


def test_a_home_of_another_user_is_refused(directory: Path, age: Path) -> None:
    home = directory / "home"
    home.mkdir()
    os.chown(home, 4242, 4242)
    assert "belongs to the user with number 4242" in refusal(server_in(directory, age))
    assert list(home.iterdir()) == []
