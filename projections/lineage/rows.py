"""
What lineage stores, as the rows of its statements. Pure.

Within a batch a row is made once for each natural key, exactly as the statements would have left it if each entry had
come alone: counts add up, the last event wins, and what it does not say of a run stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final
from uuid import UUID

from ledger import canonical
from ledger.canonical import Json
from projections.graph.labels import bounded_key
from projections.lineage.changes import Catalog, Resolved, Table
from projections.lineage.drawing import Pair

Row = dict[str, Json]

_STAYS: Final = ("job", "engine")
"""Of a run."""


def catalog_rows(catalogs: Mapping[str, Catalog]) -> list[Row]:
    """Return catalogs by alias as rows."""
    return [
        {"alias": alias, "uri": catalog.uri, "location": catalog.location, "is_retired": catalog.is_retired}
        for alias, catalog in catalogs.items()
    ]


def table_rows(tables: Mapping[str, Table]) -> list[Row]:
    """Return tables by key as rows."""
    return [
        {
            "key": key,
            "alias": table.alias,
            "name": table.name,
            "location": table.location,
            "table_uuid": table.table_uuid,
            "is_dropped": table.is_dropped,
        }
        for key, table in tables.items()
    ]


def location_rows(locations: Mapping[str, str]) -> list[Row]:
    """Return the keys of tables by location as rows."""
    return [
        {"digest": location_digest(location).hex(), "location": location, "key": key}
        for location, key in locations.items()
    ]


def location_digest(location: str) -> bytes:
    """Return the natural key of a location (32 bytes)."""
    return sha256(location.encode()).digest()


def snapshot_rows(snapshots: Iterable[tuple[str, str]]) -> list[Row]:
    """Return snapshots with the keys of their tables as rows."""
    return [{"snapshot": snapshot, "key": key} for snapshot, key in snapshots]


def told_rows(told: Mapping[tuple[UUID, str, str], int]) -> list[Row]:
    """Return the entries that tell of a cycle, by lineage event, source and target, as rows."""
    return [
        {"group_id": str(group_id), "source": source, "target": target, "told_index": index}
        for (group_id, source, target), index in told.items()
    ]


@dataclass(slots=True)
class Told:
    """What the events of a batch tell, as rows by natural key."""

    events: list[Row] = field(default_factory=list)
    edges: dict[Pair, Row] = field(default_factory=dict)
    columns: dict[str, Row] = field(default_factory=dict)
    cycles: list[Row] = field(default_factory=list)
    jobs: dict[str, Row] = field(default_factory=dict)
    runs: dict[str, Row] = field(default_factory=dict)

    def add(self, event: Resolved, refused: Mapping[Pair, tuple[str, ...]]) -> None:
        """
        Add the next event in the order of the log; `refused` are its edges that were not drawn, with the paths.
        """
        index, group_id = event.entry.index, str(event.entry.group_id)
        self.events.append({"index": index, "group_id": group_id, "keys": list(event.keys)})
        for source, target in event.pairs:
            if (source, target) in refused:
                path = list(refused[source, target])
                row: Row = {"index": index, "group_id": group_id, "source": source, "target": target, "path": path}
                self.cycles.append(row)
            else:
                self._edge(event, source, target)
        for column in dict.fromkeys(_columns(event)):
            if (column[0], column[2]) not in refused:
                self._column(index, column)
        self._job_and_run(event)

    def _edge(self, event: Resolved, source: str, target: str) -> None:
        row = self.edges.setdefault((source, target), {"source": source, "target": target, "count": 0})
        row |= {"last_index": event.entry.index, "job": event.job, "run_id": event.event.run_id, "count": _next(row)}

    def _column(self, index: int, names: tuple[str, str, str, str]) -> None:
        digest = sha256(canonical.encode(names)).hexdigest()
        source, source_column, target, target_column = names
        row = self.columns.setdefault(
            digest,
            {
                "digest": digest,
                "source": source,
                "source_column": source_column,
                "target": target,
                "target_column": target_column,
                "first_index": index,
                "count": 0,
            },
        )
        row |= {"last_index": index, "count": _next(row)}

    def _job_and_run(self, event: Resolved) -> None:
        index, told = event.entry.index, event.event
        if event.job is not None and told.job is not None:
            names: Row = {"job": event.job, "namespace": told.job.namespace, "name": told.job.name}
            self.jobs.setdefault(event.job, {**names, "first_index": index})["last_index"] = index
        if told.run_id is not None:
            run = self.runs.setdefault(told.run_id, {"run_id": told.run_id, "first_index": index})
            news: Row = {"job": event.job, "engine": told.engine}
            run |= {name: run.get(name) if news[name] is None else news[name] for name in _STAYS}
            run |= {"state": told.event_type or "", "event_time": told.event_time, "last_index": index}


def _columns(event: Resolved) -> Iterable[tuple[str, str, str, str]]:
    """Yield source, its column, target and its column; that a column stayed what it was says nothing."""
    for column in event.event.columns:
        source, target = bounded_key(event.keys[column.input]), bounded_key(event.keys[column.output])
        if (source, column.input_field) != (target, column.field):
            yield source, column.input_field, target, column.field


def _next(row: Row) -> int:
    """Return the row's count and one more."""
    count = row["count"]
    return count + 1 if isinstance(count, int) else 1
