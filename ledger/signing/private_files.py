"""
Files that only their owner may read, written so that a crash leaves the old contents or the new ones, and never half.

A write has returned once the bytes *and* the name are on the disk: the file is forced there first, then the directory,
since a rename that is not forced can be lost. What is destroyed is overwritten before its name goes.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from ledger.signing.errors import KeyDirectoryError

_OTHERS: Final = 0o077
_FRESH: Final = ".new"


def check_private(path: Path, *, mode: int) -> None:
    """
    Check that nobody but the owner may use `path`; `mode` is what it should have.

    Raises:
        KeyDirectoryError: if others may; says which command ends that.
        OSError: if there is nothing there.
    """
    found = stat.S_IMODE(path.stat().st_mode)
    if found & _OTHERS:
        raise KeyDirectoryError(
            f"{path} has mode {found:03o}, so that others may use the key: run chmod {mode:03o} {path}"
        )


def write_private(path: Path, data: bytes) -> None:
    """
    Replace `path` by a file of mode 0600: temporary file, fsync, rename, fsync of the directory.

    Raises:
        OSError: if that fails; the old contents or the new ones are there then.
    """
    fresh = path.with_name(path.name + _FRESH)
    _write_synced(fresh, data)
    fresh.replace(path)
    sync_directory(path.parent)


def create_private(path: Path, data: bytes) -> None:
    """
    Make a file of mode 0600 that was not there, whole or not at all.

    Raises:
        FileExistsError: if there is one of that name; it is not changed.
        OSError: if it cannot be written.
    """
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    _write_synced(fresh, data)
    try:
        os.link(fresh, path)  # fails where a rename would replace the file that another process has just made
    finally:
        fresh.unlink()
    sync_directory(path.parent)


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


def sync_directory(path: Path) -> None:
    """
    Wait until the names in a directory are on the disk.

    Raises:
        OSError: if that fails.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_synced(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
