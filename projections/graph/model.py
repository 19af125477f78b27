# SPDX-License-Identifier: Apache-2.0
"""
What each entry means to the graph. Pure: entries in, vertices and edges to upsert out.

Every change is an upsert of properties, later ones over earlier ones, and depends on its entry alone, except for six
things that depend on the entries before it: `GraphChanges.edge_if_in_force`, `GraphChanges.governed_as_of`,
`GraphChanges.erase_principals`, `GraphChanges.vertex_if_there`, the names of tables (`GraphChanges.names`), and how
lineage is resolved. None of them depends on batches, so the graph is the same however the entries were cut. An edge
brings its two ends, which may have nothing but a key until their own entry comes: an outcome, for instance, names its
decision and does not look it up.

Commits are in `commits.py`, lineage in `runs.py`, detection in `scans.py`; the control plane is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.entry import Entry
from ledger.format.events import (
    AccessRuleCreated,
    AccessRuleCreatedV1,
    AccessRuleCreatedV3,
    AccessRuleCreatedV4,
    AccessRuleRetired,
    CatalogCreated,
    CatalogRetired,
    CommitDecided,
    CommitObserved,
    CommitSettled,
    DetectionFound,
    FindingReviewed,
    KeyCreated,
    KeyCreatedV1,
    KeyReplaced,
    KeyRevoked,
    LineageReceived,
    PayloadErased,
    PolicyChanged,
    PolicyChangedV1,
    PolicyChangedV2,
    PolicyChangedV3,
    PolicyCreated,
    PolicyCreatedV1,
    PolicyCreatedV2,
    PolicyCreatedV3,
    PolicyRetired,
    PolicyRetiredV1,
    PolicyRetiredV3,
    PolicyScope,
    PolicyScopeV1,
    PolicyScopeV2,
    ScanCompleted,
    ScanCompletedV1,
    ScanFailed,
)
from projections.entries import LogEntry
from projections.graph import commits, runs, scans, vertices
from projections.graph.changes import GraphChanges, Vertex
from projections.graph.labels import EdgeLabel, VertexLabel
from projections.graph.policy_scope import governs, is_of_retention, scope_of
from projections.graph.runs import ResolvedLineage
from projections.relational.table_names import TableNames

FIRST_VERSION: Final = 1
_NOTHING: Final[Mapping[int, ResolvedLineage]] = MappingProxyType({})


def changes_of(
    entries: Iterable[LogEntry],
    *,
    lineage: Mapping[int, ResolvedLineage] = _NOTHING,
    stored_uuids: Mapping[str, str] = MappingProxyType({}),
    names: TableNames | None = None,
    names_change: bool = True,
    stored_things: Mapping[str, Mapping[Vertex, Mapping[str, Json]]] = MappingProxyType({}),
) -> GraphChanges:
    """
    Return what `entries`, in log order, change in the graph.

    `lineage` is what every `lineage.received` among them was resolved to, by index; `stored_uuids` are the uuids that
    the graph has of the tables that it names (`GraphChanges.stored_uuids`). `names` are those before the first entry,
    and are brought up to the last one, unless the caller knows that they do not change; `stored_things` is what the
    graph has of the tables that get another name.

    Raises:
        FormatError: if a commit is about something that no commit can be about.
    """
    changes = GraphChanges(stored_uuids=stored_uuids, names=names or TableNames(), stored_things=stored_things)
    for item in entries:
        apply_entry(changes, item, lineage, names_change=names_change)
    return changes


def apply_entry(
    changes: GraphChanges,
    item: LogEntry,
    lineage: Mapping[int, ResolvedLineage] = _NOTHING,
    *,
    names_change: bool = True,
) -> None:
    """
    Add to `changes` what one entry means.
    """
    entry = item.entry
    if names_change and (bound := changes.names.apply(item)) is not None:
        scans.named(changes, bound)
    match item.event:
        case CommitDecided() as decided:
            commits.decided(changes, item, decided)
        case CommitSettled() as settled:
            commits.settled(changes, entry, settled)
        case CommitObserved() as observed:
            commits.observed(changes, entry, observed)
        case PayloadErased() as erased:
            commits.erased(changes, entry, erased)
        case LineageReceived() as received:
            runs.received(changes, entry, received, lineage[entry.index])
        case ScanCompleted() | ScanCompletedV1() as completed:
            scans.completed(changes, entry, completed)
        case ScanFailed() as failed:
            scans.failed(changes, entry, failed)
        case DetectionFound() as found:
            scans.found(changes, entry, found)
        case FindingReviewed() as reviewed:
            scans.reviewed(changes, entry, reviewed)
        case _:
            _control(changes, entry, item.event)


def _control(changes: GraphChanges, entry: Entry, event: object | None) -> None:
    """Add what people have edited."""
    match event:
        case PolicyCreatedV1() | PolicyChangedV1() as policy:
            _policy(changes, entry, policy.id, policy.version, policy.expression, scope=None, author=entry.actor)
        case (
            PolicyCreatedV2()
            | PolicyCreatedV3()
            | PolicyCreated()
            | PolicyChangedV2()
            | PolicyChangedV3()
            | PolicyChanged() as policy
        ):
            contents, author = policy.contents, policy.author or entry.actor
            _policy(changes, entry, policy.id, policy.version, contents.expression, scope=contents.scope, author=author)
        case AccessRuleCreated() | AccessRuleCreatedV1() | AccessRuleCreatedV3() | AccessRuleCreatedV4() as rule:
            properties = {"expression": rule.expression, "effect": rule.effect.value}
            _in_force(changes, entry, VertexLabel.ACCESS_RULE, rule.id, rule.version, author=entry.actor, **properties)
        case PolicyRetiredV1() | PolicyRetired() | PolicyRetiredV3() as retired:
            _policy_retired(changes, entry, retired)
        case AccessRuleRetired() as retired:
            _no_longer_in_force(changes, entry, VertexLabel.ACCESS_RULE, retired.id, retired.version)
        case CatalogCreated() as catalog:
            vertex = changes.vertex(
                VertexLabel.CATALOG, catalog.id, alias=catalog.id, kind=catalog.kind, **_since(entry)
            )
            changes.edge(vertices.person(changes, entry.actor), EdgeLabel.AUTHORED, vertex)
        case CatalogRetired() as catalog:
            changes.vertex(VertexLabel.CATALOG, catalog.id, **_until(entry))
        case KeyCreatedV1() as key:
            _key_created(changes, entry, key)
        case KeyCreated() as key:
            _key_created(changes, entry, key, expires_at=key.expires_at, issuer=key.issuer)
        case KeyReplaced() as key:
            changes.vertex(VertexLabel.API_KEY, key.id, expires_at=key.expires_at)
        case KeyRevoked() as key:
            changes.vertex(VertexLabel.API_KEY, key.id, **_until(entry))
        case _:
            pass  # the rest of the vocabulary says nothing about this graph


def _in_force(
    changes: GraphChanges,
    entry: Entry,
    label: VertexLabel,
    name: str,
    version: int,
    *,
    author: str,
    **properties: Json,
) -> None:
    """A version is in force from this entry on, and the one before it no longer is."""
    vertex = changes.vertex(label, name, str(version), id=name, version=version, **properties, **_since(entry))
    changes.edge(vertices.person(changes, author), EdgeLabel.AUTHORED, vertex)
    _no_longer_in_force(changes, entry, label, name, version)


def _no_longer_in_force(changes: GraphChanges, entry: Entry, label: VertexLabel, name: str, version: int) -> None:
    """`version` replaced or retired the version before it: an aggregate's versions have no gap."""
    if version > FIRST_VERSION:
        changes.vertex(label, name, str(version - 1), **_until(entry))


