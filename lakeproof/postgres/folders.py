"""
Chooses where an embedded server's files lie and whom it runs as, and finds them again at the next start.

An ordinary user's server runs as that user, in the home. PostgreSQL refuses to run as root, so root's runs as an
account of its own (`server_account`), and since nobody but root may enter root's home, its room lies in a folder of
root's that others can pass through: /var/lib/lakeproof/<random id>, named by `server.json` in the home. `home.json` in
the room names the home, so that rooms whose home is gone can be found (`server_folders`).

A socket's path is limited to 107 bytes (103 on BSD): for a longer one the socket goes to a private directory in /tmp,
which `server.json` names too. If that directory is gone, another one is made; if a *room* is gone, nothing is made in
its place, because an empty log must not appear where a full one was.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from lakeproof.errors import ServerError
from lakeproof.postgres.account import DEFAULT_ACCOUNT, server_account
from lakeproof.postgres.file_lock import exclusive
from lakeproof.postgres.files import (
    SOCKET_NAME,
    Account,
    ServerFiles,
    can_enter,
    make_directory,
)
from lakeproof.postgres.handover import hand_over, is_handed_over, move_out
from lakeproof.private_folders import check_own, keep_private
from ledger.files.atomic import replace_file

ROOMS_OF_ROOT: Final = Path("/var/lib/lakeproof")
ROOM_MODE: Final = 0o711
"""Of root's rooms: the server passes through; what lies inside is 0700 by itself."""

SOCKET_PATH_BYTES_MAX: Final = 103
LOCK_TIMEOUT_S: Final = 600
HOME: Final = "LAKEPROOF_HOME"

Say = Callable[[str], None]


def open_server_files(
    home: Path, say: Say, *, account: str = DEFAULT_ACCOUNT, folder: Path = ROOMS_OF_ROOT
) -> ServerFiles:
    """
    Return the places of the server of `home`, making the directories that are not there.

    If we are root, the server runs as `account`, and its room is in `folder`.

    Raises:
        ServerError: if a room that was made earlier is gone, or something belongs to another user.
        OSError: if a directory cannot be made or read.
    """
    home = home.absolute()
    check_own(home, setting=HOME)
    if os.geteuid() == 0:
        server = server_account(account, say)
        if not home.exists():
            make_directory(home, 0o700)
        with exclusive(home / "server.lock", timeout_s=LOCK_TIMEOUT_S):  # or two first starts would make two rooms
            room = _room_of_root(home, server, folder, say)
        keep_private(home, say, setting=HOME)
        files = ServerFiles(home=home, room=room, run=room / "run", account=server)
    else:
        keep_private(home, say, setting=HOME)
        room = _recorded_room(home, _read_record(home / "server.json")) or home / "postgres"
        if not room.exists():
            make_directory(room, 0o700)
        _refuse_a_strangers_cluster(room / "data")
        files = ServerFiles(home=home, room=room, run=room / "run", account=None)
    if _is_socket_directory(files.run):
        files.make_private(files.run)
    else:
        files = replace(files, run=_short_run(files))
    files.make_private(files.log)
    return files


def recorded_room(home: Path) -> Path | None:
    """
    Return the room that a home names, or None if it names none.

    Raises:
        ServerError: if what the home says cannot be understood.
        OSError: if it cannot be read.
    """
    room = _read_record(home / "server.json").get("room")
    return None if room is None else Path(room)


def home_of(room: Path) -> Path | None:
    """
    Return the home that a room was made for or last used by, or None if it does not say.

    Raises:
        OSError: if it cannot be read.
    """
    try:
        home = json.loads((room / "home.json").read_bytes())["home"]
        return Path(home)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _room_of_root(home: Path, account: Account, folder: Path, say: Say) -> Path:
    """Return root's room: the recorded one, one that is brought out of the home, or a new one."""
    record, inside = _read_record(home / "server.json"), home / "postgres"
    has_inside = (inside / "data").exists()
    if "room" in record and has_inside and not Path(record["room"]).exists():
        inside.rename(record["room"])  # where a move that was interrupted has been going to
        has_inside = False
    room = _recorded_room(home, record)
    if room is None:
        _make_folder(folder, account)
        room = folder / secrets.token_hex(8)
        new = {**record, "room": str(room)}
        if has_inside:
            is_handed_over(inside, account)  # or it is refused where it is
            move_out(
                inside,
                room,
                note=lambda: _write_record(home / "server.json", new),
                forget=lambda: _write_record(home / "server.json", record),
                say=say,
            )
        else:
            make_directory(room, ROOM_MODE)
            _write_record(home / "server.json", new)  # durable before anything is in it
    if not is_handed_over(room, account):
        hand_over(room, account, say)
    if stat.S_IMODE(room.stat().st_mode) != ROOM_MODE:
        room.chmod(ROOM_MODE)
    if not can_enter(room, account):
        raise ServerError(
            f"the account {account.name} cannot enter {room.parent}: let it enter the directories above, or let "
            "LAKEPROOF_SERVER_FOLDER name a folder that every user can enter"
        )
    if home_of(room) != home:
        replace_file(room / "home.json", (json.dumps({"home": str(home)}) + "\n").encode())
    return room


def _make_folder(folder: Path, account: Account) -> None:
    """Make the folder of root's rooms, and refuse one in which others could exchange them."""
    if not folder.exists():
        make_directory(folder, ROOM_MODE)
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


def _recorded_room(home: Path, record: dict[str, str]) -> Path | None:
    if "room" not in record:
        return None
    room = Path(record["room"])
    if not room.is_dir():
        raise ServerError(
            f"the server's directory {room}, named in {home / 'server.json'}, is gone: restore it, or delete "
            "server.json to begin with an empty database"
        )
    return room


def _refuse_a_strangers_cluster(data: Path) -> None:
    if data.exists() and data.stat().st_uid != os.geteuid():
        raise ServerError(f"{data} belongs to another user: start as that user, or choose another {HOME}")


def _is_socket_directory(run: Path) -> bool:
    """Tell whether libpq and PostgreSQL take this path: short enough, and no comma or quote (both read lists)."""
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
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        record = None
    if not isinstance(record, dict) or not all(isinstance(value, str) for value in record.values()):
        raise ServerError(f"{path} is damaged: restore it from a backup, it names where the database lies")
    return record


def _write_record(path: Path, record: dict[str, str]) -> None:
    replace_file(path, (json.dumps(record, indent=1) + "\n").encode())
