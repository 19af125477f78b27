# SPDX-License-Identifier: Apache-2.0
"""
A table's place in the graph: its vertex, its edges, and what is at their other ends
(`/v1/tables/{alias}/{namespace}/{table}/graph`).

It is GraphQL's `vertex` and `edges` of one table, seen by the same rules: an edge is there for whoever may see both of
its ends.
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gateway.errors import NotFoundError
from gateway.http.graphql.loading import Asking
from gateway.http.graphql.vertices import properties_shown
from gateway.http.looking.cursors import format_cursor, parse_key_cursor
from gateway.http.looking.graphs import read_lag
from gateway.http.looking.query import CURSOR, LIMIT, Query
from gateway.http.looking.shown import Shown
from gateway.http.table_routes import TABLE, find_table, names_shown
from projections.graph.labels import EdgeLabel
from projections.graph.neighbours import FoundVertex
from projections.graph.walking import Direction

router = APIRouter(prefix="/v1")

LABEL: Final = "label"
DIRECTION: Final = "direction"


@router.get(f"/tables{TABLE}/graph")
async def show_table_graph(request: Request, alias: str, namespace: str, table: str) -> Response:
    """
    Show the vertex of a table in the graph, and its edges with the vertices at their other ends: of one `label`, or
    those alone that begin (`out`) or end (`in`) at it.
    """
    looking, target = await find_table(request, alias, namespace, table)
    query = Query(request, LABEL, DIRECTION, LIMIT, CURSOR)
    label, direction = query.one_of(LABEL, EdgeLabel), query.one_of(DIRECTION, Direction)
    limit, key = query.limit(), await looking.key()
    after = "" if query.cursor is None else parse_key_cursor(key, query.cursor, context=query.context)
    with_principal = await looking.sight.reads_inputs()
    async with looking.reading() as connection:
        asking = Asking(looking, key, connection)
        vertex = await asking.vertex(target.key)
        if vertex is None:
            raise NotFoundError(f"{target.key:.200}: the graph has no such table", kind="NoSuchTableException")
        page = await asking.edges(
            vertex,
            labels=tuple(EdgeLabel) if label is None else (label,),
            directions=tuple(Direction) if direction is None else (direction,),
            after=after,
            limit=limit,
        )
        lag_entries = await read_lag(connection, looking.caller.log_id)
    return Shown(
        {
            **names_shown(target.key),
            "vertex": _vertex(vertex, with_principal=with_principal),
            "edges": [
                {
                    "label": each.label.value,
                    "direction": each.direction.value,
                    "vertex": _vertex(each.vertex, with_principal=with_principal),
                }
                for each in page.edges
            ],
            "lag_entries": lag_entries,
            "cursor": None if page.going_on is None else format_cursor(key, page.going_on, context=query.context),
        }
    )


def _vertex(found: FoundVertex, *, with_principal: bool) -> dict[str, Any]:
    return {
        "label": found.label.value,
        "key": found.key,
        "properties": dict(properties_shown(found, with_principal=with_principal)),
    }
