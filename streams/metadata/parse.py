# SPDX-License-Identifier: Apache-2.0
"""
The part of a table's metadata file that the streams need: the table's uuid and its snapshots. Pure.

Others wrote the file: whatever does not have the form of Iceberg's table specification ("Table Metadata and Snapshots")
is a `PoisonError`, and this module raises no other error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from ledger.errors import FormatError
from ledger.format.json_object import parse_object
from projections.errors import FileUnreadableError
from projections.lake.storage import unpack_metadata
from streams.errors import PoisonError

METADATA_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of a compressed file, before and after."""
SNAPSHOTS_MAX: Final = 100_000

TABLE_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_OPERATION = re.compile(r"[a-z][a-z-]{0,31}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot of a table; ids are decimal texts, since they exceed 53 bits."""

    id: str
    parent: str | None
    operation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshots:
    """A table, and the snapshots that one of its metadata files has, in its order."""

    table_uuid: str
    snapshots: tuple[Snapshot, ...]


def parse_table_snapshots(data: bytes) -> TableSnapshots:
    """
    Return the table and the snapshots of a metadata file, which may be compressed by gzip.

    Raises:
        PoisonError: if it is no such file; says what was expected.
    """
    metadata = _object(_unpacked(data))
    table_uuid = metadata.get("table-uuid")
    if not isinstance(table_uuid, str) or not TABLE_UUID.fullmatch(table_uuid):
        raise PoisonError(f"table-uuid: expected a UUID, found {table_uuid!r:.80}")
    snapshots = metadata.get("snapshots") or ()
    if not isinstance(snapshots, list | tuple) or len(snapshots) > SNAPSHOTS_MAX:
        raise PoisonError(f"snapshots: expected a list of at most {SNAPSHOTS_MAX}")
    return TableSnapshots(
        table_uuid=table_uuid,
        snapshots=tuple(_snapshot(value, f"snapshots[{position}]") for position, value in enumerate(snapshots)),
    )


def _unpacked(data: bytes) -> bytes:
    try:
        return unpack_metadata(data, size_bytes_max=METADATA_SIZE_BYTES_MAX)
    except FileUnreadableError as error:
        raise PoisonError(str(error)) from error


def _object(data: bytes) -> dict[str, Any]:
    try:
        return parse_object(data, what="metadata file", size_bytes_max=METADATA_SIZE_BYTES_MAX)
    except FormatError as error:
        raise PoisonError(str(error)) from error


def _snapshot(value: object, where: str) -> Snapshot:
    if not isinstance(value, dict):
        raise PoisonError(f"{where}: expected an object, found {type(value).__name__}")
    id_, parent, summary = value.get("snapshot-id"), value.get("parent-snapshot-id"), value.get("summary")
    if type(id_) is not int:
        raise PoisonError(f"{where}.snapshot-id: expected a whole number, found {id_!r:.80}")
    if parent is not None and type(parent) is not int:
        raise PoisonError(f"{where}.parent-snapshot-id: expected a whole number or null, found {parent!r:.80}")
    operation = summary.get("operation") if isinstance(summary, dict) else None
    if operation is not None and (not isinstance(operation, str) or not _OPERATION.fullmatch(operation)):
        raise PoisonError(f"{where}.summary.operation: expected a word, found {operation!r:.80}")
    # Version 1 writes -1 where there is no parent.
    return Snapshot(id=str(id_), parent=None if parent in {None, -1} else str(parent), operation=operation)
