# SPDX-License-Identifier: Apache-2.0
"""
Checks the pages of a log in PostgreSQL: entries, their columns, the tiles over them. Workers check segments.

A page is up to 256 entries in one value, with the tile that is stored over them. PostgreSQL assembles it, because
fetching row by row would cost more than verifying. Pages are streamed with COPY, ahead of what is being checked.

Whoever owns a database can drop its constraints: a head may be missing or malformed, a tile truncated, a value NULL, a
row at an impossible index. The queries here read such rows, so that they are reported as faults of the log and not as
failures to read it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection, AsyncCopy
from psycopg.sql import SQL, Literal

from ledger.errors import BrokenError, Fault, FormatError, LedgerError, NoSuchLogError
from ledger.format.checkpoint import Checkpoint
from ledger.format.entry import Envelope
from ledger.format.event import is_control
from ledger.format.merkle import HASH_SIZE_BYTES, Frontier, leaf_hash
from ledger.format.sequence import NO_CONTROL, LogHead
from ledger.format.tiles import TILE_HEIGHT, TILE_WIDTH, Tile, leads_to_root, tile_path, tile_width
from ledger.format.verification import ChainState, EntryRules, state_behind
from ledger.store.queries import load_queries
from ledger.store.read import Log, read_entries
from ledger.store.session import Connection
from ledger.store.stored_tree import compute_on_tiles
from ledger.verify.tree import LeafPage, first_difference, tile_fault
from ledger.verify.workers import Effort, Segment, SegmentResult, load_fast_path

QUERIES: Final = load_queries("ledger.store", "verify.sql")
ENTRIES: Final = "ledger.entries"
_STREAMED_PAGES: Final = 16
"""Pages per statement; so many may wait in memory when the connection is needed for something else."""

HEADS: Final = "ledger.heads"
_STRAY: Final = {
    "ledger.entries": Fault.INDEX,
    "ledger.checkpoints": Fault.CHECKPOINT,
    "ledger.tiles": Fault.TILE,
}


class EntryRow(NamedTuple):
    """A row of `ledger.entries`. NULL, which our schema forbids, is read as empty bytes: no entry, and no hash."""

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

    None is NULL, or no tile. An empty root is not None: a forger may store one in the hope that it is taken for NULL.
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
    """Return the fault of a column that does not agree with its entry."""
    where = f"{ENTRIES}.{column}"
    return BrokenError(Fault.DERIVED, where=where, expected=expected, found=found, index=row.at)


class PageStream:
    """
    The pages of a log of `size` entries from index `first` on, a multiple of 256, in order.

    While a statement streams, the connection can do nothing else: call `release` first.
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
        """Return the next page, with the rows that exist."""
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
        """Read the rest of the statement into memory, so that the connection is free."""
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


class StoredHead(NamedTuple):
    """The head row; its time as text, empty if NULL, because PostgreSQL has dates that no entry can have."""

    head: LogHead
    recorded_at: str


async def read_sound_head(connection: Connection, log_id: int) -> StoredHead:
    """
    Return the head of a log, with its `recorded_at` as text.

    Raises:
        BrokenError: (`Fault.HEAD`) if a log has none, several, or one of no form.
        NoSuchLogError: if this role can see no such log.
    """
    parameters = {"log_id": log_id}
    rows = await (await connection.execute(QUERIES["stored_head"], parameters, binary=True)).fetchall()
    if not rows:
        log = await (await connection.execute(QUERIES["log_of_id"], parameters)).fetchone()
        if log is None:
            raise NoSuchLogError(f"log {log_id}: expected a head, found none")
        raise BrokenError(Fault.HEAD, where=HEADS, expected=f"the head of {log[0]}", found="none")
    if len(rows) > 1:
        raise BrokenError(Fault.HEAD, where=HEADS, expected="one head", found=f"{len(rows)} rows")
    size, last, frontier, control_index, recorded_at = rows[0]
    if None in (size, last, frontier, control_index):
        raise BrokenError(Fault.HEAD, where=HEADS, expected="a head", found="NULL in it")
    try:
        tree = Frontier.parse(size, bytes(frontier))
    except FormatError as error:
        raise BrokenError(Fault.HEAD, where=HEADS, expected="a head", found=error) from error
    head = LogHead(size=size, last=bytes(last), frontier=tree, control_index=control_index, recorded_at=None)
    return StoredHead(head, recorded_at or "")


