# SPDX-License-Identifier: Apache-2.0
"""
What entries mean to lineage, before any edge is judged. Pure: entries and known tables in, what to store out.

Entries are folded one by one over `KnownTables`, which they change: an event resolves by what the entries before it
said, whether these came with the same batch or long ago. So the result does not depend on how entries are cut into
batches, provided that `KnownTables` was filled with what is stored for the `Lookups` of the same entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ledger.format.entry import Entry
from ledger.format.event import KEY_LENGTH_MAX, format_key, parse_key
from ledger.format.events import (
    LINEAGE_CYCLES,
    CatalogCreated,
    CatalogRetired,
    CommitObserved,
    CommitOutcome,
    CommitSettled,
    Identifier,
    LineageCycleFound,
    LineageKind,
    LineageReceived,
    OnCycle,
    SettingChanged,
    TableIdentified,
)
from projections.entries import LogEntry, storable
from projections.keys import bounded_key, pipeline_key
from projections.lineage.datasets import (
    KnownCatalog,
    KnownTables,
    dotted,
    location_of,
    names_of,
    normalise_location,
    resolve,
    table_location,
)

Pair: TypeAlias = tuple[str, str]
"""Source and target, as bounded keys: percent-encoded ASCII."""
ColumnPair: TypeAlias = tuple[str, str, str, str]
"""Source, its column, target and its column; keys as in `Pair`, names as the database can hold them."""

TABLE: Final = "table"
SNAPSHOT_LENGTH_MAX: Final = 64


@dataclass(slots=True, kw_only=True)
class Lookups:
    """What has to be looked up to resolve the data sets of some entries."""

    locations: set[str] = field(default_factory=set)
    snapshots: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class LineageTable:
    """What is new about a table; None is nothing new."""

    alias: str
    name: str
    location: str | None = None
    table_uuid: str | None = None
    is_dropped: bool = False


@dataclass(slots=True, kw_only=True)
class LineageCatalog:
    """A catalog as its last entry has it."""

    uri: str | None
    location: str | None
    is_retired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedEvent:
    """
    One event, resolved: `keys` of its `datasets`; by bounded keys, what it read and wrote, each with its version; its
    column edges, and `derived`, the pairs that these are between. `keeps_cycles` is the tenant's setting at its place.

    `derived` is empty where column edges were omitted: what is left of them decides nothing.
    """

    entry: Entry
    event: LineageReceived
    keys: tuple[str, ...]
    inputs: Mapping[str, str | None]
    outputs: Mapping[str, str | None]
    columns: tuple[ColumnPair, ...]
    derived: tuple[Pair, ...]
    job: str | None
    run_id: str | None
    keeps_cycles: bool


@dataclass(slots=True, kw_only=True)
class LineageChanges:
    """What entries change: by natural key, later over earlier; events in the order of the log."""

    catalogs: dict[str, LineageCatalog] = field(default_factory=dict)
    tables: dict[str, LineageTable] = field(default_factory=dict)
    locations: dict[str, str] = field(default_factory=dict)
    snapshots: dict[tuple[str, str], None] = field(default_factory=dict)
    events: list[ResolvedEvent] = field(default_factory=list)
    reported: list[tuple[str, str, int]] = field(default_factory=list)
    """Source and target of cycles that entries tell of, with the index of the entry."""
    keeps_cycles: bool = False
    """The tenant's setting behind the last entry."""
    sets_cycles: bool = False
    """Whether one of the entries has set it, to whatever."""


def lookups_of(entries: Iterable[LogEntry]) -> Lookups:
    """
    Return what `changes_of` has to know of the entries before.
    """
    lookups = Lookups()
    for item in entries:
        if not isinstance(item.event, LineageReceived):
            continue
        for dataset in item.event.datasets:
            if dataset.version is not None:
                lookups.snapshots.add(storable(dataset.version))
            for name in names_of(dataset):
                lookups.names.add(name.name)
                if (location := location_of(name)) is not None:
                    lookups.locations.add(location)
    return lookups


def changes_of(entries: Iterable[LogEntry], known: KnownTables, *, keeps_cycles: bool = False) -> LineageChanges:
    """
    Return what `entries`, in log order, change; `known` is brought up to their end.

    `keeps_cycles` is the tenant's setting before the first of them.

    Raises:
        FormatError: if an entry of ours is not of its form.
    """
    changes = LineageChanges(keeps_cycles=keeps_cycles)
    for item in entries:
        entry = item.entry
        match item.event:
            case CatalogCreated() as catalog:
                _catalog(changes, known, catalog.id, _known_catalog(catalog.options))
            case CatalogRetired() as catalog:
                _catalog(changes, known, catalog.id, None)
            case CommitSettled() as settled if settled.outcome is CommitOutcome.ACCEPTED:
                _settled(changes, known, entry, settled)
            case CommitObserved() as observed:
                _observed(changes, known, observed)
            case TableIdentified() as identified:
                _identified(changes, known, identified)
            case LineageReceived() as event:
                changes.events.append(_resolved(entry, event, known, keeps_cycles=changes.keeps_cycles))
            case LineageCycleFound() as found:
                changes.reported.append((found.source, found.target, entry.index))
            case SettingChanged(id=setting, value=value) if setting == LINEAGE_CYCLES:
                changes.keeps_cycles, changes.sets_cycles = value == OnCycle.KEEP, True
            case _:
                pass  # nothing that lineage depends on
    return changes


