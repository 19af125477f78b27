# SPDX-License-Identifier: Apache-2.0
"""
What the read models have of many things, in one statement for all of them: for answers that nest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.keys import bounded_name
from projections.relational.as_of import as_of as as_of_entry
from projections.relational.commits import ROWS_MAX, Commit, commit_of
from projections.relational.finding_reviews import FindingState
from projections.relational.findings import Finding, row_of, with_reviews
from projections.relational.table_names import PII, TAGGED_PERCENT

QUERIES: Final = load_queries("projections", "batched.sql")
_AS_OF: Final = {
    name: as_of_entry(QUERIES[name]) for name in ("last_findings_of_tables", "findings_of_each", "tags_of_tables")
}
SNAPSHOTS_MAX: Final = 100
"""Snapshots of one thing that are looked at."""

R = TypeVar("R")


async def read_histories(
    connection: Connection, log_id: int, targets: Sequence[tuple[str, int]], *, limit: int
) -> list[list[Commit]]:
    """
    Return the last commits of some tables, views or namespaces, newest first, as `read_history` does of one.

    `targets` are their event keys, each with the index that the commits are below. The result has their order.
    """
    where = {
        "log_id": log_id,
        "keys": [key for key, _ in targets],
        "befores": [before for _, before in targets],
        "limit": min(limit, ROWS_MAX),
    }
    rows = await (await connection.execute(QUERIES["histories"], where)).fetchall()
    return by_place(len(targets), [(place, commit_of(row)) for place, *row in rows])


async def read_last_findings_of_tables(
    connection: Connection,
    log_id: int,
    uuids: Sequence[str],
    *,
    confidence_percent_min: int = 0,
    state: FindingState | None = None,
    limit: int,
    as_of: int | None = None,
) -> list[list[Finding]]:
    """
    Return the last finding of each column and kind in some tables of a log, newest first; of one state, if it is given.

    With `as_of`, as that was when the log ended with the entry at that index; so it is below.
    """
    where = {
        "log_id": log_id,
        "uuids": [bounded_name(each) for each in uuids],
        "confidence_percent_min": confidence_percent_min,
        "state": state,
        "limit": min(limit, ROWS_MAX),
        "as_of": as_of,
    }
    rows = await (await connection.execute(_asked("last_findings_of_tables", as_of), where)).fetchall()
    return await _findings_by_place(connection, len(uuids), rows, as_of=as_of)


async def read_tags(
    connection: Connection, log_id: int, uuids: Sequence[str], *, as_of: int | None = None
) -> dict[str, list[str]]:
    """
    Return, by uuid, the tags of some tables: `read_tables` finds a table by each of its tags, and by no other one.
    """
    where = {"log_id": log_id, "uuids": list(uuids), "tagged_percent": TAGGED_PERCENT, "as_of": as_of}
    tags: dict[str, list[str]] = {}
    for uuid, kind in await (await connection.execute(_asked("tags_of_tables", as_of), where)).fetchall():
        tags.setdefault(uuid, [PII]).append(kind)
    return tags


async def read_findings_of_each(
    connection: Connection,
    log_id: int,
    scanned: Sequence[tuple[str, Sequence[str]]],
    *,
    limit: int,
    as_of: int | None = None,
) -> list[list[Finding]]:
    """
    Return what was found in snapshots: `scanned` are uuids of tables, each with at most `SNAPSHOTS_MAX` snapshots.

    Of each, at most `limit` findings are returned.
    """
    limit = min(limit, ROWS_MAX)
    asked = [
        (place, bounded_name(uuid), bounded_name(snapshot))
        for place, (uuid, snapshots) in enumerate(scanned, start=1)
        for snapshot in snapshots[:SNAPSHOTS_MAX]
    ]
    where = {
        "log_id": log_id,
        "places": [place for place, _, _ in asked],
        "uuids": [uuid for _, uuid, _ in asked],
        "snapshots": [snapshot for _, _, snapshot in asked],
        "limit": limit,
        "as_of": as_of,
    }
    rows = await (await connection.execute(_asked("findings_of_each", as_of), where)).fetchall()
    found = await _findings_by_place(connection, len(scanned), rows, as_of=as_of)
    return [each[:limit] for each in found]


def _asked(query: str, as_of: int | None) -> str:
    return QUERIES[query] if as_of is None else _AS_OF[query]


async def _findings_by_place(
    connection: Connection, count: int, rows: Sequence[Sequence[Any]], *, as_of: int | None
) -> list[list[Finding]]:
    found = await with_reviews(connection, [row_of(Finding, row) for _, *row in rows], as_of=as_of)
    return by_place(count, [(place, each) for (place, *_), each in zip(rows, found, strict=True)])


def by_place(count: int, rows: Sequence[tuple[Any, R]]) -> list[list[R]]:
    """
    Return rows by their place, which is counted from 1.
    """
    found: list[list[R]] = [[] for _ in range(count)]
    for place, row in rows:
        found[place - 1].append(row)
    return found
