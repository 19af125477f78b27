# SPDX-License-Identifier: Apache-2.0
"""
Changes to a graph: which vertices and edges are to be there, with which properties. Pure.

Whatever is added is merged by label and natural key, later properties over earlier ones, as `write.py` merges it with
what the graph holds; so two batches one after the other change a graph as one batch of both does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ledger.format.canonical import Json
from projections.entries import PrincipalsErased, storable, storable_json
from projections.errors import UnknownLabelError
from projections.graph.labels import EDGES, EdgeLabel, VertexLabel, vertex_key
from projections.graph.policy_scope import Governs, TableWrite, covers
from projections.keys import bounded_name
from projections.relational.table_names import TableNames

GOVERNING: Final[Mapping[Governs, EdgeLabel]] = {
    Governs.SCHEMA: EdgeLabel.SCHEMA_GOVERNS,
    Governs.WRITE: EdgeLabel.WRITE_GOVERNS,
}


JUDGING: Final = (VertexLabel.POLICY, VertexLabel.RETENTION_POLICY)
"""The labels of versions of policies."""
OF_TABLE: Final = (VertexLabel.SNAPSHOT, VertexLabel.CLASSIFICATION)
"""What hangs in a table, and says by its property `table_uuid` in which."""
_NOBODY: Final = object()


class Vertex(NamedTuple):
    """A vertex, by its label and natural key. A tuple, because many are made and looked up for each entry."""

    label: VertexLabel
    key: str


class Edge(NamedTuple):
    """An edge, by its label and ends."""

    label: EdgeLabel
    start: Vertex
    end: Vertex


@dataclass(frozen=True, slots=True)
class GraphChanges:
    """Vertices and edges to be there, with the properties to be set on them; `graph/model.py` adds to it."""

    vertices: dict[Vertex, dict[str, Json]] = field(default_factory=dict)
    if_there: dict[Vertex, dict[str, Json]] = field(default_factory=dict)
    """Properties to be set on vertices, if they are in the graph already; see `vertex_if_there`."""
    edges: dict[Edge, dict[str, Json]] = field(default_factory=dict)
    edges_if_in_force: dict[Edge, int] = field(default_factory=dict)
    """Edges to be there if their end was in force at this index; see `edge_if_in_force`."""
    governed: dict[tuple[Vertex, int, TableWrite], None] = field(default_factory=dict)
    """Tables, each with an index and a write that the policies in force then may govern; see `governed_as_of`."""
    erased: list[PrincipalsErased] = field(default_factory=list)
    """Principals to be taken out of what is in the graph; see `erase_principals`."""
    names: TableNames = field(default_factory=TableNames, compare=False)
    """What tables are called at this place in the log."""
    stored_things: Mapping[str, Mapping[Vertex, Mapping[str, Json]]] = field(default_factory=dict, compare=False)
    """Snapshots and classifications, as they stood in the graph before, by the uuid of a table that is named here."""
    stored_uuids: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The uuids of tables by key, as they stood in the graph before: of those at least that lineage here names."""

    def vertex(self, label: VertexLabel, *segments: str, **properties: Json) -> Vertex:
        """Let the vertex that `segments` name be there, with `properties` set on it; return it."""
        return self.add(Vertex(label, vertex_key(label, *segments)), properties)

    def add(self, vertex: Vertex, properties: Mapping[str, Json]) -> Vertex:
        """Let a vertex be there, with `properties` set on it; return it."""
        self.vertices.setdefault(vertex, {}).update(_storable(properties))
        return vertex

    def vertex_if_there(self, label: VertexLabel, *segments: str, **properties: Json) -> None:
        """
        Set `properties` on the vertex that `segments` name, if an entry before this one has made it.

        It reads the graph. It still does not depend on how entries are cut into batches: what an entry has made before
        is among the vertices here, or in the graph.
        """
        vertex = Vertex(label, vertex_key(label, *segments))
        known = self.vertices if vertex in self.vertices else self.if_there
        known.setdefault(vertex, {}).update(_storable(properties))

    def table_uuid(self, table: Vertex) -> str | None:
        """Return the uuid of a table after what was added so far; None if none is known."""
        found = self.vertices.get(table, {}).get("table_uuid", self.stored_uuids.get(table.key))
        return found if isinstance(found, str) else None

    def things_of(self, table_uuid: str) -> list[tuple[Vertex, Mapping[str, Json]]]:
        """Return the snapshots and classifications of a table that are there after what was added so far."""
        stored = self.stored_things.get(bounded_name(table_uuid), {})
        found = {vertex: dict(properties) for vertex, properties in stored.items()}
        for vertex, properties in self.vertices.items():
            if vertex.label in OF_TABLE and properties.get("table_uuid", _NOBODY) == table_uuid:
                found.setdefault(vertex, {}).update(properties)
        return list(found.items())

    def edge(self, start: Vertex, label: EdgeLabel, end: Vertex, **properties: Json) -> None:
        """
        Let the edge be there, with `properties` set on it.

        Raises:
            UnknownLabelError: if the inventory has no such edge between such vertices.
        """
        known = self.edges.setdefault(_edge(start, label, end), {})
        if properties:
            known.update(_storable(properties))

    def edge_if_in_force(self, start: Vertex, label: EdgeLabel, end: Vertex, *, as_of: int) -> None:
        """
        Let the edge be there if `end` (a version of something) exists and was in force at index `as_of`.

        The one change that reads the graph. It still does not depend on how entries are cut into batches: a
        version's `from_index` is set once, by an entry before this one, and a `to_index` set later is above `as_of`.

        Raises:
            UnknownLabelError: as `edge` does.
        """
        self.edges_if_in_force[_edge(start, label, end)] = as_of

    def governed_as_of(self, table: Vertex, write: TableWrite, *, as_of: int) -> None:
        """
        Let every policy that was in force at index `as_of`, and covers `write`, govern `table`.

        Each does as its properties `governs` and `scope` say, and one of retention retains it.

        It reads the graph, and does not depend on batches, for the same reason as `edge_if_in_force`.
        """
        self.governed[table, as_of, write] = None

    def erase_principals(self, erased: PrincipalsErased) -> None:
        """
        Let no WriteEvent that `erased` selects have a principal: neither those added so far nor those in the graph.

        It selects by index, and only what stands before it, so it does not depend on batches.
        """
        self.erased.append(erased)
        actors: dict[Vertex, set[str]] = {}
        for edge in self.edges:
            if edge.label is EdgeLabel.WROTE:
                actors.setdefault(edge.end, set()).add(edge.start.key)
        selection = replace(erased, actor=erased.actor and vertex_key(VertexLabel.PERSON, erased.actor))
        for vertex, properties in self.vertices.items():
            if vertex.label is not VertexLabel.WRITE_EVENT or properties.get("principal") is None:
                continue
            index = properties["index"]  # set with the principal
            if isinstance(index, int) and selection.selects(index=index, actors=actors.get(vertex, set())):
                properties["principal"] = None

    def edges_in_force(self) -> list[Edge]:
        """Return what `edges_if_in_force` and `governed` draw if nothing was in the graph before."""
        drawn = [
            edge
            for policy, properties in self.vertices.items()
            if policy.label in JUDGING
            for table, as_of, write in self.governed
            if is_in_force(properties.get("from_index"), properties.get("to_index"), as_of=as_of)
            for edge in governing_edges(policy, properties.get("governs"), properties.get("scope"), table, write)
        ]
        for edge, as_of in self.edges_if_in_force.items():
            end = self.vertices.get(edge.end, {})
            if is_in_force(end.get("from_index"), end.get("to_index"), as_of=as_of):
                drawn.append(edge)
        return drawn


