# SPDX-License-Identifier: Apache-2.0
"""
Findings, scans and names of tables as of an entry of the log: as the findings had them when it was the last one.

Guarantee: what is read as of an index is what was read when the projection had come to it. What later entries replace
is kept beside the rows that hold now, with the index of the entry that did. A query that is asked as of an entry is the
query that is asked of now, with other rows in place of the tables' own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ledger.store.queries import load_queries
from ledger.store.session import Connection

_WRITTEN: Final = load_queries("projections", "as_of.sql")
_CALLED: Final = _WRITTEN.pop("called")
QUERIES: Final = {name: query.replace("{called}", _CALLED) for name, query in _WRITTEN.items()}
_REPLACED: Final = {"findings": "f", "scans": "s", "finding_reviews": "r", "table_names": "n", "commits": "c"}
"""The tables that are asked as of an entry, as queries call them; the query of the same name stands for each."""


def as_of(query: str) -> str:
    """
    Return a query as it is asked as of an entry, the index of which is its parameter `as_of`.
    """
    for table, alias in _REPLACED.items():
        query = query.replace(f"projections.{table} AS {alias}", f"({QUERIES[table]}) AS {alias}")
    return query


def ever(query: str) -> str:
    """
    Return a query as it is asked of whatever has held once: where this ends, what is looked through for an answer does.
    """
    for table, alias in _REPLACED.items():
        held = QUERIES[table].partition("\nWHERE y.")[0]
        query = query.replace(f"projections.{table} AS {alias}", f"({held}) AS {alias}")
    return query


async def read_names_then(
    connection: Connection, log_id: int, uuids: Sequence[str], *, index: int
) -> dict[str, tuple[str | None, str | None]]:
    """
    Return, by uuid, what some tables were called as of an entry, and what they are called now: event keys, None without
    a name.
    """
    asked = {"log_id": log_id, "uuids": list(dict.fromkeys(uuids)), "as_of": index}
    rows = await (await connection.execute(QUERIES["names_then"], asked)).fetchall()
    return {uuid: (then, now) for uuid, then, now in rows}


_NAMED: Final = as_of(QUERIES["tables_named"])


async def read_tables_named(connection: Connection, log_id: int, key: str, *, index: int) -> list[str]:
    """
    Return the uuids of the tables that had a name, an event key, as of an entry: one at most.
    """
    return [uuid for uuid, _ in (await read_each_table_named(connection, log_id, [key], index=index)).values()]


async def read_each_table_named(
    connection: Connection, log_id: int, keys: Sequence[str], *, index: int
) -> dict[str, tuple[str, int]]:
    """
    Return, by name, the table that had it as of an entry: its uuid, and the index of the entry since which it had it.
    """
    asked = {"log_id": log_id, "keys": list(keys), "as_of": index}
    rows = await (await connection.execute(_NAMED, asked)).fetchall()
    return {key: (uuid, since) for key, uuid, since in rows}
