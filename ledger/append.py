"""
The Appender: group commit of concurrent callers into the log. I/O only; the rules are in `sequence.py`.

One transaction a batch, over many logs: lock the heads, look the group ids up, run guards, insert, move the heads,
COMMIT. The locked head row is the sequencer, so any number of Appenders in any number of processes may write one log.

Guarantee: an answer is true. `Appended` is durable; an error other than `OutcomeUnknownError` means that nothing was
appended and nothing will be. If the answer to a COMMIT is lost, the same groups are submitted again: under the head
lock their ids tell whether they are in the log, so a retry is the look-up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

import psycopg

from ledger.batch import Transaction, connect
from ledger.errors import (
    LedgerError,
    LogUnavailableError,
    NoSuchLogError,
    OutcomeUnknownError,
    QueueFullError,
)
from ledger.guards import Guard, GuardRegistry
from ledger.queries import load_queries
from ledger.sequence import Appended, Group, Outcome, Refused, Stale

APPEND_QUEUE_MAX: Final = 10_000
APPEND_BATCH_MAX: Final = 256
GUARDED_GROUPS_MAX: Final = 50
"""Savepoints in one transaction: more than 64 overflow PostgreSQL's subtransaction cache."""
SKIPS_MAX: Final = 3
"""Rounds in which a head that another process holds is skipped before it is waited for alone."""
RECONNECT_PAUSE_S: Final = 0.1
RECONNECT_PAUSE_S_MAX: Final = 1.0
STOP_WAIT_S: Final = 2.0

_GUARDS = load_queries("ledger", "guards.sql")
CORE_GUARDS: Final = (
    Guard(name="aggregate.create", statements=(_GUARDS["aggregate_create"],)),
    Guard(name="aggregate.change", statements=(_GUARDS["aggregate_change"],)),
)


