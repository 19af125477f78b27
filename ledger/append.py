"""
The Appender: group commit of concurrent callers into the log. I/O only; the rules are in `sequence.py`.

One transaction a batch, over many logs: lock the heads, look the group ids up, run guards, insert, move the heads,
COMMIT. The locked head row is the sequencer, so any number of Appenders in any number of processes may write one log.

Guarantee: an answer is true. `Appended` is durable; an error other than `OutcomeUnknownError` means that this call
appended nothing and will not. If the answer to a COMMIT is lost, the same groups are submitted again: under the head
lock their ids tell whether they are in the log, so a retry is the look-up.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Final, Self

import psycopg

from ledger.batch import Transaction
from ledger.contention import Contention
from ledger.errors import LedgerError, LogUnavailableError, NoSuchLogError, OutcomeUnknownError
from ledger.guards import Guard, GuardRegistry
from ledger.intake import Batch, Intake, Submission
from ledger.queries import load_queries
from ledger.sequence import Appended, Group, Outcome, Refused, Stale
from ledger.session import connect, in_brief, is_lasting, is_refusal

APPEND_QUEUE_MAX: Final = 10_000
APPEND_BATCH_MAX: Final = 256
DEADLINES_S: Final = 0.05
"""How often deadlines are looked at."""
GRACE_S: Final = 0.5
"""What a group that is just being written gets beyond its deadline: giving it up would undo the whole batch."""
POLL_S: Final = 0.01
"""How often heads are tried while all that are asked for are stuck."""
RECONNECT_PAUSE_S: Final = 0.1
RECONNECT_PAUSE_S_MAX: Final = 1.0
STOP_WAIT_S: Final = 2.0

_GUARDS = load_queries("ledger", "guards.sql")
CORE_GUARDS: Final = (
    Guard(name="aggregate.create", statements=(_GUARDS["aggregate_create"],)),
    Guard(name="aggregate.change", statements=(_GUARDS["aggregate_change"],)),
)


class Appender:
    """
    Appends groups to logs, batching concurrent callers. One per process; use as an async context manager.

    `dsn` connects as the appender role, `on_append` is called after each batch that changed a log (the doorbell).
    """

    def __init__(
        self,
        dsn: str,
        guards: GuardRegistry,
        *,
        queue_max: int = APPEND_QUEUE_MAX,
        batch_max: int = APPEND_BATCH_MAX,
        on_append: Callable[[], None] = lambda: None,
    ) -> None:
        self._dsn = dsn
        self._guards = guards
        self._batch_max = batch_max
        self._on_append = on_append
        self._intake = Intake(queue_max)
        self._contention = Contention()
        self._arrived = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._deadlines: asyncio.TimerHandle | None = None
        # Of the transaction that is open now: its connection, what it holds, whether its COMMIT went out.
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._transaction: Transaction | None = None
        self._writing: list[Submission] = []
        self._commit_sent = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the task that writes batches; the connection is made when the first batch needs it."""
        self._stopping.clear()
        self._task = asyncio.create_task(self._run(), name="appender")

    async def stop(self) -> None:
        """Give what waits a moment to be written, then stop; every caller still waiting is told the truth."""
        task, self._task = self._task, None
        if task is None:
            return
        if waiting := [submission.answer for submission in self._unanswered()]:
            await asyncio.wait(waiting, timeout=STOP_WAIT_S)
        self._stopping.set()
        self._arrived.set()
        if self._writing and self._connection is not None:
            # A server that does not answer would not answer the cancelling of a query either: the wire is cut first.
            _cut(self._connection)
        await asyncio.wait([task], timeout=STOP_WAIT_S)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def append(self, log_id: int, group: Group, *, timeout_s: float = 10.0) -> Appended | Stale:
        """
        Append `group` to the log, or learn that it was stale; returns when that is durable.

        The answer comes at most 0.6 s after the deadline. A call that is cancelled may append or not.

        Raises:
            GroupMismatchError: if other content stands under the group's id.
            GuardError: if a guard is unknown or its SQL failed.
            NoSuchLogError: if there is no log of that id.
            QueueFullError: at once, if too many groups wait.
            LogUnavailableError: if the deadline passed and nothing was appended.
            OutcomeUnknownError: if the deadline passed after a COMMIT whose answer did not arrive.
            LedgerError: if the database refused the group, or the log is broken where it had to be read.
        """
        if self._task is None or self._task.done():
            raise LogUnavailableError("the appender is not running: nothing was appended")
        loop = asyncio.get_running_loop()
        submission = Submission(log_id, group, loop.create_future(), loop.time() + timeout_s)
        self._intake.add(submission)
        self._arrived.set()
        if self._deadlines is None:
            self._deadlines = loop.call_later(DEADLINES_S, self._look_at_deadlines)
        outcome = await submission.answer
        if isinstance(outcome, Refused):
            raise outcome.error
        return outcome

    def _look_at_deadlines(self) -> None:
        loop = asyncio.get_running_loop()
        expired = self._intake.remove_expired(loop.time())
        expired += [s for s in self._writing if s.deadline_s + GRACE_S <= loop.time()]
        for submission in expired:
            _give_up(submission, "before the deadline")
        busy = self._writing or len(self._intake)
        self._deadlines = loop.call_later(DEADLINES_S, self._look_at_deadlines) if busy else None

    def _unanswered(self) -> list[Submission]:
        return [s for s in (*self._writing, *self._intake.waiting()) if not s.answer.done()]

    # The writing task. Everything below runs in it alone, so a batch is never written twice at once.

    async def _run(self) -> None:
        pause_s = RECONNECT_PAUSE_S
        try:
            while not self._stopping.is_set():
                if not (batch := self._intake.take(self._batch_max)):
                    self._arrived.clear()
                    await self._arrived.wait()
                    continue
                try:
                    await self._write(batch)
                    pause_s = RECONNECT_PAUSE_S
                except (psycopg.Error, OSError, LedgerError) as error:
                    await self._disconnect()
                    if not self._blame(error):
                        await self._pause(pause_s)
                        pause_s = min(2 * pause_s, RECONNECT_PAUSE_S_MAX)
        finally:
            for submission in self._unanswered():
                _give_up(submission, "before the appender was stopped")
            await self._disconnect()

    async def _write(self, batch: Batch) -> None:
        """Write one batch in one transaction; groups of logs whose heads are held go back to their lines."""
        self._writing = [submission for line in batch.values() for submission in line]
        self._commit_sent = False
        transaction = await self._open()
        batch = await self._lock(batch, transaction)
        if not batch:
            return
        outcomes = await transaction.sequence(_groups(batch))
        for log_id, line in batch.items():
            stored = transaction.stored(log_id)
            for submission in line:
                # Settled under the lock, whatever became of an earlier COMMIT.
                submission.commit_sent = False
                submission.found = bool(stored) and submission.group.id in stored
        changes = transaction.changes
        if await transaction.commit(self._may_commit):
            self._answer(batch, outcomes)
            if changes:
                self._on_append()
        else:
            self._go_on_with(batch, ())

    async def _lock(self, batch: Batch, transaction: Transaction) -> Batch:
        """Begin the transaction; returns the part of the batch whose heads are locked, the rest has gone back."""
        loop = asyncio.get_running_loop()
        waited_for = self._contention.head_to_wait_for(batch.keys(), loop.time())
        if waited_for is not None:
            batch = self._go_on_with(batch, {waited_for})
        locked = await transaction.begin(_groups(batch), wait=waited_for is not None)
        self._contention.note_locked(locked)
        if len(locked) == len(batch):
            return batch
        if not locked:
            await transaction.rollback()
        held = [log_id for log_id in batch.keys() - locked if await self._exists(log_id, batch[log_id], transaction)]
        batch = self._go_on_with(batch, locked)
        if waited_for is None:
            self._contention.note_skipped(held, all_were=not locked)
        else:
            self._contention.note_waited_in_vain(waited_for, loop.time())
        if held and not locked and not self._contention.may_wait(loop.time()):
            await self._pause(POLL_S)
        return batch

    def _may_commit(self) -> bool:
        """Tell whether nobody in the batch was told that nothing was appended; from now on it may be in the log."""
        if any(s.answer.done() and not s.answer.cancelled() for s in self._writing):
            return False
        self._commit_sent = True
        for submission in self._writing:
            submission.commit_sent = True
        return True

    def _answer(self, batch: Batch, outcomes: dict[int, list[Outcome]]) -> None:
        self._writing = []
        for log_id, line in batch.items():
            for submission, outcome in zip(line, outcomes[log_id], strict=True):
                if not submission.answer.done():
                    submission.answer.set_result(outcome)

    def _go_on_with(self, batch: Batch, log_ids: Collection[int]) -> Batch:
        """Return the part of `batch` that belongs to `log_ids`; the rest goes back to the front of its lines."""
        self._give_back(s for log_id, line in batch.items() if log_id not in log_ids for s in line)
        batch = {log_id: line for log_id, line in batch.items() if log_id in log_ids}
        self._writing = [submission for line in batch.values() for submission in line]
        return batch

    def _give_back(self, submissions: Iterable[Submission]) -> None:
        self._intake.give_back(submission for submission in submissions if not submission.answer.done())

    async def _exists(self, log_id: int, line: Iterable[Submission], transaction: Transaction) -> bool:
        """Tell whether there is such a log; if not, answer those who wait for it."""
        if await transaction.knows(log_id):
            return True
        for submission in line:
            _refuse(submission, NoSuchLogError(f"log {log_id}: expected a log of this id, found none"))
        return False

    def _blame(self, error: psycopg.Error | OSError | LedgerError) -> bool:
        """
        Give back what the failed transaction held, to be tried again under the same ids.

        If it failed because of what it held, returns True, and each goes alone from now on; one that was alone already
        is refused.
        """
        writing, self._writing = self._writing, []
        if is_refusal(error) and self._commit_sent:
            for submission in writing:
                submission.commit_sent = False  # an answer did arrive: it was not carried out
        lasting = isinstance(error, LedgerError) or is_lasting(error)
        if lasting and len(writing) == 1:
            _refuse(writing[0], _as_ours(error))
        for submission in writing:
            submission.alone = submission.alone or lasting
        self._give_back(writing)
        return lasting

    async def _open(self) -> Transaction:
        if self._transaction is None:
            self._connection = await connect(self._dsn)
            self._transaction = Transaction(self._connection, self._guards)
        return self._transaction

    async def _disconnect(self) -> None:
        connection, self._connection, self._transaction = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


def _groups(batch: Batch) -> dict[int, list[Group]]:
    return {log_id: [submission.group for submission in line] for log_id, line in batch.items()}


def _give_up(submission: Submission, when: str) -> None:
    """Answer a caller with what is known now; `Appender._may_commit` makes that stay true."""
    _refuse(submission, LogUnavailableError(f"the log could not be written {when}: nothing was appended"))


def _refuse(submission: Submission, error: LedgerError) -> None:
    """Answer that nothing was appended, because of `error`, unless that cannot be known."""
    if submission.commit_sent or submission.found:
        error = OutcomeUnknownError(f"no answer to COMMIT arrived, the group may or may not be in the log ({error})")
    if not submission.answer.done():
        submission.answer.set_result(Refused(error=error))


def _as_ours(error: Exception) -> LedgerError:
    return error if isinstance(error, LedgerError) else LedgerError(f"the database refused it: {in_brief(error)}")


def _cut(connection: psycopg.AsyncConnection[Any]) -> None:
    """Shut the connection's socket down: whatever waits for it goes on with an error."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)
