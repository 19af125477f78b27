# SPDX-License-Identifier: Apache-2.0
"""
The files that a table's metadata names: manifest lists, manifests, the files in them, statistics, older metadata.

Metadata files are read with their digest checked; manifests come from whoever wrote the table, are read through
PyIceberg, and may hold anything. All of it blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile, read_manifest_list

from gateway.errors import GatewayError
from gateway.metadata.files import METADATA_SIZE_BYTES_MAX
from ledger.errors import FormatError
from ledger.format.json_object import parse_object
from projections.errors import FileUnreadableError
from projections.lake.manifests import MANIFEST_SIZE_BYTES_MAX, UNDECODABLE, FileInMemory, StorageInMemory
from projections.lake.storage import Storage, split_location


class UndecodableError(GatewayError):
    """A file of a table can be read and is not what it is named as; its text says which, and why."""


def read_metadata(storage: Storage, location: str, *, digest: str) -> tuple[Mapping[str, Any], int]:
    """
    Return the metadata in a file that a pointer names, and the size of the file in bytes.

    Raises:
        UndecodableError: if it is not the file of that SHA-256 (hex), or no metadata.
        FileMissingError, FileUnreadableError, StorageUnavailableError: as `Storage.read_bytes`.
    """
    data = _read(storage, location, size_bytes_max=METADATA_SIZE_BYTES_MAX)
    if (found := sha256(data).hexdigest()) != digest:
        raise UndecodableError(f"{location}: expected the committed file (sha256 {digest}), found sha256 {found}")
    try:
        return parse_object(data, what=location), len(data)
    except FormatError as error:
        raise UndecodableError(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFiles:
    """
    The files that metadata names itself: the manifest lists of all its snapshots, the manifests that they have without
    one (format version 1), statistics, and the files of the metadata log.
    """

    manifest_lists: Sequence[str]
    manifests: Sequence[ManifestFile]
    statistics: Sequence[str]
    older: Sequence[str]

    @classmethod
    def of(cls, location: str, metadata: Mapping[str, Any]) -> NamedFiles:
        """
        Return those of the metadata that is at `location`.

        Raises:
            UndecodableError: if it is no metadata of a table.
        """
        try:
            snapshots = metadata.get("snapshots") or ()
            return cls(
                manifest_lists=[str(one["manifest-list"]) for one in snapshots if "manifest-list" in one],
                manifests=[
                    _embedded(str(manifest), one)
                    for one in snapshots
                    if "manifest-list" not in one
                    for manifest in one.get("manifests") or ()
                ],
                statistics=[
                    str(one["statistics-path"])
                    for name in ("statistics", "partition-statistics")
                    for one in metadata.get(name) or ()
                ],
                older=[str(one["metadata-file"]) for one in metadata.get("metadata-log") or ()],
            )
        except UNDECODABLE as error:
            raise UndecodableError(f"{location}: expected metadata of a table, found {error!r:.200}") from error


def _embedded(location: str, snapshot: Mapping[str, Any]) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=location,
        manifest_length=0,
        partition_spec_id=0,
        content=ManifestContent.DATA,
        sequence_number=0,
        min_sequence_number=0,
        added_snapshot_id=snapshot.get("snapshot-id"),
    )


def read_manifests(storage: Storage, location: str) -> list[ManifestFile]:
    """
    Return the manifests that a manifest list names, those of delete files included.

    Raises:
        UndecodableError: if it is no manifest list.
        FileMissingError, FileUnreadableError, StorageUnavailableError: as `Storage.read_bytes`.
    """
    data = _read(storage, location, size_bytes_max=MANIFEST_SIZE_BYTES_MAX)
    try:
        return list(read_manifest_list(FileInMemory(location, data)))
    except UNDECODABLE as error:
        raise UndecodableError(f"{location}: expected a manifest list, found {error!r:.200}") from error


def read_files(storage: Storage, manifest: ManifestFile) -> list[tuple[str, bool]]:
    """
    Return the data and delete files that a manifest names, and of each whether it is live there.

    One that is not live may be in a snapshot before, so it is a file of the table all the same.

    Raises:
        UndecodableError: if it is encrypted, or no manifest.
        FileMissingError, FileUnreadableError, StorageUnavailableError: as `Storage.read_bytes`.
    """
    location = manifest.manifest_path
    if manifest.key_metadata:
        raise UndecodableError(f"{location}: expected a manifest that is not encrypted")
    data = _read(storage, location, size_bytes_max=MANIFEST_SIZE_BYTES_MAX)
    try:
        entries = manifest.fetch_manifest_entry(StorageInMemory(location, data), discard_deleted=False)
        return [(entry.data_file.file_path, entry.status != ManifestEntryStatus.DELETED) for entry in entries]
    except UNDECODABLE as error:
        raise UndecodableError(f"{location}: expected a manifest, found {error!r:.200}") from error


def is_outside(storage: Storage, location: str) -> bool:
    """
    Return whether a location is of no kind that is known, or in none of the folders of `storage`.
    """
    try:
        storage.filesystem(location)
    except FileUnreadableError:
        return True
    return False


def _read(storage: Storage, location: str, *, size_bytes_max: int) -> bytes:
    scheme, path = split_location(location)
    if scheme == "file" and Path(path).exists() and not Path(path).is_file():
        raise UndecodableError(f"{location}: expected a file")  # to read a pipe may never end
    return storage.read_bytes(location, size_bytes_max=size_bytes_max)
