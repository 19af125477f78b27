"""
What detection means to the graph: runs over snapshots, what they found in which column, and the tags that follow. Pure.

A finding names its table by its event key; where no catalog here names the table, it stands without a column. A column
and its table are tagged only by a finding of name and values together (92 percent): a tag is what people act on.
"""

from __future__ import annotations

from typing import Final

from ledger import canonical
from ledger.canonical import Json
from ledger.entry import Entry
from ledger.events import DetectionFound, ScanCompleted, ScanFailed
from projections.graph import things
from projections.graph.changes import Changes, Vertex
from projections.graph.labels import EdgeLabel, VertexLabel

PII: Final = "pii"
"""The tag of all personal data, of whatever kind."""

CERTAIN_PERCENT: Final = 92
"""Name and values together (seed of the architecture, "Post-Commit Detection")."""


def completed(changes: Changes, entry: Entry, event: ScanCompleted) -> None:
    """
    Add a scan that was done.
    """
    _scanned(
        changes,
        entry,
        event,
        status="completed",
        fault=None,
        rows=event.rows,
        columns=event.columns,
        files=event.files,
        findings=event.findings,
    )


def failed(changes: Changes, entry: Entry, event: ScanFailed) -> None:
    """
    Add a scan that could not be done; its snapshot is joined to it all the same, and `status` tells.
    """
    _scanned(changes, entry, event, status="failed", fault=event.fault.value)


def found(changes: Changes, entry: Entry, event: DetectionFound) -> None:
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
    tags = [changes.vertex(VertexLabel.TAG, name, name=name) for name in (PII, event.kind.value)]
    tagged = [classification]
    if entry.key.startswith("table:"):
        table = things.target(changes, entry.key, table_uuid=event.table_uuid)
        # A column may be gone from the schema by the time it was scanned: then it has its number for a name.
        column = things.column(changes, table, event.column or str(event.field_id), field_id=event.field_id)
        changes.edge(column, EdgeLabel.CLASSIFIED_AS, classification)
        if event.confidence_percent >= CERTAIN_PERCENT:
            tagged += [column, table]
    for vertex in tagged:
        for tag in tags:
            changes.edge(vertex, EdgeLabel.TAGGED_WITH, tag)


def _scanned(changes: Changes, entry: Entry, event: ScanCompleted | ScanFailed, **properties: Json) -> None:
    run = _run(
        changes,
        event.table_uuid,
        event.snapshot,
        event.ruleset,
        index=entry.index,
        recorded_at=canonical.format_time(entry.recorded_at),
        **properties,
    )
    snapshot = things.snapshot(changes, event.table_uuid, event.snapshot, table_uuid=event.table_uuid)
    changes.edge(run, EdgeLabel.SCANNED, snapshot)
    table = things.table_of(changes, event.identifier, table_uuid=event.table_uuid)
    if table is not None:
        changes.edge(table, EdgeLabel.HAS_SNAPSHOT, snapshot)


def _run(changes: Changes, table_uuid: str, snapshot: str, ruleset: str, **properties: Json) -> Vertex:
    return changes.vertex(
        VertexLabel.DETECTION_RUN,
        *(table_uuid, snapshot, ruleset),
        table_uuid=table_uuid,
        snapshot_id=snapshot,
        ruleset=ruleset,
        **properties,
    )
