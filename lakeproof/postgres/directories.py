# SPDX-License-Identifier: Apache-2.0
"""
The directory of an embedded server: where it lies, whose it is, and the removal of one that nobody needs any more.

An ordinary user's server runs as that user, in the home. PostgreSQL refuses to run as root, so root's server runs as an
account of its own (`account`). Nobody but root may enter root's home, so that server's directory lies in a folder of
root's that other users can pass through: /var/lib/lakeproof/<random id>, named by `server.json` in the home. The file
`home.json` in the directory names the home, so that directories whose home is gone can be found.

The path of a socket is limited to 107 bytes (103 on BSD). For a longer one the socket goes to a private directory in
/tmp, which `server.json` names, too. If that directory is gone, another one is made. If the server's directory is
gone, nothing is made in its place: an empty log must not appear where a full one was.

An installation has ended if its home is gone, or names another directory. A directory that does not say whose it is,
whose home cannot be read, or in which a server runs, has not: what is not known to have ended is never removed. A home
that was moved away looks gone until Lakeproof is started in it, so nothing is removed but by name.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from lakeproof.errors import ServerError
from lakeproof.messages import Say
from lakeproof.postgres.account import DEFAULT_ACCOUNT, server_account
from lakeproof.postgres.file_lock import exclusive, is_alone
from lakeproof.postgres.files import SOCKET_NAME, Account, ServerFiles, can_enter, make_directory
from lakeproof.postgres.handover import hand_over, is_handed_over, move_out
from lakeproof.postgres.process import postmaster_pid
from lakeproof.private_folders import check_own, keep_private
from ledger.errors import FormatError
from ledger.files.atomic import replace_file
from ledger.format.json_object import parse_object

ROOT_FOLDER: Final = Path("/var/lib/lakeproof")
DIRECTORY_MODE: Final = 0o711
"""Of the directories of root's servers: the server passes through; what lies inside is 0700 by itself."""

SOCKET_PATH_BYTES_MAX: Final = 103
RECORD_BYTES_MAX: Final = 64 * 1024
"""Of server.json and home.json: each holds two paths at most."""
LOCK_TIMEOUT_S: Final = 600
REMOVAL_TIMEOUT_S: Final = 10
HOME: Final = "LAKEPROOF_HOME"
_NAME: Final = re.compile(r"[0-9a-f]{16}")


def open_server_files(
    home: Path, say: Say, *, account: str = DEFAULT_ACCOUNT, folder: Path = ROOT_FOLDER
) -> ServerFiles:
    """
    Return the places of the server of `home`, making the directories that are not there.

    If we are root, the server runs as `account`, and its directory is in `folder`.

    Raises:
        ServerError: if a directory that was made earlier is gone, or something belongs to another user.
        OSError: if a directory cannot be made or read.
    """
    home = home.absolute()
    check_own(home, setting=HOME)
    if os.geteuid() == 0:
        server = server_account(account, say)
        if not home.exists():
            make_directory(home, 0o700)
        with exclusive(
            home / "server.lock", timeout_s=LOCK_TIMEOUT_S
        ):  # or two first starts would make two directories
            directory = _directory_of_root(home, server, folder, say)
        keep_private(home, say, setting=HOME)
        files = ServerFiles(home=home, directory=directory, run=directory / "run", account=server)
    else:
        keep_private(home, say, setting=HOME)
        directory = _directory_in(home, _read_record(home / "server.json")) or home / "postgres"
        if not directory.exists():
            make_directory(directory, 0o700)
        _refuse_a_strangers_cluster(directory / "data")
        files = ServerFiles(home=home, directory=directory, run=directory / "run", account=None)
    if _is_socket_directory(files.run):
        files.make_private(files.run)
    else:
        files = replace(files, run=_short_run(files))
    files.make_private(files.log)
    return files


def find_server_files(home: Path) -> ServerFiles | None:
    """
    Return the places of the server of `home` as they are recorded, or None if it has no database. Writes nothing.

    Whose account the server runs as is not looked up: `account` is None also for root's.

    Raises:
        ServerError: if what the home says cannot be understood, or the directory that it names is gone.
        OSError: if it cannot be read.
    """
    home = home.absolute()
    record = _read_record(home / "server.json")
    directory = _directory_in(home, record) or home / "postgres"
    if not (directory / "data").exists():
        return None
    run = directory / "run"
    if not _is_socket_directory(run) and "run" in record:
        run = Path(record["run"])
    return ServerFiles(home=home, directory=directory, run=run, account=None)


