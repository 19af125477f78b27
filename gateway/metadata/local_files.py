# SPDX-License-Identifier: Apache-2.0
"""
New files on a local disk: those that wait are written together and synced together.

Guarantee: once `LocalFiles.write` has returned, a power failure cannot undo the file. On the disk are its contents, its
name, and the names of its folders: up to the one that it has to be in, and of all that were made for it. An existing
file is never written into. A file that could not be written whole is removed. No link leads out of the folder that the
file has to be in.

A sync waits for the disk, and file systems with a journal make what several threads wait for durable at once. To hand
work to a thread, and every call in it that waits, costs the event loop more than most of these calls, because threads
take turns in Python. So the folders of a batch are shared out among few threads, each of which writes and syncs all
files of a folder and then the folder; where that takes long, more threads join. What arrives meanwhile is the next
batch. Large files are written apart from the others, so that small ones do not wait for them.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Final, TypeAlias, TypeVar

from gateway.metadata.durable_folders import DurableFolders, Folder
from ledger.files.atomic import sync_directory

T = TypeVar("T")

BATCH_FILES_MAX: Final = 64
BATCHES_MAX: Final = 2
"""Batches at work."""
THREADS_MAX: Final = 16
"""Threads that write the files of all batches."""
THREADS_FIRST: Final = 2
"""Threads with which a batch begins: where a sync takes less than a millisecond, more cost more than they save."""
SLOW_S: Final = 0.003
"""Each folder that takes longer brings its batch another thread."""
LARGE_THREADS_MAX: Final = 2
"""Threads that write large files."""
LARGE_BYTES: Final = 1024 * 1024
"""From this size on, a file is written apart from the others."""

_OF_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o666
"""Readable for engines as far as the umask of the process allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file to be written, named `name`, into `folder`, which has to be the folder `within` or below it."""

    folder: Path
    name: str
    data: bytes
    within: Path


@dataclass(slots=True, eq=False)
class _Job:
    """
    A file that is to be written, for a caller who waits for `written`.

    Only the thread that writes its folder changes the rest. Once `descriptor` is set, there is a file of ours under its
    name. Once the batch is at its end, `error` says why the file was not written; None if it is durable.
    """

    file: NewFile
    written: asyncio.Future[None]
    descriptor: int | None = None
    error: Exception | None = None


_Place: TypeAlias = tuple[str, Path]
"""A folder as its path is given, and the folder that it has to be in."""
_Jobs: TypeAlias = dict[_Place, list[_Job]]


class LocalFiles:
    """
    Writes files in batches. `_waiting` and `_batches` belong to the event loop.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[_Place, _Job]] = deque()
        self._batches = 0
        """How many batches are at work, or about to be."""
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="metadata-files")
        self._large = ThreadPoolExecutor(LARGE_THREADS_MAX, thread_name_prefix="large-metadata-files")
        self._folders = DurableFolders()

    async def write(self, file: NewFile) -> None:
        """
        Write a new file durably. If the call is cancelled, there is no such file, or it is removed again.

        Raises:
            LinkLeadsOutError: if its folder is not in or below `file.within`.
            OSError: if there is a file of that name, or it cannot be written; then nothing was written.
        """
        loop = asyncio.get_running_loop()
        job = _Job(file, loop.create_future())
        place = str(file.folder), file.within
        if len(file.data) >= LARGE_BYTES:
            self._start({place: [job]}, self._large, then=lambda: None)
        else:
            self._waiting.append((place, job))
            if self._batches < BATCHES_MAX:
                self._batches += 1
                loop.call_soon(self._start_next)  # whoever writes in the same turn joins
        await job.written

    def _start_next(self) -> None:
        """Start a batch of what waits; without any, there is a batch less at work."""
        batch: _Jobs = {}
        while self._waiting and sum(map(len, batch.values())) < BATCH_FILES_MAX:
            place, job = self._waiting.popleft()
            if not job.written.done():
                batch.setdefault(place, []).append(job)
        if batch:
            self._start(batch, self._threads, then=self._start_next)
        else:
            self._batches -= 1

    def _start(self, jobs: _Jobs, threads: ThreadPoolExecutor, *, then: Callable[[], None]) -> None:
        told = partial(asyncio.get_running_loop().call_soon_threadsafe, self._end, jobs, threads, then)
        batch = _Batch(jobs, self._folders, threads, told)
        for _ in range(min(len(jobs), THREADS_FIRST)):
            threads.submit(batch.work)

    def _end(self, jobs: _Jobs, threads: ThreadPoolExecutor, then: Callable[[], None]) -> None:
        """Answer the callers of a batch."""
        for job in (job for of_folder in jobs.values() for job in of_folder):
            if job.written.done():  # its caller has gone, and nobody else knows of the file
                if job.error is None:
                    threads.submit(_remove, job.file.folder / job.file.name)
            elif job.error is None:
                job.written.set_result(None)
            else:
                job.written.set_exception(job.error)
        then()


