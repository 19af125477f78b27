"""
Metadata files of the built-in catalog: written once, read with their digest checked, through PyIceberg's FileIO.

A metadata file is immutable, so what was read once is kept in memory by its location. Writing is durable before it
returns: the log must never name a file that a power cut can take back.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import orjson
from pyiceberg.io import FileIO, load_file_io

from gateway.errors import GatewayError

METADATA_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
CACHED_BYTES_MAX: Final = 128 * 1024 * 1024


class MetadataFileError(GatewayError):
    """A metadata file cannot be read or written, or is not the file that was committed."""

    status = 500
    kind = "RuntimeIOException"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A metadata file as it was written: its location and the SHA-256 (hex) of its bytes."""

    location: str
    sha256: str


class MetadataFiles:
    """Reads, writes and deletes metadata files; blocking work runs in threads."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self._properties = dict(properties or {})
        self._cache: OrderedDict[str, tuple[int, dict[str, Any]]] = OrderedDict()
        self._cached_bytes = 0

    async def read(self, location: str, *, digest: str) -> dict[str, Any]:
        """
        Return the metadata at `location`; the caller must not change it.

        Raises:
            MetadataFileError: if the file is gone, too large, or its SHA-256 is not `digest`.
        """
        cached = self._cache.get(location)
        if cached is not None:
            self._cache.move_to_end(location)
            return cached[1]
        data = await asyncio.to_thread(_read, self._io(location), location)
        if (found := sha256(data).hexdigest()) != digest:
            raise MetadataFileError(f"{location}: expected the committed file (sha256 {digest}), found sha256 {found}")
        metadata = _parse(location, data)
        self._keep(location, len(data), metadata)
        return metadata

    async def write(self, location: str, metadata: dict[str, Any]) -> Written:
        """
        Write a new metadata file durably.

        Raises:
            MetadataFileError: if it exists already or cannot be written.
        """
        data = orjson.dumps(metadata)
        await asyncio.to_thread(_write, self._io(location), location, data)
        self._keep(location, len(data), metadata)
        return Written(location=location, sha256=sha256(data).hexdigest())

    async def delete(self, location: str) -> None:
        """
        Delete a metadata file that the log is known not to name; one that is gone already is no error.

        Raises:
            MetadataFileError: if it cannot be deleted.
        """
        _, _ = self._cache.pop(location, (0, {}))
        await asyncio.to_thread(_delete, self._io(location), location)

    def _io(self, location: str) -> FileIO:
        return load_file_io(self._properties, location)

    def _keep(self, location: str, size_bytes: int, metadata: dict[str, Any]) -> None:
        if location in self._cache:
            return
        self._cache[location] = (size_bytes, metadata)
        self._cached_bytes = sum(size for size, _ in self._cache.values())
        while self._cached_bytes > CACHED_BYTES_MAX and len(self._cache) > 1:
            _, (size, _) = self._cache.popitem(last=False)
            self._cached_bytes -= size


def _parse(location: str, data: bytes) -> dict[str, Any]:
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MetadataFileError(f"{location}: expected JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise MetadataFileError(f"{location}: expected a JSON object, found {type(parsed).__name__}")
    return parsed


def _read(io: FileIO, location: str) -> bytes:
    try:
        with io.new_input(location).open() as stream:
            data = bytes(stream.read(METADATA_SIZE_BYTES_MAX + 1))
    except OSError as error:
        raise MetadataFileError(f"{location}: the table's metadata cannot be read: {error}") from error
    if len(data) > METADATA_SIZE_BYTES_MAX:
        raise MetadataFileError(f"{location}: expected at most {METADATA_SIZE_BYTES_MAX} bytes of metadata, found more")
    return data


def _write(io: FileIO, location: str, data: bytes) -> None:
    try:
        with io.new_output(location).create(overwrite=False) as stream:
            stream.write(data)
        if (path := _local_path(location)) is not None:
            _sync(path)
            _sync(path.parent)
    except OSError as error:
        raise MetadataFileError(f"{location}: the table's metadata cannot be written: {error}") from error


def _delete(io: FileIO, location: str) -> None:
    try:
        io.delete(location)
    except FileNotFoundError:
        return
    except OSError as error:
        raise MetadataFileError(f"{location}: cannot be deleted: {error}") from error


def _local_path(location: str) -> Path | None:
    """Return the path of a local file; object stores are durable when they answer."""
    parts = urlsplit(location)
    return Path(unquote(parts.path)) if parts.scheme == "file" else Path(location) if not parts.scheme else None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
