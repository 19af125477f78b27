"""
Verifies a log as PostgreSQL holds it: the rules of `rules.py`, and that the database's own columns say the same.

Beyond the rules: the columns `leaf`, `type`, `key`, `is_control` and `group_id` are what the entry's bytes say, the
head row is what the entries add up to, every stored checkpoint is signed by the log and has the tree's root at its
size. Entries behind the newest checkpoint are chained and end at the head row, but nobody has signed them: whoever can
write the database can rewrite those. All is read in one snapshot, so appends that go on meanwhile do no harm.

Where the bytes of an entry and its `leaf` column disagree, the newest checkpoint that covers them decides which was
changed (`Fault.ENTRY` or `Fault.DERIVED`), and behind the newest checkpoint the head row does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any, Final, NamedTuple
from uuid import UUID

from ledger import canonical
from ledger.checkpoint import Checkpoint
from ledger.edge import frontier_of, leads_to_root
from ledger.envelope import Envelope
from ledger.errors import BrokenError, Fault
from ledger.event import is_control
from ledger.merkle import leaf_hash
from ledger.note import VerifierKey
from ledger.queries import load_queries
from ledger.read import QUERIES, Connection, Log, read_head, read_tile
from ledger.sequence import NO_CONTROL, Head
from ledger.stored_tree import on_tiles
from ledger.tiles import TILE_HEIGHT, TILE_WIDTH, Tile, tile_path, tile_width
from ledger.verify.rules import EntryRules, Progress, Report, held_checkpoints, read_checkpoint
from ledger.verify.tree import TreeRules, check_roots, first_difference, tile_fault

_QUERIES: Final = load_queries("ledger", "verify.sql")
_PAGE: Final = 4 * TILE_WIDTH
"""Entries read at a time: whole tiles, so that a tile's hashes are at hand when one of them is in doubt."""

_ENTRIES: Final = "ledger.entries"


