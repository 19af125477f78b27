# SPDX-License-Identifier: Apache-2.0
"""
The vertices that entries of several types name: tables and their parents, snapshots, columns, people. Pure.

Each function adds the vertex with its parents and returns it; adding it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from ledger.errors import FormatError
from ledger.format.canonical import Json
from ledger.format.event import parse_key
from projections.graph.changes import GraphChanges, Vertex
from projections.graph.labels import EdgeLabel, VertexLabel, vertex_key
from projections.keys import KEYS_CACHED

TARGETS: Final[Mapping[str, VertexLabel]] = {
    "table": VertexLabel.TABLE,
    "view": VertexLabel.VIEW,
    "namespace": VertexLabel.NAMESPACE,
}
"""What a commit can be about, by the kind of its event key."""


def target(changes: GraphChanges, key: str, **properties: Json) -> Vertex:
    """
    Return the table, view or namespace that an event key names, with what it lies in.

    Raises:
        FormatError: if it names something that no commit can be about.
    """
    named = _named(key)
    label = named.label
    if label is VertexLabel.NAMESPACE:
        properties = {}  # of a namespace nothing is known but where it is: no uuid, no metadata
    if named in changes.vertices:
        return changes.add(named, properties) if properties else named
    _, (alias, *path) = parse_key(key)
    parent: Vertex | None = None
    for depth in range(1, len(path) + (label is VertexLabel.NAMESPACE)):
        levels = path[:depth]
        namespace = changes.vertex(VertexLabel.NAMESPACE, alias, *levels, alias=alias, levels=levels)
        if parent is None:
            catalog = changes.vertex(VertexLabel.CATALOG, alias, alias=alias)
            changes.edge(namespace, EdgeLabel.IN_CATALOG, catalog)
        else:
            changes.edge(namespace, EdgeLabel.IN_NAMESPACE, parent)
        parent = namespace
    if parent is None:
        changes.vertex(VertexLabel.CATALOG, alias, alias=alias)
    if label is VertexLabel.NAMESPACE:
        return changes.vertex(label, alias, *path)
    made = changes.vertex(label, alias, *path, alias=alias, levels=path[:-1], name=path[-1], **properties)
    if parent is not None:
        changes.edge(made, EdgeLabel.IN_NAMESPACE, parent)
    return made


@lru_cache(maxsize=KEYS_CACHED)
def _named(key: str) -> Vertex:
    """Return the table, view or namespace that an event key names. Raises as `target`."""
    kind, (alias, *path) = parse_key(key)
    label = TARGETS.get(kind)
    if label is None or not path:
        raise FormatError("key of a commit", expected=f"{', '.join(TARGETS)} with alias and name", found=key)
    return Vertex(label, vertex_key(label, alias, *path))


def table_of(changes: GraphChanges, table_uuid: str) -> Vertex | None:
    """
    Return the table of that uuid, by what it is called at this place in the log; None if nobody has named it yet.
    """
    key = changes.names.key_of(table_uuid)
    return None if key is None else target(changes, key, table_uuid=table_uuid)


def snapshot(changes: GraphChanges, of: str, snapshot_id: str, **properties: Json) -> Vertex:
    """
    Return the snapshot of that id of the table whose uuid (or key, where none is known) is `of`.
    """
    return changes.vertex(VertexLabel.SNAPSHOT, of, snapshot_id, snapshot_id=snapshot_id, **properties)


def column(changes: GraphChanges, owner: Vertex, path: str, **properties: Json) -> Vertex:
    """
    Return the column of that path in a table, view or data set.
    """
    made = changes.vertex(VertexLabel.COLUMN, owner.key, path, path=path, **properties)
    changes.edge(owner, EdgeLabel.HAS_COLUMN, made)
    return made


def person(changes: GraphChanges, actor: str) -> Vertex:
    """
    Return the person behind an actor.
    """
    return changes.vertex(VertexLabel.PERSON, actor, actor=actor)
