# SPDX-License-Identifier: Apache-2.0
"""Home and warehouse are nobody else's: made so, tightened if they are ours, refused if they are not."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lakeproof.errors import ServerError
from lakeproof.installation import open_installation
from lakeproof.private_folders import check_can_be_made, keep_private
from lakeproof.provision import provision
from lakeproof.settings import Settings, load_settings
from testkit.databases import LOGIN_PASSWORD

ShortDirectory = Callable[[], AbstractContextManager[Path]]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def directory(short_directory: ShortDirectory) -> Iterator[Path]:
    """A directory that every user may enter."""
    with short_directory() as directory:
        yield directory


@pytest.fixture
def fresh_database(database: str) -> Iterator[str]:
    """A database for a home with a password of its own; the login, which all tests share, gets its old one back."""
    yield database
    provision(database, login_password=LOGIN_PASSWORD)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def settings_in(directory: Path, dsn: str, **more: str) -> Settings:
    return load_settings({"LAKEPROOF_HOME": str(directory / "home"), "LAKEPROOF_DSN": dsn, **more}, directory=directory)


def read_as_another_user(path: Path) -> int:
    """Try what any user of the machine can: list a folder, or read a file; return the exit code."""
    command = ["ls" if path.is_dir() else "cat", str(path)]
    return subprocess.run(command, user="nobody", group="nogroup", extra_groups=[], capture_output=True).returncode


def test_a_folder_is_made_private_and_a_wider_one_tightened_and_that_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    keep_private(tmp_path / "a" / "b", said.append, setting="X")
    assert (mode(tmp_path / "a" / "b"), said) == (0o700, [])
    for wide in (0o711, 0o755, 0o777, 0o1777, 0o750):
        (tmp_path / "a" / "b").chmod(wide)
        keep_private(tmp_path / "a" / "b", said.append, setting="X")
        assert mode(tmp_path / "a" / "b") == 0o700
        assert f"had mode {wide:04o}" in said.pop()
    keep_private(tmp_path / "a" / "b", said.append, setting="X")
    assert said == []


def test_a_file_and_a_folder_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(ServerError, match="choose another LAKEPROOF_WAREHOUSE"):
            keep_private(path, print, setting="LAKEPROOF_WAREHOUSE")


@as_root
def test_a_folder_of_another_user_is_refused_and_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    os.chown(folder, 4242, 4242)
    with pytest.raises(ServerError, match=r"number 4242.*choose another LAKEPROOF_WAREHOUSE"):
        keep_private(folder, print, setting="LAKEPROOF_WAREHOUSE")
    assert mode(folder) == 0o755


@as_root
def test_other_users_read_neither_the_home_nor_the_warehouse(directory: Path, fresh_database: str) -> None:
    home, warehouse = directory / "home", directory / "lake"
    for folder in (home, warehouse, warehouse / "sales"):
        folder.mkdir(mode=0o755)
    (warehouse / "sales" / "orders.parquet").write_bytes(b"rows")
    (home / "crm").write_text("rows")
    readable = (home, warehouse, warehouse / "sales", warehouse / "sales" / "orders.parquet", home / "crm")
    assert [read_as_another_user(path) for path in readable] == [0] * len(readable)
    said: list[str] = []
    with open_installation(settings_in(directory, fresh_database, LAKEPROOF_WAREHOUSE=str(warehouse)), said.append):
        assert 0 not in [read_as_another_user(path) for path in readable]
    assert [line.split(" had mode ")[0] for line in said if "had mode" in line] == [str(home), str(warehouse)]


def test_a_home_and_a_warehouse_that_a_start_makes_are_private(directory: Path, fresh_database: str) -> None:
    with open_installation(settings_in(directory, fresh_database), print):
        assert mode(directory / "home") == 0o700
        assert mode(directory / "home" / "warehouse") == 0o700


@as_root
@pytest.mark.parametrize("which", ["home", "lake"])
def test_nothing_starts_in_a_home_or_with_a_warehouse_of_another_user(
    which: str, directory: Path, fresh_database: str
) -> None:
    (directory / which).mkdir()
    os.chown(directory / which, 4242, 4242)
    settings = settings_in(directory, fresh_database, LAKEPROOF_WAREHOUSE=str(directory / "lake"))
    with pytest.raises(ServerError, match="number 4242"), open_installation(settings, print):
        raise AssertionError("it has started")
    assert list((directory / which).iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    check_can_be_made(tmp_path / "new" / "home", setting="LAKEPROOF_HOME")
    (tmp_path / "file").touch()
    with pytest.raises(ServerError, match="is no folder: choose another LAKEPROOF_HOME"):
        check_can_be_made(tmp_path / "file" / "home", setting="LAKEPROOF_HOME")
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)  # to root everything is writable
        with pytest.raises(ServerError, match=r"home cannot be (made|used).*choose another LAKEPROOF_HOME"):
            check_can_be_made(closed / "new" / "home", setting="LAKEPROOF_HOME")
    finally:
        os.seteuid(user)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed", "file"]
