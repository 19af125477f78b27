# SPDX-License-Identifier: Apache-2.0
"""
New files on a local disk: those that wait are written together and synced together.

The guarantee is that of `writing.py`.

A sync waits for the disk, and file systems with a journal make what several threads wait for durable at once. To hand
work to a thread, and every call in it that waits, costs the event loop more than most of these calls, because threads
take turns in Python. So the folders of a batch are shared out among few threads, each of which writes and syncs all
files of a folder and then the folder; where that takes long, more threads join. What arrives meanwhile is the next
batch. Large files are written apart from the others, so that small ones do not wait for them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock
from time import monotonic
from typing import Final, TypeAlias

from gateway.files.durable_folders import DurableFolders
from gateway.files.writing import LARGE_BYTES, NewFile, Place, Writing, fail, remove, write_files

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


@dataclass(slots=True, eq=False, kw_only=True)
class _Job(Writing):
    """A file that is to be written, for a caller who waits for `written`. The thread of its folder changes the rest."""

    written: asyncio.Future[None]


_Jobs: TypeAlias = dict[Place, list[_Job]]


class LocalFiles:
    """
    A `FileWriter` that writes files in batches. `_waiting` and `_batches` belong to the event loop.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Place, _Job]] = deque()
        self._batches = 0
        """How many batches are at work, or about to be."""
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="metadata-files")
        self._large = ThreadPoolExecutor(LARGE_THREADS_MAX, thread_name_prefix="large-metadata-files")
        self._folders = DurableFolders()

    async def prepare(self) -> None:
        """Threads are started as they are needed."""

    async def write(self, file: NewFile) -> None:
        """See `FileWriter.write`."""
        loop = asyncio.get_running_loop()
        job = _Job(file=file, written=loop.create_future())
        place = file.place
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
                    threads.submit(remove, job.file.folder / job.file.name)
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
                _, jobs = self._untaken.popleft()
            except IndexError:  # none is left
                return
            begin_s = monotonic()
            try:
                write_files(jobs, self._folders)
            except Exception as error:  # noqa: BLE001  (a bug: its callers learn of it, and other files are written)
                fail(jobs, error)
            if self._untaken and monotonic() - begin_s > SLOW_S:
                self._threads.submit(self.work)
            with self._lock:
                self._left -= 1
                is_last = not self._left
            if is_last:
                self._told()