def recorded_directory(home: Path) -> Path | None:
    """
    Return the directory that a home names, or None if it names none.

    Raises:
        ServerError: if what the home says cannot be understood.
        OSError: if it cannot be read.
    """
    directory = _read_record(home / "server.json").get("room")
    return None if directory is None else Path(directory)


def home_of(directory: Path) -> Path | None:
    """
    Return the home that a directory was made for or last used by, or None if it does not say.

    Raises:
        OSError: if it cannot be read.
    """
    try:
        return Path(_read_object(directory / "home.json")["home"])
    except (FileNotFoundError, FormatError, KeyError, TypeError):
        return None


def _directory_of_root(home: Path, account: Account, folder: Path, say: Say) -> Path:
    """Return the directory of root's server: the recorded one, one that is moved out of the home, or a new one."""
    record, inside = _read_record(home / "server.json"), home / "postgres"
    has_inside = (inside / "data").exists()
    if "room" in record and has_inside and not Path(record["room"]).exists():
        inside.rename(record["room"])  # the target of a move that was interrupted
        has_inside = False
    directory = _directory_in(home, record)
    if directory is None:
        _make_folder(folder, account)
        directory = folder / secrets.token_hex(8)
        new = {**record, "room": str(directory)}
        if has_inside:
            is_handed_over(inside, account)  # or it is refused where it is
            move_out(
                inside,
                directory,
                note=lambda: _write_record(home / "server.json", new),
                forget=lambda: _write_record(home / "server.json", record),
                say=say,
            )
        else:
            make_directory(directory, DIRECTORY_MODE)
            _write_record(home / "server.json", new)  # durable before anything is in it
    if not is_handed_over(directory, account):
        hand_over(directory, account, say)
    if stat.S_IMODE(directory.stat().st_mode) != DIRECTORY_MODE:
        directory.chmod(DIRECTORY_MODE)
    if not can_enter(directory, account):
        raise ServerError(
            f"the account {account.name} cannot enter {directory.parent}: let it enter the directories above, or let "
            "LAKEPROOF_SERVER_FOLDER name a folder that every user can enter"
        )
    if home_of(directory) != home:
        replace_file(directory / "home.json", (json.dumps({"home": str(home)}) + "\n").encode())
    return directory


def _make_folder(folder: Path, account: Account) -> None:
    """Make the folder of root's servers, and refuse one in which other users could exchange their directories."""
    if not folder.exists():
        make_directory(folder, DIRECTORY_MODE)
    found = folder.stat()
    if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ServerError(
            f"others than root can change what {folder} holds: let LAKEPROOF_SERVER_FOLDER name a folder of root's, of "
            "mode 0711 or 0755"
        )
    if not can_enter(folder, account):
        raise ServerError(
            f"the account {account.name} cannot enter {folder}: let LAKEPROOF_SERVER_FOLDER name one that it can"
        )


def _directory_in(home: Path, record: dict[str, str]) -> Path | None:
    if "room" not in record:
        return None
    directory = Path(record["room"])
    if not directory.is_dir():
        raise ServerError(
            f"the server's directory {directory}, named in {home / 'server.json'}, is gone: restore it, or delete "
            "server.json to begin with an empty database"
        )
    return directory


def _refuse_a_strangers_cluster(data: Path) -> None:
    if data.exists() and data.stat().st_uid != os.geteuid():
        raise ServerError(f"{data} belongs to another user: start as that user, or choose another {HOME}")


def _is_socket_directory(run: Path) -> bool:
    """Return whether libpq and PostgreSQL take this path: short enough, and no comma or quote (both read lists)."""
    text = str(run / SOCKET_NAME)
    return len(os.fsencode(text)) <= SOCKET_PATH_BYTES_MAX and not set(text) & set(",\"'\\\n")


