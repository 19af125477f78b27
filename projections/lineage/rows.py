# SPDX-License-Identifier: Apache-2.0
"""
What lineage stores, as the rows of its statements. Pure.

Within a batch there is one row for each natural key, exactly as if each entry had been applied alone: counts add up,
and the last event wins.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from ledger.format import canonical
from ledger.format.canonical import Json
from projections.lineage.changes import ColumnPair, LineageCatalog, LineageTable, Pair
from projections.lineage.edges import DrawnEdges
from projections.lineage.runs import Omitted, Run, RunUpdate, Versions

Row = dict[str, Json]


def catalog_rows(catalogs: Mapping[str, LineageCatalog]) -> list[Row]:
    """Return catalogs by alias as rows."""
    return [
        {"alias": alias, "uri": catalog.uri, "location": catalog.location, "is_retired": catalog.is_retired}
        for alias, catalog in catalogs.items()
    ]


def table_rows(tables: Mapping[str, LineageTable]) -> list[Row]:
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


def appended_cycle_rows(reported: Iterable[tuple[str, str, int]]) -> list[Row]:
    """Return source and target of cycles, with the index of the entry that reports each, as rows."""
    return [{"source": source, "target": target, "told_index": index} for source, target, index in reported]


def read_run(row: Sequence[Any]) -> Run:
    """
    Return the run of a row of query `known_runs`.
    """
    run_id, job, engine, state, event_time, is_complete, inputs, outputs, derived, columns, judged, first, last = row
    return Run(
        run_id=run_id,
        job=job,
        engine=engine,
        state=state,
        event_time=event_time,
        is_complete=is_complete,
        inputs=dict(inputs),
        outputs=dict(outputs),
        derived=dict.fromkeys((source, target) for source, target in derived),
        columns=dict.fromkeys(_column_of(names) for names in columns),
        judged=judged,
        first_index=first,
        last_index=last,
    )


def run_row(run: Run) -> Row:
    """
    Return a run as a row.
    """
    return {
        "run_id": run.run_id,
        "job": run.job,
        "engine": run.engine,
        "state": run.state,
        "event_time": run.event_time,
        "is_complete": run.is_complete,
        "inputs": _listed(run.inputs),
        "outputs": _listed(run.outputs),
        "derived": [list(pair) for pair in run.derived],
        "columns": [list(column) for column in run.columns],
        "judged": run.judged,
        "first_index": run.first_index,
        "last_index": run.last_index,
    }


def _listed(versions: Versions) -> list[Json]:
    return [[key, version] for key, version in versions.items()]


def _column_of(names: Sequence[str]) -> ColumnPair:
    source, source_column, target, target_column = names
    return source, source_column, target, target_column


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedEvent:
    """One event and what became of it: those of its edges and column edges that are drawn."""

    update: RunUpdate
    edges: tuple[Pair, ...]
    columns: tuple[ColumnPair, ...]
    incomplete: frozenset[str]
    """Data sets for which the number of omitted facts changed with this event."""


@dataclass(slots=True)
class EventRows:
    """What the events of a batch say, as rows by natural key."""

    events: list[Row] = field(default_factory=list)
    edges: dict[Pair, Row] = field(default_factory=dict)
    columns: dict[str, Row] = field(default_factory=dict)
    cycles: dict[Pair, Row] = field(default_factory=dict)
    lifted: list[Row] = field(default_factory=list)
    jobs: dict[str, Row] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    omitted: dict[str, Row] = field(default_factory=dict)

    def add(self, update: RunUpdate, drawn: DrawnEdges, refused: Container[Pair]) -> JudgedEvent:
        """
        Add the next event in the order of the log; `refused` are all refused pairs after `drawn`.
        """
        event = update.event
        index, group_id = event.entry.index, str(event.entry.group_id)
        columns = tuple(column for column in update.columns if (column[0], column[2]) not in refused)
        changed = {*drawn.lifted, *(pair for pair, path in drawn.refused.items() if path is not None)}
        incomplete = {key for pair in changed for key in pair}
        self.events.append(
            {
                "index": index,
                "group_id": group_id,
                "keys": list(event.keys),
                "refused": [list(pair) for pair in drawn.refused],
                "omitted": dict(update.omitted.counts()),
            }
        )
        for pair in drawn.edges:
            self._edge(update, pair)
        for pair, path in drawn.refused.items():
            self._cycle(pair, path, index=index, group_id=group_id)
        for pair in drawn.lifted:
            self.cycles.pop(pair, None)
            self.lifted.append({"source": pair[0], "target": pair[1]})
            self._omit(pair, Omitted(refused=-1))
        for column in columns:
            self._column(index, column)
        if update.omitted.counts():
            self._omit(update.about, update.omitted)
            incomplete |= update.about
        self._job_and_run(update)
        return JudgedEvent(update=update, edges=drawn.edges, columns=columns, incomplete=frozenset(incomplete))

    def _edge(self, update: RunUpdate, pair: Pair) -> None:
        (source, target), event = pair, update.event
        source_version, target_version = update.pairs[pair]
        row = self.edges.setdefault(pair, {"source": source, "target": target, "count": 0})
        row |= {"last_index": event.entry.index, "job": update.job, "run_id": event.run_id}
        row |= {"source_version": source_version, "target_version": target_version, "count": _next(row)}

    def _cycle(self, pair: Pair, path: tuple[str, ...] | None, *, index: int, group_id: str) -> None:
        """Record a refusal with its first event; repetitions only change the count and the last index."""
        first: Row = {"index": index, "group_id": group_id, "path": list(path or ()), "count": 0}
        row = self.cycles.setdefault(pair, {"source": pair[0], "target": pair[1], **first})
        row |= {"last_index": index, "count": _next(row)}
        if path is not None:
            self._omit(pair, Omitted(refused=1))

    def _omit(self, keys: Iterable[str], omitted: Omitted) -> None:
        for key in keys:
            row = self.omitted.setdefault(key, {"key": key, **asdict(Omitted())})
            for name, count in asdict(omitted).items():
                before = row[name]
                row[name] = count + before if isinstance(before, int) else count

    def _column(self, index: int, names: ColumnPair) -> None:
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

    def _job_and_run(self, update: RunUpdate) -> None:
        event = update.event
        index, received = event.entry.index, event.event
        if event.job is not None and received.job is not None:
            names: Row = {"job": event.job, "namespace": received.job.namespace, "name": received.job.name}
            self.jobs.setdefault(event.job, {**names, "first_index": index})["last_index"] = index
        if event.run_id is not None:
            self.runs[event.run_id] = update.run


def _next(row: Row) -> int:
    """Return the count of a row plus one."""
    count = row["count"]
    return count + 1 if isinstance(count, int) else 1
