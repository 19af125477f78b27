# SPDX-License-Identifier: Apache-2.0
"""
What detection means to the graph: scans of snapshots, findings in columns, the tags that follow, and who has said
whether a finding is real. Pure.

A finding belongs to the table of its uuid. While that table has no name, the finding has no column; once it gets one,
earlier findings are connected to the table of that name (`named`). A column and its table are tagged only by a finding
of name and values together (92 percent): people act on tags. A review is a property of the finding that it is about:
of those of a column and kind, the newest holds (`answers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.entry import Entry
from ledger.format.events import DetectionFound, FindingReviewed, ScanCompleted, ScanCompletedV1, ScanFailed
from projections.graph import vertices
from projections.graph.changes import GraphChanges, Vertex
from projections.graph.labels import EdgeLabel, VertexLabel
from projections.relational.table_names import PII, NamedTable

COMPLETED: Final = "completed"
FAILED: Final = "failed"
"""The status of a scan."""

CERTAIN_PERCENT: Final = 92
"""Name and values together (seed of the architecture, "Post-Commit Detection")."""


def named(changes: GraphChanges, bound: NamedTable) -> None:
    """
    Draw a table that has got a name: with all that is known of it already, and from the name it had before.
    """
    table = vertices.target(changes, bound.key, table_uuid=bound.table_uuid)
    if bound.before is not None and bound.before != bound.key:
        changes.edge(vertices.target(changes, bound.before), EdgeLabel.RENAMED_TO, table)
    if not bound.is_known:
        return  # no earlier entry was about it, so there is nothing to find
    for vertex, properties in changes.things_of(bound.table_uuid):
        changes.vertices.setdefault(vertex, {})
        if vertex.label is VertexLabel.SNAPSHOT:
            changes.edge(table, EdgeLabel.HAS_SNAPSHOT, vertex)
        else:
            _classify(changes, table, vertex, properties)


def completed(changes: GraphChanges, entry: Entry, event: ScanCompleted | ScanCompletedV1) -> None:
    """
    Add a scan that was done.
    """
    unread_columns: dict[str, Json] = {"columns_unread": None, "unread": None}
    if isinstance(event, ScanCompleted):
        unread: list[Json] = [[one.column, one.reason.value] for one in event.unread]
        unread_columns = {"columns_unread": event.columns_unread, "unread": unread}
    _scanned(
        changes,
        entry,
        event,
        status=COMPLETED,
        fault=None,
        rows=event.rows,
        rows_sampled=event.rows_sampled,
        columns=event.columns,
        files=event.files,
        findings=event.findings,
        **unread_columns,
    )


def failed(changes: GraphChanges, entry: Entry, event: ScanFailed) -> None:
    """
    Add a scan that could not be done; its snapshot is joined to it all the same, and `status` tells.
    """
    _scanned(changes, entry, event, status=FAILED, fault=event.fault.value)


def found(changes: GraphChanges, entry: Entry, event: DetectionFound) -> None:
    """
    Add a finding: of its run, in its column, and as tags.
    """
    classification = changes.vertex(
        VertexLabel.CLASSIFICATION,
        *(event.table_uuid, event.snapshot, event.ruleset, str(event.field_id), event.kind.value),
        kind=event.kind.value,
        column=event.column,
        field_id=event.field_id,
        confidence_percent=event.confidence_percent,
        matches=event.matches,
        values=event.values,
        snapshot_id=event.snapshot,
        table_uuid=event.table_uuid,
        index=entry.index,
    )
    changes.edge(classification, EdgeLabel.DETECTED_BY, _run(changes, event.table_uuid, event.snapshot, event.ruleset))
    for tag in _tags(changes, event.kind.value):
        changes.edge(classification, EdgeLabel.TAGGED_WITH, tag)
    table = vertices.table_of(changes, event.table_uuid)
    if table is not None:
        _classify(changes, table, classification, changes.vertices[classification])


def reviewed(changes: GraphChanges, entry: Entry, event: FindingReviewed) -> None:
    """
    Say of a finding what a person has said of it; of several reviews the last one stays.
    """
    classification = changes.vertex(
        VertexLabel.CLASSIFICATION,
        *(event.table_uuid, event.snapshot, event.ruleset, str(event.field_id), event.kind.value),
        review=event.verdict.value,
        review_index=entry.index,
    )
    person = vertices.person(changes, entry.actor)
    changes.edge(person, EdgeLabel.REVIEWED, classification, index=entry.index, verdict=event.verdict.value)


def _classify(changes: GraphChanges, table: Vertex, classification: Vertex, properties: Mapping[str, Json]) -> None:
    """Connect a finding with a column of its table; `properties` are those of the classification."""
    field_id = properties["field_id"]
    # A column may be gone from the schema by the time it was scanned: then it has its number for a name.
    column = vertices.column(changes, table, str(properties["column"] or field_id), field_id=field_id)
    changes.edge(column, EdgeLabel.CLASSIFIED_AS, classification)
    percent = properties["confidence_percent"]
    if isinstance(percent, int) and percent >= CERTAIN_PERCENT:
        for tag in _tags(changes, str(properties["kind"])):
            changes.edge(column, EdgeLabel.TAGGED_WITH, tag)
            changes.edge(table, EdgeLabel.TAGGED_WITH, tag)


def _tags(changes: GraphChanges, kind: str) -> list[Vertex]:
    return [changes.vertex(VertexLabel.TAG, name, name=name) for name in (PII, kind)]


def _scanned(
    changes: GraphChanges, entry: Entry, event: ScanCompleted | ScanCompletedV1 | ScanFailed, **properties: Json
) -> None:
    run = _run(
        changes,
        event.table_uuid,
        event.snapshot,
        event.ruleset,
        index=entry.index,
        recorded_at=canonical.format_time(entry.recorded_at),
        **properties,
    )
    snapshot = vertices.snapshot(changes, event.table_uuid, event.snapshot, table_uuid=event.table_uuid)
    changes.edge(run, EdgeLabel.SCANNED, snapshot)
    table = vertices.table_of(changes, event.table_uuid)
    if table is not None:
        changes.edge(table, EdgeLabel.HAS_SNAPSHOT, snapshot)


def _run(changes: GraphChanges, table_uuid: str, snapshot: str, ruleset: str, **properties: Json) -> Vertex:
    return changes.vertex(
        VertexLabel.DETECTION_RUN,
        *(table_uuid, snapshot, ruleset),
        table_uuid=table_uuid,
        snapshot_id=snapshot,
        ruleset=ruleset,
        **properties,
    )
