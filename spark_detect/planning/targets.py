# SPDX-License-Identifier: Apache-2.0
"""
What an entry of the log leads to: which metadata file to read, and which snapshots it names. Pure.

A trigger of S3 or of the poller names a file and no table, and may precede the outcome of the very commit that wrote
the file. It leads to nothing here: the streams, which append it, make sure that every snapshot is named by a decision,
whose outcome follows, or by a `commit.observed`; those name the table as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ledger.errors import FormatError
from ledger.format.entry import Entry
from ledger.format.event import format_key
from ledger.format.events import (
    CatalogCreated,
    CommitObserved,
    CommitOutcome,
    CommitSettled,
    Identifier,
    ScanRequested,
    TriggerReceived,
    TriggerSource,
)
from ledger.store.read import Log
from projections.entries import LogEntry
from projections.lake.storage import nearest_catalog
from projections.relational.catalogs import CatalogRow, folders_of
from projections.relational.table_names import identifier_of

METADATA_SUFFIXES: Final = (".metadata.json", ".metadata.json.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """A requested scan: by which group, and of which snapshot (None: of all live files)."""

    group_id: str
    snapshot: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTarget:
    """
    A table that may have new snapshots.

    `key` is its event key, if the entry tells; `metadata_location` is None for a request, which names a table only.
    `snapshots` are those that the entry names; empty: those that the metadata's refs name. `is_certain` if the name is
    the table's own; else it was said, by a callback perhaps, and what is known of the table's uuid comes first.
    """

    index: int
    key: str | None
    identifier: Identifier | None
    alias: str | None
    metadata_location: str | None
    table_uuid: str | None
    snapshots: tuple[int, ...]
    request: ScanRequest | None = None
    is_certain: bool = False

    @property
    def table(self) -> str:
        """What targets of one table have in common."""
        return self.key or self.table_uuid or self.metadata_location or ""


def read_target(item: LogEntry, *, ruleset: str) -> ScanTarget | None:
    """
    Return what `item` leads to, or None if that is no scan under `ruleset`.
    """
    entry = item.entry
    key, identifier = _table(entry)
    match item.event:
        case CommitSettled(outcome=CommitOutcome.ACCEPTED, metadata_location=str(location)) as settled if (
            key is not None
        ):
            return ScanTarget(
                index=entry.index,
                key=key,
                identifier=identifier,
                alias=None if identifier is None else identifier.alias,
                metadata_location=location,
                table_uuid=settled.table_uuid,
                snapshots=_ids(settled.snapshots),
                is_certain=True,
            )
        case CommitObserved() as observed:
            identifier = observed.identifier or identifier
            return ScanTarget(
                index=entry.index,
                key=_key(identifier),
                identifier=identifier,
                alias=None if identifier is None else identifier.alias,
                metadata_location=observed.metadata_location,
                table_uuid=observed.table_uuid,
                snapshots=_ids([observed.snapshot]),
            )
        case TriggerReceived(source=TriggerSource.POLARIS_WEBHOOK, metadata_location=str(location)) as trigger:
            if not location.endswith(METADATA_SUFFIXES):
                return None
            identifier = trigger.identifier or identifier
            return ScanTarget(
                index=entry.index,
                key=_key(identifier),
                identifier=identifier,
                alias=trigger.alias or (None if identifier is None else identifier.alias),
                metadata_location=location,
                table_uuid=None,
                snapshots=(),
            )
        case ScanRequested() as requested if requested.ruleset == ruleset and key is not None:
            snapshots = None if requested.snapshot is None else _ids([requested.snapshot])
            if snapshots == ():
                return None  # it names what can be no snapshot
            return ScanTarget(
                index=entry.index,
                key=key,
                identifier=identifier,
                alias=None if identifier is None else identifier.alias,
                metadata_location=None,
                table_uuid=requested.table_uuid,
                snapshots=snapshots or (),
                request=ScanRequest(group_id=str(entry.group_id), snapshot=snapshots[0] if snapshots else None),
                is_certain=True,
            )
        case _:
            return None


def catalog_of(
    target: ScanTarget, location: str, catalogs: Mapping[str, CatalogCreated], *, log: Log, warehouse: str
) -> CatalogRow | None:
    """
    Return the catalog whose storage holds `location`: the one that the target names, else the nearest one above it.

    Catalogs that were retired count as well: what was committed to them is there still.
    """
    if target.alias is not None and target.alias in catalogs:
        created = catalogs[target.alias]
        return CatalogRow(log=log, alias=created.id, kind=created.kind, options=dict(created.options))
    rows = {
        created.id: CatalogRow(log=log, alias=created.id, kind=created.kind, options=dict(created.options))
        for created in catalogs.values()
    }
    folders = [(alias, folder) for alias, row in rows.items() for folder in folders_of(row, warehouse=warehouse)]
    alias = nearest_catalog(folders, location)
    return None if alias is None else rows[alias]


def without_twins(targets: Iterable[ScanTarget]) -> list[ScanTarget]:
    """
    Return `targets` in order without triggers for a metadata file that a commit among them names as well.
    """
    everything = list(targets)
    named = {target.metadata_location for target in everything if target.snapshots and target.request is None}
    return [
        target
        for target in everything
        if target.snapshots or target.request is not None or target.metadata_location not in named
    ]


def _table(entry: Entry) -> tuple[str | None, Identifier | None]:
    """Return key and identifier of the table that an entry's key names."""
    identifier = identifier_of(entry.key)
    return (None if identifier is None else entry.key), identifier


def _key(identifier: Identifier | None) -> str | None:
    if identifier is None or identifier.name is None:
        return None
    try:
        return format_key("table", (identifier.alias, *identifier.namespace, identifier.name))
    except FormatError:
        return None


def _ids(snapshots: Iterable[str]) -> tuple[int, ...]:
    return tuple(int(snapshot) for snapshot in snapshots if snapshot.isascii() and snapshot.isdigit())
