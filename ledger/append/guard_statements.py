# SPDX-License-Identifier: Apache-2.0
"""
The guards of a transaction: all of them at once if they hold, otherwise one group after another.

Most guards hold. So the guards of a batch are sent together, in one savepoint, without waiting for an answer in
between, and even before it is known whether the heads are locked. If every statement affects exactly one row, all of
them hold, and they have changed what they would have changed one by one. If not, the savepoint undoes all of it, and
the guards of each group run in a savepoint of their own. The savepoint and what holds the heads cost a batch about
15 µs together, so nothing is gained by sending guards without them.

Guarantee: no guard changes a row unless the heads are locked, because the statement before the guards fails otherwise.
What a guard has changed stays only if the rules (`format/sequence.py`) ask for its group, and if all guards of that
group hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import psycopg
from psycopg.adapt import Transformer

from ledger.append.must_hold import must_hold
from ledger.append.statements import RELEASE, ROLLBACK_TO, SAVEPOINT, hold_heads
from ledger.errors import GuardError
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Group, GuardResult
from ledger.store.session import Connection, brief_message, is_refusal
from ledger.store.wire import Pipeline, Query, Statement, StatementResult, affected, dump

Groups = Mapping[int, Sequence[Group]]
"""Groups by log_id, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedGuards:
    """Guards of a batch of these logs that can be sent at once: those of the expected groups, in order."""

    log_ids: frozenset[int]
    expected: Sequence[tuple[int, Group]]
    """Each behind the log_id of its log."""
    statements: Sequence[Statement]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """Guards that were sent at once: for a batch of these logs, those of these groups, in order."""

    log_ids: frozenset[int]
    groups: tuple[Group, ...]
    answers: asyncio.Future[list[StatementResult]]
    first: int
    """Where the answers of the guards begin, behind those of what had to be sent before them."""


