# SPDX-License-Identifier: Apache-2.0
"""
Two named traversals. Both are bounded: 3 hops by default, 5 at most.

- `impact_analysis`: what a change of a table affects: the tables made from it, the columns made from its columns, and
  who works with any of those tables.
- `pii_propagation`: where personal data that was found in a table may have gone: column by column where lineage has
  columns, and otherwise to whole tables, any column of which may hold it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from projections.graph.answers import ColumnFound, column_found
from projections.graph.labels import EdgeLabel, VertexLabel
from projections.graph.read import HOPS, ROWS_MAX, Graph, KnownTable, Walked, check_hops
from projections.graph.scan_coverage import ScanCoverage
from projections.graph.walking import FAN_MAX, Direction, Reached
from projections.keys import bounded_key
from projections.lineage.runs import Omitted

_DATA: Final = (VertexLabel.TABLE, VertexLabel.VIEW, VertexLabel.DATASET)
_READERS: Final = (VertexLabel.PIPELINE, VertexLabel.ENGINE, VertexLabel.PERSON)
_NAMES: Final = ((EdgeLabel.RENAMED_TO, Direction.OUT), (EdgeLabel.RENAMED_TO, Direction.IN))
"""From a table to itself, under the names that it had before: no hop."""
_MADE_FROM: Final = ((EdgeLabel.LINEAGE_OF, Direction.OUT), *_NAMES)
_COLUMNS_MADE_FROM: Final = ((EdgeLabel.COLUMN_LINEAGE_OF, Direction.OUT),)
_READ: Final = (
    (EdgeLabel.READ_FROM, Direction.IN),
    (EdgeLabel.RUN_OF, Direction.OUT),
    (EdgeLabel.RAN_ON, Direction.OUT),
    (EdgeLabel.SUBMITTED, Direction.IN),
)
READ_MAX: Final = 3_000
"""Runs that are looked at for who reads some tables: the last ones of each, as many of each as of every other."""
READ_EACH_MIN: Final = 3
FAN_MIN: Final = 500
FAN_EACH: Final = 10
"""Edges of one vertex that are followed for each vertex that is asked for."""
_READ_HOPS: Final = 2
"""From a table to its run, and from that to whose it is; from there no step leads on."""


class Traversal(StrEnum):
    """The traversals by name."""

    IMPACT_ANALYSIS = "impact_analysis"
    PII_PROPAGATION = "pii_propagation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """
    What lies downstream of a table: `tables` made from it, `columns` made from its own, each by its `origin`, and
    `readers` (jobs, engines, people) of the table and of those tables, each with the table it reads as `origin`, as the
    last runs tell.
    """

    table: str
    state: KnownTable
    tables: tuple[Reached, ...]
    columns: tuple[Reached, ...]
    readers: tuple[Reached, ...]
    omitted: Mapping[str, Omitted]
    """What was reported of the table and of those tables and is not drawn, by key: there may be more."""
    is_cut: bool
    """
    Whether there may be more than these: a list has as many as were asked for, or not all edges of a table were
    followed, such as those to the runs that read it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifiedColumn:
    """A column, by its key, and what was found in it."""

    key: str
    found: ColumnFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Propagation:
    """
    Where what was `found` in a table may be: in `columns` (each from the classified column `origin`), and in `tables`,
    in whatever column. Without findings both are empty, which is worth as much as the `evidence`.
    """

    table: str
    state: KnownTable
    found: tuple[ClassifiedColumn, ...]
    evidence: ScanCoverage
    columns: tuple[Reached, ...]
    tables: tuple[Reached, ...]
    omitted: Mapping[str, Omitted]
    """As in `Impact`."""
    is_cut: bool
    """As in `Impact`."""


