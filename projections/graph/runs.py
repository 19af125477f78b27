# SPDX-License-Identifier: Apache-2.0
"""
What lineage means to the graph: runs, their inputs and outputs, and the edges that are drawn. Pure.

`projections/lineage` decides which table a data set is and which edges are drawn, once for all read models; this module
only draws. A run that names its engine (facet `processing_engine`) is also a query of that engine. OpenLineage allows
empty names: what they would name is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ledger.format.canonical import Json
from ledger.format.entry import Entry
from ledger.format.event import SYSTEM_ACTOR, parse_key
from ledger.format.events import LineageReceived
from projections.graph import vertices
from projections.graph.changes import GraphChanges, Vertex
from projections.graph.labels import EdgeLabel, VertexLabel

_DATA: Final = {"table": VertexLabel.TABLE, "view": VertexLabel.VIEW, "dataset": VertexLabel.DATASET}

_SNAPSHOT_ID: Final = re.compile(r"[0-9]{1,19}")
"""A version that is none says something else than the id of a snapshot (iceberg.apache.org/spec, "Snapshots")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedLineage:
    """
    What was decided on one lineage event: the key of each of its `datasets`; by bounded keys, the edges and the column
    edges (source, its column, target, its column) that are drawn now, of earlier events of its run, too; and the
    `state` of the run. `omitted` is how much of what was reported of data sets is not drawn, by bounded key.
    """

    keys: Sequence[str]
    drawn: Sequence[tuple[str, str]] = ()
    columns: Sequence[tuple[str, str, str, str]] = ()
    state: str = ""
    omitted: Mapping[str, int] = field(default_factory=dict)


def received(changes: GraphChanges, entry: Entry, event: LineageReceived, resolved: ResolvedLineage) -> None:
    """
    Add what one event tells.
    """
    data = [_data(changes, key) for key in resolved.keys]
    for source, target in resolved.drawn:
        changes.edge(_known(changes, source), EdgeLabel.LINEAGE_OF, _known(changes, target))
    for source, source_column, target, target_column in resolved.columns:
        if source_column and target_column:
            made = vertices.column(changes, _known(changes, target), target_column)
            changes.edge(
                vertices.column(changes, _known(changes, source), source_column), EdgeLabel.COLUMN_LINEAGE_OF, made
            )
    for key, count in resolved.omitted.items():
        changes.vertices[_known(changes, key)]["omitted"] = count
    for run in _runs(changes, entry, event, resolved.state):
        for label, positions in ((EdgeLabel.READ_FROM, event.inputs), (EdgeLabel.PRODUCED, event.outputs)):
            for position in positions:
                changes.edge(run, label, data[position])
                snapshot = _snapshot(changes, data[position], event.datasets[position].version)
                if snapshot is not None:
                    changes.edge(run, label, snapshot)


def _known(changes: GraphChanges, key: str) -> Vertex:
    """Return the vertex of a bounded key: of this event, or of an earlier one of its run, maybe stored already."""
    vertex = Vertex(_DATA[key.partition(":")[0]], key)
    changes.vertices.setdefault(vertex, {})  # edges are written between vertices of the same batch
    return vertex


def _runs(changes: GraphChanges, entry: Entry, event: LineageReceived, state: str) -> list[Vertex]:
    """Return the run, and the query that it is to an engine; with its pipeline, engine and sender."""
    pipeline: Vertex | None = None
    if event.job is not None and event.job.namespace and event.job.name:
        pipeline = changes.vertex(
            VertexLabel.PIPELINE,
            *(event.job.namespace, event.job.name),
            namespace=event.job.namespace,
            name=event.job.name,
        )
    if not event.run_id:
        return []
    properties: dict[str, Json] = {"run_id": event.run_id, "state": state or event.event_type, "index": entry.index}
    runs = [changes.vertex(VertexLabel.RUN, event.run_id, **properties)]
    if pipeline is not None:
        changes.edge(runs[0], EdgeLabel.RUN_OF, pipeline)
    if event.engine:
        engine = changes.vertex(VertexLabel.ENGINE, event.engine, name=event.engine)
        runs.append(changes.vertex(VertexLabel.QUERY, event.engine, event.run_id, engine=event.engine, **properties))
        for run in runs:
            changes.edge(run, EdgeLabel.RAN_ON, engine)
    if entry.actor != SYSTEM_ACTOR:
        sender = vertices.person(changes, entry.actor)
        for run in runs:
            changes.edge(sender, EdgeLabel.SUBMITTED, run)
    return runs


def _data(changes: GraphChanges, key: str) -> Vertex:
    """Return the table, view or data set of that key."""
    kind, segments = parse_key(key)
    if _DATA[kind] is VertexLabel.DATASET:
        namespace, name = segments
        return changes.vertex(VertexLabel.DATASET, namespace, name, namespace=namespace, name=name)
    return vertices.target(changes, key)


def _snapshot(changes: GraphChanges, of: Vertex, version: str | None) -> Vertex | None:
    """Return the snapshot of a table that a version names; by the uuid that the table has at this place in the log."""
    if of.label is not VertexLabel.TABLE or version is None or not _SNAPSHOT_ID.fullmatch(version):
        return None
    table_uuid = changes.table_uuid(of)
    snapshot = vertices.snapshot(changes, table_uuid or of.key, version, table_uuid=table_uuid)
    changes.edge(of, EdgeLabel.HAS_SNAPSHOT, snapshot)
    return snapshot
