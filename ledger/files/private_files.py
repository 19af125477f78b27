"""
Files that only their owner may read, written so that a crash leaves the old contents or the new ones, and never half.

The keys and secrets of all packages are written here: the signer's, a witness's, those of persons, of the installation.
A write has returned once the bytes *and* the name are on the disk: the file is forced there first, then the directory,
since a rename that is not forced can be lost. What is destroyed is overwritten before its name goes.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from ledger.errors import KeyDirectoryError

_OTHERS: Final = 0o077
_FRESH: Final = ".new"


def check_private(path: Path, *, mode: int) -> None:
    """
    Check that nobody but the owner may use `path`; `mode` is what it should have.

    Raises:
        KeyDirectoryError: if others may; says which command ends that.
        OSError: if there is nothing there.
    """
    found = mode_for_others(path)
    if found is not None:
        raise KeyDirectoryError(
            f"{path} has mode {found:03o}, so that others may use the key: run chmod {mode:03o} {path}"
        )


def mode_for_others(path: Path) -> int | None:
    """
    Return the mode of `path` if it lets anybody but the owner read, write or enter; else None.

    Raises:
        OSError: if there is nothing there.
    """
    found = stat.S_IMODE(path.stat().st_mode)
    return found if found & _OTHERS else None


def write_private(path: Path, data: bytes) -> None:
    """
    Replace `path` by a file of mode 0600: temporary file, fsync, rename, fsync of the directory.

    Raises:
        OSError: if that fails; the old contents or the new ones are there then.
    """
    fresh = path.with_name(path.name + _FRESH)
    write_synced(fresh, data)
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
    write_synced(fresh, data)
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


def write_synced(path: Path, data: bytes) -> None:
    """
    Write a file of mode 0600 and wait until its content is on the disk: only a step, a crash leaves half of it.

    Raises:
        OSError: if that fails.
    """
    with os.fdopen(_create(path), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _create(path: Path) -> int:
    """Open a file that was not there; what is there, a crash has left or another has planted: never write into that."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        path.unlink()
        return os.open(path, flags, 0o600)