class _Batch:
    """
    Files that are written together, by folder. Every thread that does its `work` takes folders until none is left; the
    one that is ready last calls `told`. Where the disk is slow, more of the `threads` join. `_lock` is for `_left`.
    """

    def __init__(
        self, jobs: _Jobs, folders: DurableFolders, threads: ThreadPoolExecutor, told: Callable[[], object]
    ) -> None:
        self._folders = folders
        self._threads = threads
        self._untaken = deque(jobs.items())
        self._lock = Lock()
        self._left = len(jobs)
        """Folders that are not written yet."""
        self._told = told

    def work(self) -> None:
        """Write the files of folders that no other thread has taken. Blocking."""
        while True:
            try:
                (given, within), jobs = self._untaken.popleft()
            except IndexError:  # none is left
                return
            begin_s = monotonic()
            try:
                _write_files(jobs, self._folders, given=given, within=within)
            except Exception as error:  # noqa: BLE001  (a bug: its callers learn of it, and other files are written)
                _fail(jobs, error)
            if self._untaken and monotonic() - begin_s > SLOW_S:
                self._threads.submit(self.work)
            with self._lock:
                self._left -= 1
                is_last = not self._left
            if is_last:
                self._told()


def _write_files(jobs: Sequence[_Job], folders: DurableFolders, *, given: str, within: Path) -> None:
    """Write the new files of one folder, sync them, then the folder. Notes for each why it was not written."""
    try:
        folder = folders.open(given, within=within)
    except OSError as error:
        _fail(jobs, error)
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


def _write(job: _Job, folder: Folder) -> None:
    try:
        job.descriptor = os.open(job.file.name, _OF_NEW_FILE, _MODE, dir_fd=folder.descriptor)
        left = memoryview(job.file.data)
        while left:
            left = left[os.write(job.descriptor, left) :]
    except OSError as error:  # it fails this file, and no others
        job.error = error


def _sync_folder(jobs: Sequence[_Job], folders: DurableFolders, folder: Folder, *, given: str, within: Path) -> None:
    """Sync a folder, and those with the names that are perhaps not on the disk."""
    errors = [_outcome(os.fsync, folder.descriptor)]
    errors += [_outcome(sync_directory, one.parent) for one in folder.unsure]
    error = next((one for one in errors if one is not None), None)
    if error is None:
        folders.keep(folder, given, within=within)
    else:
        folders.forget(given, within=within)
        _fail(jobs, error)


def _fail(jobs: Iterable[_Job], error: Exception) -> None:
    for job in jobs:
        job.error = job.error or error


def _outcome(sync: Callable[[T], None], what: T) -> OSError | None:
    """Return why a sync failed. It is not tried again: the system reports a lost write once (fsync(2))."""
    try:
        sync(what)
    except OSError as error:
        return error
    return None


def _remove(path: Path) -> None:
    with suppress(OSError):  # what is left behind is named by nothing
        path.unlink()
