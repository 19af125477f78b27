"""
What each entry means to the graph. Pure: entries in, vertices and edges to be there out.

Every change is an upsert of properties, later ones over earlier ones, and depends on its entry alone (but for
`Changes.edge_if_in_force`); so the graph is the same however the entries were cut into batches. An edge brings its two
ends, which may stand there with nothing but a key until their own entry comes: an outcome, for instance, does not look
its decision up, it names it.

Nothing personal stands here but `principal` of a WriteEvent, which comes from a payload part of the entry that made the
vertex: without the part, without the property.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from ledger import canonical
from ledger.canonical import Json
from ledger.entry import Entry
from ledger.errors import FormatError
from ledger.events import (
    AccessRuleCreated,
    AccessRuleRetired,
    CatalogCreated,
    CatalogRetired,
    CommitDecided,
    CommitSettled,
    KeyCreated,
    KeyRevoked,
    PolicyChanged,
    PolicyCreated,
    PolicyRetired,
    Settled,
)
from ledger.keys import parse_key
from projections.entries import LogEntry, decision_of, read_principal
from projections.graph.changes import Changes, Vertex
from projections.graph.labels import EdgeLabel, VertexLabel, vertex_key

TARGETS: Final[Mapping[str, VertexLabel]] = {
    "table": VertexLabel.TABLE,
    "view": VertexLabel.VIEW,
    "namespace": VertexLabel.NAMESPACE,
}
"""What a commit can be about, by the kind of its event key."""

FIRST_VERSION: Final = 1


def changes_of(entries: Iterable[LogEntry]) -> Changes:
    """
    Return what `entries`, in log order, change in the graph.

    Raises:
        FormatError: if a commit is about something that no commit can be about.
    """
    changes = Changes()
    for item in entries:
        apply_entry(changes, item)
    return changes


def apply_entry(changes: Changes, item: LogEntry) -> None:
    """
    Add to `changes` what one entry means.
    """
    entry = item.entry
    match item.event:
        case CommitDecided() as decided:
            _decided(changes, item, decided)
        case CommitSettled() as settled:
            _settled(changes, entry, settled)
        case PolicyCreated() | PolicyChanged() as policy:
            _in_force(changes, entry, VertexLabel.POLICY, policy.id, policy.version, expression=policy.expression)
        case AccessRuleCreated() as rule:
            properties: dict[str, Json] = {"expression": rule.expression, "effect": rule.effect.value}
            _in_force(changes, entry, VertexLabel.ACCESS_RULE, rule.id, rule.version, **properties)
        case PolicyRetired() as retired:
            _no_longer_in_force(changes, entry, VertexLabel.POLICY, retired.id, retired.version)
        case AccessRuleRetired() as retired:
            _no_longer_in_force(changes, entry, VertexLabel.ACCESS_RULE, retired.id, retired.version)
        case CatalogCreated() as catalog:
            vertex = changes.vertex(
                VertexLabel.CATALOG, catalog.id, alias=catalog.id, kind=catalog.kind, **_since(entry)
            )
            changes.edge(_person(changes, entry.actor), EdgeLabel.AUTHORED, vertex)
        case CatalogRetired() as catalog:
            changes.vertex(VertexLabel.CATALOG, catalog.id, **_until(entry))
        case KeyCreated() as key:
            _key_created(changes, entry, key)
        case KeyRevoked() as key:
            changes.vertex(VertexLabel.API_KEY, key.id, **_until(entry))
        case _:
            pass  # the rest of the vocabulary says nothing about this graph


def _decided(changes: Changes, item: LogEntry, decided: CommitDecided) -> None:
    entry, principal = item.entry, read_principal(item)
    write = _write_event(
        changes,
        entry.group_id,
        entry.key,
        index=entry.index,
        recorded_at=canonical.format_time(entry.recorded_at),
        operation=decided.operation,
        actions=list(decided.actions),
        decision=decided.decision.value,
        as_of=decided.as_of,
        reason_id=None if decided.reason is None else decided.reason.id,
        reason_version=None if decided.reason is None else decided.reason.version,
        principal=principal,
        principal_source=decided.principal_source,
    )
    changes.edge(_person(changes, entry.actor), EdgeLabel.WROTE, write)
    changes.edge(write, EdgeLabel.INTENDED_WRITE, _target(changes, entry.key))
    if decided.reason is not None:
        # The event does not say which of the two it was; an id may name one of each.
        for label in (VertexLabel.POLICY, VertexLabel.ACCESS_RULE):
            version = Vertex(label, vertex_key(label, decided.reason.id, str(decided.reason.version)))
            changes.edge_if_in_force(write, EdgeLabel.DECIDED_BY, version, as_of=decided.as_of)


def _settled(changes: Changes, entry: Entry, settled: CommitSettled) -> None:
    write = _write_event(
        changes,
        decision_of(entry, settled),
        entry.key,
        outcome=settled.outcome.value,
        settled_index=entry.index,
        settled_at=canonical.format_time(entry.recorded_at),
    )
    if settled.outcome is not Settled.ACCEPTED:
        return
    target = _target(changes, entry.key, table_uuid=settled.table_uuid, metadata_location=settled.metadata_location)
    changes.edge(write, EdgeLabel.ACTUAL_WRITE, target)
    for snapshot_id in settled.snapshots:
        snapshot = changes.vertex(
            VertexLabel.SNAPSHOT,
            settled.table_uuid or entry.key,
            snapshot_id,
            snapshot_id=snapshot_id,
            table_uuid=settled.table_uuid,
            metadata_location=settled.metadata_location,
        )
        changes.edge(write, EdgeLabel.ACTUAL_WRITE, snapshot)
        if target.label is VertexLabel.TABLE:
            changes.edge(target, EdgeLabel.HAS_SNAPSHOT, snapshot)


def _write_event(changes: Changes, group_id: UUID, key: str, **properties: Json) -> Vertex:
    return changes.vertex(VertexLabel.WRITE_EVENT, str(group_id), key, group_id=str(group_id), **properties)


def _target(changes: Changes, key: str, **properties: Json) -> Vertex:
    """Return the table, view or namespace that an event key names, with what it lies in."""
    kind, (alias, *path) = parse_key(key)
    label = TARGETS.get(kind)
    if label is None or not path:
        raise FormatError("key of a commit", expected=f"{', '.join(TARGETS)} with alias and name", found=key)
    catalog = changes.vertex(VertexLabel.CATALOG, alias, alias=alias)
    parent: Vertex | None = None
    for depth in range(1, len(path) + (label is VertexLabel.NAMESPACE)):
        levels = path[:depth]
        namespace = changes.vertex(VertexLabel.NAMESPACE, alias, *levels, alias=alias, levels=levels)
        if parent is None:
            changes.edge(namespace, EdgeLabel.IN_CATALOG, catalog)
        else:
            changes.edge(namespace, EdgeLabel.IN_NAMESPACE, parent)
        parent = namespace
    if label is VertexLabel.NAMESPACE:
        return changes.vertex(label, alias, *path)
    target = changes.vertex(label, alias, *path, alias=alias, levels=path[:-1], name=path[-1], **properties)
    if parent is not None:
        changes.edge(target, EdgeLabel.IN_NAMESPACE, parent)
    return target


def _person(changes: Changes, actor: str) -> Vertex:
    return changes.vertex(VertexLabel.PERSON, actor, actor=actor)


def _in_force(changes: Changes, entry: Entry, label: VertexLabel, name: str, version: int, **properties: Json) -> None:
    """A version is in force from this entry on, and the one before it no longer is."""
    vertex = changes.vertex(label, name, str(version), id=name, version=version, **properties, **_since(entry))
    changes.edge(_person(changes, entry.actor), EdgeLabel.AUTHORED, vertex)
    _no_longer_in_force(changes, entry, label, name, version)


def _no_longer_in_force(changes: Changes, entry: Entry, label: VertexLabel, name: str, version: int) -> None:
    """`version` replaced or retired the version before it: an aggregate's versions have no gap."""
    if version > FIRST_VERSION:
        changes.vertex(label, name, str(version - 1), **_until(entry))


def _key_created(changes: Changes, entry: Entry, key: KeyCreated) -> None:
    vertex = changes.vertex(
        VertexLabel.API_KEY,
        key.id,
        id=key.id,
        prefix=key.prefix,
        roles=list(key.roles),
        **_since(entry),
    )
    changes.edge(_person(changes, key.actor), EdgeLabel.HOLDS, vertex)
    changes.edge(_person(changes, entry.actor), EdgeLabel.AUTHORED, vertex)


def _since(entry: Entry) -> dict[str, Json]:
    return {"from_index": entry.index, "from_time": canonical.format_time(entry.recorded_at), "to_index": None}


def _until(entry: Entry) -> dict[str, Json]:
    return {"to_index": entry.index, "to_time": canonical.format_time(entry.recorded_at)}
