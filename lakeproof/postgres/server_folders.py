"""
The folders of root's embedded servers: whose each is, and the removal of one whose installation has ended.

An installation has ended if its home is gone, or names another folder. A folder that does not say whose it is, whose
home cannot be read, or in which a server runs, has not: what is not known to have ended is never removed. A home that
was moved away looks gone until Lakeproof is started in it, which is why nothing is removed but by name.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from lakeproof.errors import ServerError
from lakeproof.postgres.file_lock import exclusive, is_alone
from lakeproof.postgres.folders import home_of, recorded_room
from lakeproof.postgres.process import postmaster_pid

LOCK_TIMEOUT_S: Final = 10
_NAME: Final = re.compile(r"[0-9a-f]{16}")


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
        paths = sorted(path for path in folder.iterdir() if _is_room(path))
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
    if not _NAME.fullmatch(name) or not _is_room(path):
        raise ServerError(
            f"there is no server's folder {name!r:.80} in {folder}: `lakeproof server folders` names them"
        )
    try:
        with exclusive(path / "lock", timeout_s=LOCK_TIMEOUT_S):  # nobody starts a server in it meanwhile
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


def _is_room(path: Path) -> bool:
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
        return FolderState.USED if recorded_room(home) == path else FolderState.ENDED
    except (ServerError, OSError):
        return FolderState.UNKNOWN


def _size_bytes(path: Path) -> int:
    return sum(found.lstat().st_size for found in path.rglob("*") if found.is_file() and not found.is_symlink())
