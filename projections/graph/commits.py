# SPDX-License-Identifier: Apache-2.0
"""
What commits mean to the graph: decided, settled, or observed (committed without the gateway). Pure.

The only personal data is `principal` of a WriteEvent. It comes from a payload part of the entry that made the vertex:
without the part the property is missing, and it is erased with the part.
"""

from __future__ import annotations

from uuid import UUID

from ledger.format.canonical import Json
from ledger.format.entry import Entry
from ledger.format.event import uuid_text
from ledger.format.events import (
    CommitDecided,
    CommitDecision,
    CommitObserved,
    CommitOutcome,
    CommitSettled,
    PayloadErased,
)
from projections.entries import LogEntry, decision_of, principals_erased, read_principal, recorded_text
from projections.graph import vertices
from projections.graph.changes import GraphChanges, Vertex
from projections.graph.labels import EdgeLabel, VertexLabel, vertex_key, write_event_key
from projections.graph.policy_scope import TableWrite
from projections.name_patterns import joined_path


def decided(changes: GraphChanges, item: LogEntry, event: CommitDecided) -> None:
    """
    Add a decision: who requested which write, and which policies judged it.
    """
    entry, principal = item.entry, read_principal(item)
    write = _write_event(
        changes,
        entry.group_id,
        entry.key,
        index=entry.index,
        recorded_at=recorded_text(entry),
        operation=event.operation,
        actions=list(event.actions),
        decision=event.decision.value,
        as_of=event.as_of,
        reason_id=None if event.reason is None else event.reason.id,
        reason_version=None if event.reason is None else event.reason.version,
        principal=principal,
        principal_source=event.principal_source,
    )
    changes.edge(vertices.person(changes, entry.actor), EdgeLabel.WROTE, write)
    intended = vertices.target(changes, entry.key)
    changes.edge(write, EdgeLabel.INTENDED_WRITE, intended)
    if intended.label is VertexLabel.TABLE and event.decision is not CommitDecision.CONFLICTED:
        # A commit that lost a race may not have come to the policies at all.
        named = event.identifier
        path = joined_path((*named.namespace, named.name or ""))
        uuid = None if event.table_uuid is None else event.table_uuid.lower()
        written = TableWrite(catalog=named.alias, path=path, operation=event.operation, uuid=uuid)
        changes.governed_as_of(intended, written, as_of=event.as_of)
    if event.reason is not None:
        # The event does not say which of the two it was; an id may name one of each.
        for label in (VertexLabel.POLICY, VertexLabel.ACCESS_RULE):
            version = Vertex(label, vertex_key(label, event.reason.id, str(event.reason.version)))
            changes.edge_if_in_force(write, EdgeLabel.DECIDED_BY, version, as_of=event.as_of)


def settled(changes: GraphChanges, entry: Entry, event: CommitSettled) -> None:
    """
    Add an outcome to the decision that it names; one that was accepted also to what was written.
    """
    write = _write_event(
        changes,
        decision_of(entry, event),
        entry.key,
        outcome=event.outcome.value,
        settled_index=entry.index,
        settled_at=recorded_text(entry),
    )
    if event.outcome is not CommitOutcome.ACCEPTED:
        return
    target = vertices.target(changes, entry.key, table_uuid=event.table_uuid, metadata_location=event.metadata_location)
    changes.edge(write, EdgeLabel.ACTUAL_WRITE, target)
    for snapshot_id in event.snapshots:
        snapshot = vertices.snapshot(
            changes,
            event.table_uuid or entry.key,
            snapshot_id,
            table_uuid=event.table_uuid,
            metadata_location=event.metadata_location,
            governed=True,
            index=entry.index,
        )
        changes.edge(write, EdgeLabel.ACTUAL_WRITE, snapshot)
        if target.label is VertexLabel.TABLE:
            changes.edge(target, EdgeLabel.HAS_SNAPSHOT, snapshot)


def observed(changes: GraphChanges, entry: Entry, event: CommitObserved) -> None:
    """
    Add a snapshot that no decision approves. Where the table has gone since is not known from it.
    """
    snapshot = vertices.snapshot(
        changes,
        event.table_uuid,
        event.snapshot,
        table_uuid=event.table_uuid,
        metadata_location=event.metadata_location,
        operation=event.operation,
        governed=False,
        index=entry.index,
        observed_at=recorded_text(entry),
    )
    if event.parent is not None:
        parent = vertices.snapshot(changes, event.table_uuid, event.parent, table_uuid=event.table_uuid)
        changes.edge(parent, EdgeLabel.PARENT_OF, snapshot)
    table = vertices.table_of(changes, event.table_uuid)
    if table is not None:
        changes.edge(table, EdgeLabel.HAS_SNAPSHOT, snapshot)


def erased(changes: GraphChanges, entry: Entry, event: PayloadErased) -> None:
    """
    Take out what came from parts that were erased.
    """
    if (principals := principals_erased(entry, event)) is not None:
        changes.erase_principals(principals)


def _write_event(changes: GraphChanges, group_id: UUID, key: str, **properties: Json) -> Vertex:
    group = uuid_text(group_id)
    properties["group_id"] = group
    return changes.add(Vertex(VertexLabel.WRITE_EVENT, write_event_key(group, key)), properties)