def governing_edges(policy: Vertex, governs: Json, scope: Json, table: Vertex, write: TableWrite) -> list[Edge]:
    """
    Return the edges from a policy to a table whose `write` it judged, if its scope covers that.

    The list `governs` says what a Policy governs; a RetentionPolicy retains.
    """
    if not covers(scope, write):
        return []
    if policy.label is VertexLabel.RETENTION_POLICY:
        return [_edge(policy, EdgeLabel.RETAINS, table)]
    kinds = governs if isinstance(governs, list) else []
    return [_edge(policy, GOVERNING[Governs(kind)], table) for kind in kinds]


def is_in_force(from_index: Json, to_index: Json, *, as_of: int) -> bool:
    """
    Return whether what is in force from one index up to, not including, another was so at index `as_of`.
    """
    if not isinstance(from_index, int) or from_index > as_of:
        return False
    return not isinstance(to_index, int) or to_index > as_of


def _edge(start: Vertex, label: EdgeLabel, end: Vertex) -> Edge:
    kind = EDGES[label]
    if start.label not in kind.starts or end.label not in kind.ends:
        raise UnknownLabelError(f"edge {start.label}-{label}->{end.label}: expected one of the inventory")
    return Edge(label, start, end)


def _storable(properties: Mapping[str, Json]) -> dict[str, Json]:
    # Nearly all values are numbers, nulls and short texts, and asking whether they are sequences is slow.
    return {
        name: value
        if value is None or isinstance(value, int)
        else storable(value)
        if type(value) is str
        else storable_json(value)
        for name, value in properties.items()
    }
