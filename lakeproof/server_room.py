"""
Chooses where an embedded server's files lie and whom it runs as, and finds them again at the next start.

PostgreSQL refuses to run as root. Started by root it runs as the user to whom the cluster belongs, at first `nobody`.
If that user cannot enter `home` (it lies below /root, or in a directory of mode 0700), the room goes to
/var/lib/lakeproof/<random id> and `server.json` names it; modes of directories that others made are never changed.

A socket's path is limited to 107 bytes (103 on BSD): for a longer one the socket goes to a private directory in /tmp,
which `server.json` names too. If that directory is gone, another one is made; if a *room* is gone, nothing is made in
its place, because an empty log must not appear where a full one was.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from lakeproof.errors import ServerError
from lakeproof.server_files import (
    SOCKET_NAME,
    Account,
    ServerFiles,
    can_enter,
    make_directory,
)
from ledger.signing.private_files import write_private

if sys.platform != "win32":  # there is no embedded server on Windows, but a server of the user's can be checked there
    import pwd

ROOMS_OF_ROOT = Path("/var/lib/lakeproof")
SOCKET_PATH_BYTES_MAX = 103


def open_server_files(home: Path) -> ServerFiles:
    """
    Return the places of the server of `home`, making the directories that are not there.

    Raises:
        ServerError: if a room that was made earlier is gone, or belongs to another user.
        OSError: if a directory cannot be made or read.
    """
    home = home.absolute()
    is_root = os.geteuid() == 0
    if not home.exists():
        make_directory(home, 0o711 if is_root else 0o700)  # root's server must pass; what lies inside is 0700 by itself
    record = _read_record(home / "server.json")
    room = _recorded_room(home, record) or home / "postgres"
    account = _account_of_root(room) if is_root else None
    if account is not None and "room" not in record and not can_enter(room if room.exists() else home, account):
        room = ROOMS_OF_ROOT / secrets.token_hex(8)
    if not room.exists():
        if not room.parent.exists():
            make_directory(room.parent, 0o711)
        make_directory(room, 0o711 if is_root else 0o700)
        if room.parent == ROOMS_OF_ROOT:
            _write_record(home / "server.json", {**record, "room": str(room)})  # durable before anything is in it
    _refuse_a_strangers_cluster(room / "data", account)
    files = ServerFiles(home=home, room=room, run=room / "run", account=account)
    if _is_socket_directory(files.run):
        files.make_private(files.run)
    else:
        files = replace(files, run=_short_run(files))
    files.make_private(files.log)
    return files


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


def _account_of_root(room: Path) -> Account:
    """Return whom root's server runs as: the user to whom its cluster belongs, if there is one."""
    data = room / "data"
    owner = data.stat().st_uid if data.exists() else 0
    return _account(owner or "nobody")


def _account(user: str | int) -> Account:
    try:
        found = pwd.getpwnam(user) if isinstance(user, str) else pwd.getpwuid(user)
    except KeyError:
        raise ServerError(f"the server cannot run as root and there is no user {user}: start as another user") from None
    return Account(name=found.pw_name, uid=found.pw_uid, gid=found.pw_gid)


def _refuse_a_strangers_cluster(data: Path, account: Account | None) -> None:
    if account is None and data.exists() and data.stat().st_uid != os.geteuid():
        raise ServerError(f"{data} belongs to another user: start as that user, or choose another LAKEPROOF_HOME")


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
    write_private(path, (json.dumps(record, indent=1) + "\n").encode())