@dataclass(slots=True, eq=False)
class Submission:
    """One caller's group on its way. Owned by the event loop; no lock is needed."""

    log_id: int
    group: Group
    answer: asyncio.Future[Outcome]
    skips: int = 0
    """Rounds in which the log's head was held by another process."""
    alone: bool = False
    """True after the database refused a batch that held it: it goes alone, so that it cannot spoil another again."""
    commit_sent: bool = False
    """True once a COMMIT that holds it went out; from then on only a look-up under the head lock can deny it."""
    abandoned: bool = False
    """True if the caller was told that nothing was appended: it must not be appended any more."""


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
        self._queue_max = queue_max
        self._batch_max = batch_max
        self._on_append = on_append
        self._queue: deque[Submission] = deque()
        self._held: set[Submission] = set()  # in the batch that is being written, and not back in the queue
        self._arrived = asyncio.Event()
        self._connection: psycopg.AsyncConnection | None = None
        self._transaction: Transaction | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the task that writes batches; the connection is made when the first batch needs it."""
        self._task = asyncio.create_task(self._run(), name="appender")

    async def stop(self) -> None:
        """Give what is queued a moment to be written, then stop; every caller still waiting is told the truth."""
        if self._task is None:
            return
        task, self._task = self._task, None
        waiting = [submission.answer for submission in (*self._held, *self._queue)]
        if waiting:
            await asyncio.wait(waiting, timeout=STOP_WAIT_S)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        for submission in (*self._held, *self._queue):
            _fail(
                submission,
                OutcomeUnknownError("the appender was stopped before the answer to COMMIT arrived")
                if submission.commit_sent
                else LogUnavailableError("the appender was stopped: nothing was appended"),
            )
        self._queue.clear()
        self._held.clear()
        await self._disconnect()

    async def append(self, log_id: int, group: Group, *, timeout_s: float = 10.0) -> Appended | Stale:
        """
        Append `group` to the log, or learn that it was stale; returns when that is durable.

        Raises:
            GroupMismatchError: if other content stands under the group's id.
            GuardError: if a guard is unknown or its SQL failed.
            NoSuchLogError: if there is no log of that id.
            QueueFullError: at once, if too many groups wait.
            LogUnavailableError: if the deadline passed and nothing was appended.
            OutcomeUnknownError: if the deadline passed after a COMMIT whose answer did not arrive.
        """
        if self._task is None or self._task.done():
            raise LogUnavailableError("the appender is not running: nothing was appended")
        if len(self._queue) >= self._queue_max:
            raise QueueFullError(f"{self._queue_max} groups wait to be appended: try again later")
        submission = Submission(log_id, group, asyncio.get_running_loop().create_future())
        self._queue.append(submission)
        self._arrived.set()
        await asyncio.wait([submission.answer], timeout=timeout_s)
        if not submission.answer.done():
            self._give_up(submission, timeout_s)
        outcome = submission.answer.result()
        if isinstance(outcome, Refused):
            raise outcome.error
        return outcome

    def _give_up(self, submission: Submission, timeout_s: float) -> None:
        """Answer a caller whose deadline has passed with what is known now, and make that answer stay true."""
        if submission.commit_sent:
            raise OutcomeUnknownError(
                f"no answer to COMMIT within {timeout_s} s: the group may or may not be in the log"
            )
        submission.abandoned = True
        raise LogUnavailableError(f"the log could not be written within {timeout_s} s: nothing was appended")

    # The writing task. Everything below runs in it alone, so a batch is never written twice at once.

    async def _run(self) -> None:
        pause_s = RECONNECT_PAUSE_S
        while True:
            batch = await self._gather()
            if not batch:
                continue
            try:
                await self._write(batch)
                pause_s = RECONNECT_PAUSE_S
            except (psycopg.Error, OSError) as error:
                await self._after_failure(batch, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RECONNECT_PAUSE_S_MAX)
            except LedgerError as error:
                # Corruption met while reading the log: these groups cannot be judged, and a retry would not help.
                await self._disconnect()
                for submission in self._held:
                    _fail(submission, error)
                self._held.clear()

    async def _gather(self) -> list[Submission]:
        """Wait for work, then take what is there, up to the limits of one transaction."""
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        batch: list[Submission] = []
        guarded = 0
        while self._queue and len(batch) < self._batch_max:
            following = self._queue[0]
            guarded += bool(following.group.guard)
            if guarded > GUARDED_GROUPS_MAX or (batch and (following.alone or batch[0].alone)):
                break
            self._queue.popleft()
            if not following.abandoned:
                batch.append(following)
        return batch

    async def _write(self, batch: Sequence[Submission]) -> None:
        """Write one batch in one transaction; groups of logs whose head is busy go back to the queue."""
        self._held = set(batch)
        if self._transaction is None:
            self._connection = await connect(self._dsn)
            self._transaction = Transaction(self._connection, self._guards)
        transaction = self._transaction
        by_log: dict[int, list[Submission]] = {}
        for submission in batch:
            by_log.setdefault(submission.log_id, []).append(submission)
        stuck = next((log_id for log_id, waiting in by_log.items() if waiting[0].skips >= SKIPS_MAX), None)
        if stuck is not None:
            self._return(submission for submission in batch if submission.log_id != stuck)
            by_log = {stuck: by_log[stuck]}
        locked = await transaction.lock(by_log.keys(), wait=stuck is not None)
        for log_id in by_log.keys() - locked:
            # A round that locked nothing is followed by one that waits; a wait that failed by rounds for the others.
            skips = 0 if stuck is not None else SKIPS_MAX if not locked else 1 + by_log[log_id][0].skips
            await self._skipped(by_log.pop(log_id), transaction, skips)
        outcomes = await transaction.sequence(
            {log_id: [s.group for s in waiting] for log_id, waiting in by_log.items()}
        )
        submissions = [submission for waiting in by_log.values() for submission in waiting]
        if not submissions or any(submission.abandoned for submission in submissions):
            await transaction.rollback()
            self._return(submissions)
            return
        for submission in submissions:
            submission.commit_sent = True
        changed = await transaction.commit()
        self._held.clear()
        for log_id, waiting in by_log.items():
            for submission, outcome in zip(waiting, outcomes[log_id], strict=True):
                if not submission.answer.done():
                    submission.answer.set_result(outcome)
        if changed:
            self._on_append()

    async def _skipped(self, waiting: list[Submission], transaction: Transaction, skips: int) -> None:
        """Queue the groups of a log whose head another process holds again, or say that there is no such log."""
        log_id = waiting[0].log_id
        if waiting[0].skips == 0 and not await transaction.log_exists(log_id):
            for submission in waiting:
                self._held.discard(submission)
                _fail(submission, NoSuchLogError(f"log {log_id}: expected a log of this id, found none"))
            return
        for submission in waiting:
            submission.skips = skips
        self._return(waiting)

    def _return(self, submissions: Iterable[Submission]) -> None:
        """Put submissions back at the front of the queue, in their order."""
        returned = list(submissions)
        self._held.difference_update(returned)
        self._queue.extendleft(s for s in reversed(returned) if not (s.abandoned or s.answer.done()))

    async def _after_failure(self, batch: Sequence[Submission], error: Exception) -> None:
        """
        Keep what can be tried again, under the same ids; what the database refuses as such is told so.

        `commit_sent` stays set on groups whose COMMIT may have happened: the next look-up under the lock settles it.
        """
        await self._disconnect()
        again = [submission for submission in batch if submission in self._held]
        if isinstance(error, psycopg.IntegrityError | psycopg.DataError | psycopg.ProgrammingError):
            if len(again) == 1:
                self._held.clear()
                _fail(again[0], LedgerError(f"the database refused the group: {error}"))
            for submission in again:
                submission.alone = True
        self._return(again)

    async def _disconnect(self) -> None:
        connection, self._connection, self._transaction = self._connection, None, None
        if connection is not None:
            await connection.close()


def _fail(submission: Submission, error: LedgerError) -> None:
    if not submission.answer.done():
        submission.answer.set_result(Refused(error=error))
