# SPDX-License-Identifier: Apache-2.0
"""
What detection reads of Iceberg: a table's metadata file, and the manifests of its snapshots.

The metadata file is read as JSON, by the members that are needed (Iceberg specification, "Table Metadata"), so that a
table of a newer format version can still be scanned; manifests are read through PyIceberg. Both come from whoever wrote
the table: whatever is wrong with them is `ScanError`, and only a storage that does not answer is anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
from pyiceberg.manifest import (
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
)

from ledger.format.events import ScanFault, UnreadReason
from projections.errors import FileMissingError, FileUnreadableError
from projections.lake.manifests import MANIFEST_SIZE_BYTES_MAX, UNDECODABLE, FileInMemory, StorageInMemory
from projections.lake.storage import Storage, unpack_metadata
from spark_detect.errors import ScanError
from spark_detect.tasks import ScannedColumn

METADATA_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024
SCHEMA_DEPTH_MAX: Final = 50
COLUMNS_MAX: Final = 10_000

TEXT: Final = "string"
LOOKED_AT: Final = frozenset(
    {
        *("boolean", "int", "long", "float", "double", "decimal", "date", "time", "timestamp", "timestamptz"),
        *("timestamp_ns", "timestamptz_ns", TEXT, "uuid", "unknown"),
    }
)
"""Primitive types that are looked at, or can hold nothing that is looked for (Iceberg specification, "Schemas")."""
UNREAD: Final = {
    "binary": UnreadReason.BINARY,
    "fixed": UnreadReason.BINARY,
    "geography": UnreadReason.BINARY,
    "geometry": UnreadReason.BINARY,
    "variant": UnreadReason.VARIANT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotState:
    """One snapshot of a metadata file; `operation` is None where its summary is missing."""

    snapshot_id: int
    parent: int | None
    operation: str | None
    manifest_list: str
    schema_id: int | None
    added_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table as one metadata file tells: its snapshots by id, and those that a ref, or `current`, names."""

    location: str
    table_uuid: str
    snapshots: Mapping[int, SnapshotState]
    current: int | None
    heads: tuple[int, ...]
    schemas: Mapping[int, Any]
    current_schema_id: int

    def columns(self, snapshot: SnapshotState) -> tuple[ScannedColumn, ...]:
        """
        Return the leaves of the schema that `snapshot` was written with; of those beyond `COLUMNS_MAX` none is read.

        Raises:
            ScanError: if the schema is none.
        """
        schema_id = snapshot.schema_id if snapshot.schema_id in self.schemas else self.current_schema_id
        try:
            fields = self.schemas[self.current_schema_id if schema_id is None else schema_id]["fields"]
            leaves = tuple(_leaves(fields, (), SCHEMA_DEPTH_MAX))
        except (LookupError, TypeError, ValueError) as error:
            raise _unreadable(self.location, f"schema {schema_id}: {error!r}") from error
        cut = (replace(leaf, unread=UnreadReason.CUT) for leaf in leaves[COLUMNS_MAX:])
        return (*leaves[:COLUMNS_MAX], *cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A data file of a manifest; `snapshot_id` is the snapshot that added it."""

    location: str
    snapshot_id: int
    format: str
    rows: int
    size_bytes: int
    row_groups: int | None
    is_encrypted: bool


def read_table(storage: Storage, location: str) -> TableState:
    """
    Return the table that the metadata file at `location` describes.

    Raises:
        ScanError: if there is no such file, or it is no table's metadata.
        StorageUnavailableError: if its storage does not answer.
    """
    try:
        stored = storage.read_bytes(location, size_bytes_max=METADATA_SIZE_BYTES_MAX)
        data = unpack_metadata(stored, size_bytes_max=METADATA_SIZE_BYTES_MAX)
    except FileMissingError as error:
        raise ScanError(ScanFault.METADATA_MISSING, file=location, message=str(error)) from error
    except FileUnreadableError as error:
        raise _unreadable(location, str(error)) from error
    try:
        return _parse(location, orjson.loads(data))
    except UNDECODABLE as error:
        raise _unreadable(location, f"expected the metadata of an Iceberg table, found {error!r:.200}") from error


def read_added(storage: Storage, snapshot: SnapshotState) -> list[LiveFile]:
    """
    Return the data files that `snapshot` added: entries of status ADDED in the manifests it wrote.

    Raises:
        ScanError: if its manifest list or a manifest is missing, or is none.
        StorageUnavailableError: if the storage does not answer.
    """
    files = []
    for manifest in _manifests(storage, snapshot):
        if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.has_added_files():
            entries = _entries(storage, manifest)
            added = (entry for entry in entries if entry.status == ManifestEntryStatus.ADDED)
            files += [_live_file(entry) for entry in added if _adder(entry) == snapshot.snapshot_id]
    return files


def read_live(storage: Storage, snapshot: SnapshotState) -> list[LiveFile]:
    """
    Return all data files that are live in `snapshot`, whoever added them.

    Raises:
        ScanError, StorageUnavailableError: as `read_added`.
    """
    return [_live_file(entry) for manifest in _manifests(storage, snapshot) for entry in _entries(storage, manifest)]


def _parse(location: str, document: Any) -> TableState:
    snapshots = {}
    for each in document.get("snapshots") or ():
        summary = each.get("summary") or {}
        parent, schema_id = each.get("parent-snapshot-id"), each.get("schema-id")
        snapshots[int(each["snapshot-id"])] = SnapshotState(
            snapshot_id=int(each["snapshot-id"]),
            parent=None if parent in {None, -1} else int(parent),
            operation=summary.get("operation"),
            manifest_list=str(each.get("manifest-list", "")),
            schema_id=None if schema_id is None else int(schema_id),
            added_bytes=int(summary.get("added-files-size", 0)),
        )
    current = document.get("current-snapshot-id")
    current = None if current in {None, -1} else int(current)
    refs = [int(ref["snapshot-id"]) for ref in (document.get("refs") or {}).values()]
    # A table of version 1 may have one schema alone, without an id.
    schemas = {int(each.get("schema-id", 0)): each for each in document.get("schemas") or [document["schema"]]}
    return TableState(
        location=location,
        table_uuid=str(document["table-uuid"]),
        snapshots=snapshots,
        current=current,
        heads=tuple(dict.fromkeys([*([] if current is None else [current]), *refs])),
        schemas=schemas,
        current_schema_id=int(document.get("current-schema-id", next(iter(schemas)))),
    )


def _leaves(fields: Any, path: tuple[str, ...], depth: int) -> Iterator[ScannedColumn]:
    for field in fields:
        yield from _leaves_of(field["type"], int(field["id"]), (*path, str(field["name"])), depth)


def _leaves_of(kind: Any, field_id: int, path: tuple[str, ...], depth: int) -> Iterator[ScannedColumn]:
    if depth == 0:
        raise ValueError(f"more than {SCHEMA_DEPTH_MAX} levels")
    if isinstance(kind, str):
        yield ScannedColumn(field_id=field_id, path=".".join(path), is_text=kind == TEXT, unread=_unread(kind))
        return
    match kind["type"]:
        case "struct":
            yield from _leaves(kind["fields"], path, depth - 1)
        case "list":
            yield from _leaves_of(kind["element"], int(kind["element-id"]), (*path, "element"), depth - 1)
        case "map":
            yield from _leaves_of(kind["key"], int(kind["key-id"]), (*path, "key"), depth - 1)
            yield from _leaves_of(kind["value"], int(kind["value-id"]), (*path, "value"), depth - 1)


def _unread(kind: str) -> UnreadReason | None:
    """Return why a column of that type is not looked at; None if it is, or can hold nothing that is looked for."""
    name = kind.partition("(")[0].partition("[")[0].strip().lower()
    if name in LOOKED_AT:
        return None
    return UNREAD.get(name, UnreadReason.UNKNOWN_TYPE)


def _manifests(storage: Storage, snapshot: SnapshotState) -> list[ManifestFile]:
    """Return the manifests with data files, read past PyIceberg's cache, which knows no tenants."""
    location = snapshot.manifest_list
    try:
        manifests = list(read_manifest_list(FileInMemory(location, _read(storage, location))))
    except UNDECODABLE as error:
        raise _unreadable(location, f"expected a manifest list, found {error!r:.200}") from error
    return [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]


def _entries(storage: Storage, manifest: ManifestFile) -> list[ManifestEntry]:
    location = manifest.manifest_path
    if manifest.key_metadata:
        raise ScanError(ScanFault.FILE_ENCRYPTED, file=location, message="the manifest is encrypted")
    try:
        entries = manifest.fetch_manifest_entry(StorageInMemory(location, _read(storage, location)))
    except UNDECODABLE as error:
        raise _unreadable(location, f"expected a manifest, found {error!r:.200}") from error
    return [entry for entry in entries if entry.data_file.content == DataFileContent.DATA]


def _adder(entry: ManifestEntry) -> int:
    return -1 if entry.snapshot_id is None else int(entry.snapshot_id)


def _live_file(entry: ManifestEntry) -> LiveFile:
    file = entry.data_file
    return LiveFile(
        location=file.file_path,
        snapshot_id=_adder(entry),
        format=str(file.file_format.value).upper(),
        rows=file.record_count,
        size_bytes=file.file_size_in_bytes,
        row_groups=len(file.split_offsets) if file.split_offsets else None,
        is_encrypted=bool(file.key_metadata),
    )


def _read(storage: Storage, location: str) -> bytes:
    try:
        return storage.read_bytes(location, size_bytes_max=MANIFEST_SIZE_BYTES_MAX)
    except FileMissingError as error:
        raise ScanError(ScanFault.METADATA_MISSING, file=location, message=str(error)) from error
    except FileUnreadableError as error:
        raise _unreadable(location, str(error)) from error


def _unreadable(location: str, message: str) -> ScanError:
    return ScanError(ScanFault.METADATA_UNREADABLE, file=location, message=message)
