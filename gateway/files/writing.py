# SPDX-License-Identifier: Apache-2.0
"""
The steps that write new files durably: those of one folder at a time, in the thread that calls.

Guarantee: a file without an error is on the disk, with its contents, its name, and the names of its folders: up to the
one that it has to be in, and of all that were made for it. An existing file is never written into. A file that could
not be written whole is removed. No link leads out of the folder that the file has to be in.

Event loops do not call this: `local_files.py` does so in threads, `writing_process.py` in a process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

from gateway.files.durable_folders import DurableFolders, Folder
from ledger.files.atomic import sync_directory
from ledger.values import value_class

T = TypeVar("T")

LARGE_BYTES: Final = 1024 * 1024
"""From this size on, a file is written apart from the others."""

_OF_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o666
"""Readable for engines as far as the umask of the process allows."""

Place: TypeAlias = tuple[str, Path]
"""A folder as its path is given, and the folder that it has to be in."""


@value_class
class NewFile:
    """A file to be written, named `name`, into `folder`, which has to be the folder `within` or below it."""

    folder: Path
    name: str
    data: bytes
    within: Path

    @property
    def place(self) -> Place:
        """Where it is to be written: files of one place are written together."""
        return str(self.folder), self.within


class FileWriter(Protocol):
    """Whatever writes new files of this machine durably, without holding up the event loop."""

    async def prepare(self) -> None:
        """Start what the first write would wait for."""

    async def write(self, file: NewFile) -> None:
        """
        Write a new file durably. If the call is cancelled, there is no such file, or it is removed again.

        Raises:
            LinkLeadsOutError: if its folder is not in or below `file.within`.
            OSError: if there is a file of that name, or it cannot be written; then nothing was written.
        """


@dataclass(slots=True, eq=False)
class Writing:
    """
    A file that is being written. Once `descriptor` is set, there is a file of ours under its name. At the end, `error`
    says why the file was not written; None if it is durable.
    """

    file: NewFile
    descriptor: int | None = None
    error: Exception | None = None


def write_files(jobs: Sequence[Writing], folders: DurableFolders) -> None:
    """
    Write the new files of one place, sync them, then the folder. Notes for each why it was not written. Blocking.
    """
    given, within = jobs[0].file.place
    try:
        folder = folders.open(given, within=within)
    except OSError as error:
        fail(jobs, error)
        return
    try:
        for job in jobs:
            _write(job, folder)
        # Contents and size; the name is the folder's. Not all systems can leave the times out.
        sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
        for job in jobs:
            if job.error is None and job.descriptor is not None:
                job.error = _outcome(sync, job.descriptor)
    finally:
        for job in jobs:
            if job.descriptor is not None:
                os.close(job.descriptor)
    if any(job.error is None for job in jobs):
        _sync_folder(jobs, folders, folder, given=given, within=within)
    for job in jobs:
        if job.error is not None and job.descriptor is not None:
            with suppress(OSError):  # what is left behind is named by nothing
                os.unlink(job.file.name, dir_fd=folder.descriptor)


def _write(job: Writing, folder: Folder) -> None:
    try:
        job.descriptor = os.open(job.file.name, _OF_NEW_FILE, _MODE, dir_fd=folder.descriptor)
        left = memoryview(job.file.data)
        while left:
            left = left[os.write(job.descriptor, left) :]
    except OSError as error:  # it fails this file, and no others
        job.error = error


def _sync_folder(jobs: Sequence[Writing], folders: DurableFolders, folder: Folder, *, given: str, within: Path) -> None:
    """Sync a folder, and those with the names that are perhaps not on the disk."""
    errors = [_outcome(os.fsync, folder.descriptor)]
    errors += [_outcome(sync_directory, one.parent) for one in folder.unsure]
    error = next((one for one in errors if one is not None), None)
    if error is None:
        folders.keep(folder, given, within=within)
    else:
        folders.forget(given, within=within)
        fail(jobs, error)


def fail(jobs: Iterable[Writing], error: Exception) -> None:
    """
    Note an error of all of them; the first one of each stays.
    """
    for job in jobs:
        job.error = job.error or error


def _outcome(sync: Callable[[T], None], what: T) -> OSError | None:
    """Return why a sync failed. It is not tried again: the system reports a lost write once (fsync(2))."""
    try:
        sync(what)
    except OSError as error:
        return error
    return None


def remove(path: Path) -> None:
    """
    Remove a file, if it is there and can be removed. Blocking.
    """
    with suppress(OSError):  # what is left behind is named by nothing
        path.unlink()
