# SPDX-License-Identifier: Apache-2.0
"""
A batch in one round trip: made for the heads as this process has left them, before they are locked.

BEGIN, the locking of the heads, what has to hold, guards, entries, the new heads and COMMIT are sent together. The
server carries out nothing behind a statement that fails, so all of it is committed or nothing:

- the locking fails unless every head is free and still the expected one, its log confirmed, and the server durable; and
  unless the time that the entries were given is one that the database's clock has shown in the last second;
- a guard fails unless it holds (`must_hold.py`);
- an entry whose group is in the log already fails at the index of group ids.

Then the batch is written in two round trips (`batch.py`), in which it is found out what each of its groups is told. So
is every batch of which it is not likely that it is written in one: see `AtOnce.open` and `known_heads.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

import psycopg

from ledger.append.guard_statements import Groups, GuardStatements
from ledger.append.known_heads import DatabaseClock, KnownHeads
from ledger.append.pending_tiles import PendingTiles, RightEdge
from ledger.append.statements import (
    BEGIN,
    COMMIT,
    ROLLBACK,
    expect_heads,
    insert_entries,
    insert_parts,
    insert_tiles,
    present,
    update_heads,
)
from ledger.format.sequence import (
    Appended,
    AppendOutcome,
    Group,
    LogHead,
    Sequenced,
    sequence,
    sequence_as_if_held,
)
from ledger.store.session import is_refusal
from ledger.store.wire import Pipeline, Statement, StatementResult, parse_timestamptz, rows, tag

ENTRIES_MAX: Final = 24
"""Entries in one round trip. Of more, the first are inserted while the last are made, which gains more."""
SIZE_BYTES_MAX: Final = 256 * 1024
"""Of its groups: what is sent in vain when a head is not as expected, and has to be sent again."""


class Ending(Enum):
    """How a batch ended."""

    COMMITTED = "it is durable"
    NOT_ALLOWED = "rolled back, because it was not allowed"
    MISSED = "nothing was changed, because something was not as expected: the transaction has to be rolled back"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A batch as it was made, before anything of it is sent."""

    outcomes: dict[int, list[AppendOutcome]]
    heads: dict[int, LogHead]
    edges: dict[int, RightEdge]
    locking: Statement
    then: Sequence[Statement]


