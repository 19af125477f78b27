# SPDX-License-Identifier: Apache-2.0
"""
Files that only their owner may read: the keys and secrets of all packages. `atomic.py` writes them.

A destroyed file is overwritten before it is removed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from ledger.errors import KeyDirectoryError
from ledger.files.atomic import sync_directory

_OTHERS: Final = 0o077


def check_private(path: Path, *, mode: int) -> None:
    """
    Check that only the owner may use `path`; `mode` is what it should have.

    Raises:
        KeyDirectoryError: if others may; says which command corrects that.
        OSError: if it does not exist.
    """
    found = mode_for_others(path)
    if found is not None:
        raise KeyDirectoryError(
            f"{path} has mode {found:03o}, so that others may use the key: run chmod {mode:03o} {path}"
        )


def mode_for_others(path: Path) -> int | None:
    """
    Return the mode of `path` if it lets other users read, write or enter; otherwise None.

    Raises:
        OSError: if it does not exist.
    """
    found = stat.S_IMODE(path.stat().st_mode)
    return found if found & _OTHERS else None


def destroy(path: Path) -> None:
    """
    Overwrite a file with zeros, on the disk, and remove it; nothing if it is not there.

    On a file system that copies on write, or on flash, old blocks may outlive this: encrypt such a disk, or keep the
    key in an agent.

    Raises:
        OSError: if that fails; the file may still be there, and may be destroyed again.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "wb") as file:
        file.write(bytes(os.fstat(file.fileno()).st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
    sync_directory(path.parent)
