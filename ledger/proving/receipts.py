# SPDX-License-Identifier: Apache-2.0
"""
Receipts: the proof of an entry that has just been appended, as soon as a signed checkpoint covers it.

A caller that waits for a receipt requests a checkpoint from the signer, so it arrives within tens of milliseconds
instead of at the next interval. Thousands may wait: the proofs of all entries that a checkpoint covers are made at
once, from the newest part of the tree (`TreeWindow`), which is kept in memory and extended by the new leaf hashes.
While the database is unavailable, or refuses, callers keep waiting.

Guarantee: a receipt is a proof file (C2SP tlog-proof) that `check_proof` accepts with the log's key. It is returned
only if the tree made from the log's leaf hashes has the signed root, and the entry's bytes have the leaf hash in that
tree.

The proofs of a window are those of the whole tree. A proof of an entry at or behind `start` needs two kinds of perfect
subtrees. Those that end behind `start` were made while the window grew. The others are in the frontier at `start`: each
is complete there and its parent is not (RFC 6962, section 2.1).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import TracebackType
from typing import Final, Self

import psycopg

from ledger.errors import BrokenError, Fault, LedgerError
from ledger.format.checkpoint import Checkpoint
from ledger.format.key_history import KeyHistory, Trusted
from ledger.format.merkle import Frontier, leaf_hash, node_hash, prove_inclusion
from ledger.format.note import VerifierKey
from ledger.format.proof import Proof, format_proof
from ledger.format.verification import read_checkpoint
from ledger.proving.prove import prove
from ledger.store.notifications import CHECKPOINT_REQUESTED, CHECKPOINT_SIGNED
from ledger.store.queries import load_queries
from ledger.store.read import Log, read_entries_at, read_leaves
from ledger.store.session import Connection, Outage, connect_service
from ledger.store.stored_tree import read_frontier

WAITING_MAX: Final = 20_000
"""Callers that may wait at one time."""
NODES_MAX: Final = 200_000
"""Subtrees kept of one log, some 30 MB: of its newest 100,000 entries."""
LOGS_KEPT_MAX: Final = 100
LEAVES_READ_MAX: Final = 65_536
"""Entries that are read to extend a window; proofs of older entries come from the tiles."""
ASK_S: Final = 0.02
"""How often a checkpoint is requested while callers wait, and how often it is looked for without a notification."""
RETRY_S: Final = 0.2
_QUERIES: Final = load_queries("ledger.store", "receipts.sql")
_log = logging.getLogger(__name__)

NodeId = tuple[int, int]
"""Level and index of a perfect subtree of 2**level leaves."""


class NoReceiptError(LedgerError):
    """No signed checkpoint covers the entry yet. It is in the log; its proof can be requested again at any time."""


@dataclass(slots=True, eq=False)
class _Waiter:
    log: Log
    index: int
    answer: asyncio.Future[bytes] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(slots=True)
class _SignedTree:
    """The newest checkpoint of a log, and its tree as far as it is kept."""

    checkpoint: Checkpoint
    note: bytes
    window: TreeWindow


class Receipts:
    """
    Makes receipts for the callers of one process. Use as an async context manager.

    `dsn` connects as the auditor, when the first caller waits; `keys_of` gives all keys that have ever signed a log.
    `trouble` says what keeps receipts from being made now, empty if nothing does.

    A programming error (`ledger.store.session.is_programming_error`, or any other unexpected error) ends the task that
    has opened the context, as in a `TaskGroup`, and is raised when it is left.
    """

    def __init__(self, dsn: str, keys_of: Callable[[str], Trusted]) -> None:
        # Only the event loop's thread touches these. "The task" is the one that runs `_run`.
        self._dsn = dsn
        self._keys_of = keys_of
        self._tasks = asyncio.TaskGroup()
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage("receipts", _log)
        """Changed by the task alone; callers read its text."""
        self._waiting: dict[int, list[_Waiter]] = {}
        """By log_id. Callers append to a list; the task replaces lists, without an await in between."""
        self._count = 0
        """How many calls of `receipt` wait; each call counts itself."""
        self._arrived = asyncio.Event()
        """Set by callers, cleared by the task."""
        self._signed: dict[int, _SignedTree] = {}
        """By log_id, least recently used first; the task's alone."""

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._task = self._tasks.create_task(self._run(), name="receipts")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
        # The group must see a cancellation, which may be its own, but no other error, which it would wrap.
        ended = (kind, error, trace) if isinstance(error, asyncio.CancelledError) else (None, None, None)
        try:
            await self._tasks.__aexit__(*ended)
        except ExceptionGroup as group:
            raise group.exceptions[0] from error

    @property
    def trouble(self) -> str:
        """What the database refuses now, and is tried again; empty if nothing."""
        return self._outage.trouble

    def keys_for(self, origin: str, size: int) -> tuple[VerifierKey, ...]:
        """Return the keys that may have signed a checkpoint of a log at that size, the newest first."""
        keys = self._keys_of(origin)
        return keys.keys_for(origin, size) if isinstance(keys, KeyHistory) else tuple(keys)

    async def receipt(self, log: Log, index: int, *, timeout_s: float) -> bytes:
        """
        Return the receipt of the entry at `index`, once a signed checkpoint covers it.

        Raises:
            NoReceiptError: if that takes longer than `timeout_s`, too many callers wait already, or no more receipts
                are made.
            BrokenError: if what is stored does not prove the entry.
        """
        if self._count >= WAITING_MAX:
            raise NoReceiptError(f"{WAITING_MAX} callers wait for receipts: request this one again later")
        if self._task is None or self._task.done():
            raise _stopped(log, index)
        waiter = _Waiter(log=log, index=index)
        self._waiting.setdefault(log.log_id, []).append(waiter)
        self._count += 1
        self._arrived.set()
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter.answer
        except TimeoutError:
            raise NoReceiptError(
                f"entry {index} of log {log.origin} is in the log, but the database cannot be read now: try again, and "
                "see the log of this process"
                if self.trouble
                else f"entry {index} of log {log.origin} is in the log, but no signed checkpoint covers it after "
                f"{timeout_s:g} s: try again, and check that the signer runs"
            ) from None
        finally:
            self._count -= 1

    async def _run(self) -> None:
        """Answer callers until cancelled; a connection that is lost or refused is made again."""
        try:
            while True:
                await self._wait_for_callers()
                try:
                    async with await connect_service(self._dsn, name="lakeproof receipts") as connection:
                        await connection.execute(f"LISTEN {CHECKPOINT_SIGNED}")
                        await self._serve(connection)
                except (psycopg.Error, OSError) as error:
                    self._outage.failed(error)
                    await asyncio.sleep(RETRY_S)
        finally:
            for waiter in chain.from_iterable(self._waiting.values()):
                if not waiter.answer.done():
                    waiter.answer.set_exception(_stopped(waiter.log, waiter.index))

    async def _serve(self, connection: Connection) -> None:
        while True:
            await self._wait_for_callers()
            if not await self._answer(connection):
                await connection.execute(f"NOTIFY {CHECKPOINT_REQUESTED}")
            self._outage.recovered()
            async for _ in connection.notifies(timeout=ASK_S, stop_after=1):
                pass

    async def _answer(self, connection: Connection) -> bool:
        """Answer every caller whose entry a checkpoint covers; return whether none is left."""
        cursor = await connection.execute(_QUERIES["newest_checkpoints"], {"log_ids": list(self._waiting)})
        for log_id, size, note in await cursor.fetchall():
            covered = [waiter for waiter in self._waiting[log_id] if waiter.index < size]
            if not covered:
                continue
            try:
                await self._answer_covered(connection, covered, bytes(note))
            except LedgerError as error:
                for waiter in covered:
                    if not waiter.answer.done():
                        waiter.answer.set_exception(error)
        self._drop_answered()
        return not self._waiting

    async def _answer_covered(self, connection: Connection, covered: Sequence[_Waiter], note: bytes) -> None:
        log = covered[0].log
        signed = await self._extended_tree(connection, log, note, [waiter.index for waiter in covered])
        recent = [waiter for waiter in covered if waiter.index >= signed.window.start]
        entries = await read_entries_at(connection, log.log_id, [waiter.index for waiter in recent])
        for waiter in recent:
            _answer(waiter, _proof(signed, waiter.index, entries.get(waiter.index)))
        for waiter in covered:
            if waiter.index < signed.window.start:
                _answer(waiter, await prove(connection, log, waiter.index, keys=self._keys_of(log.origin), policy=None))

    async def _extended_tree(
        self, connection: Connection, log: Log, note: bytes, indices: Sequence[int]
    ) -> _SignedTree:
        """
        Return the log's tree at the checkpoint of `note`, with its root checked; it proves `indices` as far as
        possible.
        """
        known = self._signed.pop(log.log_id, None)
        if known is not None and known.note == note:
            self._signed[log.log_id] = known
            return known
        checkpoint = read_checkpoint(note, self._keys_of(log.origin), where="ledger.checkpoints", origin=log.origin)
        window = None if known is None else known.window
        if window is None or checkpoint.size - window.size > LEAVES_READ_MAX or checkpoint.size < window.size:
            oldest = checkpoint.size - LEAVES_READ_MAX
            start = min((index for index in indices if index >= oldest), default=checkpoint.size)
            window = TreeWindow(await read_frontier(connection, log.log_id, start))
        elif len(window) > NODES_MAX:
            window = window.restarted()
        leaves = await read_leaves(connection, log.log_id, from_index=window.size, to_index=checkpoint.size)
        window.extend(leaves)
        if window.size != checkpoint.size or (root := window.frontier().root()) != checkpoint.root:
            found = f"{window.size} leaf hashes" if window.size != checkpoint.size else root.hex()
            raise BrokenError(Fault.ROOT, where="ledger.entries", expected=checkpoint.root.hex(), found=found)
        signed = _SignedTree(checkpoint=checkpoint, note=note, window=window)
        self._signed[log.log_id] = signed
        if len(self._signed) > LOGS_KEPT_MAX:
            del self._signed[next(iter(self._signed))]  # the least recently used
        return signed

    async def _wait_for_callers(self) -> None:
        """Return once a caller waits."""
        self._drop_answered()
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()

    def _drop_answered(self) -> None:
        """
        Drop the callers that were answered or have left. Not earlier, because a connection may be lost while they are
        answered.
        """
        for log_id, line in list(self._waiting.items()):
            if left := [waiter for waiter in line if not waiter.answer.done()]:
                self._waiting[log_id] = left
            else:
                del self._waiting[log_id]