def _short_run(files: ServerFiles) -> Path:
    record = _read_record(files.home / "server.json")
    if (recorded := record.get("run")) is not None:
        run = Path(recorded)
        owner = os.geteuid() if files.account is None else files.account.uid
        if run.is_dir() and not run.is_symlink() and run.stat().st_uid == owner and run.stat().st_mode & 0o077 == 0:
            return run
    run = Path(tempfile.mkdtemp(prefix="lakeproof-", dir="/tmp"))
    files.give(run)
    _write_record(files.home / "server.json", {**record, "run": str(run)})
    return run


def _read_record(path: Path) -> dict[str, str]:
    damaged = ServerError(f"{path} is damaged: restore it from a backup, it names where the database lies")
    try:
        record = _read_object(path)
    except FileNotFoundError:
        return {}
    except FormatError as error:
        raise damaged from error
    if not all(isinstance(value, str) for value in record.values()):
        raise damaged
    return record


def _read_object(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        data = file.read(RECORD_BYTES_MAX + 1)
    return parse_object(data, what=path.name, size_bytes_max=RECORD_BYTES_MAX)


def _write_record(path: Path, record: dict[str, str]) -> None:
    replace_file(path, (json.dumps(record, indent=1) + "\n").encode())


class FolderState(StrEnum):
    """What is known of a folder."""

    RUNS = "runs"
    USED = "used"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFolder:
    """One folder of root's embedded servers; `home` is None if it does not say."""

    path: Path
    home: Path | None
    state: FolderState
    size_bytes: int


def list_folders(folder: Path) -> list[ServerFolder]:
    """
    Return the servers' folders in `folder`, by name.

    Raises:
        ServerError: if it cannot be read.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if _is_server_directory(path))
        return [
            ServerFolder(path=path, home=home_of(path), state=_state(path), size_bytes=_size_bytes(path))
            for path in paths
        ]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ServerError(f"the servers' folders in {folder} cannot be read ({error}): do this as root") from error


def remove_folder(folder: Path, name: str) -> ServerFolder:
    """
    Remove the database of an installation that has ended; return what it was.

    Raises:
        ServerError: if there is no such folder, it has not ended, or it cannot be removed.
    """
    path = folder / name
    if not _NAME.fullmatch(name) or not _is_server_directory(path):
        raise ServerError(f"there is no server's folder {name!r:.80} in {folder}: `lakeproof server list` names them")
    try:
        with exclusive(path / "lock", timeout_s=REMOVAL_TIMEOUT_S):  # nobody starts a server in it meanwhile
            found = ServerFolder(path=path, home=home_of(path), state=_state(path), size_bytes=_size_bytes(path))
            if found.state is not FolderState.ENDED:
                raise ServerError(f"{path} is not removed: {_REASONS[found.state].format(home=found.home)}")
            shutil.rmtree(path)
    except TimeoutError as error:
        raise ServerError(f"{path} is not removed: another process is starting a server in it") from error
    except OSError as error:
        raise ServerError(f"{path} cannot be removed ({error}): do this as root") from error
    return found


_REASONS: Final = {
    FolderState.RUNS: "its server runs, or is used by a process; stop that first",
    FolderState.USED: "it is the database of {home}, which is there; remove that first if it is not needed any more",
    FolderState.UNKNOWN: "it does not say whose database it is, or that cannot be read; start Lakeproof once in its "
    "home, or remove the folder yourself if you are sure",
}


def _is_server_directory(path: Path) -> bool:
    return bool(_NAME.fullmatch(path.name)) and path.is_dir() and not path.is_symlink()


def _state(path: Path) -> FolderState:
    users = path / "users"
    if postmaster_pid(path / "data") is not None or (users.exists() and not is_alone(users)):
        return FolderState.RUNS
    try:
        home = home_of(path)
        if home is None:
            return FolderState.UNKNOWN
        if not home.exists():
            return FolderState.ENDED
        return FolderState.USED if recorded_directory(home) == path else FolderState.ENDED
    except (ServerError, OSError):
        return FolderState.UNKNOWN


def _size_bytes(path: Path) -> int:
    return sum(found.lstat().st_size for found in path.rglob("*") if found.is_file() and not found.is_symlink())
