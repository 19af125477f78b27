# SPDX-License-Identifier: Apache-2.0
"""
Which vertices of the graph a caller may see, and what of them.

A vertex that has the key of an entry, of a column or of lineage is seen as those are (`looking/sight.py`). What tells
of one table is seen by whoever sees the table: a decision by the key within its own, and snapshots, scans and findings
by what the uuid in their keys is called now. People, rules, keys, engines and tags are seen by readers of the log. An
edge is seen by whoever sees both of its ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.http.looking.sight import Sight
from ledger.errors import FormatError
from ledger.format.event import parse_key
from ledger.store.session import Connection
from projections.graph.changes import OF_TABLE
from projections.graph.labels import VertexLabel
from projections.graph.neighbours import FoundVertex
from projections.keys import bounded_name
from projections.relational.table_names import read_live_names

OF_UUID: Final = frozenset({*OF_TABLE, VertexLabel.DETECTION_RUN})
"""Labels whose keys begin with the uuid of a table, or with a table's key where it has none."""
PRINCIPAL: Final = "principal"
"""The property that comes from a payload part."""


async def seen_vertices(
    connection: Connection, log_id: int, sight: Sight, vertices: Sequence[FoundVertex]
) -> list[bool]:
    """
    Return which of some vertices the caller may see; one statement looks up all tables that they tell of.
    """
    about = [_about(each) for each in vertices]
    uuids = sorted({each.uuid for each in about if each.uuid is not None})
    named = await read_live_names(connection, log_id, uuids=uuids) if uuids else []
    keys = {each.table_uuid: each.key for each in named}
    return [await _sees(sight, each.key if each.uuid is None else keys.get(each.uuid)) for each in about]


def properties_shown(vertex: FoundVertex, *, with_principal: bool) -> Mapping[str, Any]:
    """
    Return what a vertex holds; who an actor is, is null unless it is to be there.
    """
    if with_principal or PRINCIPAL not in vertex.properties:
        return vertex.properties
    return {**vertex.properties, PRINCIPAL: None}


@dataclass(frozen=True, slots=True)
class _About:
    """What a vertex is judged by: the key of something, or else the uuid of a table; neither if that is not known."""

    key: str | None = None
    uuid: str | None = None


def _about(vertex: FoundVertex) -> _About:
    if vertex.label not in OF_UUID and vertex.label is not VertexLabel.WRITE_EVENT:
        return _About(key=vertex.key)
    if vertex.label in OF_UUID and isinstance(uuid := vertex.properties.get("table_uuid"), str):
        return _About(uuid=bounded_name(uuid))
    try:
        _, segments = parse_key(vertex.key)
    except FormatError:
        return _About()  # it was shortened
    return _About(key=segments[-1] if vertex.label is VertexLabel.WRITE_EVENT else segments[0])


async def _sees(sight: Sight, key: str | None) -> bool:
    # Of a table that nobody has named, nobody sees anything but who may see all tables.
    return await (sight.sees_every("table") if key is None else sight.sees(key))
