# SPDX-License-Identifier: Apache-2.0
"""The folders of root's servers: each says whose it is, and only one whose installation has ended is removed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakeproof.commands.server import server_app
from lakeproof.errors import ServerError
from lakeproof.postgres.directories import FolderState, list_folders, remove_folder
from lakeproof.postgres.server import EmbeddedServer

ShortDirectory = Callable[[], AbstractContextManager[Path]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of servers that holds none."""
    folder = tmp_path / "servers"
    folder.mkdir()
    return folder


def add(folder: Path, number: int, home: Path | str | None) -> Path:
    """Make what a start leaves there: a database of some bytes, and whose it is."""
    room = folder / f"{number:016x}"
    (room / "data").mkdir(parents=True)
    (room / "data" / "PG_VERSION").write_text("18\n")
    if home is not None:
        (room / "home.json").write_text(json.dumps({"home": str(home)}))
    return room


def names(home: Path, room: Path) -> Path:
    """Let `home` be a home whose database is in `room`."""
    home.mkdir()
    (home / "server.json").write_text(json.dumps({"room": str(room)}))
    return home


def states(folder: Path) -> dict[str, FolderState]:
    return {found.path.name.lstrip("0"): found.state for found in list_folders(folder)}


def test_a_folder_has_ended_when_its_home_is_gone_or_names_another(folder: Path, tmp_path: Path) -> None:
    add(folder, 1, tmp_path / "gone")
    add(folder, 2, names(tmp_path / "two", folder / f"{2:016x}"))
    add(folder, 3, names(tmp_path / "three", folder / f"{4:016x}"))
    add(folder, 4, None)
    (add(folder, 5, None) / "home.json").write_text("{")
    add(folder, 6, names(tmp_path / "six", folder / f"{6:016x}"))
    (tmp_path / "six" / "server.json").write_text("[")
    (folder / "else").mkdir()
    (folder / f"{7:016x}").symlink_to(tmp_path)
    ended, used, unknown = FolderState.ENDED, FolderState.USED, FolderState.UNKNOWN
    assert states(folder) == {"1": ended, "2": used, "3": ended, "4": unknown, "5": unknown, "6": unknown}


def test_only_a_folder_that_has_ended_is_removed(folder: Path, tmp_path: Path) -> None:
    add(folder, 1, tmp_path / "gone")
    add(folder, 2, names(tmp_path / "two", folder / f"{2:016x}"))
    add(folder, 4, None)
    (folder / f"{7:016x}").symlink_to(tmp_path)
    for name, reason in (
        (f"{2:016x}", f"it is the database of {tmp_path / 'two'}, which is there"),
        (f"{4:016x}", "it does not say whose database it is"),
        (f"{5:016x}", "there is no server's folder"),
        (f"{7:016x}", "there is no server's folder"),
        ("../two", "there is no server's folder"),
        (".", "there is no server's folder"),
        ("", "there is no server's folder"),
    ):
        with pytest.raises(ServerError, match=reason):
            remove_folder(folder, name)
    assert set(states(folder)) == {"1", "2", "4"}
    assert remove_folder(folder, f"{1:016x}").home == tmp_path / "gone"
    assert set(states(folder)) == {"2", "4"}
    assert (tmp_path / "two" / "server.json").exists()


def test_links_in_a_folder_that_is_removed_are_not_followed(folder: Path, tmp_path: Path) -> None:
    room = add(folder, 1, tmp_path / "gone")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (room / "data" / "link").symlink_to(tmp_path / "kept")
    remove_folder(folder, room.name)
    assert (tmp_path / "kept" / "file").exists()


@pytest.fixture
def ended(short_directory: ShortDirectory, age: Path) -> Iterator[EmbeddedServer]:
    """A real server that still runs, and whose home is gone."""
    with short_directory() as directory:
        server = EmbeddedServer(directory / "home", age, folder=directory / "servers")
        server.start(print)
        shutil.move(directory / "home", directory / "elsewhere")
        yield server
        if server.running:
            shutil.move(directory / "elsewhere", directory / "home")
            server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server has a folder outside its home")
def test_a_real_server_is_removed_once_it_has_stopped_and_its_home_is_gone_and_not_before(
    ended: EmbeddedServer,
) -> None:
    room = ended.files.directory
    with pytest.raises(ServerError, match="its server runs"):
        remove_folder(room.parent, room.name)
    ended.stop()
    (found,) = list_folders(room.parent)
    assert (found.state, found.home) == (FolderState.ENDED, ended.files.home)
    assert found.size_bytes > 2**20
    remove_folder(room.parent, room.name)
    assert list_folders(room.parent) == []


def test_the_command_lists_and_removes_by_name_and_asks_before(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEPROOF_SERVER_FOLDER", str(folder))
    room = add(folder, 1, tmp_path / "gone")
    run = CliRunner().invoke
    listed = json.loads(run(server_app(), ["list", "--json"]).stdout)
    assert listed == [{"name": room.name, "state": "ended", "size_mib": 0, "home": str(tmp_path / "gone")}]
    assert room.name in run(server_app(), ["list"]).stdout
    assert run(server_app(), ["delete", room.name], input="n\n").exit_code == 1
    assert run(server_app(), ["delete", room.name]).exit_code == 1
    assert room.exists()
    deleted = run(server_app(), ["delete", room.name, "--yes", "--json"])
    assert json.loads(deleted.stdout) == listed[0]
    assert not room.exists()
    assert run(server_app(), ["list"]).stdout == "none\n"
