# SPDX-License-Identifier: Apache-2.0
"""
Deletes the files of one dropped table, in an order that an attempt after it can go on from.

A file is deleted before what names it: the files of a manifest, then that manifest; when all are done the manifest
lists, statistics and older metadata files. The last metadata file, which the drop names, comes after all of them. So an
attempt that is killed leaves what the next one needs to find the rest, and what is gone already is no error.

Only what is the table's own is read or deleted (`own_files.py`), and of that nothing that another table references.
Memory is bounded: one manifest list, the files of one manifest, and digests of manifests and of files done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

from pyiceberg.manifest import ManifestFile

from gateway.purging.deleting import Deletion
from gateway.purging.manifests import NamedFiles, UndecodableError, read_files, read_manifests
from gateway.purging.own_files import FileKeys, OwnFile, OwnFolders
from gateway.purging.references import References
from projections.errors import FileMissingError, FileUnreadableError
from projections.lake.storage import Storage

FILES_AT_ONCE: Final = 128
"""Files that are deleted between two looks at whether this process is still to do it."""
OBJECTS_AT_ONCE: Final = 8
"""Requests to an object store under way."""
DONE_MAX: Final = 200_000
"""Files that are known to be done, some 20 MB; one that several manifests name beyond these counts as missing."""
FAULT_LENGTH_MAX: Final = 500


class Deletes(Protocol):
    """What deletes files (see `deleting.FileDeleter`)."""

    def delete(self, file: OwnFile, /) -> tuple[Deletion, int | None]:
        """Delete a file; return what became of it, and its size in bytes."""


@dataclass(slots=True, kw_only=True)
class Counts:
    """
    Files that were deleted, kept, and gone already; `fault` is the first thing that could not be read, of `faults`.
    """

    deleted: int = 0
    bytes_deleted: int | None = 0
    kept: int = 0
    missing: int = 0
    faults: int = 0
    fault: str | None = None

    def add(self, deletion: Deletion, size_bytes: int | None) -> None:
        """Count what became of one file."""
        match deletion:
            case Deletion.DELETED:
                self.deleted += 1
                known = self.bytes_deleted is not None and size_bytes is not None
                self.bytes_deleted = (self.bytes_deleted or 0) + (size_bytes or 0) if known else None
            case Deletion.KEPT:
                self.kept += 1
            case Deletion.MISSING:
                self.missing += 1

    def add_fault(self, text: str) -> None:
        """Note that a file could not be read, so that what it names may be left; it is kept."""
        self.faults += 1
        self.fault = self.fault or text[:FAULT_LENGTH_MAX]

    def fault_text(self) -> str | None:
        """Return what could not be read; None if all could."""
        return self.fault if self.faults < 2 else f"{self.fault} (and {self.faults - 1} files more)"


@dataclass(frozen=True, slots=True)
class _Named:
    """A file that is to be deleted; one that is not `expected` to be there is not missed."""

    location: str
    expected: bool = True


class Sweep:
    """
    One attempt to delete the files of a table; `last` is its last metadata file. `counts` belongs to the event loop.

    `own` are the folders to delete in; `keys` says which locations are one file, and `referenced` which files another
    table names. `storage` reads, `deleter` deletes; `keep` is called between files, and stops the attempt by raising.
    """

    def __init__(
        self,
        *,
        own: OwnFolders,
        keys: FileKeys,
        referenced: References,
        storage: Storage,
        deleter: Deletes,
        last: str,
        counts: Counts,
        keep: Callable[[], Awaitable[None]],
    ) -> None:
        self._own = own
        self._keys = keys
        self._referenced = referenced
        self._storage = storage
        self._deleter = deleter
        self._keep = keep
        self._last = last
        self._last_key = keys.key(last)
        self._done: dict[bytes, None] = {}
        self._manifests: set[bytes] = set()
        self._unreadable: set[str] = set()
        self.counts = counts

    async def run(self, named: NamedFiles) -> None:
        """
        Delete all files that the table's metadata names, and all that these name, but for the last metadata file.

        Raises:
            StorageUnavailableError: if a storage does not answer.
        """
        for location in dict.fromkeys(named.manifest_lists):
            for manifest in await self._manifests_in(location):
                await self._manifest(manifest)
        for manifest in named.manifests:
            await self._manifest(manifest)
        rest = (*named.manifest_lists, *named.statistics, *named.older)
        await self._delete([_Named(location) for location in rest if location not in self._unreadable])

    async def delete_recorded(self, locations: Sequence[str]) -> None:
        """Delete metadata files that the table had once; they may be gone since long. Raises as `run`."""
        await self._keep()  # most of a long history may be of other tables
        await self._delete([_Named(location, expected=False) for location in locations])

    async def delete_last(self) -> Deletion:
        """Delete the last metadata file, and return what became of it; it is not counted. Raises as `run`."""
        own = self._own.find(self._last)
        if own is None or self._last_key is None or self._last_key in self._referenced:
            return Deletion.KEPT
        deletion, _ = await asyncio.to_thread(self._deleter.delete, own)
        return deletion

    async def _manifests_in(self, location: str) -> Sequence[ManifestFile]:
        if self._own.find(location) is None:
            return ()  # it is counted when the manifest lists are deleted
        try:
            return await asyncio.to_thread(read_manifests, self._storage, location)
        except FileMissingError:
            return ()
        except (FileUnreadableError, UndecodableError) as error:
            self._unreadable.add(location)
            self._keep_unread(str(error))
            return ()

    async def _manifest(self, manifest: ManifestFile) -> None:
        """Delete the files of a manifest, and then the manifest."""
        location = manifest.manifest_path
        key = self._keys.key(location) if self._own.find(location) is not None else None
        if key is None:
            self.counts.add(Deletion.KEPT, None)
            return
        if key in self._manifests:
            return
        self._manifests.add(key)
        try:
            files = await asyncio.to_thread(read_files, self._storage, manifest)
        except FileMissingError:
            self.counts.add(Deletion.MISSING, None)
            return
        except (FileUnreadableError, UndecodableError) as error:
            self._keep_unread(str(error))
            return
        await self._delete([_Named(file, is_live) for file, is_live in files])
        await self._delete([_Named(location)])

    def _keep_unread(self, text: str) -> None:
        self.counts.add(Deletion.KEPT, None)
        self.counts.add_fault(text)

    async def _delete(self, files: Sequence[_Named]) -> None:
        for first in range(0, len(files), FILES_AT_ONCE):
            await self._keep()
            for deletion, size_bytes in await asyncio.to_thread(self._delete_now, files[first : first + FILES_AT_ONCE]):
                self.counts.add(deletion, size_bytes)

    def _delete_now(self, files: Sequence[_Named]) -> list[tuple[Deletion, int | None]]:
        """Delete some files, and return what became of those that are to be counted. Blocking."""
        outcomes: list[tuple[Deletion, int | None]] = []
        chosen: list[tuple[_Named, OwnFile]] = []
        for file in files:
            own, key = self._own.find(file.location), self._keys.key(file.location)
            if key is not None and (key in self._done or key == self._last_key):
                continue
            if own is None or key is None or key in self._referenced:
                outcomes.append((Deletion.KEPT, None))
            else:
                chosen.append((file, own))
            if key is not None:
                self._note_done(key)
        for (file, _), (deletion, size_bytes) in zip(chosen, self._delete_chosen(chosen), strict=True):
            if deletion is not Deletion.MISSING or file.expected:
                outcomes.append((deletion, size_bytes))
        return outcomes

    def _delete_chosen(self, chosen: Sequence[tuple[_Named, OwnFile]]) -> list[tuple[Deletion, int | None]]:
        files = [own for _, own in chosen]
        if len(files) < 2 or files[0].root is not None:
            return [self._deleter.delete(own) for own in files]
        with ThreadPoolExecutor(min(OBJECTS_AT_ONCE, len(files)), thread_name_prefix="purge") as threads:
            return list(threads.map(self._deleter.delete, files))

    def _note_done(self, key: bytes) -> None:
        self._done[key] = None
        if len(self._done) > DONE_MAX:
            del self._done[next(iter(self._done))]
