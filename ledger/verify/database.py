# SPDX-License-Identifier: Apache-2.0
"""
Verifies a log in PostgreSQL: the rules of `format/verification.py`, and that the database's own columns agree.

Beyond the rules: the columns `leaf`, `type`, `key`, `is_control` and `group_id` say what the entry's bytes say, the
head row is what the entries add up to, and every stored checkpoint is signed by the log and has the tree's root at its
size.
Entries after the newest checkpoint are chained and end at the head row, but nobody has signed them: whoever can write
the database can rewrite those. Everything is read in one snapshot, so concurrent appends do no harm.

Where the bytes of an entry and its `leaf` column disagree, the newest checkpoint that covers them decides which was
changed (`Fault.ENTRY` or `Fault.DERIVED`); after the newest checkpoint, the head row decides.

With `since`, a checkpoint up to which the caller has verified the log before, only what follows it is read: the tiles
must prove that the log continues from it (`starting.py`). Columns and checkpoints before it are not checked then.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from ledger.errors import BrokenError, Fault
from ledger.format.checkpoint import Checkpoint
from ledger.format.key_history import Trusted
from ledger.format.sequence import NO_CONTROL, LogHead
from ledger.format.tiles import TileReader, frontier_of, tile_path, tile_width
from ledger.format.verification import ProgressCallback, VerificationReport, held_checkpoints, read_checkpoint
from ledger.store.read import Log, read_entries, read_entry
from ledger.store.session import Connection
from ledger.store.stored_tree import compute_on_tiles
from ledger.verify.database_pages import (
    ENTRIES,
    QUERIES,
    DatabasePages,
    Job,
    check_no_stray_row,
    check_segment,
    read_sound_head,
)
from ledger.verify.resuming import NoProgressFile, ProgressKeeper
from ledger.verify.starting import (
    SINCE,
    Start,
    check_continued,
    check_earlier,
    first_read,
    prove_earlier,
    read_prefix,
    start_behind,
)
from ledger.verify.tree import LeafPage, TreeRules, check_roots
from ledger.verify.workers import Effort, SegmentResult, segments_checked

R = TypeVar("R")

_PROGRESS_ENTRIES: Final = 1_024
"""Entries between two calls of `progress`."""
_CHECKPOINTS_AHEAD: Final = 65_536
"""Entries for which the checkpoints are read at once."""


async def verify_database(
    connection: Connection,
    log: Log,
    trusted: Trusted,
    *,
    held: Sequence[bytes] = (),
    since: bytes | None = None,
    keeper: ProgressKeeper | None = None,
    effort: Effort | None = None,
    workers_dsn: str | None = None,
    progress: ProgressCallback = lambda _done, _of: None,
    clock: Callable[[], float] = time.perf_counter,
) -> VerificationReport:
    """
    Verify a log in the database, and say what was verified.

    `connection` works as the auditor, in autocommit mode. Workers connect with `workers_dsn`, if it is given.
    `trusted` are the keys that the caller trusts, `held` signed checkpoints of this log that were kept elsewhere,
    `since` one more, up to which the caller has verified the log before. `keeper` saves progress, so that interrupted
    work can be resumed. Payload parts are checked by `parts.py`.

    Raises:
        BrokenError: at the first fault; names its class, the table, and the entry's index where there is one.
        NoSuchLogError: if this role can see no such log.
        FormatError: if the progress that `keeper` has saved is of another log or malformed.
    """
    started_s = clock()
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        head, recorded_at = await read_sound_head(connection, log.log_id)
        checks = _DatabasePass(connection, log, head, trusted, keeper or NoProgressFile())
        try:
            await checks.begin(held, since)
            await checks.run(progress, effort or Effort(), workers_dsn)
            checks.check_head(recorded_at)
            await checks.check_behind()
            await checks.check_first()
        finally:
            await checks.release()  # else the end of the transaction waits for a stream that nobody reads
    return VerificationReport(
        origin=log.origin,
        size=head.size,
        root=head.frontier.root(),
        signed_size=checks.newest.size if checks.newest else 0,
        checkpoints=checks.checkpoints,
        parts=0,
        elapsed_s=clock() - started_s,
        first=checks.first,
        since=checks.since.size if checks.since else None,
        resumed_at=checks.first if checks.is_resumed else None,
    )


class _DatabasePass:
    """One pass over a log in one snapshot. Used by one call of `verify_database` alone, in one task."""

    def __init__(
        self, connection: Connection, log: Log, head: LogHead, trusted: Trusted, keeper: ProgressKeeper
    ) -> None:
        self.checkpoints = 0
        self.first = 0
        self.since: Checkpoint | None = None
        self.is_resumed = False
        self.newest: Checkpoint | None = None
        self._connection = connection
        self._log = log
        self._head = head
        self._trusted = trusted
        self._keeper = keeper
        self._tree = TreeRules()
        self._pages = DatabasePages(connection, log, head, None)
        self._end = self._size = 0
        self._last = b""
        self._held: Sequence[Checkpoint] = ()
        self._due: deque[tuple[int, bytes | None]] = deque()
        self._read_upto = self._checked_upto = -1

    async def begin(self, held: Sequence[bytes], since: bytes | None) -> None:
        """Find the end of the log and where to begin; check the checkpoints that were kept elsewhere."""
        last = await self._one("last_row")
        self._end, self._last = (0, b"") if last is None else (last[0] + 1, bytes(last[1] or b""))
        self._size = size = min(self._end, self._head.size)
        newest = await self._one("latest_checkpoint_within", size=size)
        self.newest = self._pages.newest = self._open(*newest) if newest else None
        begun = self._keeper.load(self._log.origin, bytes(newest[1]) if newest else b"")
        kept = [*held, *([since] if since else []), *([begun.note] if begun and begun.note else [])]
        self._held = held_checkpoints(kept, self._trusted, origin=self._log.origin, size=size)
        start = Start()
        if since is not None:
            self.since = read_checkpoint(since, self._trusted, where=SINCE, origin=self._log.origin)
            start = await self._start_behind(self.since)
        if begun is not None:
            start, self.is_resumed, self._pages.control_index = begun.start, True, begun.control_index
            self._pages.rules.groups.extend(begun.groups)
            if start.state.size > size:
                expected = f"{start.state.size} entries, as were verified before"
                raise BrokenError(Fault.INDEX, where=ENTRIES, expected=expected, found=f"{size} entries", index=size)
        self._pages.rules.adopt(start.state)
        self.first = start.state.size
        self._tree = TreeRules(size=self.first, edge=start.edge)
        if self.first:
            self._read_upto = self._checked_upto = self.first
            await self._check_earlier()
        else:
            check_roots((), (), await self._due_checkpoints(upto=0))

    async def release(self) -> None:
        """Make the connection free for something else."""
        await self._pages.release()

    async def run(self, progress: ProgressCallback, effort: Effort, workers_dsn: str | None) -> None:
        """Check everything from there on."""
        size = self._size
        pages = self._pages
        pages.load_fast_path(size - self.first, effort)

        async def join(page: LeafPage) -> None:
            await self._join(page)
            if self._tree.size % _PROGRESS_ENTRIES == 0 or self._tree.size == size:
                progress(self._tree.size, size)

        if workers_dsn is not None and effort.processes > 1:
            snapshot = await self._one("export_snapshot")
            assert snapshot is not None  # noqa: S101 - the function always returns one
            check = partial(check_segment, Job(workers_dsn, snapshot[0], self._log, self._head, self.newest))
            with segments_checked(check, self.first, size, effort, is_fast=pages.is_fast) as segments:
                for segment, future in segments:
                    if future and (checked := await asyncio.wrap_future(future)).before == pages.rules.state:
                        for page in checked.pages:
                            await join(page)
                        self._adopt(checked)
                    await pages.begin_at(pages.rules.size, end=segment.end)
                    while pages.rules.size < segment.end:
                        await join(await pages.check_page(size))
                    self._keep()
        await pages.begin_at(pages.rules.size, end=size)
        while pages.rules.size < size:
            await join(await pages.check_page(size))
            self._keep()
        await self.release()
        self._check_end()
        pages.rules.finish()

    async def check_first(self) -> None:
        """Check that the log continues the one that its origin names, if its first entry was read."""
        if self.since is None and self._size:
            first = await read_entry(self._connection, self._log.log_id, 0)
            check_continued(first, self._trusted, origin=self._log.origin, where=ENTRIES)

    def _adopt(self, checked: SegmentResult) -> None:
        self._pages.rules.adopt(checked.after)
        self._pages.rules.groups.extend(checked.groups)
        if checked.control_index != NO_CONTROL:
            self._pages.control_index = checked.control_index

    def _keep(self) -> None:
        start = Start(state=self._pages.rules.state, edge=self._tree.edge)
        self._keeper.save(start, self._pages.rules.groups, control_index=self._pages.control_index)

    async def _join(self, page: LeafPage) -> None:
        edge = self._tree.edge
        for tile in self._tree.add(page):
            await self._pages.release()
            await self._pages.check_tile(tile)
        if due := await self._due_checkpoints(upto=self._tree.size):
            check_roots(edge, page.split(), due)

    async def _start_behind(self, since: Checkpoint) -> Start:
        edge, inclusion = await self._on_tiles(lambda read: read_prefix(read, since=since))
        first = first_read(since)
        entry = None
        if first:
            entries = await read_entries(self._connection, self._log.log_id, from_index=first - 1, to_index=first)
            entry = entries[0] if entries else b""
        return start_behind(since, edge, inclusion, entry=entry, where=ENTRIES)

    async def _check_earlier(self) -> None:
        """Check that the log continues from the held checkpoints whose size is before what is read."""
        earlier = [
            checkpoint
            for checkpoint in self._held
            if checkpoint.size <= max(self.first, self.since.size if self.since else 0)
        ]
        size, root = self._decisive()
        proofs = await self._on_tiles(lambda read: prove_earlier(read, earlier, size=size))
        check_earlier(earlier, proofs, size=size, root=root)

    def _decisive(self) -> tuple[int, bytes]:
        """Return size and root of the largest tree that is known: the newest signed one, or the head's."""
        if self.newest is not None and all(held.size <= self.newest.size for held in self._held):
            return self.newest.size, self.newest.root
        return self._head.size, self._head.frontier.root()

    async def _on_tiles(self, compute: Callable[[TileReader], R]) -> R:
        """Compute on tiles as wide as in the largest known tree; those of smaller trees are prefixes of them."""
        size = self._decisive()[0]

        def on_widest(read: TileReader) -> R:
            return compute(lambda level, index, _: read(level, index, tile_width(level=level, index=index, size=size)))

        return await compute_on_tiles(self._connection, self._log.log_id, on_widest)

    def _check_end(self) -> None:
        """Check that the entries end where the head says, and not before the newest checkpoint."""
        end, size = self._end, self._head.size
        agrees = self._pages.rules.size == size and self._pages.rules.last == self._head.last
        if end != size and self._last == self._head.last and not agrees:
            raise _wrong_head("size", expected=end, found=size)
        if end != size:
            index = min(end, size)
            expected = f"entry {index}" if end < size else f"no entry behind the head's {size}"
            raise BrokenError(Fault.INDEX, where=ENTRIES, expected=expected, found=f"{end} entries", index=index)

    def check_head(self, recorded_at: str) -> None:
        """Check that the head row, with this time, is what the entries add up to."""
        head, tree = self._head, frontier_of(self._tree.edge)
        if head.last != self._pages.rules.last:
            raise _wrong_head("last", expected=self._pages.rules.last.hex(), found=head.last.hex())
        if head.frontier != tree:
            raise _wrong_head("frontier", expected=tree.pack().hex(), found=head.frontier.pack().hex())
        # If the entries before `since` were not read, their last control entry is not known.
        is_known = self._pages.control_index != NO_CONTROL or self.since is None or head.control_index >= self.first
        if is_known and head.control_index != self._pages.control_index:
            raise _wrong_head("control_index", expected=self._pages.control_index, found=head.control_index)
        if recorded_at != self._pages.rules.recorded_at.decode():
            raise _wrong_head("recorded_at", expected=self._pages.rules.recorded_at.decode(), found=recorded_at)

    async def check_behind(self) -> None:
        """Check that no tile and no checkpoint is of a larger log: this one was not cut off. Ends the work."""
        size = self._size
        if (surplus := await self._one("surplus_tile", size=size)) is not None:
            where = tile_path(*surplus)
            raise BrokenError(Fault.TILE, where=where, expected=f"no such tile in a log of {size}", found="one")
        if (newest := await self._one("checkpoint_behind", size=size)) is not None:
            self._open(*newest)
            expected = f"{newest[0]} entries, as were signed"
            raise BrokenError(Fault.INDEX, where=ENTRIES, expected=expected, found=f"{size} entries", index=size)
        await check_no_stray_row(self._connection, self._log.log_id)
        self._keeper.forget()

    async def _due_checkpoints(self, *, upto: int) -> list[Checkpoint]:
        """Return the checkpoints up to a size, stored or held elsewhere, that were not returned before; opened."""
        above = self._checked_upto
        if upto > self._read_upto:
            await self._pages.release()
            ahead = max(upto, self._read_upto + _CHECKPOINTS_AHEAD)
            bounds = self._bounds(from_size=self._read_upto, to_size=min(ahead, self._size))
            rows = await (await self._connection.execute(QUERIES["checkpoints_between"], bounds)).fetchall()
            self._due.extend(rows)
            self._read_upto = ahead
        stored = []
        while self._due and self._due[0][0] <= upto:
            stored.append(self._open(*self._due.popleft()))
        self.checkpoints += len(stored)
        self._checked_upto = upto
        held = [checkpoint for checkpoint in self._held if above < checkpoint.size <= upto]
        return sorted((*stored, *held), key=lambda checkpoint: checkpoint.size)

    def _open(self, size: int, note: bytes | None) -> Checkpoint:
        where = f"ledger.checkpoints size {size}"
        checkpoint = read_checkpoint(bytes(note or b""), self._trusted, where=where, origin=self._log.origin)
        if checkpoint.size != size:
            raise BrokenError(Fault.CHECKPOINT, where=where, expected=f"size {size}", found=f"size {checkpoint.size}")
        return checkpoint

    async def _one(self, query: str, **bounds: int) -> Sequence[Any] | None:
        return await (await self._connection.execute(QUERIES[query], self._bounds(**bounds))).fetchone()

    def _bounds(self, **bounds: int) -> dict[str, int]:
        return {"log_id": self._log.log_id, **bounds}


def _wrong_head(column: str, *, expected: object, found: object) -> BrokenError:
    return BrokenError(Fault.HEAD, where=f"ledger.heads.{column}", expected=expected, found=found)
