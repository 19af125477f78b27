"""
Two traversals that people ask for by name. Both are bounded: 3 hops unless asked, never more than 5.

- `impact_analysis`: what is touched if a table changes: the tables made from it, the columns made from its columns, and
  who works with any of those tables.
- `pii_propagation`: where personal data that was found in a table may have gone: column by column where lineage tells
  so, and otherwise to whole tables, of which any column may hold it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from projections.graph.answers import ColumnFound
from projections.graph.labels import EdgeLabel, VertexLabel, bounded_key
from projections.graph.read import CYPHER, HOPS, ROWS_MAX, Direction, Graph, Reached, check_hops

_DATA: Final = (VertexLabel.TABLE, VertexLabel.VIEW, VertexLabel.DATASET)
_READERS: Final = (VertexLabel.PIPELINE, VertexLabel.ENGINE, VertexLabel.PERSON)
_MADE_FROM: Final = ((EdgeLabel.LINEAGE_OF, Direction.OUT),)
_COLUMNS_MADE_FROM: Final = ((EdgeLabel.COLUMN_LINEAGE_OF, Direction.OUT),)
_READ: Final = (
    (EdgeLabel.READ_FROM, Direction.IN),
    (EdgeLabel.RUN_OF, Direction.OUT),
    (EdgeLabel.RAN_ON, Direction.OUT),
    (EdgeLabel.SUBMITTED, Direction.IN),
)
_READ_HOPS: Final = 2
"""From a table to its run, and from that to whose it is; from there no step leads on."""


class Preset(StrEnum):
    """The traversals by name."""

    IMPACT_ANALYSIS = "impact_analysis"
    PII_PROPAGATION = "pii_propagation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """
    What lies downstream of a table: `tables` made from it, `columns` made from its own, each by its `origin`, and
    `readers` (jobs, engines, people) of the table and of those tables, each with the table it reads as `origin`.
    """

    table: str
    tables: tuple[Reached, ...]
    columns: tuple[Reached, ...]
    readers: tuple[Reached, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifiedColumn:
    """A column, by its key, and what was found in it."""

    key: str
    found: ColumnFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Propagation:
    """
    Where what was `found` in a table may be: in `columns` (each from the classified column `origin`), and in `tables`,
    in whatever column. Without findings both are empty.
    """

    table: str
    found: tuple[ClassifiedColumn, ...]
    columns: tuple[Reached, ...]
    tables: tuple[Reached, ...]


async def impact_analysis(graph: Graph, table_key: str, *, hops: int = HOPS) -> Impact:
    """
    Return what is downstream of a table within `hops`.

    Raises:
        ProjectionError: if `hops` is not 1 to 5.
    """
    check_hops(hops)
    tables = await graph.walk(VertexLabel.TABLE, [table_key], _MADE_FROM, hops=hops)
    rows = await graph.query(CYPHER["columns"], ["key"], {"key": bounded_key(table_key), "limit": ROWS_MAX})
    columns = await graph.walk(
        VertexLabel.COLUMN, [str(key) for (key,) in rows], _COLUMNS_MADE_FROM, ends=[VertexLabel.COLUMN], hops=hops
    )
    read = [table_key, *(reached.key for reached in tables)]
    readers = await graph.walk(None, read, _READ, ends=_READERS, hops=_READ_HOPS)
    return Impact(table=table_key, tables=tuple(tables), columns=tuple(columns), readers=tuple(readers))


async def pii_propagation(graph: Graph, table_key: str, *, hops: int = HOPS) -> Propagation:
    """
    Return where personal data that was found in a table may have gone within `hops`.

    Raises:
        ProjectionError: if `hops` is not 1 to 5.
    """
    check_hops(hops)
    names = ("key", "path", "kind", "percent", "times")
    rows = await graph.query(CYPHER["classified_columns"], names, {"key": bounded_key(table_key), "limit": ROWS_MAX})
    found = tuple(
        ClassifiedColumn(
            key=str(key),
            found=ColumnFound(
                column=str(path), kind=str(kind), confidence_percent=int(str(percent)), snapshots=int(str(times))
            ),
        )
        for key, path, kind, percent, times in rows
    )
    if not found:
        return Propagation(table=table_key, found=(), columns=(), tables=())
    sources = sorted({column.key for column in found})
    columns = await graph.walk(VertexLabel.COLUMN, sources, _COLUMNS_MADE_FROM, ends=[VertexLabel.COLUMN], hops=hops)
    tables = await graph.walk(VertexLabel.TABLE, [table_key], _MADE_FROM, ends=_DATA, hops=hops)
    return Propagation(table=table_key, found=found, columns=tuple(columns), tables=tuple(tables))
