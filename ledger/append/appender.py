# SPDX-License-Identifier: Apache-2.0
"""
The Appender: group commit of concurrent callers into the log. I/O only; the rules are in `format/sequence.py`.

One transaction appends one batch, over many logs: lock the heads, look up the group ids, run guards, insert, move the
heads, COMMIT (`batch.py`). Where this process was the last to append, all of that is sent at once, and the server
checks that it was (`at_once.py`). `writer.py` decides which batch is next and what happens to a failed one. The locked
head row is the sequencer, so any number of Appenders in any number of processes may write one log.

Guarantee: an answer is true. `Appended` is durable. An error other than `OutcomeUnknownError` means that this call
appended nothing of that group and will not. If the answer to a COMMIT is lost, the same groups are submitted again.
Under the head lock their ids tell whether they are in the log, so a retry is the lookup. Where all is sent at once, a
server that falls silent may have had the COMMIT, so the outcome is unknown from the first byte on.

Nothing is appended to a server that would lose what it has acknowledged (`UnsafeServerError`), nor to a log that the
signer has not confirmed since the server started (`UnconfirmedLogError`). So a restored database accepts no entries
until its history is known to continue what was signed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Self

from ledger.append.queue import Submission, SubmissionQueue, is_done
from ledger.append.writer import Writer
from ledger.errors import LedgerError, LimitExceededError, LogUnavailableError, NotPreparedError, QueueFullError
from ledger.format.guards import Guard, GuardRegistry
from ledger.format.sealing import PLAIN, Seals
from ledger.format.sequence import Appended, AppendOutcome, AppendRefused, Group, Stale
from ledger.store.queries import load_queries

APPEND_QUEUE_MAX: Final = 10_000
APPEND_QUEUE_BYTES_MAX: Final = 128 * 1024 * 1024
"""Waiting events and payload parts. Ten thousand ordinary groups take 20 MB. Sealed parts are in memory twice."""
APPEND_BATCH_MAX: Final = 256
APPEND_MANY_MAX: Final = 100_000
"""Groups in one call of `append_many`: about 200 MB, which the caller holds in memory anyway."""
DEADLINES_S: Final = 0.05
"""How often deadlines are checked."""
GRACE_S: Final = 0.5
"""Extra time for a group that is being written at its deadline: giving it up would undo the whole batch."""
STOP_WAIT_S: Final = 2.0

_GUARDS = load_queries("ledger.store", "guards.sql")
CORE_GUARDS: Final = (
    Guard(name="aggregate.create", statements=(_GUARDS["aggregate_create"],)),
    Guard(name="aggregate.change", statements=(_GUARDS["aggregate_change"],)),
    Guard(name="aggregate.count", statements=(_GUARDS["aggregate_count"],)),
    Guard(name="recorded.insert", statements=(_GUARDS["recorded_insert"],)),
    Guard(name="subject.erase", statements=(load_queries("ledger.store", "erasure.sql")["subject_erase"],)),
)


class Appender:
    """
    Appends groups to logs, batching concurrent callers. One per process; use as an async context manager.

    `dsn` connects as the appender role. `on_append` is called after each batch that changed a log, to notify readers.
    `sealer` encrypts the parts that have a subject; without one they are stored as they are.
    """

    def __init__(
        self,
        dsn: str,
        guards: GuardRegistry,
        *,
        queue_max: int = APPEND_QUEUE_MAX,
        queue_size_bytes_max: int = APPEND_QUEUE_BYTES_MAX,
        batch_max: int = APPEND_BATCH_MAX,
        on_append: Callable[[], None] = lambda: None,
        sealer: Seals | None = None,
    ) -> None:
        # One event loop: every method runs on its thread, and so does the timer of the deadlines. No lock is needed.
        self._sealer = sealer
        self._batch_max = batch_max
        self._queue = SubmissionQueue(groups_max=queue_max, size_bytes_max=queue_size_bytes_max)
        """What waits: `_submit` adds, the timer removes what has expired, the writer's task takes and requeues."""
        opener = PLAIN if sealer is None else sealer.opener
        self._new_writer: Callable[[], Writer] = partial(
            Writer, dsn, guards, self._queue, opener=opener, batch_max=batch_max, on_append=on_append
        )
        self._writer = self._new_writer()
        """Replaced by `start`, before its task runs."""
        self._task: asyncio.Task[None] | None = None
        """The writer's task, set by `start` and taken by `stop`; None while the appender does not run."""
        self._deadlines: asyncio.TimerHandle | None = None
        """The timer of `_check_deadlines`, set by `_submit` and by itself; None if nothing waits."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the task that writes batches; the connection is made when the first batch needs it."""
        self._writer = self._new_writer()
        self._task = asyncio.create_task(self._writer.run(), name="appender")

    async def stop(self) -> None:
        """Wait briefly until the queue is written, then stop; every caller that still waits gets a true answer."""
        task, self._task = self._task, None
        if task is None:
            return
        unanswered = [s.answer for s in (*self._writer.in_flight(), *self._queue.waiting()) if not s.answer.done()]
        if unanswered:
            await asyncio.wait(unanswered, timeout=STOP_WAIT_S)
        self._writer.stop()
        await asyncio.wait([task], timeout=STOP_WAIT_S)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def append(
        self, log_id: int, group: Group, *, timeout_s: float = 10.0, after: asyncio.Future[None] | None = None
    ) -> Appended | Stale:
        """
        Append `group` to the log, or learn that it was stale; returns when that is durable.

        Nothing of it is committed before `after` is done, if there is one: its transaction is prepared meanwhile. What
        takes longer than some milliseconds is better waited for before, since others wait for the log.

        The answer comes at most 0.6 s after the deadline. A cancelled call may append or not.

        Raises:
            GroupMismatchError: if other content stands under the group's id.
            GuardError: if a guard is unknown or its SQL failed.
            NoSuchLogError: if there is no log of that id.
            QueueFullError: at once, if too many groups wait, or too large ones.
            LogUnavailableError: if the deadline passed and nothing was appended. Its children name another cause than a
                silent server: `NotPreparedError` if `after` failed, was cancelled or is not done in time,
                `UnconfirmedLogError` if the signer has not confirmed the log, `UnsafeServerError` if the server runs
                with fsync = off, `SubjectKeysError` if a part could not be sealed.
            OutcomeUnknownError: if the deadline passed after a COMMIT whose answer did not arrive.
            LedgerError: if the database refused the group, or the log is broken where it had to be read.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        if self._sealer is not None:
            group = await self._sealer.seal(group, timeout_s=timeout_s)  # before any lock
        outcome = await self._submit(log_id, group, deadline_s, after)
        if isinstance(outcome, AppendRefused) and isinstance(outcome.error, NotPreparedError) and after is not None:
            # Unless it has failed, it took too long to hold the log for it.
            if not after.done():
                await asyncio.wait([after], timeout=deadline_s - loop.time())
            if is_done(after):
                outcome = await self._submit(log_id, group, deadline_s)
        if isinstance(outcome, AppendRefused):
            raise outcome.error
        return outcome

    async def append_many(
        self, log_id: int, groups: Sequence[Group], *, timeout_s: float = 60.0
    ) -> list[AppendOutcome]:
        """
        Append many groups, for loaders and replays; returns an outcome for each, in order, whatever happens.

        `Appended`: the group is in the log, and durable. `AppendRefused` with `OutcomeUnknownError`: it may or may not
        be in the log. `Stale`, and `AppendRefused` with any other error (the one that `append` would raise): this call
        has appended nothing of it and will not. Submitting all of them again is safe: what is in the log is found.

        The groups go in order, at most two batches of them at a time, behind what other callers have submitted. So
        callers of `append` on the same log wait a few milliseconds longer. A group that cannot be appended delays no
        other. If other callers leave no space in the queue (`QueueFullError`), or the appender does not run
        (`LogUnavailableError`), the remaining groups are refused with that error, untried. A cancelled call may append
        any of them or not. Measured in `bench/append.py`.

        Raises:
            LimitExceededError: over 100,000 groups; nothing was appended.
        """
        if len(groups) > APPEND_MANY_MAX:
            raise LimitExceededError("append_many, groups", found=len(groups), limit=APPEND_MANY_MAX)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        outcomes: list[AppendOutcome] = []
        answers: list[asyncio.Future[AppendOutcome]] = []
        for number, group in enumerate(groups):
            sealed = group
            if self._sealer is not None:
                try:
                    sealed = await self._sealer.seal(group, timeout_s=max(0.0, deadline_s - loop.time()))
                except LedgerError as error:
                    answers.append(_refused(error))
                    continue
            while len(outcomes) < len(answers) and (
                len(answers) - len(outcomes) >= 2 * self._batch_max or not self._queue.has_room_for(sealed)
            ):
                outcomes.append(await answers[len(outcomes)])
            try:
                answers.append(self._submit(log_id, sealed, deadline_s))
            except (QueueFullError, LogUnavailableError) as error:
                answers += [_refused(error)] * (len(groups) - number)
                break
        while len(outcomes) < len(answers):
            outcomes.append(await answers[len(outcomes)])
        return outcomes

    async def ended(self) -> None:
        """
        Wait until nothing is appended any more. A task of the process awaits this, so that a process that can no longer
        append ends. Returns after `stop`, and if it was never started.

        Raises:
            LogUnavailableError: if the task that writes was cancelled. Exception: the unexpected error that ended that
                task.
        """
        if (task := self._task) is None:
            return
        await asyncio.wait([task])
        if self._task is not task:
            return  # it was stopped
        if task.cancelled():
            raise LogUnavailableError("the task that appends was cancelled: nothing is appended any more")
        if (error := task.exception()) is not None:
            raise error

    def _submit(
        self, log_id: int, group: Group, deadline_s: float, after: asyncio.Future[None] | None = None
    ) -> asyncio.Future[AppendOutcome]:
        """Put a group into the queue; the future has its outcome."""
        if self._task is None or self._task.done():
            raise LogUnavailableError("the appender is not running: nothing was appended")
        loop = asyncio.get_running_loop()
        submission = Submission(log_id, group, loop.create_future(), deadline_s, after)
        self._queue.add(submission)
        self._writer.wake(log_id)
        if self._deadlines is None:
            self._deadlines = loop.call_later(DEADLINES_S, self._check_deadlines)
        return submission.answer

    def _check_deadlines(self) -> None:
        loop = asyncio.get_running_loop()
        self._writer.answer_durable()  # a durable group need not wait for a server that has become silent since
        held = self._writer.in_flight()
        expired = self._queue.remove_expired(loop.time())
        expired += [s for s in held if s.deadline_s + GRACE_S <= loop.time()]
        for submission in expired:
            submission.give_up("before the deadline")
        busy = held or len(self._queue)
        self._deadlines = loop.call_later(DEADLINES_S, self._check_deadlines) if busy else None


def _refused(error: LedgerError) -> asyncio.Future[AppendOutcome]:
    """Return the answer to a group that was not submitted."""
    answer: asyncio.Future[AppendOutcome] = asyncio.get_running_loop().create_future()
    answer.set_result(AppendRefused(error=error))
    return answer
