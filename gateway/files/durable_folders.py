# SPDX-License-Identifier: Apache-2.0
"""
The folders that files are written into: reached through no link that leads out, and with names that are on the disk.

A folder that was found good is kept open. While it is open, no other folder has its inode, and the system can tell its
real path. So two looks tell whether its path leads to it still, and whether it is still where it was. One that was
replaced, by a link or by another folder, or has moved, is looked at anew.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias

FOLDERS_MAX: Final = 20_000
"""Folders that are known to be durable; about 5 MB."""
OPEN_MAX: Final = 128
"""Folders that are kept open; few, because a process may have 1,024 files open unless its limit is raised."""

_OF_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Inode: TypeAlias = tuple[int, int]
"""Device and number: the identity of a folder, whatever its name."""


class LinkLeadsOutError(OSError):
    """A folder is reached through a link that leads out of the folder that the file has to be in."""


@dataclass(slots=True, eq=False, kw_only=True)
class Folder:
    """
    A folder, open under `descriptor` until nobody refers to this any more. `path` is its real path.

    `unsure` are the folders whose names have to be synced, itself among them, before a file in it is durable; none if
    it `is_kept`.
    """

    path: Path
    descriptor: int
    inode: Inode
    unsure: Sequence[Path] = ()
    is_kept: bool = False

    def __del__(self) -> None:
        os.close(self.descriptor)


class DurableFolders:
    """
    What one process knows of folders: whose names are on the disk, and which it has made and not synced yet.

    A folder that is not known may be one that another process has made, and not synced before it died. Threads share
    this. Beyond `folders_max`, the folder that was added first is forgotten; beyond `open_max`, the one that was used
    last the longest ago is closed.
    """

    def __init__(self, *, folders_max: int = FOLDERS_MAX, open_max: int = OPEN_MAX) -> None:
        self._lock = Lock()
        self._folders_max = folders_max
        self._open_max = open_max
        self._inodes: OrderedDict[Path, Inode] = OrderedDict()
        self._unsynced: set[Path] = set()
        self._open: OrderedDict[tuple[str, Path], Folder] = OrderedDict()
        """By the path as it was given, and the folder that it has to be in; the names of all of these are durable."""

    def open(self, given: str, *, within: Path) -> Folder:
        """
        Open the folder `given`, and make it if it is not there. It has to be in or below `within`, or be that.

        A client that can write into a table's folder could put a link there that leads to another tenant's.

        Raises:
            LinkLeadsOutError: if it is elsewhere.
            OSError: if it cannot be made or opened.
        """
        found = self._still_open(given, within)
        if found is not None:
            return found
        root, path = Path(os.path.realpath(within)), Path(os.path.realpath(given))
        if not path.is_relative_to(root):
            raise LinkLeadsOutError(f"expected a folder of {within}, found a link that leads out of it")
        self.make(path)
        descriptor = os.open(path, _OF_FOLDER)
        folder = Folder(path=path, descriptor=descriptor, inode=(0, 0))  # from here on, closed whatever happens
        folder.inode = _inode(os.fstat(descriptor))
        folder.unsure = self.unsure(path, folder.inode, root=root)
        return folder

    def _still_open(self, given: str, within: Path) -> Folder | None:
        """A folder that is open and durable, if the path still leads there."""
        key = given, within
        with self._lock:
            found = self._open.get(key)
            if found is None:
                return None
            self._open.move_to_end(key)
            is_durable = not self._unsynced or self._unsynced.isdisjoint((found.path, *found.path.parents))
        if is_durable:
            # For every file; half as long as methods of Path. Systems other than Linux have no such link.
            with suppress(OSError):
                is_there = os.readlink(f"/proc/self/fd/{found.descriptor}") == str(found.path)  # noqa: PTH115
                if is_there and _inode(os.stat(given)) == found.inode:  # noqa: PTH116
                    return found
        self.forget(given, within=within)
        return None

    def make(self, path: Path) -> None:
        """
        Make a folder, and those above it that are missing.

        Raises:
            OSError: if one cannot be made.
        """
        line = (path, *path.parents)
        missing = list(takewhile(lambda folder: not folder.exists(), line))
        with self._lock:
            self._unsynced.update(missing)  # before they are there: nobody may take one for durable
        try:
            for folder in reversed(missing):
                with suppress(FileExistsError):  # another process was first
                    folder.mkdir()
        except OSError:
            with self._lock:
                self._unsynced.difference_update(folder for folder in missing if not folder.exists())
            raise

    def unsure(self, path: Path, inode: Inode, *, root: Path) -> list[Path]:
        """Return the folders, `path` and above, whose names are perhaps not on the disk; at most `root` if it stood."""
        line = (path, *path.parents)
        with self._lock:
            known = self._inodes.get(path) == inode
            tops = [one for one in line if one in self._unsynced or (one == root and not known)]
        return [one for one in line if one.is_relative_to(tops[-1])] if tops else []

    def add(self, path: Path, inode: Inode, *, unsure: Iterable[Path]) -> None:
        """Note that the folders that hold `unsure`, as it was returned for `path`, have been synced since."""
        with self._lock:
            self._unsynced.difference_update(unsure)
            self._inodes[path] = inode
            if len(self._inodes) > self._folders_max:
                self._inodes.popitem(last=False)

    def keep(self, folder: Folder, given: str, *, within: Path) -> None:
        """Note that what is `unsure` of a folder has been synced since, and keep it open."""
        if folder.is_kept:
            return
        self.add(folder.path, folder.inode, unsure=folder.unsure)
        folder.unsure, folder.is_kept = (), True
        with self._lock:
            self._open[given, within] = folder
            unused = self._open.popitem(last=False) if len(self._open) > self._open_max else None
        del unused  # closed here, if nobody uses it, and not while others wait for the lock

    def forget(self, given: str, *, within: Path) -> None:
        """Look at a folder anew when it is opened next."""
        with self._lock:
            unused = self._open.pop((given, within), None)
        del unused


def _inode(status: os.stat_result) -> Inode:
    return status.st_dev, status.st_ino
