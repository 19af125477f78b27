# SPDX-License-Identifier: Apache-2.0
"""
The Appender's task that writes: one batch after another, each in one transaction, the next opened behind the last.

A small batch for logs to which no other process appends is written in one round trip (`at_once.py`). All that follows
is about the others.

While the server runs a batch and makes it durable, the callers of the batch before get their answers. What they and
others submit then is the next batch. Its BEGIN, locks and lookup are sent before the COMMIT is answered, so neither
side waits for the other. Only hashing needs the locked head.

If all callers were in the batch before, no next transaction can be opened behind its COMMIT. Then, if they were many,
the head is requested as soon as the first of them submits again (`wake`), while the others follow. For few it costs
more than it gains: both sides send, wake and read once more. Everything else here runs in one task, so a batch is never
written twice at once. `appender.py` says what answers promise.

A head that another process holds is skipped, so that the other logs of a batch proceed. Skipping alone would starve a
log that several processes write, because its head is free only for moments. So after three rounds, or when there is
nothing else to do, the writer waits for a head, alone and for a bounded time. A head that is still held then is stuck
rather than busy: its process may have been stopped in a transaction. For a while it is only skipped, so it costs the
other logs a fifth of the time at most. While other processes write, no head is requested before there is a batch to
write, because it would be held longer.

A transaction fails with one of three kinds of errors. If the server or the connection fails, the same groups are
tried again. If a group was refused or what is stored is corrupt, each group is written alone, and the one that fails
alone is refused. An unexpected error is treated as if a group had caused it, so that one group cannot stop the appends
of others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final
from uuid import UUID

import psycopg

from ledger.append.at_once import ENTRIES_MAX, Ending
from ledger.append.batch import AppendTransaction
from ledger.append.queue import Submission, SubmissionBatch, SubmissionQueue, groups_of, submissions_of
from ledger.errors import LedgerError, NoSuchLogError, NotPreparedError, UnsafeServerError
from ledger.format.guards import GuardRegistry
from ledger.format.sealing import Opener
from ledger.format.sequence import AppendOutcome
from ledger.store.session import LOCK_WAIT_MS, Connection, brief_message, connect, is_permanent, is_refusal

AHEAD_MAX: Final = 4
"""Batches in a row that lock their heads right behind a COMMIT. After them another process can lock one."""
EARLY_MIN: Final = 16
"""Groups in the batch before, from which on a head is requested before there is a batch to write."""
SPLIT_MIN: Final = 128
"""If so many groups wait for each log, half are taken. The others are the next batch, made while this one is written.
Fewer are cheaper in one transaction, with one flush."""
POLL_S: Final = 0.01
"""How often heads are tried while all of them are stuck or not confirmed."""
CONFIRMED_POLL_S: Final = 0.05
"""How often the writer checks whether the signer has confirmed a log."""
RECONNECT_PAUSE_S: Final = 0.1
RECONNECT_PAUSE_S_MAX: Final = 1.0

PREPARED_S: Final = 0.01
"""How long heads are held for what a group comes after."""
SKIPS_MAX: Final = 3
"""Rounds that skip a head before one waits for it."""
WAIT_AGAIN_S: Final = 4 * LOCK_WAIT_MS / 1000
SHARED_S: Final = 1.0
"""For so long after a head was held, other processes are assumed to write, too."""

_EXPECTED: Final = (psycopg.Error, OSError, LedgerError)
_log = logging.getLogger(__name__)


class Writer:
    """Writes what `queue` holds. Call `wake` after adding to it. `on_append` is called after each change."""

    def __init__(
        self,
        dsn: str,
        guards: GuardRegistry,
        queue: SubmissionQueue,
        *,
        opener: Opener,
        batch_max: int,
        on_append: Callable[[], None],
    ) -> None:
        # Everything runs on the event loop's thread. "The task" is the one task that runs `run`. Other code on the loop
        # (callers, the timer of deadlines) runs only while the task awaits. So no field needs a lock, but the task must
        # not await between a change of one field and the change of another that belongs to it.
        #
        # Set once:
        self._dsn = dsn
        self._guards = guards
        self._opener = opener
        self._batch_max = batch_max
        self._on_append = on_append
        # Shared with callers:
        self._queue = queue
        """The Appender adds and removes what has expired; the task takes and requeues."""
        self._arrived = asyncio.Event()
        """Callers set it (`wake`, `stop`); only the task clears it, and only when it has nothing to write."""
        self._stopping = asyncio.Event()
        """`stop` sets it; nobody clears it."""
        self._durable: tuple[SubmissionBatch, Mapping[int, list[AppendOutcome]]] | None = None
        """The batch before: in the log, its callers not answered yet. The task sets it; `answer_durable` takes it."""
        # Changed by the task alone; read by callers where the comment says so:
        self._contention = Contention()
        """`wake` reads it."""
        self._connection: Connection | None = None
        """`stop` reads it, to shut its socket down."""
        self._transaction: AppendTransaction | None = None
        """`wake` opens one early through it, which it does only while `_arrived` is not set: then the task is idle."""
        self._writing: list[Submission] = []
        """What the transaction holds that is being written; `in_flight` reads it."""
        self._ahead: SubmissionBatch | None = None
        """The batch whose transaction was opened behind that one; `in_flight` reads it."""
        self._commit_sent = False
        self._answered = 0
        """How many groups the batch had that was answered last; `wake` reads it."""
        self._batches_ahead = 0
        """How many batches in a row were opened ahead."""
        self._waited_for: int | None = None
        """The head that the transaction waits for, if it does."""
        self._recheck_at_s: dict[int, float] = {}
        """By log_id: when to check again whether the log is confirmed."""

    def wake(self, log_id: int) -> None:
        """Say that something for this log was added to the queue."""
        if self._arrived.is_set():
            return
        self._arrived.set()
        if self._transaction is None or self._answered < EARLY_MIN or self._contention.is_shared(self._now_s()):
            return
        if self._answered <= ENTRIES_MAX and self._transaction.at_once.known.expected(log_id) is not None:
            return  # as many are written in one round trip
        # Nothing is being written. Request the head now, while the other callers that were answered together with this
        # one submit the rest of the batch.
        if self._may_lock_at_once([log_id], self._transaction):
            with suppress(psycopg.Error):  # a lost connection stays lost: the batch fails with it, too
                self._transaction.open_early(log_id)

    def stop(self) -> None:
        """Let `run` end. What is being written is cut off, because a hung server would not answer a cancel request."""
        self._stopping.set()
        self._arrived.set()
        if self.in_flight() and self._connection is not None:
            _cut(self._connection)

    def in_flight(self) -> list[Submission]:
        """Return the submissions that are neither in the queue nor, as far as is known, in the log."""
        return [*self._writing, *submissions_of(self._ahead or {})]

    async def run(self) -> None:
        """
        Write until `stop`; then give everyone who still waits a true answer.

        Raises:
            Exception: an unexpected error while no group was being written; nothing is written any more.
        """
        pause_s = RECONNECT_PAUSE_S
        try:
            while not self._stopping.is_set():
                if self._ahead is None and not len(self._queue) and not self._is_early():
                    self._arrived.clear()
                    await self._arrived.wait()
                    continue
                try:
                    await self._write()
                    pause_s = RECONNECT_PAUSE_S
                except UnsafeServerError as error:
                    await self._disconnect()
                    self._requeue(self._take_back())
                    for submission in self._queue.take_all():
                        submission.refuse(error)
                except Exception as error:  # an error that one group causes must not end the appends of others
                    if not self._writing and not is_expected(error):
                        raise
                    await self._disconnect()
                    if not self._blame(error):
                        await self._pause(pause_s)
                        pause_s = min(2 * pause_s, RECONNECT_PAUSE_S_MAX)
        finally:
            self.answer_durable()
            for submission in (*self.in_flight(), *self._queue.take_all()):
                submission.give_up("before the appender was stopped")
            await self._disconnect()

    async def _write(self) -> None:
        """Write one batch in one transaction; groups of logs whose heads are held go back to their queues."""
        transaction = await self._connected()
        batch = await self._opened(transaction)
        if transaction.at_once.is_open:
            if await self._written_at_once(batch, transaction):
                return
            self._open(batch, transaction, wait=False)
        if batch:
            batch = await self._locked(batch, transaction)
        if not batch:
            return
        outcomes = await transaction.sequence(groups_of(batch), before_slow_guards=self.answer_durable)
        for log_id, line in batch.items():
            stored = transaction.stored(log_id)
            for submission in line:
                # Known under the lock, whatever happened to an earlier COMMIT.
                submission.commit_sent = False
                submission.found = bool(stored) and submission.group.id in stored
        changes = transaction.changes
        await self._wait_for_prepared()
        transaction.commit(self._may_commit)
        if self.answer_durable():
            await asyncio.sleep(0)  # answered callers may submit again: that is the next batch
        if self._commit_sent:
            self._look_ahead(transaction)
        if not await transaction.committed():
            self._keep_only(batch, ())
            return
        self._durable, self._writing = (batch, outcomes), []
        if self._ahead is None:
            self.answer_durable()
        if changes:
            self._on_append()

    async def _written_at_once(self, batch: SubmissionBatch, transaction: AppendTransaction) -> bool:
        """Write what is opened in one round trip; return False if nothing was changed, and it has to be in two."""
        at_once, outcomes = transaction.at_once, transaction.at_once.outcomes
        if not all(submission.is_prepared for submission in self._writing):
            at_once.flush()  # the server does the rest meanwhile
        await self._wait_for_prepared()
        at_once.commit(self._may_commit)
        self.answer_durable()
        match await transaction.committed_at_once():
            case Ending.COMMITTED:
                self._contention.note_locked(batch)
                self._durable, self._writing = (batch, outcomes), []
                self.answer_durable()
                await asyncio.sleep(0)  # answered callers go on first; what they submit now is the next batch
                at_once.note()
                self._on_append()
                return True
            case Ending.NOT_ALLOWED:
                self._keep_only(batch, ())
                return True
            case Ending.MISSED:
                self._commit_sent = False
                for submission in self._writing:
                    submission.commit_sent = False  # an answer did arrive: nothing was committed
                return False

    async def _opened(self, transaction: AppendTransaction) -> SubmissionBatch:
        """Return the batch whose transaction is open: the one that was opened ahead, or the next."""
        self._commit_sent = False
        if self._ahead is not None:
            batch, self._ahead = self._ahead, None
            self._writing = submissions_of(batch)
            return batch
        waiting = len(self._queue)
        if waiting >= SPLIT_MIN * self._queue.logs:
            waiting = (waiting + 1) // 2
        batch = self._queue.take(min(self._batch_max, waiting))
        self._writing = submissions_of(batch)
        if transaction.early not in batch or not self._may_lock_at_once(batch, transaction):
            await transaction.drop_early()
        batch = await self._admitted(batch, transaction)
        if not batch:
            return batch
        waited_for = None
        if transaction.early is None:
            if self._may_write_at_once(batch) and transaction.open_at_once(groups_of(batch)):
                self._batches_ahead = 0
                return batch
            waited_for = self._contention.head_to_wait_for(batch.keys(), self._now_s())
        if waited_for is not None:
            batch = self._keep_only(batch, {waited_for})
        self._waited_for = waited_for
        self._open(batch, transaction, wait=waited_for is not None)
        return batch

    def _open(self, batch: SubmissionBatch, transaction: AppendTransaction, *, wait: bool) -> None:
        groups = groups_of(batch)
        if wait or not self._contention.is_shared(self._now_s()):
            transaction.open_with_guards(groups, wait=wait)
        else:
            transaction.open(groups, wait=wait)

    async def _admitted(self, batch: SubmissionBatch, transaction: AppendTransaction) -> SubmissionBatch:
        """Return the part of `batch` whose logs accept entries; the rest is answered, or requeued."""
        if transaction.admits(batch):
            return batch
        now_s = self._now_s()
        later = {log_id for log_id in batch if self._recheck_at_s.get(log_id, 0.0) > now_s}
        admission = await transaction.admit(batch.keys() - later)
        self._recheck_at_s |= dict.fromkeys(admission.unconfirmed, now_s + CONFIRMED_POLL_S)
        for log_id in admission.unknown:
            for submission in batch[log_id]:
                submission.refuse(NoSuchLogError(f"log {log_id}: expected a log of this id, found none"))
        later |= admission.unconfirmed
        for log_id, line in batch.items():
            for submission in line:
                submission.unconfirmed = log_id in later
        batch = self._keep_only(batch, batch.keys() - later - admission.unknown)
        if later and not batch:
            await self._pause(POLL_S)
        return batch

    async def _locked(self, batch: SubmissionBatch, transaction: AppendTransaction) -> SubmissionBatch:
        """Return the part of the batch whose heads are locked; the rest is requeued."""
        waited_for, self._waited_for = self._waited_for, None
        locked = await transaction.begin()
        self._contention.note_locked(locked)
        if len(locked) == len(batch):
            return batch
        self.answer_durable()
        if not locked:
            await transaction.rollback()
        held = batch.keys() - locked
        batch = self._keep_only(batch, locked)
        if waited_for is None:
            self._contention.note_skipped(held, self._now_s(), all_were=not locked)
        else:
            self._contention.note_wait_failed(waited_for, self._now_s())
        if not locked and not self._contention.may_wait(self._now_s()):
            await self._pause(POLL_S)
        return batch

    def _look_ahead(self, transaction: AppendTransaction) -> None:
        """Open the next transaction behind the COMMIT that was sent, if there is something to write in it."""
        if self._batches_ahead >= AHEAD_MAX or not (batch := self._queue.take(self._batch_max)):
            self._batches_ahead = 0
            return
        if not self._may_lock_at_once(batch, transaction):
            self._requeue(submissions_of(batch))
            self._batches_ahead = 0
            return
        self._batches_ahead += 1
        self._ahead = batch
        self._open(batch, transaction, wait=False)

    def _may_write_at_once(self, batch: SubmissionBatch) -> bool:
        """
        Return whether a batch may be written in one round trip: no other process is known to write, no head has to be
        waited for, and all of its groups are on their first way, which is where they are likely to be new.
        """
        now_s = self._now_s()
        if self._contention.is_shared(now_s) or self._contention.head_to_wait_for(batch.keys(), now_s) is not None:
            return False
        return not any(s.commit_sent or s.found or s.alone for s in submissions_of(batch))

    def _is_early(self) -> bool:
        return self._transaction is not None and self._transaction.early is not None

    def _may_lock_at_once(self, log_ids: Collection[int], transaction: AppendTransaction) -> bool:
        """Return whether these heads can be locked without a query before, and without waiting for one of them."""
        if not transaction.admits(log_ids):
            return False
        return self._contention.head_to_wait_for(log_ids, self._now_s()) is None

    async def _wait_for_prepared(self) -> None:
        """Wait until what groups of the batch come after is done, briefly: others may wait for the heads."""
        waited_for = [each.after for each in self._writing if each.after is not None and not each.after.done()]
        if waited_for:
            self.answer_durable()
            await asyncio.wait(waited_for, timeout=PREPARED_S)
        for submission in self._writing:
            if not submission.is_prepared:
                submission.refuse(NotPreparedError("what the group comes after is not done: nothing was appended"))

    def _may_commit(self) -> bool:
        """
        Return whether no caller in the batch has the answer "not appended", and all that the groups come after is done;
        from now on it may be in the log.
        """
        # A caller that has gone has no answer, but may have left behind something that is not done.
        if any(s.answer.done() and not (s.answer.cancelled() and s.is_prepared) for s in self._writing):
            return False
        self._commit_sent = True
        for submission in self._writing:
            submission.commit_sent = True
        return True

    def answer_durable(self) -> bool:
        """
        Answer the callers of the batch before, unless they were answered; tell whether there were any.

        It is safe at any time. The timer of the deadlines calls it when the server is silent for a while.
        """
        if self._durable is None:
            return False
        (batch, outcomes), self._durable = self._durable, None
        self._answered = sum(map(len, batch.values()))
        for log_id, line in batch.items():
            for submission, outcome in zip(line, outcomes[log_id], strict=True):
                if not submission.answer.done():
                    submission.answer.set_result(outcome)
        return True

    def _keep_only(self, batch: SubmissionBatch, log_ids: Collection[int]) -> SubmissionBatch:
        """Return the part of `batch` that belongs to `log_ids`; requeue the rest."""
        self._requeue(s for log_id, line in batch.items() if log_id not in log_ids for s in line)
        batch = {log_id: line for log_id, line in batch.items() if log_id in log_ids}
        self._writing = submissions_of(batch)
        return batch

    def _requeue(self, submissions: Iterable[Submission]) -> None:
        self._queue.requeue(submission for submission in submissions if not submission.answer.done())

    def _take_back(self) -> list[Submission]:
        """Take what the lost transactions held, in order."""
        held = self.in_flight()
        self._writing, self._ahead, self._batches_ahead = [], None, 0
        return held

    def _blame(self, error: Exception) -> bool:
        """
        Requeue what the failed transaction held, to be tried again under the same ids.

        If a group caused the failure, return True, and write each group alone from now on; one that was alone already
        is refused.
        """
        writing = self._writing
        if is_refusal(error) and self._commit_sent:
            for submission in writing:
                submission.commit_sent = False  # an answer did arrive: nothing was committed
        lasting = is_caused_by_group(error)
        if lasting and len(writing) == 1:
            writing[0].refuse(as_ledger_error(error, group_id=writing[0].group.id))
        for submission in writing:
            submission.alone = submission.alone or lasting
        self._requeue(self._take_back())
        return lasting

    async def _connected(self) -> AppendTransaction:
        if self._transaction is None:
            self._connection = await connect(self._dsn)
            self._transaction = AppendTransaction(self._connection, self._guards, self._opener)
        return self._transaction

    async def _disconnect(self) -> None:
        self.answer_durable()
        connection, transaction = self._connection, self._transaction
        self._connection = self._transaction = None
        if transaction is not None:
            transaction.close()
        if connection is not None:
            await connection.close()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def _cut(connection: Connection) -> None:
    """Shut the connection's socket down: whatever waits for it fails with an error."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)


