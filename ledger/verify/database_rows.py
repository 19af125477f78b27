"""
Entries with their derived columns as PostgreSQL gives them to verification: row by row, or streamed page by page.

A page is 256 entries, in one value, with the tile that is stored over them: PostgreSQL puts it together, because a row
at a time would cost more than verifying it. Streams use COPY, which nothing has to wait for but the next page.
"""

from __future__ import annotations

from collections import deque
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

from psycopg import AsyncCopy
from psycopg.sql import SQL

from ledger.envelope import Envelope
from ledger.errors import BrokenError, Fault
from ledger.event import is_control
from ledger.queries import load_queries
from ledger.read import Connection
from ledger.tiles import TILE_WIDTH

QUERIES: Final = load_queries("ledger", "verify.sql")
ENTRIES: Final = "ledger.entries"

_STREAMED_PAGES: Final = 16
"""Pages a statement: so many may have to be kept in memory when the connection is needed for something else."""


class EntryRow(NamedTuple):
    """A row of `ledger.entries`. NULL for bytes, which no schema of ours allows, is no bytes: no entry, and no hash."""

    at: int
    entry: bytes
    leaf: bytes
    type: str
    key: str
    is_control: bool
    group_id: str | None


class StoredPage(NamedTuple):
    """
    The rows of up to 256 indices, as `kernel.row_spans` reads them, and the tile over them: its hashes, its root.

    None is NULL, or no tile: an empty root is stored by who hopes that it is taken for one that was never kept.
    """

    rows: bytes
    tile: bytes | None
    root: bytes | None


async def read_rows(connection: Connection, log_id: int, *, first: int, end: int) -> list[EntryRow]:
    """Return the rows of the indices from `first` up to `end`, not included, that exist, in order."""
    bounds = {"log_id": log_id, "from_index": first, "to_index": end}
    rows = await (await connection.execute(QUERIES["rows_between"], bounds, binary=True)).fetchall()
    return [EntryRow(index, bytes(entry or b""), bytes(leaf or b""), *columns) for index, entry, leaf, *columns in rows]


def check_derived(row: EntryRow, envelope: Envelope) -> None:
    """
    Check that the columns of a row say what its entry says.

    Raises:
        BrokenError: (`Fault.DERIVED`) for the first that does not; names the column.
    """
    kind = envelope.type.decode()
    group_id = envelope.group_id.decode() if envelope.position == 0 else None
    for column, expected, found in (
        ("type", kind, row.type),
        ("key", envelope.key.decode(), row.key),
        ("is_control", is_control(kind), row.is_control),
        ("group_id", group_id, row.group_id),
    ):
        if expected != found:
            raise derived_fault(row, column, expected=expected, found=found)


def derived_fault(row: EntryRow, column: str, *, expected: object, found: object) -> BrokenError:
    """Return the fault of a column that does not say what its entry does."""
    where = f"{ENTRIES}.{column}"
    return BrokenError(Fault.DERIVED, where=where, expected=expected, found=found, index=row.at)


class PageStream:
    """
    The pages of a log of `size` entries from index `first` on, a multiple of 256, in order.

    While a page is under way the connection can do nothing else: `release` it first.
    """

    def __init__(self, connection: Connection, log_id: int, *, first: int, size: int) -> None:
        self._connection = connection
        self._bounds = {"log_id": log_id, "size": size}
        self._next = first // TILE_WIDTH
        self._end = -(-size // TILE_WIDTH)
        self._stack = AsyncExitStack()
        self._copy: AsyncCopy | None = None
        self._waiting: deque[StoredPage] = deque()

    async def read(self) -> StoredPage:
        """Return the next page; its rows are those that exist."""
        while not self._waiting:
            if self._copy is None:
                self._copy = await self._open()
            row: tuple[Any, ...] | None = await self._copy.read_row()
            if row is None:
                await self._close()
            else:
                self._waiting.append(_page(row))
        return self._waiting.popleft()

    async def release(self) -> None:
        """Read into memory what is under way, so that the connection is free."""
        while self._copy is not None:
            row = await self._copy.read_row()
            if row is None:
                await self._close()
            else:
                self._waiting.append(_page(row))

    async def _open(self) -> AsyncCopy:
        last = min(self._next + _STREAMED_PAGES, self._end)
        statement = SQL("COPY ({}) TO STDOUT (FORMAT BINARY)").format(SQL(QUERIES["pages"]))
        bounds = {**self._bounds, "from_page": self._next, "to_page": last}
        self._next = last
        cursor = await self._stack.enter_async_context(self._connection.cursor())
        copy = await self._stack.enter_async_context(cursor.copy(statement, bounds))
        copy.set_types(["bytea", "bytea", "bytea"])
        return copy

    async def _close(self) -> None:
        self._copy = None
        await self._stack.aclose()


def _page(row: tuple[Any, ...]) -> StoredPage:
    rows, tile, root = (None if value is None else bytes(value) for value in row)
    return StoredPage(rows or b"", tile, root)