async def verify_database(
    connection: Connection,
    log: Log,
    keys: Sequence[VerifierKey],
    *,
    held: Sequence[bytes] = (),
    progress: Progress = lambda _done, _of: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Report:
    """
    Verify a log in the database, and say what was verified.

    `connection` works as the auditor, in autocommit mode. `keys` are the verifier keys that the caller trusts, `held`
    signed checkpoints of this log that were kept elsewhere. Payload parts are for `parts.py`.

    Raises:
        BrokenError: at the first fault; names its class, the table, and the entry's index where there is one.
        NoSuchLogError: if this role can see no such log.
    """
    started_s = clock()
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        head = await read_head(connection, log.log_id)
        checks = _DatabasePass(connection, log, head, keys)
        signed = await checks.run(held, progress)
    return Report(
        origin=log.origin,
        size=head.size,
        root=head.frontier.root(),
        signed_size=signed.size if signed else 0,
        checkpoints=checks.checkpoints,
        parts=0,
        elapsed_s=clock() - started_s,
    )


class _Row(NamedTuple):
    at: int
    entry: bytes
    leaf: bytes
    type: str
    key: str
    is_control: bool
    group_id: UUID | None


class _DatabasePass:
    """One pass over a log in one snapshot. Owned by one call of `verify_database`."""

    def __init__(self, connection: Connection, log: Log, head: Head, keys: Sequence[VerifierKey]) -> None:
        self.checkpoints = 0
        self._connection = connection
        self._log = log
        self._head = head
        self._keys = keys
        self._rules = EntryRules(origin=log.origin, where=lambda _index: _ENTRIES)
        self._tree = TreeRules()
        self._control_index = NO_CONTROL
        self._held: Sequence[Checkpoint] = ()
        self._newest: Checkpoint | None = None

    async def run(self, held: Sequence[bytes], progress: Progress) -> Checkpoint | None:
        """Check everything, and return the newest checkpoint."""
        last = await self._one("last_row")
        end = 0 if last is None else last[0] + 1
        size = min(end, self._head.size)
        newest = await self._one("latest_checkpoint_within", size=size)
        self._newest = self._open(*newest) if newest else None
        self._held = held_checkpoints(held, self._keys, origin=self._log.origin, size=size)
        check_roots((), (), await self._checkpoints(above=-1, upto=0))
        for first in range(0, size, _PAGE):
            await self._check_page(first, min(first + _PAGE, size))
            progress(self._rules.size, size)
        self._check_end(end, None if last is None else bytes(last[1]))
        self._rules.finish()
        self._check_head()
        await self._check_nothing_behind(size)
        return self._newest

    async def _check_page(self, first: int, end: int) -> None:
        rows = await self._rows(first, end)
        leaves = [leaf_hash(row.entry) for row in rows]
        for row, leaf in zip(rows, leaves, strict=True):
            if row.at != self._rules.size:
                break
            envelope = self._rules.check(row.entry, leaf)
            if row.leaf != leaf:
                raise await self._leaf_fault(row, leaf, leaves, first)
            _check_derived(row, envelope)
            if row.is_control:
                self._control_index = row.at
        if self._rules.size != end:
            missing = self._rules.size
            raise BrokenError(Fault.INDEX, where=_ENTRIES, expected=f"entry {missing}", found="none", index=missing)
        edge = self._tree.edge
        for tile in self._tree.extend(leaves):
            await self._check_tile(tile)
        check_roots(edge, leaves, await self._checkpoints(above=first, upto=end))

    async def _leaf_fault(self, row: _Row, leaf: bytes, leaves: Sequence[bytes], first: int) -> BrokenError:
        """Return what is wrong with a row whose `leaf` is not the hash of its entry: the entry, or that column."""
        index = row.at // TILE_WIDTH
        start = index * TILE_WIDTH - first
        if await self._is_genuine(Tile(level=0, index=index, hashes=tuple(leaves[start : start + TILE_WIDTH])), row.at):
            return _derived(row, "leaf", expected=leaf.hex(), found=row.leaf.hex())
        expected = f"bytes with the leaf hash {row.leaf.hex()}"
        return BrokenError(Fault.ENTRY, where=_ENTRIES, expected=expected, found=leaf.hex(), index=row.at)

    async def _check_tile(self, computed: Tile) -> None:
        stored = await read_tile(self._connection, self._log.log_id, level=computed.level, index=computed.index)
        if first_difference(computed.hashes, stored.hashes) is not None:
            last = ((computed.index + 1) << TILE_HEIGHT * (computed.level + 1)) - 1
            raise tile_fault(
                computed, stored, entries_are_genuine=await self._is_genuine(computed, last), entries=_ENTRIES
            )

    async def _is_genuine(self, computed: Tile, index: int) -> bool:
        """Tell whether a tile made from the entries leads to the root that speaks for the entry at `index`."""
        size, root = self._head.size, self._head.frontier.root()
        if self._newest is not None and index < self._newest.size:
            size, root = self._newest.size, self._newest.root
        width = tile_width(level=computed.level, index=computed.index, size=size)
        tile = Tile(level=computed.level, index=computed.index, hashes=computed.hashes[:width])
        return await on_tiles(
            self._connection,
            self._log.log_id,
            lambda read: leads_to_root(tile, size=size, root=root, read_tile=read),
        )

    def _check_end(self, end: int, last: bytes | None) -> None:
        """Check that the entries end where the head says, and not before the newest checkpoint."""
        size = self._head.size
        if end != size and last == self._head.last:
            raise _wrong_head("size", expected=end, found=size)
        if end != size:
            index = min(end, size)
            expected = f"entry {index}" if end < size else f"no entry behind the head's {size}"
            raise BrokenError(Fault.INDEX, where=_ENTRIES, expected=expected, found=f"{end} entries", index=index)

    def _check_head(self) -> None:
        head, tree = self._head, frontier_of(self._tree.edge)
        recorded_at = canonical.format_time(head.recorded_at.astimezone(UTC)) if head.recorded_at else ""
        if head.last != self._rules.last:
            raise _wrong_head("last", expected=self._rules.last.hex(), found=head.last.hex())
        if head.frontier != tree:
            raise _wrong_head("frontier", expected=tree.pack().hex(), found=head.frontier.pack().hex())
        if head.control_index != self._control_index:
            raise _wrong_head("control_index", expected=self._control_index, found=head.control_index)
        if recorded_at != self._rules.recorded_at.decode():
            raise _wrong_head("recorded_at", expected=self._rules.recorded_at.decode(), found=recorded_at)

    async def _check_nothing_behind(self, size: int) -> None:
        """Check that there is no tile and no checkpoint of a larger log: this one was not cut off."""
        if (surplus := await self._one("surplus_tile", size=size)) is not None:
            where = tile_path(*surplus)
            raise BrokenError(Fault.TILE, where=where, expected=f"no such tile in a log of {size}", found="one")
        newest = await (await self._connection.execute(QUERIES["latest_checkpoint"], self._bounds())).fetchone()
        if newest is not None and newest[0] > size:
            self._open(*newest)
            expected = f"{newest[0]} entries, as were signed"
            raise BrokenError(Fault.INDEX, where=_ENTRIES, expected=expected, found=f"{size} entries", index=size)

    async def _checkpoints(self, *, above: int, upto: int) -> list[Checkpoint]:
        """Return the checkpoints of these sizes, stored or held elsewhere, opened, smallest first."""
        bounds = self._bounds(from_size=above, to_size=upto)
        rows = await (await self._connection.execute(_QUERIES["checkpoints_between"], bounds)).fetchall()
        stored = [self._open(size, note) for size, note in rows]
        self.checkpoints += len(stored)
        held = [checkpoint for checkpoint in self._held if above < checkpoint.size <= upto]
        return sorted((*stored, *held), key=lambda checkpoint: checkpoint.size)

    def _open(self, size: int, note: bytes) -> Checkpoint:
        where = f"ledger.checkpoints size {size}"
        checkpoint = read_checkpoint(bytes(note), self._keys, where=where, origin=self._log.origin)
        if checkpoint.size != size:
            raise BrokenError(Fault.CHECKPOINT, where=where, expected=f"size {size}", found=f"size {checkpoint.size}")
        return checkpoint

    async def _rows(self, first: int, end: int) -> list[_Row]:
        bounds = self._bounds(from_index=first, to_index=end)
        rows = await (await self._connection.execute(_QUERIES["rows_between"], bounds, binary=True)).fetchall()
        return [_Row(index, bytes(entry), bytes(leaf), *columns) for index, entry, leaf, *columns in rows]

    async def _one(self, query: str, **bounds: int) -> Sequence[Any] | None:
        return await (await self._connection.execute(_QUERIES[query], self._bounds(**bounds))).fetchone()

    def _bounds(self, **bounds: int) -> dict[str, int]:
        return {"log_id": self._log.log_id, **bounds}


def _check_derived(row: _Row, envelope: Envelope) -> None:
    """Check that the columns of a row say what its entry says."""
    kind = envelope.type.decode()
    group_id = UUID(envelope.group_id.decode()) if envelope.position == 0 else None
    for column, expected, found in (
        ("type", kind, row.type),
        ("key", envelope.key.decode(), row.key),
        ("is_control", is_control(kind), row.is_control),
        ("group_id", group_id, row.group_id),
    ):
        if expected != found:
            raise _derived(row, column, expected=expected, found=found)


def _derived(row: _Row, column: str, *, expected: object, found: object) -> BrokenError:
    where = f"{_ENTRIES}.{column}"
    return BrokenError(Fault.DERIVED, where=where, expected=expected, found=found, index=row.at)


def _wrong_head(column: str, *, expected: object, found: object) -> BrokenError:
    return BrokenError(Fault.HEAD, where=f"ledger.heads.{column}", expected=expected, found=found)