class Contention:
    """What is known of held heads. Times are of the event loop's clock. Only its thread touches this."""

    def __init__(self) -> None:
        self._skips: dict[int, int] = {}
        self._wait_from_s = 0.0
        self._shared_until_s = 0.0

    def is_shared(self, now_s: float) -> bool:
        """Tell whether, as far as is known, other processes write, too."""
        return now_s < self._shared_until_s

    def may_wait(self, now_s: float) -> bool:
        """Return whether the last failed wait was long enough ago."""
        return now_s >= self._wait_from_s

    def head_to_wait_for(self, log_ids: Collection[int], now_s: float) -> int | None:
        """Return which of `log_ids` to wait for in this round, alone, or None."""
        if not self._skips or not self.may_wait(now_s):
            return None
        log_id = max(log_ids, key=lambda log_id: self._skips.get(log_id, 0))
        return log_id if self._skips.get(log_id, 0) >= SKIPS_MAX else None

    def note_locked(self, log_ids: Collection[int]) -> None:
        """Note that these heads were locked."""
        if self._skips:
            for log_id in log_ids:
                self._skips.pop(log_id, None)

    def note_skipped(self, log_ids: Collection[int], now_s: float, *, all_were: bool) -> None:
        """Note that these heads were held; if all of the round's were, the next round waits for one."""
        self._shared_until_s = now_s + SHARED_S
        for log_id in log_ids:
            self._skips[log_id] = SKIPS_MAX if all_were else self._skips.get(log_id, 0) + 1

    def note_wait_failed(self, log_id: int, now_s: float) -> None:
        """Note that this head was still held after a wait."""
        self._skips[log_id] = 0
        self._shared_until_s = now_s + SHARED_S
        self._wait_from_s = now_s + WAIT_AGAIN_S


def is_expected(error: Exception) -> bool:
    """
    Return whether `error` is of a kind that transactions fail with.
    """
    return isinstance(error, _EXPECTED)


def is_caused_by_group(error: Exception) -> bool:
    """
    Return whether `error` is assumed to be caused by what the transaction held, so that trying that again would not
    help.
    """
    return isinstance(error, LedgerError) or is_permanent(error) or not is_expected(error)


def as_ledger_error(error: Exception, *, group_id: UUID) -> LedgerError:
    """
    Return the error for the caller of the group that caused `error`.

    An unexpected error is logged in this process only: its text may quote the group.
    """
    if isinstance(error, LedgerError):
        return error
    if is_expected(error):
        return LedgerError(f"the database refused it: {brief_message(error)}")
    _log.error("appending broke on group %s", group_id, exc_info=error)
    return LedgerError(f"appending broke on it ({type(error).__name__}): the log says where")
