# SPDX-License-Identifier: Apache-2.0
"""
Files in the places of dropped tables that other tables of the tenant's built-in catalogs name, so that they are kept.

A table may have taken in files of another one (`add_files`). Which ones is said by manifests alone, so those of all
snapshots of all tables are read. What is kept in memory are digests of the files inside the places.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from gateway.errors import GatewayError
from gateway.purging.manifests import (
    NamedFiles,
    UndecodableError,
    is_outside,
    read_files,
    read_manifests,
    read_metadata,
)
from gateway.purging.own_files import FileKeys
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.errors import FileMissingError, FileUnreadableError
from projections.lake.storage import Storage

PAGE_ROWS: Final = 500
KEEP_S: Final = 1.0

_QUERIES: Final = load_queries("gateway", "purges.sql")


class ReferencesUnknownError(GatewayError):
    """What another table references cannot be read, so nothing may be deleted now; its text says which table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pointer:
    """A table or view, and its metadata file."""

    path: str
    is_view: bool
    location: str
    sha256: str


class References:
    """The files in some places that tables name; `keys` says which files those are."""

    def __init__(self, keys: FileKeys) -> None:
        self._keys = keys
        self._found: set[bytes] = set()

    def __contains__(self, key: bytes) -> bool:
        return key in self._found

    def add(self, location: str) -> None:
        """Note that a table names a file."""
        if (key := self._keys.key(location)) is not None:
            self._found.add(key)

    def add_table(self, pointer: _Pointer, storage: Storage, roots: Sequence[str]) -> None:
        """
        Note all files that a table names. Blocking.

        Its metadata is read wherever it is, its manifests only if they are in a folder of the tenant's catalogs.

        Raises:
            ReferencesUnknownError: if one of its files is damaged, or its metadata is gone.
            StorageUnavailableError: if the storage does not answer.
        """
        self.add(pointer.location)
        if pointer.is_view:
            return
        try:
            metadata, _ = read_metadata(storage, pointer.location, digest=pointer.sha256)
            named = NamedFiles.of(pointer.location, metadata)
            within = (*roots, str(metadata.get("location")))
            bounded = Storage(properties=storage.properties, within=within)
            for location in (*named.manifest_lists, *named.statistics, *named.older):
                self.add(location)
            self._add_manifests(named, bounded)
        except (FileMissingError, FileUnreadableError, UndecodableError) as error:
            raise ReferencesUnknownError(
                f"table {pointer.path}: which files it references cannot be read, so none is deleted: {error}"
            ) from error

    def _add_manifests(self, named: NamedFiles, storage: Storage) -> None:
        seen: set[bytes] = set()
        manifests = list(named.manifests)
        for location in named.manifest_lists:
            if not is_outside(storage, location):
                try:
                    manifests += read_manifests(storage, location)
                except FileMissingError:
                    continue  # nobody can read that snapshot any more
            while manifests:
                manifest = manifests.pop()
                self.add(manifest.manifest_path)
                digest = sha256(manifest.manifest_path.encode("utf-8", "surrogatepass")).digest()[:16]
                if digest in seen or is_outside(storage, manifest.manifest_path):
                    continue
                seen.add(digest)
                try:
                    files = read_files(storage, manifest)
                except FileMissingError:
                    continue
                for file, _ in files:
                    self.add(file)


async def read_references(
    reading: Callable[[], AbstractAsyncContextManager[Connection]],
    log_id: int,
    *,
    keys: FileKeys,
    storage: Storage,
    roots: Sequence[str],
    keep: Callable[[], Awaitable[None]],
) -> References:
    """
    Return what all tables of a tenant's built-in catalogs reference in the places of `keys`.

    `roots` are the folders of these catalogs; `keep` is called from time to time, since this may take long.

    Raises:
        ReferencesUnknownError: if that cannot be found out.
        UnavailableError, StorageUnavailableError: if the database or a storage does not answer.
    """
    references = References(keys)
    async for pointer in _pointers(reading, log_id):
        await _alongside(asyncio.to_thread(references.add_table, pointer, storage, roots), keep)
        await keep()
    return references


async def _alongside(work: Coroutine[Any, Any, None], keep: Callable[[], Awaitable[None]]) -> None:
    """Wait for `work`, and meanwhile call `keep` each second: the manifests of one large table may take hours."""
    working = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({working}, timeout=KEEP_S))[0]:
            await keep()
    finally:
        working.cancel()  # has no effect on one that is done
    await working


async def _pointers(
    reading: Callable[[], AbstractAsyncContextManager[Connection]], log_id: int
) -> AsyncIterator[_Pointer]:
    after: dict[str, object] = {"alias": "", "namespace": list[str](), "name": ""}
    while True:
        async with reading() as connection:
            bounds = {"log_id": log_id, "limit": PAGE_ROWS, **after}
            rows = await (await connection.execute(_QUERIES["pointers"], bounds)).fetchall()
        for alias, namespace, name, is_view, location, digest in rows:
            path = ".".join((alias, *namespace, name))
            yield _Pointer(path=path, is_view=is_view, location=location, sha256=digest)
        if len(rows) < PAGE_ROWS:
            return
        after = dict(zip(("alias", "namespace", "name"), rows[-1], strict=False))