class GuardStatements:
    """Runs guards in the transaction that is open on a connection, through its pipeline."""

    def __init__(self, connection: Connection, wire: Pipeline, guards: GuardRegistry) -> None:
        # Only the writer's task calls these methods, as those of the transaction. No lock is needed.
        self._connection = connection
        self._wire = wire
        self._guards = guards
        self._transformer: Final = Transformer(connection)
        self._queries: dict[str, Query] = {}
        """By the text of the statement, until `forget_outdated`; a registry has a fixed number of them."""
        self._required: dict[str, str | None] = {}
        """By the text of a statement, the one that fails unless the guard holds."""
        # Of the transaction that is open:
        self._sent: _Sent | None = None
        """What was sent at once, unless it was undone."""
        self._is_answered = False
        self._ending: list[Statement] = []
        """What ends the savepoint that is open; it has to be sent before anything else."""

    def dump_all(self, groups: Groups) -> DumpedGuards | None:
        """
        Return the guards of all groups, by log_id and in order, that the rules will ask for if all of them hold.

        Which these are is a guess, because the logs may hold some of the groups already. None if there are none, or if
        one cannot be sent: its group is refused when its turn comes.
        """
        expected = [(log_id, group) for log_id in sorted(groups) for group in _expected(groups[log_id])]
        if not expected:
            return None
        try:
            statements = [self._dumped(one) for log_id, group in expected for one in self._bound(log_id, group)]
        except Exception:  # noqa: BLE001 - whatever it is, its group is answered for it, not one of the batch before
            return None
        return DumpedGuards(log_ids=frozenset(groups), expected=expected, statements=statements)

    def dump_required(self, asked: Iterable[tuple[int, Group]]) -> Sequence[Statement] | None:
        """
        Return the guards of these groups, each behind the log_id of its log, as statements that fail unless they hold.

        None if one has no such form.

        Raises:
            GuardError: if a guard is unknown, or bound to what it must not be.
            psycopg.Error, TypeError, ValueError: if a parameter has no form in SQL.
        """
        statements: list[Statement] = []
        for log_id, group in asked:
            for text, parameters in self._bound(log_id, group):
                if text not in self._required:
                    self._required[text] = must_hold(text)
                if (required := self._required[text]) is None:
                    return None
                statements.append(self._dumped((required, parameters)))
        return statements

    def send(self, guards: DumpedGuards) -> None:
        """
        Send all of them at once, and end the exchange. Nothing else may be sent before `answered`.

        Raises:
            psycopg.Error: if the connection is lost.
        """
        before = [*self._ending, SAVEPOINT, hold_heads(sorted({log_id for log_id, _ in guards.expected}))]
        self._wire.send(*before, *guards.statements)
        self._ending = [RELEASE]
        self._is_answered = False
        self._sent = _Sent(
            log_ids=guards.log_ids,
            groups=tuple(group for _, group in guards.expected),
            answers=self._wire.sync(),
            first=len(before),
        )

    @property
    def sent_for(self) -> frozenset[int] | None:
        """The logs of the batch whose guards were sent at once, or None if none were."""
        return None if self._sent is None else self._sent.log_ids

    async def answered(self) -> None:
        """
        Wait for the guards that were sent, if any; undo them if one does not hold. The connection is free then.

        Raises:
            psycopg.Error: if the connection is lost, or the savepoint is refused: the transaction cannot be continued.
        """
        if self._sent is None or self._is_answered:
            return
        try:
            results = (await self._sent.answers)[self._sent.first :]
        except psycopg.Error as error:
            if not is_refusal(error):
                raise
            self.forget_outdated(error)
            self._is_answered = True
            try:
                await self.undo()
            except psycopg.errors.InvalidSavepointSpecification:
                raise error from None  # there is none, because it was refused itself
            return
        self._is_answered = True
        if any(affected(result) != 1 for result in results):
            await self.undo()

    def all_hold(self, asked: Sequence[Group]) -> bool:
        """Return whether the guards that were sent hold, and are those of the groups that the rules have asked for."""
        sent = () if self._sent is None else self._sent.groups
        return len(sent) == len(asked) and all(one is other for one, other in zip(sent, asked, strict=True))

    async def undo(self) -> None:
        """
        Undo what the guards that were sent have changed.

        Raises:
            psycopg.Error: if the connection is lost.
        """
        await self.answered()
        if self._sent is not None:
            self._sent = None
            self._wire.send(ROLLBACK_TO)
            await self._wire.sync()

    async def hold(self, log_id: int, group: Group) -> GuardResult:
        """
        Run the guards of one group, in a savepoint of their own; their changes stay only if all of them hold.

        Raises:
            psycopg.Error: if the connection is lost, or the savepoint is refused: the transaction cannot be continued.
        """
        savepoint: asyncio.Future[list[StatementResult]] | None = None
        try:
            for statement in self._bound(log_id, group):
                dumped = self._dumped(statement)
                if savepoint is None:
                    self._wire.send(*self._ending, SAVEPOINT)
                    # An exchange of its own: after an error in it, the savepoint that is open is the one before.
                    savepoint = self._wire.sync()
                    self._ending = [ROLLBACK_TO, RELEASE]
                self._wire.send(dumped)
                if affected((await self._wire.sync())[-1]) != 1:
                    return False
        except GuardError as error:
            return error
        except (psycopg.Error, TypeError, ValueError) as error:
            # TypeError and ValueError: a parameter that has no form in SQL (a lone surrogate, an unknown class).
            if self._connection.closed or (isinstance(error, psycopg.Error) and not is_refusal(error)):
                raise
            if savepoint is not None:
                await savepoint
            return GuardError(f"a guard of group {group.id} failed: {brief_message(error)}")
        if savepoint is not None:
            self._ending = [RELEASE]
        return True

    def end(self) -> Sequence[Statement]:
        """Return what has to be sent, before anything else of the transaction, when no more guards run in it."""
        ending, self._ending, self._sent = self._ending, [], None
        return ending

    def forget_outdated(self, error: psycopg.Error) -> None:
        """
        Prepare every query anew if `error` may come from a prepared one that a migration has outdated.

        What is wrong with the query itself is refused when it is prepared, so few such errors leave one behind.
        """
        if (error.sqlstate or "").startswith(("0A", "42")):
            self._queries.clear()

    async def abandon(self) -> None:
        """Wait until the connection is free, because the transaction is rolled back."""
        sent = self._sent
        self.end()
        if sent is not None:
            await asyncio.wait([sent.answers])

    def _bound(self, log_id: int, group: Group) -> list[tuple[str, Mapping[str, object]]]:
        return [one for call in group.guard for one in self._guards.statements(call, log_id=log_id)]

    def _dumped(self, statement: tuple[str, Mapping[str, object]]) -> Statement:
        text, parameters = statement
        if (query := self._queries.get(text)) is None:
            query = self._queries[text] = Query(text)
        return dump(query, parameters, self._transformer)


def _expected(groups: Iterable[Group]) -> Iterator[Group]:
    """Yield the groups of one log whose guards run if all of them hold, and if none is in the log or stale already."""
    seen: set[UUID] = set()
    has_control = False
    for group in groups:
        if group.id in seen or (has_control and group.as_of is not None):
            continue  # a group that was appended just before, or one that has become stale by one
        seen.add(group.id)
        has_control = has_control or any(event.is_control for event in group.then)
        if group.guard:
            yield group
