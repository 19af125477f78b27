# SPDX-License-Identifier: Apache-2.0
"""
Folders that nobody but this user may enter, and secrets in them: the home, and the warehouse if it is a local folder.

They hold the keys, the database and the data of every table. A folder with a mode wider than 0700 gets that mode, and
one of another user is refused: its owner could read everything in it.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from lakeproof.errors import ServerError, SettingsError
from lakeproof.messages import Say
from ledger.files.atomic import create_file, sync_directory
from ledger.files.private_files import mode_for_others

PRIVATE = 0o700


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
    Check, without writing anything, that this user can make `folder`, or write into it if it exists.

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
    Check that `folder`, if it exists, is a folder of this user.

    Raises:
        ServerError: if it is not.
        OSError: if it cannot be examined.
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


def read_or_make(path: Path, make: Callable[[], str]) -> str:
    """
    Return the secret in `path`; if there is none yet, the one that `make` returns, stored first.

    Raises:
        SettingsError: if the file can be read by others, or cannot be read or written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            create_file(path, f"{make()}\n".encode())
        mode = mode_for_others(path)
        if mode is not None:
            raise SettingsError(f"{path} has mode {mode:04o} and others can read it: run chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip()
    except FileExistsError:
        return read_or_make(path, make)
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be used ({error.strerror}): make it readable and writable for this user"
        ) from error
