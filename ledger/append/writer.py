"""
The Appender's one task that writes: batch after batch, each in one transaction, the next one opened behind the last.

While the server carries out a batch and makes it durable, the callers of the batch before are answered, and what they
and others bring is the next batch: its BEGIN, locks and look-up go out before the COMMIT has been answered, so neither
side waits for the other. Only hashing needs the locked head, and nothing is hashed ahead: an entry holds the time at
which its head was locked.

Where all who ask were in the batch before, there is nothing to open behind its COMMIT. Then the head is asked for as
soon as the first of them comes back (`wake`), while the others still come. Everything else here runs in that one task,
so a batch is never written twice at once. What is answered is true: see `appender.py`.

A head that another process holds is skipped, so that the other logs of a batch go on. Skipping alone would starve a log
that several processes write: it is free only for moments. So after three rounds, or when there is nothing else to do, a
head is waited for, alone and for a bounded time. One that is still held then is stuck rather than busy (its process was
stopped in a transaction, say), and for a while it is only skipped: it costs the other logs a fifth of the time at most.
While other processes write, no head is asked for before there is a batch to write: it would be held the longer.

A transaction fails with one of three kinds of errors. The server or the wire is in no state to go on: the same groups
are tried again. What was asked for was refused, or is corrupt: each group goes alone, and the one that fails alone is
refused. What nobody has foreseen is treated as if a group had caused it, so that one group ends nobody else's appends.
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

from ledger.append.batch import AppendTransaction
from ledger.append.queue import Submission, SubmissionBatch, SubmissionQueue, groups_of, submissions_of
from ledger.errors import LedgerError, NoSuchLogError, UnsafeServerError
from ledger.format.guards import GuardRegistry
from ledger.format.sealing import Opener
from ledger.format.sequence import AppendOutcome
from ledger.store.session import LOCK_WAIT_MS, Connection, brief_message, connect, is_permanent, is_refusal

AHEAD_MAX: Final = 4
"""Batches in a row that lock their heads right behind the COMMIT before: then another process has a chance."""
SPLIT_MIN: Final = 128
"""From so many groups that wait for each log, half are taken: the others are the next batch, made while this one is
written. Fewer are worth one transaction, and one flush, together."""
POLL_S: Final = 0.01
"""How often heads are tried while all that are asked for are stuck or not confirmed."""
CONFIRMED_POLL_S: Final = 0.05
"""How often it is looked whether the signer has confirmed a log."""
RECONNECT_PAUSE_S: Final = 0.1
RECONNECT_PAUSE_S_MAX: Final = 1.0

SKIPS_MAX: Final = 3
"""Rounds in which a head is skipped before it is waited for."""
WAIT_AGAIN_S: Final = 4 * LOCK_WAIT_MS / 1000
SHARED_S: Final = 1.0
"""For so long after a head was found held, other processes are taken to write, too."""

_FORESEEN: Final = (psycopg.Error, OSError, LedgerError)
_log = logging.getLogger(__name__)


class Writer:
    """Writes what `intake` holds; `wake` it when something was added. `on_append` is called after each change."""

    def __init__(
        self,
        dsn: str,
        guards: GuardRegistry,
        intake: SubmissionQueue,
        *,
        opener: Opener,
        batch_max: int,
        on_append: Callable[[], None],
    ) -> None:
        self._dsn = dsn
        self._guards = guards
        self._intake = intake
        self._opener = opener
        self._batch_max = batch_max
        self._on_append = on_append
        self._contention = Contention()
        self._arrived = asyncio.Event()
        self._stopping = asyncio.Event()
        self._connection: Connection | None = None
        self._transaction: AppendTransaction | None = None
        self._writing: list[Submission] = []
        """What the transaction holds that is written now."""
        self._commit_sent = False
        self._ahead: SubmissionBatch | None = None
        """The batch whose transaction was opened behind it."""
        self._aheads = 0
        self._durable: tuple[SubmissionBatch, Mapping[int, list[AppendOutcome]]] | None = None
        """The batch before: in the log, its callers are answered as soon as the server has something to do."""
        self._waited_for: int | None = None
        """The head that the transaction waits for, if it does."""
        self._ask_again_s: dict[int, float] = {}
        """When to look again whether a log is confirmed."""

    def wake(self, log_id: int) -> None:
        """Tell that something for this log was added to the intake."""
        if self._arrived.is_set():
            return
        self._arrived.set()
        if self._transaction is None or self._contention.is_shared(self._now_s()):
            return
        # Nothing is being written: the head is asked for now, while those who were answered together with whoever
        # called this bring the rest of the batch.
        if self._may_lock_at_once([log_id], self._transaction):
            with suppress(psycopg.Error):  # a connection that is lost stays lost: the batch meets it, too
                self._transaction.open_early(log_id)

    def stop(self) -> None:
        """Let `run` end; what is being written is cut off, since a server that hangs would not answer a cancelling."""
        self._stopping.set()
        self._arrived.set()
        if self.in_flight() and self._connection is not None:
            _cut(self._connection)

    def in_flight(self) -> list[Submission]:
        """Return the submissions that are neither in the intake nor in the log, as far as is known."""
        return [*self._writing, *submissions_of(self._ahead or {})]

    async def run(self) -> None:
        """
        Write until `stop`; then tell everyone who still waits the truth.

        Raises:
            Exception: what cannot be laid to a group, and should not be; nothing is written any more.
        """
        pause_s = RECONNECT_PAUSE_S
        try:
            while not self._stopping.is_set():
                if self._ahead is None and not len(self._intake) and not self._is_early():
                    self._arrived.clear()
                    await self._arrived.wait()
                    continue
                try:
                    await self._write()
                    pause_s = RECONNECT_PAUSE_S
                except UnsafeServerError as error:
                    await self._disconnect()
                    self._requeue(self._take_back())
                    for submission in self._intake.take_all():
                        submission.refuse(error)
                except Exception as error:  # what one group makes our code raise is to end nobody else's appends
                    if not self._writing and not is_expected(error):
                        raise
                    await self._disconnect()
                    if not self._blame(error):
                        await self._pause(pause_s)
                        pause_s = min(2 * pause_s, RECONNECT_PAUSE_S_MAX)
        finally:
            self.answer_durable()
            for submission in (*self.in_flight(), *self._intake.take_all()):
                submission.give_up("before the appender was stopped")
            await self._disconnect()

    async def _write(self) -> None:
        """Write one batch in one transaction; groups of logs whose heads are held go back to their lines."""
        transaction = await self._connected()
        batch = await self._opened(transaction)
        if batch:
            batch = await self._locked(batch, transaction)
        if not batch:
            return
        if any(submission.group.guard for submission in self._writing):
            self.answer_durable()  # guards take their time
        outcomes = await transaction.sequence(groups_of(batch))
        for log_id, line in batch.items():
            stored = transaction.stored(log_id)
            for submission in line:
                # Settled under the lock, whatever became of an earlier COMMIT.
                submission.commit_sent = False
                submission.found = bool(stored) and submission.group.id in stored
        changes = transaction.changes
        transaction.commit(self._may_commit)
        if self.answer_durable():
            await asyncio.sleep(0)  # those who were answered may append again: that is the next batch
        if self._commit_sent:
            self._look_ahead(transaction)
        if not await transaction.committed():
            self._go_on_with(batch, ())
            return
        self._durable, self._writing = (batch, outcomes), []
        if self._ahead is None:
            self.answer_durable()
        if changes:
            self._on_append()

    async def _opened(self, transaction: AppendTransaction) -> SubmissionBatch:
        """Return the batch whose transaction is open: the one that was opened ahead, or the next."""
        self._commit_sent = False
        if self._ahead is not None:
            batch, self._ahead = self._ahead, None
            self._writing = submissions_of(batch)
            return batch
        waiting = len(self._intake)
        if waiting >= SPLIT_MIN * self._intake.logs:
            waiting = (waiting + 1) // 2
        batch = self._intake.take(min(self._batch_max, waiting))
        self._writing = submissions_of(batch)
        if transaction.early not in batch or not self._may_lock_at_once(batch, transaction):
            await transaction.drop_early()
        batch = await self._admitted(batch, transaction)
        if not batch:
            return batch
        waited_for = None
        if transaction.early is None:
            waited_for = self._contention.head_to_wait_for(batch.keys(), self._now_s())
        if waited_for is not None:
            batch = self._go_on_with(batch, {waited_for})
        self._waited_for = waited_for
        transaction.open(groups_of(batch), wait=waited_for is not None)
        return batch

    async def _admitted(self, batch: SubmissionBatch, transaction: AppendTransaction) -> SubmissionBatch:
        """Return the part of `batch` whose logs can be appended to; the rest is answered, or has gone back."""
        if transaction.admits(batch):
            return batch
        now_s = self._now_s()
        later = {log_id for log_id in batch if self._ask_again_s.get(log_id, 0.0) > now_s}
        admission = await transaction.admit(batch.keys() - later)
        self._ask_again_s |= dict.fromkeys(admission.unconfirmed, now_s + CONFIRMED_POLL_S)
        for log_id in admission.unknown:
            for submission in batch[log_id]:
                submission.refuse(NoSuchLogError(f"log {log_id}: expected a log of this id, found none"))
        later |= admission.unconfirmed
        for log_id, line in batch.items():
            for submission in line:
                submission.unconfirmed = log_id in later
        batch = self._go_on_with(batch, batch.keys() - later - admission.unknown)
        if later and not batch:
            await self._pause(POLL_S)
        return batch

    async def _locked(self, batch: SubmissionBatch, transaction: AppendTransaction) -> SubmissionBatch:
        """Return the part of the batch whose heads are locked; the rest has gone back."""
        waited_for, self._waited_for = self._waited_for, None
        locked = await transaction.begin()
        self._contention.note_locked(locked)
        if len(locked) == len(batch):
            return batch
        self.answer_durable()
        if not locked:
            await transaction.rollback()
        held = batch.keys() - locked
        batch = self._go_on_with(batch, locked)
        if waited_for is None:
            self._contention.note_skipped(held, self._now_s(), all_were=not locked)
        else:
            self._contention.note_waited_in_vain(waited_for, self._now_s())
        if not locked and not self._contention.may_wait(self._now_s()):
            await self._pause(POLL_S)
        return batch

    def _look_ahead(self, transaction: AppendTransaction) -> None:
        """Open the next transaction behind the COMMIT that was sent, if there is something to write in it."""
        if self._aheads >= AHEAD_MAX or not (batch := self._intake.take(self._batch_max)):
            self._aheads = 0
            return
        if not self._may_lock_at_once(batch, transaction):
            self._requeue(submissions_of(batch))
            self._aheads = 0
            return
        self._aheads += 1
        self._ahead = batch
        transaction.open(groups_of(batch), wait=False)

    def _is_early(self) -> bool:
        return self._transaction is not None and self._transaction.early is not None

    def _may_lock_at_once(self, log_ids: Collection[int], transaction: AppendTransaction) -> bool:
        """Tell whether nothing is to be asked before these heads are locked, and none of them is to be waited for."""
        if not transaction.admits(log_ids):
            return False
        return self._contention.head_to_wait_for(log_ids, self._now_s()) is None

    def _may_commit(self) -> bool:
        """Tell whether nobody in the batch was told that nothing was appended; from now on it may be in the log."""
        if any(s.answer.done() and not s.answer.cancelled() for s in self._writing):
            return False
        self._commit_sent = True
        for submission in self._writing:
            submission.commit_sent = True
        return True

    def answer_durable(self) -> bool:
        """
        Answer the callers of the batch before, if they were not answered yet; tells whether there were any.

        It is safe at any time; whoever watches deadlines does it when the server has nothing to say for a while.
        """
        if self._durable is None:
            return False
        (batch, outcomes), self._durable = self._durable, None
        for log_id, line in batch.items():
            for submission, outcome in zip(line, outcomes[log_id], strict=True):
                if not submission.answer.done():
                    submission.answer.set_result(outcome)
        return True

    def _go_on_with(self, batch: SubmissionBatch, log_ids: Collection[int]) -> SubmissionBatch:
        """Return the part of `batch` that belongs to `log_ids`; the rest goes back to the front of its lines."""
        self._requeue(s for log_id, line in batch.items() if log_id not in log_ids for s in line)
        batch = {log_id: line for log_id, line in batch.items() if log_id in log_ids}
        self._writing = submissions_of(batch)
        return batch

    def _requeue(self, submissions: Iterable[Submission]) -> None:
        self._intake.requeue(submission for submission in submissions if not submission.answer.done())

    def _take_back(self) -> list[Submission]:
        """Take from the transactions that are lost what they held, in order."""
        held = self.in_flight()
        self._writing, self._ahead, self._aheads = [], None, 0
        return held

    def _blame(self, error: Exception) -> bool:
        """
        Give back what the failed transaction held, to be tried again under the same ids.

        If it failed because of what it held, returns True, and each goes alone from now on; one that was alone already
        is refused.
        """
        writing = self._writing
        if is_refusal(error) and self._commit_sent:
            for submission in writing:
                submission.commit_sent = False  # an answer did arrive: it was not carried out
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
    """Shut the connection's socket down: whatever waits for it goes on with an error."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)


