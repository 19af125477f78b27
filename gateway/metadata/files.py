# SPDX-License-Identifier: Apache-2.0
"""
Metadata files of the built-in catalog: written once, read with their digest checked.

A metadata file is immutable, so files that were read are cached by location and digest. None is ever overwritten: each
has its own name, and an existing file is an error. A write is durable before it returns, new folders included: the log
must never name a file that a power failure can undo. Files of this machine are written by `gateway/files/`, those of
object stores through PyIceberg's FileIO.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import orjson
from pyiceberg.io import FileIO, load_file_io

from gateway.errors import BadRequestError, GatewayError, UnavailableError
from gateway.files.durable_folders import LinkLeadsOutError
from gateway.files.local_files import LocalFiles
from gateway.files.writing import FileWriter, NewFile
from gateway.metadata.draft import TableMetadata
from gateway.metadata.kept_answers import KeptAnswers
from gateway.metadata.versions import is_older, series_of
from ledger.errors import FormatError
from ledger.format.json_object import parse_object
from ledger.values import value_class

METADATA_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
CACHED_BYTES_MAX: Final = 128 * 1024 * 1024
FOLDERS_MAX: Final = 4_096
"""Folders whose path is kept."""
QUICK_S: Final = 0.005
"""A file that takes longer is waited for before the log is: others would wait for it, too."""
_PLAIN: Final = re.compile(r"([^?#\s]*/)([A-Za-z0-9._-]+)")
"""A location whose folder can be parsed alone, which many files share, and the name of its file."""

_Key: TypeAlias = tuple[str, str]
"""Location and SHA-256 (hex)."""


class MetadataFileError(GatewayError):
    """A metadata file cannot be read or deleted, or is not the file that was committed."""

    status = 500
    kind = "RuntimeIOException"


@value_class
class Written:
    """
    A metadata file as it was, or will be, written: its location, the SHA-256 (hex) of its bytes, and these.

    One that `is_found` was there before: it is neither written nor deleted, and its `data` is what would be written.
    """

    location: str
    sha256: str
    data: bytes = field(default=b"", compare=False, repr=False)
    is_found: bool = False


class MetadataFiles:
    """
    Reads, writes and deletes metadata files; blocking work runs in threads.

    `answers` keeps what engines are shown of the files. `_cache`, `_cached_bytes` and `_ios` belong to the event loop;
    threads only use a `FileIO` that they are given. Files of this machine are written by `local`.
    """

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        local: FileWriter | None = None,
        cached_bytes_max: int = CACHED_BYTES_MAX,
    ) -> None:
        self._properties = dict(properties or {})
        self._cached_bytes_max = cached_bytes_max
        self._took_s = 0.0
        """How long the last file took to be durable."""
        self._cache: OrderedDict[_Key, tuple[int, dict[str, Any]]] = OrderedDict()
        self._cached_bytes = 0
        self._newest: dict[str, _Key] = {}
        """Of each table's files the one that is cached: nobody loads an older one again."""
        self._ios: dict[str, FileIO] = {}
        self.answers: Final = KeptAnswers()
        self._local = local or LocalFiles()

    @property
    def properties(self) -> Mapping[str, str]:
        """What opens the warehouse's files, in PyIceberg's words; credentials among them."""
        return self._properties

    async def prepare(self, location: str) -> None:
        """
        Start what writes files like `location`, or load its library: the first commit would wait for that.

        Raises:
            OSError: if it cannot be started.
        """
        if local_path(location) is None:
            await asyncio.to_thread(self._io, location)
        else:
            await self._local.prepare()

    async def read(self, location: str, *, digest: str) -> dict[str, Any]:
        """
        Return the metadata at `location`; the caller must not change it.

        Raises:
            MetadataFileError: if the file is gone, too large, or its SHA-256 is not `digest`.
            UnavailableError: if an object store does not answer.
        """
        key = location, digest
        if (cached := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return cached[1]
        path = local_path(location)
        if path is not None:
            data = await asyncio.to_thread(_read_local, path)
        else:
            data = await asyncio.to_thread(_read, self._io(location), location)
        _check_committed(location, data, digest)
        metadata = _parse(location, data)
        self._keep(key, len(data), metadata)
        return metadata

    async def read_old(self, files: Sequence[tuple[str, str]]) -> list[TableMetadata | None]:
        """
        Return the metadata of files of the past, each a location and a digest; None for one that is not there any more,
        or not the file that was committed.

        They are read in one thread and not cached: those that engines load stay cached.

        Raises:
            UnavailableError: if an object store does not answer.
        """
        reading = [
            (
                location,
                digest,
                partial(_read, self._io(location), location) if path is None else partial(_read_local, path),
            )
            for location, digest in files
            for path in (local_path(location),)
        ]
        return await asyncio.to_thread(lambda: [_read_committed(*each) for each in reading])

    async def find(self, location: str, *, within: str) -> tuple[str, dict[str, Any]]:
        """
        Return the SHA-256 (hex) and the metadata of a file that somebody else has written.

        Raises:
            BadRequestError: if there is none in or below the folder `within`, or it is not JSON of at most 64 MiB.
            UnavailableError: if an object store does not answer.
        """
        path, root = local_path(location), _local_folder(within)
        try:
            if path is not None and root is not None:
                data = await asyncio.to_thread(_read_within, path, root)
            else:
                data = await asyncio.to_thread(_read, self._io(location), location)
            return sha256(data).hexdigest(), _parse(location, data)
        except MetadataFileError as error:
            # Its own text says why a file cannot be read, and one outside is none of the caller's business.
            raise BadRequestError(
                f"expected a metadata file of a table of this catalog, found none at {location!r:.200}",
                field="metadata-location",
            ) from error

    def prepare_file(self, location: str, metadata: dict[str, Any]) -> Written:
        """
        Return a new metadata file as `write` will write it.

        Raises:
            BadRequestError: if it would be over 64 MiB.
        """
        data = orjson.dumps(metadata)
        if len(data) > METADATA_SIZE_BYTES_MAX:
            raise BadRequestError(
                f"expected at most {METADATA_SIZE_BYTES_MAX} bytes of metadata, found {len(data)}: expire snapshots"
            )
        return Written(location=location, sha256=sha256(data).hexdigest(), data=data)

    @property
    def writes_quickly(self) -> bool:
        """Whether the file that was written last took no longer than others may wait for it."""
        return self._took_s < QUICK_S

    async def write(self, new: Written, metadata: dict[str, Any], *, within: str) -> None:
        """
        Write a new metadata file durably, in or below the folder `within`.

        Raises:
            BadRequestError: if a symbolic link leads out of `within`.
            UnavailableError: if it cannot be written; nothing names it.
        """
        began_s = monotonic()
        try:
            if not new.is_found:
                await self._write(new.location, new.data, within)
        except LinkLeadsOutError as error:
            raise BadRequestError(str(error), field="location") from error
        except OSError as error:
            raise UnavailableError(f"the table's metadata cannot be written, nothing was changed: {error}") from error
        self._took_s = monotonic() - began_s
        self._keep((new.location, new.sha256), len(new.data), metadata)

    async def _write(self, location: str, data: bytes, within: str) -> None:
        root = _local_folder(within)
        if (plain := _PLAIN.fullmatch(location)) is not None:
            folder, name = _local_folder(plain[1]), plain[2]
        else:
            path = local_path(location)
            folder, name = (None, "") if path is None else (path.parent, path.name)
        if folder is not None and root is not None:
            await self._local.write(NewFile(folder=folder, name=name, data=data, within=root))
        else:
            await asyncio.to_thread(_write, self._io(location), location, data)

    def drop(self, written: Written) -> None:
        """Cache the metadata of a file no longer, if it is cached; it is read again if somebody asks for it."""
        self._pop((written.location, written.sha256))

    async def delete(self, written: Written) -> None:
        """
        Delete a metadata file that the log is known not to name; one that is gone already is no error.

        Raises:
            MetadataFileError: if it cannot be deleted.
        """
        self.drop(written)
        if written.is_found:
            return
        path = local_path(written.location)
        delete = partial(self._io(written.location).delete, written.location) if path is None else path.unlink
        await asyncio.to_thread(_delete, delete, written.location)

    def _io(self, location: str) -> FileIO:
        """One for each kind of storage: it holds connections."""
        scheme = urlsplit(location).scheme
        if scheme not in self._ios:
            self._ios[scheme] = load_file_io(self._properties, location)
        return self._ios[scheme]

    def _keep(self, key: _Key, size_bytes: int, metadata: dict[str, Any]) -> None:
        if key in self._cache or size_bytes > self._cached_bytes_max:
            return
        series = series_of(key[0])
        if (before := self._newest.get(series)) is not None:
            if is_older(key[0], before[0]):
                return  # it was read while the table was changed
            self._pop(before)
        self._cache[key], self._newest[series] = (size_bytes, metadata), key
        self._cached_bytes += size_bytes
        while self._cached_bytes > self._cached_bytes_max:
            self._pop(next(iter(self._cache)))

    def _pop(self, key: _Key) -> None:
        size_bytes, _ = self._cache.pop(key, (0, {}))
        self._cached_bytes -= size_bytes
        series = series_of(key[0])
        if self._newest.get(series) == key:
            del self._newest[series]


def _read_committed(location: str, digest: str, read: Callable[[], bytes]) -> TableMetadata | None:
    """Return the metadata of a file if it is still there, and is the one that was committed."""
    try:
        data = read()
        _check_committed(location, data, digest)
        return _parse(location, data)
    except MetadataFileError:
        return None


def _check_committed(location: str, data: bytes, digest: str) -> None:
    if (found := sha256(data).hexdigest()) != digest:
        raise MetadataFileError(f"{location}: expected the committed file (sha256 {digest}), found sha256 {found}")


def _parse(location: str, data: bytes) -> TableMetadata:
    try:
        return TableMetadata(parse_object(data, what=location))
    except FormatError as error:
        raise MetadataFileError(str(error)) from error


def _read(io: FileIO, location: str) -> bytes:
    try:
        with io.new_input(location).open() as stream:
            data = bytes(stream.read(METADATA_SIZE_BYTES_MAX + 1))
    except FileNotFoundError as error:
        raise _unreadable(location, error) from error
    except OSError as error:
        raise UnavailableError(f"{location}: the object store does not answer, try again: {error}") from error
    return _bounded(location, data)


def _read_local(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(METADATA_SIZE_BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(str(path), error) from error
    return _bounded(str(path), data)


def _read_within(path: Path, root: Path) -> bytes:
    """Read a file that no link leads to from outside."""
    try:
        if not path.resolve(strict=True).is_relative_to(root.resolve(strict=True)):
            raise FileNotFoundError(str(path))
    except (OSError, RuntimeError) as error:
        raise MetadataFileError(f"{path}: the table's metadata cannot be read: {error}") from error
    return _read_local(path)


def _unreadable(location: str, error: OSError) -> MetadataFileError:
    return MetadataFileError(f"{location}: the table's metadata cannot be read: {error}")


def _bounded(location: str, data: bytes) -> bytes:
    if len(data) > METADATA_SIZE_BYTES_MAX:
        raise MetadataFileError(f"{location}: expected at most {METADATA_SIZE_BYTES_MAX} bytes of metadata, found more")
    return data


def _write(io: FileIO, location: str, data: bytes) -> None:
    with io.new_output(location).create(overwrite=False) as stream:
        stream.write(data)


def _delete(delete: Callable[[], object], location: str) -> None:
    try:
        delete()
    except FileNotFoundError:
        return
    except OSError as error:
        raise MetadataFileError(f"{location}: cannot be deleted: {error}") from error


def local_path(location: str) -> Path | None:
    """
    Return the path of a local file; object stores (None) are durable when they answer.

    As PyIceberg reads it: the path of a `file:` URI is taken as it stands, percent signs and all.
    """
    parts = urlsplit(location)
    return Path(parts.path) if parts.scheme == "file" else Path(location) if not parts.scheme else None


_local_folder: Final = lru_cache(maxsize=FOLDERS_MAX)(local_path)