async def read_stored_tile(connection: Connection, log_id: int, *, level: int, index: int) -> tuple[Tile, bytes | None]:
    """
    Return a complete tile, and its root if that is stored.

    Raises:
        BrokenError: (`Fault.TILE`) if it is not there, or not of 256 hashes.
    """
    parameters = {"log_id": log_id, "level": level, "tile": index}
    row = await (await connection.execute(QUERIES["stored_tile"], parameters, binary=True)).fetchone()
    hashes = b"" if row is None else bytes(row[0] or b"")
    if row is None or len(hashes) != TILE_WIDTH * HASH_SIZE_BYTES:
        where = f"ledger.tiles level {level} tile {index}"
        found = "none" if row is None else f"one of {len(hashes)} bytes"
        raise BrokenError(Fault.TILE, where=where, expected="a complete tile", found=found)
    return Tile.parse(hashes, level=level, index=index), None if row[1] is None else bytes(row[1])


async def check_no_stray_row(connection: Connection, log_id: int) -> None:
    """
    Check that the log has no row at a place that no log has, such as an index below 0, and that none is of no log.

    Raises:
        BrokenError: for the first; with its index if it is an entry.
    """
    row = await (await connection.execute(QUERIES["stray_row"], {"log_id": log_id})).fetchone()
    if row is not None:
        table, at = row
        index = at if table == "ledger.entries" else None
        found = "NULL" if at is None else at
        raise BrokenError(_STRAY[table], where=table, expected="no row at such a place", found=found, index=index)