class Contention:
    """What is known of held heads. Times are of one clock, that of the event loop."""

    def __init__(self) -> None:
        self._skips: dict[int, int] = {}
        self._wait_from_s = 0.0
        self._shared_until_s = 0.0

    def is_shared(self, now_s: float) -> bool:
        """Tell whether other processes write, too, as far as is known."""
        return now_s < self._shared_until_s

    def may_wait(self, now_s: float) -> bool:
        """Tell whether the last wait in vain was long enough ago."""
        return now_s >= self._wait_from_s

    def head_to_wait_for(self, log_ids: Collection[int], now_s: float) -> int | None:
        """Return which of `log_ids` is to be waited for in this round, alone, or None."""
        if not self._skips or not self.may_wait(now_s):
            return None
        log_id = max(log_ids, key=lambda log_id: self._skips.get(log_id, 0))
        return log_id if self._skips.get(log_id, 0) >= SKIPS_MAX else None

    def note_locked(self, log_ids: Collection[int]) -> None:
        """Note that these heads were had."""
        if self._skips:
            for log_id in log_ids:
                self._skips.pop(log_id, None)

    def note_skipped(self, log_ids: Collection[int], now_s: float, *, all_were: bool) -> None:
        """Note that these heads were held; if all of the round's were, the next round waits for one."""
        self._shared_until_s = now_s + SHARED_S
        for log_id in log_ids:
            self._skips[log_id] = SKIPS_MAX if all_were else self._skips.get(log_id, 0) + 1

    def note_waited_in_vain(self, log_id: int, now_s: float) -> None:
        """Note that this head was still held after a wait."""
        self._skips[log_id] = 0
        self._shared_until_s = now_s + SHARED_S
        self._wait_from_s = now_s + WAIT_AGAIN_S


def is_expected(error: Exception) -> bool:
    """
    Tell whether `error` is of the kinds that a transaction fails with.
    """
    return isinstance(error, _FORESEEN)


def is_caused_by_group(error: Exception) -> bool:
    """
    Tell whether `error` is taken to be about what the transaction held, so that trying that again would not help.
    """
    return isinstance(error, LedgerError) or is_permanent(error) or not is_expected(error)


def as_ledger_error(error: Exception, *, group_id: UUID) -> LedgerError:
    """
    Return what the caller of the group that has caused `error` is told.

    What nobody has foreseen goes to the log of this process: its text may quote the group.
    """
    if isinstance(error, LedgerError):
        return error
    if is_expected(error):
        return LedgerError(f"the database refused it: {brief_message(error)}")
    _log.error("appending broke on group %s", group_id, exc_info=error)
    return LedgerError(f"appending broke on it ({type(error).__name__}): the log says where")
