# SPDX-License-Identifier: Apache-2.0
"""
One transaction of the Appender, statement by statement.

The order is the protocol. `open` and `begin`: BEGIN, lock the heads (SKIP LOCKED, in log_id order), then look up the
group ids. The lookup is a statement of its own, so it sees what was committed before the lock was taken. `sequence`:
guards and the pure rules. `commit` and `committed`: insert, move the heads, COMMIT. Statements that need no answer in
between share a round trip. The next transaction may be opened right behind a COMMIT whose answer is still to come.

Entries are made before it is known what they depend on, as if no group were in the log and all guards held. Nothing of
them is sent before that is known. If it is not so, they are made again. So the head of one log can be locked before it
is known what will be appended to it (`open_early`), and guards can be sent with the locks (`open_with_guards`). A batch
whose guards hold takes two round trips: lock, lookup and guards, then the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psycopg

from ledger.append.at_once import AtOnce, Ending
from ledger.append.guard_statements import Groups, GuardStatements
from ledger.append.pending_tiles import PendingTiles, RightEdge
from ledger.append.statements import (
    BEGIN,
    COMMIT,
    ROLLBACK,
    find_groups,
    insert_entries,
    insert_parts,
    insert_tiles,
    lock_head,
    lock_heads,
    parse_locked,
    present,
    read_stored_groups,
    update_heads,
)
from ledger.format.guards import GuardRegistry
from ledger.format.sealing import Opener
from ledger.format.sequence import (
    AppendOutcome,
    Group,
    LogHead,
    Sequenced,
    SequencedEntry,
    Sequencing,
    StoredGroup,
    sequence,
    sequence_as_if_held,
)
from ledger.format.tiles import Tile
from ledger.store.read import QUERIES
from ledger.store.session import Connection, check_fsync
from ledger.store.wire import Pipeline, Statement, StatementResult, parse_int, rows, tag

EARLY_ROWS: Final = 24
"""Entries that are sent at a time, while the next ones are made."""

APART_MIN: Final = 8
"""Groups with guards that are sent in an exchange of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Which of some logs do not exist, and which the signer has not confirmed in this database."""

    unknown: frozenset[int]
    unconfirmed: frozenset[int]


@dataclass(slots=True, kw_only=True)
class _LogBatch:
    """What the transaction does to one log whose head it has locked."""

    head: LogHead
    clock: datetime
    stored: dict[UUID, StoredGroup]
    new_head: LogHead
    tiles: Sequence[Tile] = ()
    edge: RightEdge | None = None


class AppendTransaction:
    """
    Runs batches on one connection, one after the other: `open` or `open_with_guards`, `begin`, `sequence`, then
    `commit` and `committed`, or `rollback`. Only what comes before `begin` may come early, between `commit` and
    `committed` of the batch before.

    After an error the connection cannot be used any more: make another.
    """

    def __init__(self, connection: Connection, guards: GuardRegistry, opener: Opener) -> None:
        # The writer's task alone calls this; `wake` calls `open_early` while that task is idle. No lock is needed.
        self._opener = opener
        self._wire = Pipeline(connection)
        self._guards = GuardStatements(connection, self._wire, guards)
        self._pending = PendingTiles(self._wire.lend)
        self._at_once = AtOnce(self._wire, self._guards, self._pending)
        self._origins: dict[int, str] = {}
        """By log_id: logs that were confirmed when they were last checked, which is whenever their heads are locked."""
        # Of the transaction that is open; each step takes what the step before has left:
        self._early: tuple[int, asyncio.Future[list[StatementResult]]] | None = None
        """The log whose head was requested early."""
        self._missed = False
        """Whether the transaction before has failed, and is still to be rolled back."""
        self._opened: asyncio.Future[list[StatementResult]] | None = None
        self._looks_up_apart = False
        """Whether `_opened` has nothing but the lookup."""
        self._looking_up: asyncio.Future[list[StatementResult]] | None = None
        """The lookup, while entries are made at the same time."""
        self._committing: tuple[bool, asyncio.Future[list[StatementResult]]] | None = None
        self._batches: dict[int, _LogBatch] = {}
        self._unsent: dict[int, list[SequencedEntry]] = {}

    def close(self) -> None:
        """Stop watching the connection's socket; call it before the connection is closed."""
        self._wire.close()

    async def admit(self, log_ids: Collection[int]) -> Admission:
        """Find out which of these logs accept entries; queries only those that are not known to."""
        unseen = [log_id for log_id in log_ids if log_id not in self._origins]
        if not unseen:
            return Admission(unknown=frozenset(), unconfirmed=frozenset())
        found = await self._execute("logs_to_append_to", {"log_ids": unseen})
        self._origins |= {log_id: origin for log_id, origin, is_confirmed in found if is_confirmed}
        unconfirmed = frozenset(log_id for log_id, _, is_confirmed in found if not is_confirmed)
        return Admission(unknown=frozenset(unseen) - {row[0] for row in found}, unconfirmed=unconfirmed)

    def admits(self, log_ids: Collection[int]) -> bool:
        """Return whether all of these logs exist and are confirmed, as far as is known: `begin` checks again."""
        return all(log_id in self._origins for log_id in log_ids)

    @property
    def early(self) -> int | None:
        """The log whose head was requested early, if `open` or `drop_early` is still to come."""
        return None if self._early is None else self._early[0]

    def open_early(self, log_id: int) -> None:
        """
        Send BEGIN and the locking of a head, if it is free, before `open` or `drop_early`. The log must be admitted.

        Raises:
            psycopg.Error: if the connection is lost.
        """
        self._wire.send(BEGIN, lock_heads([log_id]))
        self._early = log_id, self._wire.sync()

    async def drop_early(self) -> None:
        """End the transaction that was opened early, if one was."""
        early, self._early = self._early, None
        if early is not None:
            with suppress(psycopg.errors.LockNotAvailable):
                await early[1]
            await self.rollback()

    def open_at_once(self, groups: Groups) -> bool:
        """
        Prepare the batch to be written in one round trip, which `at_once` does; return whether it may be. Not after
        `open_early`. If it is missed, `open` or `open_with_guards` come next. Every log must be admitted.

        Raises:
            psycopg.Error: if the connection is lost.
        """
        return self._at_once.open(groups, self._origins)

    @property
    def at_once(self) -> AtOnce:
        """The batch that `open_at_once` has opened, and what is known of heads."""
        return self._at_once

    async def committed_at_once(self) -> Ending:
        """
        Wait until the batch that `open_at_once` has opened, and `at_once` has sent with its COMMIT, is durable, or not.

        Raises:
            psycopg.Error: if the answer to COMMIT does not arrive; the batch may or may not be in the log.
        """
        ending = await self._at_once.committed()
        self._missed = ending is Ending.MISSED
        return ending

    def open(self, groups: Groups, *, wait: bool) -> None:
        """
        Send BEGIN, the locking of the heads that are free, and the lookup of the groups; `begin` has the answers.

        With `wait`, wait up to 100 ms for the head of a single log; not after `open_early`. Every log must be admitted.

        Raises:
            psycopg.Error: if the connection is lost.
        """
        self._send_opening(groups, wait=wait)
        self._opened = self._wire.sync()

    def open_with_guards(self, groups: Groups, *, wait: bool) -> None:
        """
        `open`, and send the guards right behind the lookup; `sequence` has their answers.

        It saves a round trip if the heads are free. If one is held, nothing is changed, and the server logs an error:
        leave the guards out where that is likely. The guards of a few groups are sent and answered together with the
        lookup. The answer to the lookup of many comes before, so that entries are made while the server runs guards.

        Raises:
            psycopg.Error: if the connection is lost.
        """
        guards = self._guards.dump_all(groups)
        self._send_opening(groups, wait=wait)
        if guards is None or len(guards.expected) >= APART_MIN:
            self._opened = self._wire.sync()
        else:
            self._opened = self._wire.part()
        if guards is not None:
            self._guards.send(guards)

    def _send_opening(self, groups: Groups, *, wait: bool) -> None:
        statements: list[Statement] = []
        if self._missed:
            statements, self._missed = [ROLLBACK], False
        if self._early is None:
            statements += [BEGIN, lock_head(groups) if wait else lock_heads(groups)]
        elif others := [log_id for log_id in groups if log_id != self._early[0]]:
            statements = [lock_heads(others)]
        self._looks_up_apart = not statements
        self._wire.send(*statements, find_groups(groups))

    async def begin(self) -> set[int]:
        """
        Wait until the opened transaction has begun; returns the log_ids whose heads are locked.

        A log that is no longer confirmed is not among them, and has to be admitted again.

        Raises:
            FormatError: if what is stored is corrupt.
            UnsafeServerError: if the server does not wait for its disk any more.
        """
        if (opened := self._opened) is None:
            raise _out_of_order("begin")
        early, self._early, self._opened = self._early, None, None
        self._batches, self._unsent = {}, {}
        found: StatementResult | None = None
        try:
            locking = [] if early is None else await early[1]
            if self._looks_up_apart:
                self._looking_up = opened
            else:
                *heads, found = await opened
                locking += heads
        except psycopg.errors.LockNotAvailable:
            await asyncio.wait([opened])
            return set()
        for row in (row for answer in locking for row in rows(answer)):
            locked = parse_locked(row)
            check_fsync(locked.fsync)
            if locked.is_confirmed:
                head, clock = locked.head, locked.clock
                self._at_once.clock.note(clock)
                self._at_once.known.note_read(locked.log_id, head)
                self._batches[locked.log_id] = _LogBatch(head=head, clock=clock, stored={}, new_head=head)
            else:
                self._origins.pop(locked.log_id, None)
        if found is not None:
            await self._keep_stored(found)
        elif not self._batches:
            await self._looked_up()
        return set(self._batches)

    async def _looked_up(self) -> bool:
        """Wait for the lookup that is in flight, if one is; return whether it has found a group."""
        looking_up, self._looking_up = self._looking_up, None
        return looking_up is not None and await self._keep_stored((await looking_up)[-1])

    async def _keep_stored(self, found: StatementResult) -> bool:
        values = [[present(value) for value in row] for row in rows(found)]
        firsts = [(parse_int(log_id), parse_int(index), entry) for log_id, index, entry in values]
        had = [first for first in firsts if first[0] in self._batches]
        if had:
            await self._guards.answered()  # the connection is free then
            for (log_id, group_id), group in (await read_stored_groups(self._wire.lend(), had, self._opener)).items():
                self._batches[log_id].stored[group_id] = group
        return bool(had)

    def stored(self, log_id: int) -> Mapping[UUID, StoredGroup]:
        """Return the groups of this batch that the locked log already holds, once they are sequenced."""
        return self._batches[log_id].stored

    async def sequence(
        self, groups: Groups, *, before_slow_guards: Callable[[], object] = lambda: None
    ) -> dict[int, list[AppendOutcome]]:
        """
        Sequence every group; returns the outcomes in order, true once `committed` has returned True.

        Without guards, entries are sent as they are made, so that the server inserts the first of them while the last
        are hashed. The first may be made before it is known which groups the log already holds. With guards, all of
        them are made while the server runs the guards. If one does not hold, the guards run again group by group,
        which takes a round trip for each statement. `before_slow_guards` is called before that.

        Raises:
            FormatError: if a text has no form in UTF-8.
            LedgerError: if what is stored is corrupt.
            psycopg.Error: if the connection is lost.
        """
        if self._guards.sent_for not in {None, frozenset(groups)}:
            # Not all heads are locked: the groups of the others are not written.
            await self._looked_up()
            await self._guards.undo()
        for log_id, line in groups.items():
            size = self._batches[log_id].head.size
            count = sum(max(len(group.then), len(group.otherwise)) for group in line)
            if self._pending.has_to_read(log_id, size=size, count=count):
                # Reads use the connection through the driver: no pipelined statement may be in flight then.
                await self._looked_up()
                await self._guards.answered()
                await self._pending.prepare(log_id, size=size, count=count)
        if any(group.guard for line in groups.values() for group in line):
            return await self._sequence_guarded(groups, before_slow_guards)
        return {log_id: await self._sequence_log(log_id, groups[log_id]) for log_id in sorted(groups)}

    @property
    def changes(self) -> bool:
        """Whether the batch appends anything."""
        return any(batch.new_head is not batch.head for batch in self._batches.values())

    def commit(self, may_commit: Callable[[], bool]) -> None:
        """
        Send the rest of the batch and COMMIT; `committed` has the answer.

        `may_commit` is called right before COMMIT is sent. If it returns False, the batch is rolled back.

        Raises:
            FormatError: if a text has no form in UTF-8; COMMIT was not sent.
            psycopg.Error: if the connection is lost; what was sent may or may not arrive.
        """
        # Otherwise the head, locked outside and changed inside a savepoint, would cost a multixact.
        statements = [*self._guards.end(), *self._unsent_inserts()]
        tiles = {log_id: batch.tiles for log_id, batch in self._batches.items() if batch.tiles}
        if (insert := insert_tiles(tiles)) is not None:
            statements.append(insert)
        heads = {log_id: batch.new_head for log_id, batch in self._batches.items() if batch.new_head is not batch.head}
        if heads:
            statements.append(update_heads(heads))
        allowed = may_commit()
        self._wire.send(*statements, COMMIT if allowed else ROLLBACK)
        self._committing = allowed, self._wire.sync()

    async def committed(self) -> bool:
        """
        Wait until the batch is durable; returns False if it was rolled back because it was not allowed.

        Raises:
            psycopg.Error: if the answer to COMMIT does not arrive; the batch may or may not be in the log.
        """
        if self._committing is None:
            raise _out_of_order("committed")
        (allowed, answers), self._committing = self._committing, None
        last = (await answers)[-1]
        if not allowed:
            return False
        if tag(last) != b"COMMIT":
            # A transaction that has failed answers COMMIT with ROLLBACK, which is no error to PostgreSQL.
            raise psycopg.errors.InFailedSqlTransaction(f"COMMIT was answered by {tag(last)!r}")
        for log_id, batch in self._batches.items():
            self._at_once.known.note_left(log_id, batch.new_head)
            if batch.edge is not None:
                self._pending.keep(log_id, batch.edge)
        return True

    async def rollback(self) -> None:
        """End the transaction without any change."""
        await self._guards.abandon()
        await self._wire.lend().execute("ROLLBACK")

    async def _execute(self, query: str, parameters: Mapping[str, object]) -> list[tuple[Any, ...]]:
        return await (await self._wire.lend().execute(QUERIES[query], parameters)).fetchall()

    async def _sequence_log(self, log_id: int, groups: Sequence[Group]) -> list[AppendOutcome]:
        """Sequence groups without guards, in pieces, each sent when it is made."""
        batch = self._batches[log_id]
        head, leaves, outcomes = batch.head, list[bytes](), list[AppendOutcome]()
        for piece in _pieces(groups):
            sequenced, _ = self._assumed(log_id, replace(batch, head=head), piece)
            if await self._looked_up():
                sequenced, _ = self._assumed(log_id, replace(batch, head=head), piece)
            head = sequenced.head
            outcomes += sequenced.outcomes
            leaves += [row.leaf for row in sequenced.rows]
            self._keep_unsent(log_id, sequenced.rows)
            if sum(map(len, self._unsent.values())) >= EARLY_ROWS:
                self._wire.send(*self._unsent_inserts())
                self._wire.flush()
        await self._complete(log_id, head, leaves)
        return outcomes

    async def _sequence_guarded(
        self, groups: Groups, before_slow_guards: Callable[[], object]
    ) -> dict[int, list[AppendOutcome]]:
        if self._guards.sent_for is None and (guards := self._guards.dump_all(groups)) is not None:
            self._guards.send(guards)
        results, asked = self._all_assumed(groups)
        if await self._looked_up():
            results, asked = self._all_assumed(groups)
        await self._guards.answered()
        if not self._guards.all_hold(asked):
            await self._guards.undo()
            before_slow_guards()
            results = {log_id: await self._drive(log_id, groups[log_id]) for log_id in sorted(groups)}
        for log_id, sequenced in results.items():
            self._keep_unsent(log_id, sequenced.rows)
            await self._complete(log_id, sequenced.head, [row.leaf for row in sequenced.rows])
        return {log_id: sequenced.outcomes for log_id, sequenced in results.items()}

    def _keep_unsent(self, log_id: int, rows_: Sequence[SequencedEntry]) -> None:
        if rows_:
            self._unsent.setdefault(log_id, []).extend(rows_)

    async def _complete(self, log_id: int, head: LogHead, leaves: Sequence[bytes]) -> None:
        """Keep what the transaction makes of a log: its new head, and the tiles that the new leaves complete."""
        batch = self._batches[log_id]
        batch.new_head = head
        if leaves:
            batch.tiles, batch.edge = await self._pending.complete(log_id, size=batch.head.size, leaves=leaves)

    def _unsent_inserts(self) -> list[Statement]:
        unsent, self._unsent = self._unsent, {}
        if not unsent:
            return []
        parts = insert_parts(unsent)
        return [insert_entries(unsent)] if parts is None else [insert_entries(unsent), parts]

    def _all_assumed(self, groups: Groups) -> tuple[dict[int, Sequenced], list[Group]]:
        """Run the pure rules for every log as if all guards held; returns also the groups that the rules ask for."""
        results: dict[int, Sequenced] = {}
        every: list[Group] = []
        for log_id in sorted(groups):
            results[log_id], asked = self._assumed(log_id, self._batches[log_id], groups[log_id])
            every += asked
        return results, every

    def _assumed(self, log_id: int, batch: _LogBatch, groups: Sequence[Group]) -> tuple[Sequenced, list[Group]]:
        return sequence_as_if_held(self._rules(log_id, batch, groups))

    async def _drive(self, log_id: int, groups: Sequence[Group]) -> Sequenced:
        """Run the pure rules, and answer group by group whether the guards hold."""
        flow = self._rules(log_id, self._batches[log_id], groups)
        try:
            group = next(flow)
            while True:
                group = flow.send(await self._guards.hold(log_id, group))
        except StopIteration as done:
            result: Sequenced = done.value
            return result

    def _rules(self, log_id: int, batch: _LogBatch, groups: Sequence[Group]) -> Sequencing:
        return sequence(batch.head, groups, log=self._origins[log_id], stored=batch.stored, clock=batch.clock)


def _pieces(groups: Sequence[Group]) -> Sequence[Sequence[Group]]:
    """
    Return `groups` in pieces that can be sequenced one by one with the same effect: groups of one id stay together.
    """
    if len({group.id.int for group in groups}) < len(groups):
        return [groups]
    return [groups[at : at + EARLY_ROWS] for at in range(0, len(groups), EARLY_ROWS)]


def _out_of_order(step: str) -> RuntimeError:
    return RuntimeError(f"a transaction's {step} came before the step that sends what it waits for")