async def impact_analysis(graph: Graph, table_key: str, *, hops: int = HOPS, limit: int = ROWS_MAX) -> Impact:
    """
    Return what is downstream of a table within `hops`, at most `limit` of each kind.

    Raises:
        UnknownTableError: if the graph has no such table.
        ProjectionError: if `hops` is not 1 to 5.
    """
    check_hops(hops)
    table = await graph.table(table_key)
    names = await _names(graph, table_key)
    made = await _made_from(graph, [table_key], hops=hops, limit=limit)
    tables = made.reached
    own = await graph.columns(names)
    columns = await _columns_made_from(graph, own, hops=hops, limit=limit)
    read = list(dict.fromkeys([*names, *(reached.key for reached in tables)]))
    fan = max(READ_EACH_MIN, READ_MAX // len(read))
    readers = await graph.walk(None, read, _READ, ends=_READERS, hops=_READ_HOPS, limit=limit, fan=fan)
    return Impact(
        table=table_key,
        state=table,
        tables=_made(tables, names),
        columns=tuple(columns.reached),
        readers=tuple(readers.reached),
        omitted=await graph.omitted(read),
        is_cut=made.is_cut or columns.is_cut or readers.is_cut,
    )


async def pii_propagation(graph: Graph, table_key: str, *, hops: int = HOPS, limit: int = ROWS_MAX) -> Propagation:
    """
    Return where personal data that was found in a table may have gone within `hops`, at most `limit` of each kind.

    Raises:
        UnknownTableError: if the graph has no such table.
        ProjectionError: if `hops` is not 1 to 5.
    """
    check_hops(hops)
    table = await graph.table(table_key)
    evidence = await graph.evidence(table)
    found = await _classified(graph, table_key, table.table_uuid)
    names = await _names(graph, table_key)
    if not found:
        omitted = await graph.omitted(names)
        return Propagation(
            table=table_key,
            state=table,
            found=(),
            evidence=evidence,
            columns=(),
            tables=(),
            omitted=omitted,
            is_cut=False,
        )
    # What was made from a column under an earlier name of its table was made from that column.
    earlier = [each for name in names[1:] for each in await _classified(graph, name, table.table_uuid)]
    sources = sorted({column.key for column in (*found, *earlier)})
    columns = await _columns_made_from(graph, sources, hops=hops, limit=limit)
    tables = await _made_from(graph, [table_key], hops=hops, limit=limit)
    return Propagation(
        table=table_key,
        state=table,
        found=tuple(found),
        evidence=evidence,
        columns=tuple(columns.reached),
        tables=_made(tables.reached, names),
        omitted=await graph.omitted([*names, *(reached.key for reached in tables.reached)]),
        is_cut=columns.is_cut or tables.is_cut,
    )


async def _made_from(graph: Graph, keys: Sequence[str], *, hops: int, limit: int) -> Walked:
    fan = _fan(limit)
    return await graph.walk(VertexLabel.TABLE, keys, _MADE_FROM, ends=_DATA, hops=hops, limit=limit, fan=fan)


async def _columns_made_from(graph: Graph, keys: Sequence[str], *, hops: int, limit: int) -> Walked:
    ends, fan = [VertexLabel.COLUMN], _fan(limit)
    return await graph.walk(VertexLabel.COLUMN, keys, _COLUMNS_MADE_FROM, ends=ends, hops=hops, limit=limit, fan=fan)


def _fan(limit: int) -> int:
    """Return how many edges of one vertex are followed for so many answers: of a hub that has thousands, the last."""
    return min(FAN_MAX, max(FAN_MIN, FAN_EACH * limit))


async def _names(graph: Graph, table_key: str) -> list[str]:
    """Return the keys of a table: its own first, then those of the names it had before, or has got since."""
    renamed = (await graph.walk(VertexLabel.TABLE, [table_key], _NAMES, ends=[VertexLabel.TABLE], hops=1)).reached
    return [bounded_key(table_key), *(reached.key for reached in renamed)]


async def _classified(graph: Graph, table_key: str, table_uuid: str | None) -> list[ClassifiedColumn]:
    """Return the columns, under one name of a table, in which personal data was found."""
    return [
        ClassifiedColumn(
            key=key,
            found=column_found(path, kind, percent, times, reviews),
        )
        for key, path, kind, percent, times, reviews in await graph.found(table_key, table_uuid)
    ]


def _made(tables: Sequence[Reached], names: Sequence[str]) -> tuple[Reached, ...]:
    """Return what was made from a table: without the table itself, under whatever name."""
    return tuple(reached for reached in tables if reached.key not in names)
