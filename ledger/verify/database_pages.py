"""
Checks the pages of a log in PostgreSQL: entries, their columns, the tiles over them. In a worker, segment by segment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from psycopg import AsyncConnection
from psycopg.sql import SQL, Literal

from ledger.checkpoint import Checkpoint
from ledger.edge import leads_to_root
from ledger.errors import BrokenError, Fault, LedgerError
from ledger.merkle import HASH_SIZE_BYTES, leaf_hash
from ledger.read import Connection, Log, read_entries
from ledger.sequence import NO_CONTROL, Head
from ledger.stored_tree import on_tiles
from ledger.tiles import TILE_HEIGHT, TILE_WIDTH, Tile, tile_path, tile_width
from ledger.verify.database_bounds import read_stored_tile
from ledger.verify.database_rows import ENTRIES, EntryRow, PageStream, check_derived, derived_fault, read_rows
from ledger.verify.effort import Checked, Effort, Segment, load_fast_path
from ledger.verify.rules import ChainState, EntryRules, state_behind
from ledger.verify.tree import Page, first_difference, tile_fault


class DatabasePages:
    """Checks pages in order, in one snapshot; `newest` is the newest checkpoint, which decides where two disagree."""

    def __init__(self, connection: Connection, log: Log, head: Head, newest: Checkpoint | None) -> None:
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
        """Load the fast path, if so many entries are worth it."""
        self._fast = load_fast_path(entries, effort)

    async def begin_at(self, first: int, *, end: int) -> None:
        """Let the fast path read from `first`, a multiple of 256, up to `end`, not included."""
        await self._stream.release()
        self._stream = PageStream(self._connection, self._log.log_id, first=first, size=end)

    async def check_page(self, size: int) -> Page:
        """Check the next page of the log's first `size` entries, and the tile over it."""
        first = self.rules.size
        end = min(first + TILE_WIDTH, size)
        return await self._accepted(first, end) or await self._checked(first, end)

    async def _accepted(self, first: int, end: int) -> Page | None:
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

    async def _checked(self, first: int, end: int) -> Page:
        """Return the page of entries that keep the rules, each looked at by itself, with its columns and its tile."""
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
        return Page.of(leaves)

    async def _leaf_fault(self, row: EntryRow, leaf: bytes, leaves: Sequence[bytes]) -> BrokenError:
        """Return what is wrong with a row whose `leaf` is not the hash of its entry: the entry, or that column."""
        tile = Tile(level=0, index=row.at // TILE_WIDTH, hashes=tuple(leaves))
        # What is no hash was never the leaf of any entry: the tree, of which it may be a part, need not be asked.
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
        """Tell whether a tile made from the entries leads to the root that speaks for the entry at `index`."""
        size, root = self._head.size, self._head.frontier.root()
        if self.newest is not None and index < self.newest.size:
            size, root = self.newest.size, self.newest.root
        width = tile_width(level=computed.level, index=computed.index, size=size)
        tile = Tile(level=computed.level, index=computed.index, hashes=computed.hashes[:width])
        return await on_tiles(
            self._connection,
            self._log.log_id,
            lambda read: leads_to_root(tile, size=size, root=root, read_tile=read),
        )


@dataclass(frozen=True, slots=True)
class Job:
    """A log to verify: for workers, as the transaction of `snapshot` sees it."""

    dsn: str
    snapshot: str
    log: Log
    head: Head
    newest: Checkpoint | None


_Place: TypeAlias = tuple[asyncio.Runner, Connection]
_places: dict[tuple[str, str], _Place] = {}
"""The one loop and connection of a worker; they end with it."""


def check_segment(job: Job, segment: Segment) -> Checked:
    """Check a segment in a worker, from the state that the entry before it claims."""
    if (job.dsn, job.snapshot) not in _places:
        runner = asyncio.Runner()
        _places[job.dsn, job.snapshot] = runner, runner.run(_connect(job))
    runner, connection = _places[job.dsn, job.snapshot]
    return runner.run(_check_on(connection, job, segment))


async def _connect(job: Job) -> Connection:
    connection = await AsyncConnection.connect(job.dsn)
    await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
    await connection.execute(SQL("SET TRANSACTION SNAPSHOT {}").format(Literal(job.snapshot)))
    return connection


async def _check_on(connection: Connection, job: Job, segment: Segment) -> Checked:
    work = DatabasePages(connection, job.log, job.head, job.newest)
    before, pages = ChainState(), list[Page]()
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
    except LedgerError:  # the caller comes to the same place, and finds and names it itself
        await work.release()
        return Checked(before, before, [], (b"", b""))
    return Checked(before, work.rules.state, pages, work.rules.groups.pack(), work.control_index)