def _policy(
    changes: GraphChanges,
    entry: Entry,
    policy_id: str,
    version: int,
    expression: str,
    *,
    scope: PolicyScope | PolicyScopeV1 | PolicyScopeV2 | None,
    author: str,
) -> None:
    what: list[Json] = [kind.value for kind in governs(expression)]
    properties: dict[str, Json] = {"expression": expression, "governs": what, "scope": scope_of(scope)}
    _in_force(changes, entry, VertexLabel.POLICY, policy_id, version, author=author, **properties)
    if is_of_retention(expression):
        retaining: dict[str, Json] = {"id": policy_id, "version": version, "scope": scope_of(scope)}
        label = VertexLabel.RETENTION_POLICY
        changes.vertex(label, policy_id, str(version), expression=expression, **retaining, **_since(entry))
    _no_longer_retaining(changes, entry, policy_id, version)


def _policy_retired(
    changes: GraphChanges, entry: Entry, retired: PolicyRetiredV1 | PolicyRetired | PolicyRetiredV3
) -> None:
    """
    The version before the one that ends a policy is in force no more.

    The graph knows entries, and no times to come: of one that ends at a time, `to_time` alone is that time. If it is
    made to end at once after all, the version before is the one that ended it, which is no vertex.
    """
    ended: dict[str, Json] = _until(entry)
    if isinstance(retired, PolicyRetiredV3):
        ended["to_time"] = retired.retired_from
    for label in (VertexLabel.POLICY, VertexLabel.RETENTION_POLICY):
        changes.vertex_if_there(label, retired.id, str(retired.version - 1), **ended)


def _no_longer_retaining(changes: GraphChanges, entry: Entry, policy_id: str, version: int) -> None:
    """`version` replaced or retired the version before it, which may have been one of retention."""
    if version > FIRST_VERSION:
        changes.vertex_if_there(VertexLabel.RETENTION_POLICY, policy_id, str(version - 1), **_until(entry))


def _key_created(changes: GraphChanges, entry: Entry, key: KeyCreatedV1 | KeyCreated, **more: Json) -> None:
    vertex = changes.vertex(
        VertexLabel.API_KEY,
        key.id,
        id=key.id,
        prefix=key.prefix,
        roles=list(key.roles),
        **more,
        **_since(entry),
    )
    changes.edge(vertices.person(changes, key.actor), EdgeLabel.HOLDS, vertex)
    changes.edge(vertices.person(changes, entry.actor), EdgeLabel.AUTHORED, vertex)


def _since(entry: Entry) -> dict[str, Json]:
    return {"from_index": entry.index, "from_time": canonical.format_time(entry.recorded_at), "to_index": None}


def _until(entry: Entry) -> dict[str, Json]:
    return {"to_index": entry.index, "to_time": canonical.format_time(entry.recorded_at)}
