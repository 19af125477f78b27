# SPDX-License-Identifier: Apache-2.0
"""
New files on a local disk: those that wait are written together and synced together.

Guarantee: once `LocalFiles.write` has returned, a power failure cannot undo the file. On the disk are its contents, its
name, and the names of its folders: up to the one that it has to be in, and of all that were made for it. An existing
file is never written into. A file that could not be written whole is removed. No link leads out of the folder that the
file has to be in.

A sync waits for the disk, and file systems with a journal make what many threads wait for durable at once: syncs one
after the other take ten times as long (measured on ext4). So all files of a batch are written first. Then files and
folders are synced, each in a thread of its own, and each folder once. What arrives meanwhile is the next batch. Large
files are written one by one, so that small ones do not wait for them.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias, TypeVar

from ledger.files.atomic import sync_directory

T = TypeVar("T")

TASK: Final = "metadata files"
"""The name of the tasks that write."""
BATCH_FILES_MAX: Final = 64
BATCHES_MAX: Final = 2
"""Batches at work: one is written while another is synced."""
SYNCS_MAX: Final = 16
"""Syncs at the same time."""
LARGE_BYTES: Final = 1024 * 1024
"""From this size on, a file is written apart from the others."""
FOLDERS_MAX: Final = 20_000
"""Folders that are known to be durable; about 5 MB."""

_OF_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OF_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o666
"""Readable for engines as far as the umask of the process allows."""

Inode: TypeAlias = tuple[int, int]
"""Device and number: the identity of a folder, whatever its name."""


class LinkLeadsOutError(OSError):
    """A folder is reached through a link that leads out of the folder that the file has to be in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file to be written, in or below the folder `within`."""

    path: Path
    data: bytes
    within: Path


_Waiting: TypeAlias = tuple[NewFile, "asyncio.Future[None]"]


class LocalFiles:
    """
    Writes files in batches. `_waiting`, `_batches` and `_tasks` belong to the event loop.
    """

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._batches = 0
        """How many tasks write what waits."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers = ThreadPoolExecutor(BATCHES_MAX + 1, thread_name_prefix="metadata-files")
        self._syncs = ThreadPoolExecutor(SYNCS_MAX, thread_name_prefix="metadata-syncs")
        self._durable = DurableFolders()

    async def write(self, file: NewFile) -> None:
        """
        Write a new file durably. If the call is cancelled, there is no such file, or it is removed again.

        Raises:
            LinkLeadsOutError: if its folder is not in or below `file.within`.
            OSError: if there is a file of that name, or it cannot be written; then nothing was written.
        """
        waiting = file, asyncio.get_running_loop().create_future()
        if len(file.data) >= LARGE_BYTES:
            self._start(self._write_batch([waiting]))
        else:
            self._waiting.append(waiting)
            if self._batches < BATCHES_MAX:
                self._batches += 1
                self._start(self._write_waiting())
        await waiting[1]

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=TASK)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_waiting(self) -> None:
        """Write batches until nothing waits."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_FILES_MAX], self._waiting[BATCH_FILES_MAX:]
                await self._write_batch(batch)
        finally:
            self._batches -= 1

    async def _write_batch(self, batch: Sequence[_Waiting]) -> None:
        """Write a batch in a thread, and answer its callers."""
        loop = asyncio.get_running_loop()
        batch = [(file, written) for file, written in batch if not written.done()]
        files = [file for file, _ in batch]
        work = loop.run_in_executor(self._writers, write_files, files, self._durable, self._syncs)
        await asyncio.wait([work])
        # An error of the batch as a whole is a bug: its callers learn of it, and later files are written.
        broken = work.exception()
        errors = work.result() if broken is None else [broken] * len(batch)
        for (file, written), error in zip(batch, errors, strict=True):
            if written.done():  # its caller has gone, and nobody else knows of the file
                if error is None:
                    await loop.run_in_executor(self._writers, _remove, file.path)
            elif error is None:
                written.set_result(None)
            else:
                written.set_exception(error)


class DurableFolders:
    """
    What one process knows of folders: whose names are on the disk, and which it has made and not synced yet.

    A folder that is not known may be one that another process has made, and not synced before it died. Threads share
    this. Beyond `folders_max`, the folder that was added first is forgotten.
    """

    def __init__(self, *, folders_max: int = FOLDERS_MAX) -> None:
        self._lock = Lock()
        self._folders_max = folders_max
        self._inodes: OrderedDict[Path, Inode] = OrderedDict()
        self._unsynced: set[Path] = set()

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


@dataclass(slots=True, eq=False, kw_only=True)
class _Folder:
    """A folder in which files of the batch are. `unsure` are those whose names have to be synced, itself among them."""

    path: Path
    descriptor: int
    inode: Inode
    unsure: Sequence[Path]
    error: OSError | None = None


@dataclass(slots=True, eq=False)
class _Job:
    """A file of the batch. Once `descriptor` is set, there is a file of ours under its name."""

    file: NewFile
    folder: _Folder | None = None
    descriptor: int | None = None
    error: OSError | None = None


@dataclass(slots=True, eq=False)
class _Batch:
    """What one batch has opened; `opened` closes it. `folders` are by real path, `roots` by the path as given."""

    durable: DurableFolders
    opened: ExitStack
    folders: dict[Path, _Folder] = field(default_factory=dict)
    roots: dict[Path, Path] = field(default_factory=dict)


def write_files(files: Sequence[NewFile], durable: DurableFolders, syncs: ThreadPoolExecutor) -> list[OSError | None]:
    """
    Write new files and sync them together in the threads of `syncs`. Blocking.

    Returns for each file why it was not written, or None if it is durable.
    """
    jobs = [_Job(file) for file in files]
    with ExitStack() as opened:
        batch = _Batch(durable, opened)
        for job in jobs:
            with _noted(job):
                _write(job, batch)
        _sync(jobs, batch, syncs)
        for job in jobs:
            if job.error is not None and job.folder is not None and job.descriptor is not None:
                with suppress(OSError):  # what is left behind is named by nothing
                    os.unlink(job.file.path.name, dir_fd=job.folder.descriptor)
    return [job.error for job in jobs]


@contextmanager
def _noted(job: _Job) -> Iterator[None]:
    """Note an error of the system: it fails this file, and no others."""
    try:
        yield
    except OSError as error:
        job.error = error


def _write(job: _Job, batch: _Batch) -> None:
    job.folder = _open_folder(job.file, batch)
    job.descriptor = os.open(job.file.path.name, _OF_NEW_FILE, _MODE, dir_fd=job.folder.descriptor)
    batch.opened.callback(os.close, job.descriptor)
    left = memoryview(job.file.data)
    while left:
        left = left[os.write(job.descriptor, left) :]


def _open_folder(file: NewFile, batch: _Batch) -> _Folder:
    """
    Open the folder of a file, and make it if it is not there.

    A client that can write into a table's folder could put a link there that leads to another tenant's.
    """
    if file.within not in batch.roots:
        batch.roots[file.within] = Path(os.path.realpath(file.within))
    root, path = batch.roots[file.within], Path(os.path.realpath(file.path.parent))
    if not path.is_relative_to(root):
        raise LinkLeadsOutError(f"expected a folder of {file.within}, found a link that leads out of it")
    if path in batch.folders:
        return batch.folders[path]
    batch.durable.make(path)
    descriptor = os.open(path, _OF_FOLDER)
    batch.opened.callback(os.close, descriptor)
    status = os.fstat(descriptor)
    inode = status.st_dev, status.st_ino
    unsure = batch.durable.unsure(path, inode, root=root)
    folder = batch.folders[path] = _Folder(path=path, descriptor=descriptor, inode=inode, unsure=unsure)
    return folder


def _sync(jobs: Sequence[_Job], batch: _Batch, syncs: ThreadPoolExecutor) -> None:
    """Sync what was written, and each folder once; remember the folders whose names are durable."""
    written = [(job, job.descriptor) for job in jobs if job.error is None and job.descriptor is not None]
    folders = batch.folders
    above = {one.parent for folder in folders.values() for one in folder.unsure} - folders.keys()
    of_files = [syncs.submit(_outcome, _sync_contents, descriptor) for _, descriptor in written]
    of_folders = {path: syncs.submit(_outcome, os.fsync, folder.descriptor) for path, folder in folders.items()}
    of_folders |= {path: syncs.submit(_outcome, sync_directory, path) for path in sorted(above)}
    wait((*of_files, *of_folders.values()))  # all of them, before anything is closed
    for folder in folders.values():
        needed = (folder.path, *(one.parent for one in folder.unsure))
        folder.error = next((error for path in needed if (error := of_folders[path].result()) is not None), None)
        if folder.error is None:
            batch.durable.add(folder.path, folder.inode, unsure=folder.unsure)
    for (job, _), synced in zip(written, of_files, strict=True):
        job.error = synced.result() or (job.folder.error if job.folder else None)


def _outcome(sync: Callable[[T], None], what: T) -> OSError | None:
    """Return why a sync failed. It is not tried again: the system reports a lost write once (fsync(2))."""
    try:
        sync(what)
    except OSError as error:
        return error
    return None


def _sync_contents(descriptor: int) -> None:
    """Sync contents and size; the name is the folder's. Not all systems can leave the times out."""
    getattr(os, "fdatasync", os.fsync)(descriptor)


def _remove(path: Path) -> None:
    with suppress(OSError):  # what is left behind is named by nothing
        path.unlink()
