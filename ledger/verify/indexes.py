"""
Compares the indexes of `ledger.entries` with its rows: an index can lie, and readers believe it.

Verification reads entries through an index like everybody else. Whoever owns the server can leave rows out of one (a
policy that no gateway ever folds in) or keep rows that it does not lead to (another entry under an index that is taken,
for a reader that goes through the whole table). So the rows are counted once from the table's first page to its last,
and what each index leads to must be as many, with the same sum of indices.

That reads the whole table, whose rows are of all logs: it is work for who verifies a log, not for every round.
"""

from __future__ import annotations

from typing import Any, Final

from psycopg.sql import SQL

from ledger.errors import BrokenError, Fault
from ledger.queries import load_queries
from ledger.read import Connection, Log

_QUERIES: Final = load_queries("ledger", "indexes.sql")
_INDEXES: Final = (
    ("entries_pkey", 0),
    ("entries_group", 1),
    ("entries_control", 2),
    ("entries_control_key", 2),
    ("entries_trigger", 3),
    ("entries_erasure", 4),
    ("entries_anchor", 5),
)
"""Names of indexes, and which of the totals is theirs."""


async def check_indexes(connection: Connection, log: Log, *, size: int) -> str:
    """
    Check that each index leads to all rows of the log's first `size` entries, and say how many were compared.

    The entries must have been verified. An index that PostgreSQL would not use for its own rows is not compared.

    Raises:
        BrokenError: `Fault.INDEX` if several rows carry one index, `Fault.DERIVED` if an index does not lead to a row,
            with that of the first entry.
    """
    compared = 0
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        await connection.execute(_QUERIES["only_rows"])
        totals = await _one(connection, _QUERIES["totals"], log, size)
        if tuple(totals[:2]) != (size, size * (size - 1) // 2):
            raise await _hidden(connection, log, size, found=totals[0])
        for name, number in _INDEXES:
            await connection.execute(_QUERIES["only_indexes"])
            (plan,) = await _one(connection, "EXPLAIN (FORMAT JSON) " + _QUERIES[name], log, size)
            if name not in str(plan):
                continue
            counted = f"SELECT count(*), coalesce(sum(index), 0) FROM ({_QUERIES[name]}) AS led_to"  # noqa: S608
            if await _one(connection, counted, log, size) != totals[2 * number : 2 * number + 2]:
                raise await _misled(connection, log, size, name)
            compared += 1
    return f"{compared} indexes against {size:,} rows"


async def _hidden(connection: Connection, log: Log, size: int, *, found: int) -> BrokenError:
    repeated = await (await connection.execute(_QUERIES["repeated"], _bounds(log, size))).fetchone()
    index = repeated[0] if repeated else None
    expected = f"{size} rows, as its indexes lead to"
    return BrokenError(Fault.INDEX, where="ledger.entries", expected=expected, found=f"{found} rows", index=index)


async def _misled(connection: Connection, log: Log, size: int, name: str) -> BrokenError:
    by_index = await _indices(connection, log, size, name)
    await connection.execute(_QUERIES["only_rows"])
    by_rows = await _indices(connection, log, size, name)
    first = min(by_index ^ by_rows, default=None)
    expected, found = f"{len(by_rows)} entries", f"{len(by_index)} entries"
    return BrokenError(Fault.DERIVED, where=f"index ledger.{name}", expected=expected, found=found, index=first)


async def _indices(connection: Connection, log: Log, size: int, name: str) -> set[int]:
    cursor = await connection.execute(_QUERIES[name], _bounds(log, size))
    return {index for (index,) in await cursor.fetchall()}


async def _one(connection: Connection, query: str, log: Log, size: int) -> tuple[Any, ...]:
    # The planner must know the numbers: a prepared statement would be planned for any.
    row = await (await connection.execute(SQL(query), _bounds(log, size), prepare=False)).fetchone()
    assert row is not None  # noqa: S101 - an aggregate and a plan are one row
    return tuple(row)


def _bounds(log: Log, size: int) -> dict[str, int]:
    return {"log_id": log.log_id, "size": size}