class AtOnce:
    """
    Runs such batches on one connection, one after the other: `open`, then `commit` and `committed`.

    What two round trips find out about heads belongs into `known` and `clock`.
    """

    def __init__(self, wire: Pipeline, guards: GuardStatements, pending: PendingTiles) -> None:
        # The writer's task alone calls this. No lock is needed.
        self._wire = wire
        self._guards = guards
        self._pending = pending
        self.known = KnownHeads()
        self.clock = DatabaseClock()
        self._made: _Made | None = None
        """The batch that is open."""
        self._locked: asyncio.Future[list[StatementResult]] | None = None
        self._ending: tuple[bool, asyncio.Future[list[StatementResult]]] | None = None
        self._to_note: tuple[_Made, Sequence[StatementResult]] | None = None
        """The batch that was committed last, and the answer to its locking, until that is noted."""

    @property
    def is_open(self) -> bool:
        """Whether a batch is open, whose `commit` is still to come."""
        return self._made is not None

    @property
    def outcomes(self) -> Mapping[int, list[AppendOutcome]]:
        """The outcomes of the groups that are open, by log_id and in order: true once `committed` says so."""
        return {} if self._made is None else self._made.outcomes

    def open(self, groups: Groups, origins: Mapping[int, str]) -> bool:
        """
        Put the batch, without its COMMIT, into the pipeline; `flush` or `commit` send it.

        `origins` has those of its logs. Returns False, and sends nothing, if it has to be written in two round trips: a
        head or the database's clock is not known, a tile has to be read, it is large, or the rules would append one of
        its groups not at all or not as a new one.

        Raises:
            psycopg.Error: if the connection is lost.
        """
        self.note()
        try:
            self._made = self._make(groups, origins)
        except Exception:  # noqa: BLE001 - whatever it is, its group is answered for it where it is written alone
            return False
        if self._made is None:
            return False
        self._wire.send(BEGIN, self._made.locking)
        self._locked = self._wire.part()
        self._wire.send(*self._made.then)
        return True

    def flush(self) -> None:
        """
        Send what is open, because its COMMIT has to wait.

        Raises:
            psycopg.Error: if the connection is lost.
        """
        self._wire.flush()

    def commit(self, may_commit: Callable[[], bool]) -> None:
        """
        Send what is open, and COMMIT; `committed` has the answer.

        `may_commit` is called right before COMMIT is sent. If it returns False, the batch is rolled back.

        Raises:
            psycopg.Error: if the connection is lost; what was sent may or may not arrive.
        """
        allowed = may_commit()
        self._wire.send(COMMIT if allowed else ROLLBACK)
        self._ending = allowed, self._wire.sync()

    async def committed(self) -> Ending:
        """
        Wait until the batch is durable, or not. If it is, `note` comes next.

        Raises:
            psycopg.Error: if the answer to COMMIT does not arrive; the batch may or may not be in the log.
        """
        if self._made is None or self._locked is None or self._ending is None:
            message = "committed came before commit"
            raise RuntimeError(message)
        made, locked, (allowed, answers) = self._made, self._locked, self._ending
        self._made = self._locked = self._ending = None
        try:
            last = (await answers)[-1]
        except psycopg.Error as error:
            if not is_refusal(error):
                raise
            self._guards.forget_outdated(error)
            if locked.exception() is not None:
                self._note_missed(made)
            return Ending.MISSED
        if not allowed:
            return Ending.NOT_ALLOWED
        if tag(last) != b"COMMIT":
            raise psycopg.errors.InFailedSqlTransaction(f"COMMIT was answered by {tag(last)!r}")
        self._to_note = made, locked.result()
        return Ending.COMMITTED

    def note(self) -> None:
        """Note how the batch that was committed last has left the heads; its callers need not wait for that."""
        if self._to_note is not None:
            (made, locked), self._to_note = self._to_note, None
            self._note_committed(made, locked)

    def _make(self, groups: Groups, origins: Mapping[int, str]) -> _Made | None:
        every = [group for line in groups.values() for group in line]
        count = sum(len(group.then) for group in every)
        if count > ENTRIES_MAX or sum(group.size_bytes for group in every) > SIZE_BYTES_MAX:
            return None
        if (clock := self.clock.now()) is None:
            return None
        expected: dict[int, LogHead] = {}
        for log_id in sorted(groups):
            if (head := self.known.expected(log_id)) is None:
                return None
            if self._pending.has_to_read(log_id, size=head.size, count=count):
                return None
            expected[log_id] = head
        results: dict[int, Sequenced] = {}
        asked: list[tuple[int, Group]] = []
        for log_id, head in expected.items():
            rules = sequence(head, groups[log_id], log=origins[log_id], stored={}, clock=clock)
            results[log_id], guarded = sequence_as_if_held(rules)
            asked += [(log_id, group) for group in guarded]
        outcomes = {log_id: sequenced.outcomes for log_id, sequenced in results.items()}
        if not all(isinstance(outcome, Appended) for line in outcomes.values() for outcome in line):
            return None
        if (guards := self._guards.dump_required(asked)) is None:
            return None
        return self._prepared(expected, results, outcomes, guards, clock)

    def _prepared(
        self,
        expected: Mapping[int, LogHead],
        results: Mapping[int, Sequenced],
        outcomes: dict[int, list[AppendOutcome]],
        guards: Sequence[Statement],
        clock: datetime,
    ) -> _Made:
        rows_ = {log_id: sequenced.rows for log_id, sequenced in results.items()}
        heads = {log_id: sequenced.head for log_id, sequenced in results.items()}
        tiles, edges = {}, dict[int, RightEdge]()
        for log_id, head in expected.items():
            leaves = [row.leaf for row in rows_[log_id]]
            tiles[log_id], edge = self._pending.complete_prepared(log_id, size=head.size, leaves=leaves)
            if edge is not None:
                edges[log_id] = edge
        inserts = [insert_entries(rows_), insert_parts(rows_), insert_tiles(tiles), update_heads(heads)]
        return _Made(
            outcomes=outcomes,
            heads=heads,
            edges=edges,
            locking=expect_heads(expected, clock=clock),
            then=[*guards, *(insert for insert in inserts if insert is not None)],
        )

    def _note_committed(self, made: _Made, locked: Sequence[StatementResult]) -> None:
        ((_, clock),) = rows(locked[-1])
        self.clock.note(parse_timestamptz(present(clock)))
        for log_id, head in made.heads.items():
            self.known.note_met(log_id)
            self.known.note_left(log_id, head)
        for log_id, edge in made.edges.items():
            self._pending.keep(log_id, edge)

    def _note_missed(self, made: _Made) -> None:
        self.clock.forget()
        for log_id in made.heads:
            self.known.note_missed(log_id)