def _catalog(changes: LineageChanges, known: KnownTables, alias: str, catalog: KnownCatalog | None) -> None:
    if catalog is None:
        known.catalogs.pop(alias, None)
        changes.catalogs[alias] = LineageCatalog(uri=None, location=None, is_retired=True)
        return
    known.catalogs[alias] = catalog
    changes.catalogs[alias] = LineageCatalog(uri=catalog.uri, location=catalog.location, is_retired=False)


def _known_catalog(options: Mapping[str, str]) -> KnownCatalog:
    uri, location = (storable(options.get(name, "")) for name in ("uri", "location"))
    return KnownCatalog(
        uri=normalise_location(uri) if uri else None, location=normalise_location(location) if location else None
    )


def _settled(changes: LineageChanges, known: KnownTables, entry: Entry, settled: CommitSettled) -> None:
    kind, segments = parse_key(entry.key)
    if kind != TABLE:
        return
    alias, *levels = segments
    # An accepted commit that leaves no current metadata file is a drop.
    is_dropped = settled.metadata_location is None
    _table(changes, known, entry.key, alias, levels, table_uuid=settled.table_uuid, is_dropped=is_dropped)
    if settled.metadata_location is not None:
        _location(changes, known, entry.key, settled.metadata_location)
    for snapshot in settled.snapshots:
        _snapshot(changes, known, entry.key, snapshot)


def _observed(changes: LineageChanges, known: KnownTables, observed: CommitObserved) -> None:
    key = _named(changes, known, observed.identifier, table_uuid=observed.table_uuid)
    if key is not None:
        _location(changes, known, key, observed.metadata_location)
        _snapshot(changes, known, key, observed.snapshot)


def _identified(changes: LineageChanges, known: KnownTables, identified: TableIdentified) -> None:
    key = _named(changes, known, identified.identifier, table_uuid=identified.table_uuid)
    if key is not None and identified.metadata_location is not None:
        _location(changes, known, key, identified.metadata_location)


def _named(
    changes: LineageChanges, known: KnownTables, identifier: Identifier | None, *, table_uuid: str
) -> str | None:
    """Add the table that a foreign catalog names; return its key, or None if it has no name yet."""
    if identifier is None or identifier.name is None:
        return None  # lineage keeps the name that the event uses
    levels = [*identifier.namespace, identifier.name]
    key = format_key(TABLE, (identifier.alias, *levels))
    if len(key) > KEY_LENGTH_MAX:
        return None  # no commit through the gateway can name it
    _table(changes, known, key, identifier.alias, levels, table_uuid=table_uuid, is_dropped=False)
    return key


def _table(
    changes: LineageChanges,
    known: KnownTables,
    key: str,
    alias: str,
    levels: Sequence[str],
    *,
    table_uuid: str | None,
    is_dropped: bool,
) -> None:
    name = dotted(levels)
    table = changes.tables.setdefault(key, LineageTable(alias=alias, name=name))
    table.table_uuid = table_uuid or table.table_uuid
    table.is_dropped = is_dropped
    named = known.by_name.setdefault(name, {})
    if is_dropped:
        named.pop(key, None)
    else:
        named[key] = alias


def _location(changes: LineageChanges, known: KnownTables, key: str, metadata_location: str) -> None:
    location = table_location(metadata_location)
    if location is not None:
        changes.tables[key].location = location
        changes.locations[location] = known.by_location[location] = key


def _snapshot(changes: LineageChanges, known: KnownTables, key: str, snapshot: str) -> None:
    if len(snapshot) <= SNAPSHOT_LENGTH_MAX:
        snapshot = storable(snapshot)
        changes.snapshots[snapshot, key] = None
        known.by_snapshot.setdefault(snapshot, set()).add(key)


def _resolved(entry: Entry, event: LineageReceived, known: KnownTables, *, keeps_cycles: bool) -> ResolvedEvent:
    keys = tuple(resolve(dataset, known) for dataset in event.datasets)
    bounded = [bounded_key(key) for key in keys]
    is_static = event.kind is LineageKind.DATASET
    # A dataset event has no inputs and outputs: its data set was made from what its columns name.
    outputs = [column.output for column in event.columns] if is_static else event.outputs
    job = event.job
    derived = event.columns if is_static or not event.columns_omitted else ()

    def versions(positions: Iterable[int]) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for position in positions:
            version = event.datasets[position].version
            found[bounded[position]] = found.get(bounded[position]) if version is None else storable(version)
        return found

    return ResolvedEvent(
        entry=entry,
        event=event,
        keys=keys,
        inputs=versions(event.inputs),
        outputs=versions(outputs),
        columns=tuple(dict.fromkeys(_columns(event, bounded))),
        derived=tuple(dict.fromkeys((bounded[column.input], bounded[column.output]) for column in derived)),
        job=None if job is None else pipeline_key(job.namespace, job.name),
        run_id=None if event.run_id is None else storable(event.run_id),
        keeps_cycles=keeps_cycles,
    )


def _columns(event: LineageReceived, bounded: Sequence[str]) -> Iterable[ColumnPair]:
    """Yield the column edges, except those from a column to itself."""
    for column in event.columns:
        source, target = bounded[column.input], bounded[column.output]
        if (source, column.input_field) != (target, column.field):
            yield source, storable(column.input_field), target, storable(column.field)
