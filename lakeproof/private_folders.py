"""
Folders that nobody but this user may enter: the home, and the warehouse where it is a folder of this machine.

What is in them is the keys, the database and every table's data. So a folder that is wider than 0700 is tightened, and
one that is somebody else's is refused: its owner could read all that is written there.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from lakeproof.errors import ServerError
from ledger.files.atomic import sync_directory

PRIVATE = 0o700

Say = Callable[[str], None]


def keep_private(folder: Path, say: Say, *, setting: str) -> None:
    """
    Make `folder` with mode 0700, or give it that mode; `setting` is the variable that names it.

    Raises:
        ServerError: if it belongs to another user, is no folder, or cannot be made or changed.
    """
    try:
        check_own(folder, setting=setting)
        if sys.platform == "win32":
            folder.mkdir(parents=True, exist_ok=True)
            return
        if not folder.exists():
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            sync_directory(folder.parent)
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode != PRIVATE:
            folder.chmod(PRIVATE)
            if mode & ~PRIVATE:
                say(f"{folder} had mode {mode:04o}: other users of this machine could enter it; it is 0700 now")
    except OSError as error:
        raise ServerError(f"{folder} cannot be used ({error}): repair that, or choose another {setting}") from error


def check_can_be_made(folder: Path, *, setting: str) -> None:
    """
    Check, without writing anything, that this user can make `folder`, or write into it if it is there.

    Raises:
        ServerError: if not; names the folder above that refuses it.
    """
    folder = folder.absolute()
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if there == folder:
            check_own(folder, setting=setting)
    except OSError as error:
        raise ServerError(f"{folder} cannot be used ({error}): choose another {setting}") from error
    if not there.is_dir():
        raise ServerError(f"{folder} cannot be made, since {there} is no folder: choose another {setting}")
    as_effective_user = os.access in os.supports_effective_ids
    if there != folder and not os.access(there, os.W_OK | os.X_OK, effective_ids=as_effective_user):
        raise ServerError(
            f"{folder} cannot be made, since this user may not write in {there}: choose another {setting}"
        )


def check_own(folder: Path, *, setting: str) -> None:
    """
    Check that `folder`, if it is there, is a folder of this user.

    Raises:
        ServerError: if it is not.
        OSError: if it cannot be looked at.
    """
    try:
        found = folder.stat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        raise ServerError(f"{folder} is no folder: choose another {setting}")
    if sys.platform != "win32" and found.st_uid != os.geteuid():
        raise ServerError(
            f"{folder} belongs to the user with number {found.st_uid}, who could read all that is kept there, and this "
            f"is number {os.geteuid()}: start as its owner, give it to this user, or choose another {setting}"
        )
