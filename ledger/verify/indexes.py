# SPDX-License-Identifier: Apache-2.0
"""
Compares the indexes of the log's tables with their rows: a tampered index can hide rows from every reader.

Verification reads through indexes like everybody else. Whoever owns the server can leave rows out of one (a policy that
no gateway then applies) or keep rows that it does not lead to (another entry at an index that is taken, found only by
reading the whole table). So each table is read once from its first page to its last. There must be as many entries and
tiles as a log of this size has, and one head; and each index must lead to as many rows as there are, with the same sum
of indices.

This reads whole tables, with the rows of all logs: it is for verifying a log, not for every round of the signer. Both
sides are read in one snapshot, so the log may grow meanwhile.

Not compared is `entries_key`, which leads to pages, and to none in order. Evidence of a table reads through it, and
never claims to have every entry about that table (`ledger/proving/evidence/scope.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from psycopg.sql import SQL, Identifier

from ledger.errors import BrokenError, Fault
from ledger.format.tiles import TILE_HEIGHT
from ledger.store.queries import load_queries
from ledger.store.read import Log
from ledger.store.session import Connection

_QUERIES: Final = load_queries("ledger.store", "indexes.sql")
_LEVELS: Final = 8
_ENTRIES: Final = (
    ("entries_pkey", 0),
    ("entries_group", 1),
    ("entries_control", 2),
    ("entries_control_key", 2),
    ("entries_trigger", 3),
    ("entries_erasure", 4),
    ("entries_anchor", 5),
    ("entries_schema", 6),
)
"""Names of indexes, and which of the table's totals each is compared with."""
_CHECKPOINTS: Final = (("checkpoints_pkey", 0),)
_PARTS: Final = (("parts_pkey", 0), ("parts_subject", 1))


async def check_indexes(connection: Connection, log: Log, *, size: int) -> str:
    """
    Check that no row of a log, of which `size` entries were verified, is hidden from readers; say what was compared.

    `connection` works as the auditor, who may take the log's reader role: no other role sees payload parts. An index
    that PostgreSQL would not use for its own rows is not compared; a missing one is a fault of its table.

    Raises:
        BrokenError: for the first row too many or too few; `Fault.DERIVED` if an index on entries does not lead to one,
            with the index of the first such entry, or else the fault of its table.
    """
    work = _Comparison(connection, log)
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        (heads, end), (tiles,) = await work.counted("heads"), await work.counted("tiles")
        size = max(size, end)
        complete = sum(size >> TILE_HEIGHT * level for level in range(1, _LEVELS + 1))
        for table, fault, expected, found in (("heads", Fault.HEAD, 1, heads), ("tiles", Fault.TILE, complete, tiles)):
            if found != expected:
                raise _miscounted(table, fault, expected=expected, found=found)
        totals = await work.counted("entries")
        if totals[:2] != (size, size * (size - 1) // 2):
            misplaced = await work.read(_QUERIES["misplaced"], size=size)
            index = misplaced[0][0] if misplaced else None
            raise _miscounted("entries", Fault.INDEX, expected=size, found=totals[0], index=index)
        await work.compare(_ENTRIES, totals, Fault.DERIVED)
        await work.compare(_CHECKPOINTS, await work.counted("checkpoints"), Fault.CHECKPOINT)
        if log.reader is not None:
            await connection.execute(SQL("SET LOCAL ROLE {}").format(Identifier(log.reader)))
            await work.compare(_PARTS, await work.counted("parts"), Fault.PART)
    return f"{work.compared} indexes against {work.rows:,} rows"


class _Comparison:
    """Compares one log's rows with its indexes, in one transaction. Used by one call of `check_indexes` alone."""

    def __init__(self, connection: Connection, log: Log) -> None:
        self.compared = 0
        self.rows = 0
        self._connection = connection
        self._log = log

    async def counted(self, table: str) -> tuple[int, ...]:
        """Return how many rows of the log lie in a table, and what else is counted of them."""
        await self.read(_QUERIES["only_rows"])
        (totals,) = await self.read(_QUERIES[f"{table}_rows"])
        self.rows += totals[0]
        return totals

    async def compare(self, indexes: Sequence[tuple[str, int]], totals: Sequence[int], fault: Fault) -> None:
        """Check that each index leads to as many rows as were counted."""
        await self.read(_QUERIES["only_indexes"])
        for name, number in indexes:
            ((index,),) = await self.read(f"SELECT to_regclass('ledger.{name}')")
            if index is None:
                raise BrokenError(fault, where=f"index ledger.{name}", expected="an index", found="none")
            ((plan,),) = await self.read("EXPLAIN (FORMAT JSON) " + _QUERIES[name])
            if name not in str(plan):
                continue
            counted = f"SELECT count(*), coalesce(sum(index), 0) FROM ({_QUERIES[name]}) AS led_to"  # noqa: S608
            (led_to,) = await self.read(counted)
            if led_to != totals[2 * number : 2 * number + 2]:
                raise await self._misled(name, fault)
            self.compared += 1

    async def read(self, query: str, **bounds: int) -> list[tuple[Any, ...]]:
        """Return the rows of a query about the log."""
        # Not prepared: a generic plan might not use the index.
        parameters = {"log_id": self._log.log_id, **bounds}
        return await (await self._connection.execute(SQL(query), parameters, prepare=False)).fetchall()

    async def _misled(self, name: str, fault: Fault) -> BrokenError:
        by_index = Counter(await self.read(_QUERIES[name]))
        await self.read(_QUERIES["only_rows"])
        by_rows = Counter(await self.read(_QUERIES[name]))
        differing = [place for (place,) in (by_index - by_rows) + (by_rows - by_index) if place is not None]
        index = None if fault is Fault.CHECKPOINT else min(differing, default=None)  # for checkpoints, these are sizes
        expected, found = f"{by_rows.total()} rows", f"{by_index.total()} rows"
        return BrokenError(fault, where=f"index ledger.{name}", expected=expected, found=found, index=index)


def _miscounted(table: str, fault: Fault, *, expected: int, found: int, index: int | None = None) -> BrokenError:
    rows = f"{expected} rows, as its indexes lead to"
    return BrokenError(fault, where=f"ledger.{table}", expected=rows, found=f"{found} rows", index=index)