class DatabasePages:
    """Checks pages in order, in one snapshot. Where entry and tile disagree, the checkpoint `newest` decides."""

    def __init__(self, connection: Connection, log: Log, head: LogHead, newest: Checkpoint | None) -> None:
        self.rules = EntryRules(origin=log.origin, where=lambda _index: ENTRIES)
        self.control_index = NO_CONTROL
        self.newest = newest
        self._connection = connection
        self._log = log
        self._head = head
        self._stream = PageStream(connection, log.log_id, first=0, size=0)
        self.load_fast_path(0, Effort())

    async def release(self) -> None:
        """Make the connection free for something else."""
        await self._stream.release()

    @property
    def is_fast(self) -> bool:
        """Whether the fast path is loaded."""
        return self._fast is not None

    def load_fast_path(self, entries: int, effort: Effort) -> None:
        """Load the fast path, if there are enough entries for it."""
        self._fast = load_fast_path(entries, effort)

    async def begin_at(self, first: int, *, end: int) -> None:
        """Have the fast path read from `first`, a multiple of 256, up to `end`, not included."""
        await self._stream.release()
        self._stream = PageStream(self._connection, self._log.log_id, first=first, size=end)

    async def check_page(self, size: int) -> LeafPage:
        """Check the next page of the log's first `size` entries, and the tile over it."""
        first = self.rules.size
        end = min(first + TILE_WIDTH, size)
        return await self._accepted(first, end) or await self._checked(first, end)

    async def _accepted(self, first: int, end: int) -> LeafPage | None:
        """Return the page that the fast path accepts, with its tile and its columns."""
        if self._fast is None:
            return None
        stored = await self._stream.read()
        page = self._fast.rows_page(stored.rows, end - first)
        if page is not None and (end - first < TILE_WIDTH or stored.tile == page.hashes):
            made = self._fast.in_tree(page)
            is_rooted = end - first < TILE_WIDTH or stored.root in {None, made.root}
            if is_rooted and (control := self._fast.accept_rows(page, self.rules)) is not None:
                self.control_index = first + control if control >= 0 else self.control_index
                return made
        await self._stream.release()
        return None

    async def _checked(self, first: int, end: int) -> LeafPage:
        """Return the page, its entries checked one by one against the rules, their columns and the tile."""
        rows = await read_rows(self._connection, self._log.log_id, first=first, end=end)
        leaves = [leaf_hash(row.entry) for row in rows]
        for number, (row, leaf) in enumerate(zip(rows, leaves, strict=True), start=1):
            if row.at != self.rules.size:
                break
            if number < len(rows) and rows[number].at == row.at:  # no index has kept the second one out
                raise BrokenError(Fault.INDEX, where=ENTRIES, expected="one row", found="several", index=row.at)
            envelope = self.rules.check(row.entry, leaf)
            if row.leaf != leaf:
                raise await self._leaf_fault(row, leaf, leaves)
            check_derived(row, envelope)
            if row.is_control:
                self.control_index = row.at
        if self.rules.size != end:
            missing = self.rules.size
            raise BrokenError(Fault.INDEX, where=ENTRIES, expected=f"entry {missing}", found="none", index=missing)
        if end - first == TILE_WIDTH:
            await self.check_tile(Tile(level=0, index=first // TILE_WIDTH, hashes=tuple(leaves)))
        return LeafPage.of(leaves)

    async def _leaf_fault(self, row: EntryRow, leaf: bytes, leaves: Sequence[bytes]) -> BrokenError:
        """Return which is wrong in a row whose `leaf` is not the hash of its entry: the entry, or that column."""
        tile = Tile(level=0, index=row.at // TILE_WIDTH, hashes=tuple(leaves))
        # What is not 32 bytes long was never the leaf of an entry: the tree need not decide.
        if len(row.leaf) != HASH_SIZE_BYTES or await self._is_genuine(tile, row.at):
            return derived_fault(row, "leaf", expected=leaf.hex(), found=row.leaf.hex())
        expected = f"bytes with the leaf hash {row.leaf.hex()}"
        return BrokenError(Fault.ENTRY, where=ENTRIES, expected=expected, found=leaf.hex(), index=row.at)

    async def check_tile(self, computed: Tile) -> None:
        stored, root = await read_stored_tile(
            self._connection, self._log.log_id, level=computed.level, index=computed.index
        )
        if first_difference(computed.hashes, stored.hashes) is not None:
            last = ((computed.index + 1) << TILE_HEIGHT * (computed.level + 1)) - 1
            raise tile_fault(
                computed, stored, entries_are_genuine=await self._is_genuine(computed, last), entries=ENTRIES
            )
        if root is not None and root != computed.root():
            where = f"ledger.tiles.root of {tile_path(computed.level, computed.index)}"
            raise BrokenError(Fault.DERIVED, where=where, expected=computed.root().hex(), found=root.hex())

    async def _is_genuine(self, computed: Tile, index: int) -> bool:
        """Return whether a tile computed from the entries leads to the root that covers the entry at `index`."""
        size, root = self._head.size, self._head.frontier.root()
        if self.newest is not None and index < self.newest.size:
            size, root = self.newest.size, self.newest.root
        width = tile_width(level=computed.level, index=computed.index, size=size)
        tile = Tile(level=computed.level, index=computed.index, hashes=computed.hashes[:width])
        return await compute_on_tiles(
            self._connection,
            self._log.log_id,
            lambda read: leads_to_root(tile, size=size, root=root, read_tile=read),
        )


@dataclass(frozen=True, slots=True)
class Job:
    """A log to verify, for workers: they read it in the exported `snapshot`."""

    dsn: str
    snapshot: str
    log: Log
    head: LogHead
    newest: Checkpoint | None


_connections: dict[tuple[str, str], tuple[asyncio.Runner, Connection]] = {}
"""In a worker: its event loop and connection, by DSN and snapshot. One thread uses them; they end with the process."""


def check_segment(job: Job, segment: Segment) -> SegmentResult:
    """Check a segment in a worker, from the state that the entry before it claims."""
    if (job.dsn, job.snapshot) not in _connections:
        runner = asyncio.Runner()
        _connections[job.dsn, job.snapshot] = runner, runner.run(_connect(job))
    runner, connection = _connections[job.dsn, job.snapshot]
    return runner.run(_check_on(connection, job, segment))


async def _connect(job: Job) -> Connection:
    connection = await AsyncConnection.connect(job.dsn)
    await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    await connection.execute(SQL("SET TRANSACTION SNAPSHOT {}").format(Literal(job.snapshot)))
    return connection


async def _check_on(connection: Connection, job: Job, segment: Segment) -> SegmentResult:
    work = DatabasePages(connection, job.log, job.head, job.newest)
    before, pages = ChainState(), list[LeafPage]()
    try:
        if segment.first:
            entries = await read_entries(
                connection, job.log.log_id, from_index=segment.first - 1, to_index=segment.first
            )
            before = state_behind(entries[0] if entries else b"", index=segment.first - 1, where=ENTRIES)
        work.rules.adopt(before)
        work.load_fast_path(segment.end - segment.first, Effort())
        await work.begin_at(segment.first, end=segment.end)
        while work.rules.size < segment.end:
            pages.append(await work.check_page(segment.end))
        await work.release()
    except LedgerError:  # the caller checks this segment itself, and names the fault
        await work.release()
        return SegmentResult(before, before, [], (b"", b""))
    return SegmentResult(before, work.rules.state, pages, work.rules.groups.pack(), work.control_index)
