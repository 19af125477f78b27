"""
The Appender: group commit of concurrent callers into the log. I/O only; the rules are in `sequence.py`.

One transaction a batch, over many logs: lock the heads, look the group ids up, run guards, insert, move the heads,
COMMIT (`batch.py`; which batch is next, and what becomes of a failed one: `writing.py`). The locked head row is the
sequencer, so any number of Appenders in any number of processes may write one log.

Guarantee: an answer is true. `Appended` is durable; an error other than `OutcomeUnknownError` means that this call
appended nothing and will not. If the answer to a COMMIT is lost, the same groups are submitted again: under the head
lock their ids tell whether they are in the log, so a retry is the look-up.

Nothing is appended to a server that would lose what it has acknowledged (`UnsafeServerError`), nor to a log that the
signer has not confirmed since the server started (`UnconfirmedLogError`): a restored database takes nothing until its
history is known to go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Self

from ledger.errors import LimitExceededError, LogUnavailableError
from ledger.guards import Guard, GuardRegistry
from ledger.intake import Intake, Submission
from ledger.queries import load_queries
from ledger.sealing import PLAIN, Seals
from ledger.sequence import Appended, Group, Outcome, Refused, Stale
from ledger.writing import Writer

APPEND_QUEUE_MAX: Final = 10_000
APPEND_BATCH_MAX: Final = 256
APPEND_MANY_MAX: Final = 100_000
"""Groups in one call of `append_many`: what a caller can hold in memory anyway, about 200 MB."""
DEADLINES_S: Final = 0.05
"""How often deadlines are looked at."""
GRACE_S: Final = 0.5
"""What a group that is just being written gets beyond its deadline: giving it up would undo the whole batch."""
STOP_WAIT_S: Final = 2.0

_GUARDS = load_queries("ledger", "guards.sql")
CORE_GUARDS: Final = (
    Guard(name="aggregate.create", statements=(_GUARDS["aggregate_create"],)),
    Guard(name="aggregate.change", statements=(_GUARDS["aggregate_change"],)),
    Guard(name="subject.erase", statements=(load_queries("ledger", "erasure.sql")["subject_erase"],)),
)


class Appender:
    """
    Appends groups to logs, batching concurrent callers. One per process; use as an async context manager.

    `dsn` connects as the appender role, `on_append` is called after each batch that changed a log (the doorbell).
    `sealer` encrypts the parts that have a subject; without one they are stored as they are.
    """

    def __init__(
        self,
        dsn: str,
        guards: GuardRegistry,
        *,
        queue_max: int = APPEND_QUEUE_MAX,
        batch_max: int = APPEND_BATCH_MAX,
        on_append: Callable[[], None] = lambda: None,
        sealer: Seals | None = None,
    ) -> None:
        self._sealer = sealer
        self._batch_max = batch_max
        self._intake = Intake(queue_max)
        opener = PLAIN if sealer is None else sealer.opener
        self._new_writer: Callable[[], Writer] = partial(
            Writer, dsn, guards, self._intake, opener=opener, batch_max=batch_max, on_append=on_append
        )
        self._writer = self._new_writer()
        self._task: asyncio.Task[None] | None = None
        self._deadlines: asyncio.TimerHandle | None = None

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
        """Give what waits a moment to be written, then stop; every caller still waiting is told the truth."""
        task, self._task = self._task, None
        if task is None:
            return
        unanswered = [s.answer for s in (*self._writer.held(), *self._intake.waiting()) if not s.answer.done()]
        if unanswered:
            await asyncio.wait(unanswered, timeout=STOP_WAIT_S)
        self._writer.stop()
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
            LogUnavailableError: if the deadline passed and nothing was appended (`UnconfirmedLogError` if that was
                because the signer has not confirmed the log).
            OutcomeUnknownError: if the deadline passed after a COMMIT whose answer did not arrive.
            UnsafeServerError: if the server runs with fsync = off.
            LedgerError: if the database refused the group, or the log is broken where it had to be read.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        if self._sealer is not None:
            group = await self._sealer.seal(group)  # before any lock
        outcome = await self._submit(log_id, group, deadline_s)
        if isinstance(outcome, Refused):
            raise outcome.error
        return outcome

    async def append_many(self, log_id: int, groups: Sequence[Group], *, timeout_s: float = 60.0) -> list[Outcome]:
        """
        Append many groups, for loaders and replays; returns an outcome for each, in order, when all are durable.

        They go in order, two batches of them at a time behind what others have asked for, so callers of `append` on
        the same log wait a few milliseconds longer. A group that cannot be appended is `Refused` and holds up no other
        (its error is the one that `append` would raise). Asking again for all of them is safe: what is in the log is
        found. Measured in `bench/append.py`.

        Raises:
            LimitExceededError: over 100,000 groups.
            QueueFullError: if so many others wait that there is no room for one; nothing more was submitted.
        """
        if len(groups) > APPEND_MANY_MAX:
            raise LimitExceededError("append_many, groups", found=len(groups), limit=APPEND_MANY_MAX)
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        outcomes: list[Outcome] = []
        answers: list[asyncio.Future[Outcome]] = []
        for group in groups:
            sealed = group if self._sealer is None else await self._sealer.seal(group)
            while len(answers) - len(outcomes) >= 2 * self._batch_max:
                outcomes.append(await answers[len(outcomes)])
            while not self._intake.has_room and len(outcomes) < len(answers):
                outcomes.append(await answers[len(outcomes)])
            answers.append(self._submit(log_id, sealed, deadline_s))
        while len(outcomes) < len(answers):
            outcomes.append(await answers[len(outcomes)])
        return outcomes

    def _submit(self, log_id: int, group: Group, deadline_s: float) -> asyncio.Future[Outcome]:
        """Put a group into the queue; the future has its outcome."""
        if self._task is None or self._task.done():
            raise LogUnavailableError("the appender is not running: nothing was appended")
        loop = asyncio.get_running_loop()
        submission = Submission(log_id, group, loop.create_future(), deadline_s)
        self._intake.add(submission)
        self._writer.wake()
        if self._deadlines is None:
            self._deadlines = loop.call_later(DEADLINES_S, self._look_at_deadlines)
        return submission.answer

    def _look_at_deadlines(self) -> None:
        loop = asyncio.get_running_loop()
        held = self._writer.held()
        expired = self._intake.remove_expired(loop.time())
        expired += [s for s in held if s.deadline_s + GRACE_S <= loop.time()]
        for submission in expired:
            submission.give_up("before the deadline")
        busy = held or len(self._intake)
        self._deadlines = loop.call_later(DEADLINES_S, self._look_at_deadlines) if busy else None