def _stopped(log: Log, index: int) -> NoReceiptError:
    return NoReceiptError(
        f"entry {index} of log {log.origin} is in the log, but this process has stopped making receipts: try "
        "another one, or try again after a restart"
    )


def _proof(signed: _SignedTree, index: int, entry: bytes | None) -> bytes | BrokenError:
    if entry is None or leaf_hash(entry) != (leaf := signed.window.leaf(index)):
        expected = "an entry" if entry is None else f"bytes with the leaf hash {leaf.hex()}"
        found = "none" if entry is None else leaf_hash(entry).hex()
        return BrokenError(Fault.ENTRY, where="ledger.entries", expected=expected, found=found, index=index)
    hashes = tuple(signed.window.prove(index))
    return format_proof(Proof(extra=entry, index=index, hashes=hashes, checkpoint=signed.note))


def _answer(waiter: _Waiter, proof: bytes | BrokenError) -> None:
    if waiter.answer.done():
        return
    if isinstance(proof, BrokenError):
        waiter.answer.set_exception(proof)
    else:
        waiter.answer.set_result(proof)


class TreeWindow:
    """
    The tree of a log from `frontier` on: `size` leaves, of which those from `start` on can be proven. Owned by one
    task.
    """

    def __init__(self, frontier: Frontier) -> None:
        self.start = self.size = frontier.size
        self._nodes: dict[NodeId, bytes] = dict(zip(_frontier_nodes(frontier.size), frontier.hashes, strict=True))

    def __len__(self) -> int:
        """Return how many subtrees are kept: about two for each leaf."""
        return len(self._nodes)

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Append leaf hashes."""
        nodes = self._nodes
        for leaf in leaves:
            level, index, node = 0, self.size, leaf
            nodes[level, index] = node
            while index & 1:
                node = node_hash(nodes[level, index - 1], node)
                level, index = level + 1, index >> 1
                nodes[level, index] = node
            self.size += 1

    def frontier(self) -> Frontier:
        """Return the frontier of the tree."""
        return Frontier(size=self.size, hashes=tuple(self._nodes[node] for node in _frontier_nodes(self.size)))

    def leaf(self, index: int) -> bytes:
        """Return the leaf hash of the entry at `index`, from `start` on."""
        return self._nodes[0, index]

    def prove(self, index: int) -> list[bytes]:
        """
        Return the inclusion proof of the entry at `index`, from `start` on, in the tree as it is.

        Raises:
            LedgerError: if the tree has no such entry.
        """
        return prove_inclusion(index=index, size=self.size, read=lambda level, at: self._nodes[level, at])

    def restarted(self) -> TreeWindow:
        """Return a window that starts where this one ends: older entries can no longer be proven from memory."""
        return TreeWindow(self.frontier())


def _frontier_nodes(size: int) -> Sequence[NodeId]:
    """Return the perfect subtrees that `size` leaves fall into, largest first."""
    nodes: list[NodeId] = []
    start = 0
    for level in reversed(range(size.bit_length())):
        if size >> level & 1:
            nodes.append((level, start >> level))
            start += 1 << level
    return nodes
