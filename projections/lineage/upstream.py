# SPDX-License-Identifier: Apache-2.0
"""
What a table was made from, with what detection knows of each: the tables that lineage reaches against its edges.

Lineage knows tables by their names. A table is looked for under each name that it has, or had and no other table has
had since, so a rename changes nothing. A table that was made from is told once, by the name that it has now, or had
last.

Edges are those of the live generation, whose cursor is `as_of`; it may be a little behind the log. Findings are as of
the log (`relational/current_findings.py`). All is read in one snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ledger.errors import FormatError
from ledger.format.entry import parse_entry
from ledger.format.event import parse_key
from ledger.format.events import LineageReceived
from ledger.store.session import Connection
from projections.errors import NotKnownNowError
from projections.keys import bounded_key
from projections.lineage.changes import TABLE
from projections.lineage.edges import QUERIES
from projections.lineage.projection import LINEAGE
from projections.relational.current_findings import (
    ONE_SNAPSHOT,
    End,
    TableFindings,
    read_end,
    read_of_tables,
)

UPSTREAM_HOPS_MAX: Final = 10
"""What is further away is left out, and that there is something is told."""
UPSTREAM_TABLES_MAX: Final = 100
REACHED_MAX: Final = 2_000
"""Tables and data sets that are looked at."""
BEHIND_S_MAX: Final = 60.0
"""How long ago lineage may have been reported that the read model does not have yet; beyond that, it has stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTable:
    """
    A table that another one was made from, `hops` away. `kinds` has the highest confidence of each kind that was found
    in it, in percent. A name that is too long to be told is left empty; so is a uuid that no entry has told.
    """

    catalog: str
    namespace: tuple[str, ...]
    name: str
    table_uuid: str
    hops: int
    kinds: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """
    The tables that a table was made from, nearest first, as entries before index `as_of` say. It `is_cut` if something
    is further away than `UPSTREAM_HOPS_MAX`, and left out.
    """

    tables: tuple[UpstreamTable, ...] = ()
    as_of: int = 0
    is_cut: bool = False


async def read_upstream(connection: Connection, log_id: int, key: str, table_uuid: str | None) -> Upstream:
    """
    Return what the table of this event key and uuid (None: it is created) was made from, as far as is known now.

    `connection` works as a role that sees this log, in a transaction in which nothing was read yet; its snapshot
    becomes that of the whole transaction.

    Raises:
        NotKnownNowError: if lineage or the findings are too far behind the log, if lineage misses what was reported
            more than `BEHIND_S_MAX` ago, or if there are more tables than `UPSTREAM_TABLES_MAX`, or more to look at
            than `REACHED_MAX`.
    """
    await connection.execute(ONE_SNAPSHOT)
    end = await read_end(connection, log_id, LINEAGE)
    end.check_not_behind()
    await _check_is_followed(connection, log_id, end)
    where = {"log_id": log_id, "generation": end.generation}
    named = await _rows(connection, "names_of_table", **where, table_uuid=table_uuid)
    hops, is_cut = await _reached(connection, where, {bounded_key(key), *(bounded_key(name) for (name,) in named)})
    tables = await _tables(connection, where, hops, own=table_uuid)
    findings = await read_of_tables(connection, log_id, [table.table_uuid for table in tables if table.table_uuid])
    return Upstream(
        tables=tuple(_with_kinds(table, findings.get(table.table_uuid)) for table in tables),
        as_of=end.next_index,
        is_cut=is_cut,
    )


async def _check_is_followed(connection: Connection, log_id: int, end: End) -> None:
    """Check that the projection does not miss what was reported a while ago: it is not stopped."""
    if end.next_index == end.size:
        return
    missed = await _rows(connection, "first_since", log_id=log_id, next_index=end.next_index, type=LineageReceived.TYPE)
    for entry, now in missed:
        if (now - parse_entry(bytes(entry)).recorded_at).total_seconds() > BEHIND_S_MAX:
            raise NotKnownNowError(
                f"expected the projection lineage at most {BEHIND_S_MAX:g} s behind what jobs report, found it further "
                "behind: see that projections run (`lakeproof projections status` shows how far they are), and try "
                "again"
            )


async def _reached(
    connection: Connection, where: Mapping[str, object], own: Collection[str]
) -> tuple[dict[str, int], bool]:
    """
    Return the keys of what some tables were made from, with the least number of hops to each, and whether there is more
    further away.
    """
    hops: dict[str, int] = {}
    level = set(own)
    for distance in range(1, UPSTREAM_HOPS_MAX + 2):
        sources = await _rows(connection, "sources_of", **where, keys=sorted(level), limit=REACHED_MAX + 1)
        level = {source for (source,) in sources} - hops.keys() - set(own)
        if distance > UPSTREAM_HOPS_MAX or not level:
            break
        hops |= dict.fromkeys(level, distance)
        if len(sources) > REACHED_MAX or len(hops) > REACHED_MAX:
            raise NotKnownNowError(f"expected a table made from at most {REACHED_MAX:,} others, found more")
    return hops, bool(level)


async def _tables(
    connection: Connection, where: Mapping[str, object], hops: Mapping[str, int], *, own: str | None
) -> list[UpstreamTable]:
    """Return the tables among what was reached, nearest first, each once."""
    keys = sorted(key for key in hops if key.startswith(f"{TABLE}:"))
    found: dict[str, UpstreamTable] = {}
    rows = await _rows(connection, "tables_at", **where, keys=keys)
    for key, table_uuid, name_now in sorted(rows, key=lambda row: (hops[row[0]], row[0])):
        if table_uuid is None or table_uuid != own:
            table = _table(name_now or key, table_uuid or "", hops[key])
            found.setdefault(table_uuid or key, table)
    if len(found) > UPSTREAM_TABLES_MAX:
        raise NotKnownNowError(f"expected a table made from at most {UPSTREAM_TABLES_MAX} tables, found more")
    return list(found.values())


def _table(key: str, table_uuid: str, hops: int) -> UpstreamTable:
    try:
        _, (catalog, *namespace, name) = parse_key(key)
    except (FormatError, ValueError):  # a key that was cut, or of a data set that is named like a table
        catalog, namespace, name = "", [], ""
    return UpstreamTable(
        catalog=catalog, namespace=tuple(namespace), name=name, table_uuid=table_uuid, hops=hops, kinds=()
    )


def _with_kinds(table: UpstreamTable, found: TableFindings | None) -> UpstreamTable:
    highest: dict[str, int] = {}
    for one in found.columns if found is not None else ():
        highest[one.kind] = max(highest.get(one.kind, 0), one.confidence_percent)
    return replace(table, kinds=tuple(sorted(highest.items())))


async def _rows(connection: Connection, query: str, /, **values: object) -> list[Any]:
    return await (await connection.execute(QUERIES[query], values)).fetchall()
