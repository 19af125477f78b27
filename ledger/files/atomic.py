# SPDX-License-Identifier: Apache-2.0
"""
Writes a whole file at once: a crash at any moment leaves the old contents or the new ones, and never a part of them.

All packages replace and create their files here. The steps are always the same: a temporary file next to the target,
its contents forced to the disk, a rename, the directory forced to the disk. `Forced` says how many of them a file
needs: a rename that is not forced can be lost in a power cut, and a rename of contents that were not forced can leave
an empty file (fsync(2), rename(2)).

The temporary file is always a new one: what is there under its name, left by a crash or planted by another user, is
removed and not written into. A killed process leaves it behind; the next write under that name takes its place.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

PRIVATE: Final = 0o600
SHARED: Final = 0o666
"""Readable and writable for other users as far as the umask of the process allows."""
SUFFIX: Final = ".new"


class Forced(Enum):
    """What is on the disk once `replace_file` has returned; readers see the old file or the new one in any case."""

    NOTHING = "nothing"
    """After a power cut the file may be empty: for what can be made again."""
    CONTENTS = "contents"
    """After a power cut the file is the old one or the new one."""
    NAME = "name"
    """The new file survives a power cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The user and the group to whom a file is given."""

    uid: int
    gid: int


class Disk(Protocol):
    """The steps of a write, in the order of the calls; tests let each of them fail."""

    def write(self, path: Path, data: bytes, *, mode: int, owner: Owner | None, forced: Forced) -> None:
        """Write a new file, give it to `owner`, and wait until its contents are on the disk if they are forced."""

    def replace(self, path: Path, target: Path) -> None:
        """Give the file at `path` the name `target`, in one step, in place of whatever had it."""

    def sync_directory(self, path: Path) -> None:
        """Wait until the names in a directory are on the disk."""


class RealDisk:
    """The disk of this machine."""

    def write(self, path: Path, data: bytes, *, mode: int, owner: Owner | None, forced: Forced) -> None:
        """As `Disk.write`."""
        with os.fdopen(_create(path, mode), "wb") as file:
            file.write(data)
            file.flush()
            if owner is not None:
                os.fchown(file.fileno(), owner.uid, owner.gid)
            if forced is not Forced.NOTHING:
                os.fsync(file.fileno())

    def replace(self, path: Path, target: Path) -> None:
        """As `Disk.replace`."""
        path.replace(target)

    def sync_directory(self, path: Path) -> None:
        """As `Disk.sync_directory`."""
        sync_directory(path)


_REAL: Final = RealDisk()


def replace_file(
    path: Path,
    data: bytes,
    *,
    mode: int = PRIVATE,
    owner: Owner | None = None,
    forced: Forced = Forced.NAME,
    temporary: Path | None = None,
    disk: Disk = _REAL,
) -> None:
    """
    Replace the file at `path`, or make it.

    `temporary` is `path` with the suffix `.new` unless it is named. Writers that do not keep each other out need one
    each (`own_temporary`), or one of them could rename what another is still writing.

    Raises:
        OSError: if a step fails; the old contents or the new ones are there then.
    """
    temporary = temporary or path.with_name(path.name + SUFFIX)
    try:
        disk.write(temporary, data, mode=mode, owner=owner, forced=forced)
        disk.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    if forced is Forced.NAME:
        disk.sync_directory(path.parent)


def create_file(path: Path, data: bytes) -> None:
    """
    Make a file of mode 0600 that was not there, whole or not at all; it survives a power cut.

    Raises:
        FileExistsError: if there is one of that name; it is not changed.
        OSError: if it cannot be written.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    _REAL.write(temporary, data, mode=PRIVATE, owner=None, forced=Forced.NAME)
    try:
        os.link(temporary, path)  # fails where a rename would replace the file that another process has just made
    finally:
        temporary.unlink()
    sync_directory(path.parent)


def own_temporary(path: Path) -> Path:
    """
    Return the name of a temporary file for `path` that no other process uses.
    """
    return path.with_name(f"{path.name}.{os.getpid()}{SUFFIX}")


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


def _create(path: Path, mode: int) -> int:
    """Open a file that was not there; what is there, a crash has left or another has planted: never write into that."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        path.unlink()
        return os.open(path, flags, mode)
