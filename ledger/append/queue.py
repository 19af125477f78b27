# SPDX-License-Identifier: Apache-2.0
"""
The groups that wait to be appended: one queue for each log, first in, first out, and fair between logs.

Guarantee: however many groups wait for one log, those of another log are in the next batch. A batch never holds more
than one transaction should carry.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ledger.errors import LedgerError, LogUnavailableError, OutcomeUnknownError, QueueFullError, UnconfirmedLogError
from ledger.format.sequence import AppendOutcome, AppendRefused, Group

GUARDED_GROUPS_MAX: Final = 50
"""Savepoints in one transaction: more than 64 overflow PostgreSQL's subtransaction cache."""
BATCH_SIZE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Twice the largest group. It bounds how long one transaction keeps the heads of its logs locked."""


def is_done(after: asyncio.Future[None]) -> bool:
    """
    Return whether something was done, and has not failed.
    """
    return after.done() and not after.cancelled() and after.exception() is None


@dataclass(slots=True, eq=False)
class Submission:
    """
    One caller's group on its way. Only the event loop's thread touches it: the writer's task sets the flags, and that
    task or the timer of deadlines, whichever is first, sets `answer`.

    Once `answer` is done nobody waits for it any more. Unless it was cancelled, the answer was that the group is not in
    the log, or may be. So it must not be appended after that.
    """

    log_id: int
    group: Group
    answer: asyncio.Future[AppendOutcome]
    deadline_s: float
    """By the event loop's clock."""
    after: asyncio.Future[None] | None = None
    """Nothing is committed before this is done."""
    alone: bool = False
    """True after a batch that held it failed: from then on it is written alone, so that it cannot fail other groups."""
    commit_sent: bool = False
    """True while a COMMIT that holds it may have arrived, until its answer or a lookup under the head lock says so."""
    found: bool = False
    """True if the last lookup under the head lock found it in the log."""
    unconfirmed: bool = False
    """True if it waits because its log is not confirmed."""

    @property
    def is_prepared(self) -> bool:
        """Return whether what it comes after was done, and has not failed."""
        return self.after is None or is_done(self.after)

    def refuse(self, error: LedgerError) -> None:
        """Answer that nothing was appended, because of `error`, or that the outcome is unknown if it is."""
        if self.answer.done():
            return
        if self.commit_sent or self.found:
            error = OutcomeUnknownError(
                f"no answer to COMMIT arrived, the group may or may not be in the log ({error})"
            )
        self.answer.set_result(AppendRefused(error=error))

    def give_up(self, when: str) -> None:
        """Answer with what is known now. `Writer._may_commit` keeps that answer true."""
        if self.unconfirmed:
            error: LedgerError = UnconfirmedLogError(
                f"log {self.log_id} was not confirmed {when}: nothing is appended until the signer, whose notes lie "
                "outside the database, has confirmed the log's history; start the signer, or read its log"
            )
        else:
            error = LogUnavailableError(f"the log could not be written {when}: nothing was appended")
        self.refuse(error)


SubmissionBatch = dict[int, list[Submission]]
"""What one transaction appends: the submissions of each log, in order."""


def submissions_of(batch: SubmissionBatch) -> list[Submission]:
    """Return what is in a batch."""
    return [submission for line in batch.values() for submission in line]


def groups_of(batch: SubmissionBatch) -> dict[int, list[Group]]:
    """Return the groups of a batch, as a transaction takes them."""
    return {log_id: [submission.group for submission in line] for log_id, line in batch.items()}


class SubmissionQueue:
    """
    What waits: at most `groups_max` submissions, of at most `size_bytes_max` together. What is requeued is always
    accepted. So is one that is larger than the whole queue, if nothing else waits.
    """

    def __init__(self, *, groups_max: int, size_bytes_max: int) -> None:
        # Only the event loop's thread touches these, and no method awaits: each call is atomic without a lock.
        self._groups_max = groups_max
        self._size_bytes_max = size_bytes_max
        self._size = 0
        """How many groups wait in `_lines`."""
        self.size_bytes = 0
        """The sum of their `Group.size_bytes`."""
        self._lines: dict[int, deque[Submission]] = {}
        """By log_id, never an empty queue; the log whose turn is next comes first."""

    def __len__(self) -> int:
        return self._size

    @property
    def logs(self) -> int:
        """How many logs something waits for."""
        return len(self._lines)

    def has_room_for(self, group: Group) -> bool:
        """Return whether this group would be accepted."""
        if self._size >= self._groups_max:
            return False
        return self.size_bytes + group.size_bytes <= self._size_bytes_max or not self._size

    def add(self, submission: Submission) -> None:
        """
        Put `submission` at the end of its log's queue.

        Raises:
            QueueFullError: if too many wait already, or too large ones.
        """
        if not self.has_room_for(submission.group):
            raise QueueFullError(
                f"{self._size} groups wait to be appended, {self.size_bytes} bytes (at most {self._groups_max}, "
                f"{self._size_bytes_max} bytes): try again later"
            )
        line = self._lines.get(submission.log_id)
        if line is None:
            line = self._lines[submission.log_id] = deque()
        line.append(submission)
        self._count(submission)

    def requeue(self, submissions: Iterable[Submission]) -> None:
        """Put `submissions` at the front of their logs' queues, in their order."""
        for submission in reversed(list(submissions)):
            self._lines.setdefault(submission.log_id, deque()).appendleft(submission)
            self._count(submission)

    def take(self, groups_max: int) -> SubmissionBatch:
        """
        Take the next batch: of each log its fair share, from the front of its queue.

        Submissions that nobody waits for are dropped. A submission that must be written alone is, when its log's turn
        comes.
        """
        batch: SubmissionBatch = {}
        capacity = _Capacity(groups=groups_max, guarded=GUARDED_GROUPS_MAX, size_bytes=BATCH_SIZE_BYTES_MAX)
        more = list(self._lines)
        while more and capacity.groups > 0:
            share = max(1, capacity.groups // len(more))
            more = [log_id for log_id in more if self._take_share(log_id, share, capacity, batch)]
        for log_id in batch:
            # Behind the other logs next time. An empty queue has been removed already.
            if line := self._lines.pop(log_id, None):
                self._lines[log_id] = line
        return batch

    def remove_expired(self, now_s: float) -> list[Submission]:
        """Remove and return those whose deadline has passed; drop those that nobody waits for."""
        expired: list[Submission] = []
        for log_id, line in list(self._lines.items()):
            kept = [s for s in line if s.deadline_s > now_s and not s.answer.done()]
            if len(kept) < len(line):
                expired += [s for s in line if s.deadline_s <= now_s and not s.answer.done()]
                self._size -= len(line) - len(kept)
                self.size_bytes -= sum(s.group.size_bytes for s in line) - sum(s.group.size_bytes for s in kept)
                self._set_line(log_id, deque(kept))
        return expired

    def waiting(self) -> list[Submission]:
        """Return all that wait, without taking them."""
        return [submission for line in self._lines.values() for submission in line]

    def take_all(self) -> list[Submission]:
        """Remove and return all that wait."""
        waiting = self.waiting()
        self._lines.clear()
        self._size = self.size_bytes = 0
        return waiting

    def _take_share(self, log_id: int, share: int, capacity: _Capacity, batch: SubmissionBatch) -> bool:
        """Move at most `share` submissions of one log into `batch`; return whether there may be more to take."""
        line = self._lines[log_id]
        taken = batch.get(log_id, [])
        while line and share > 0 and capacity.groups > 0:
            submission = line[0]
            if not submission.answer.done():
                if not capacity.fits(submission):
                    break
                capacity.take(submission)
                taken.append(submission)
                share -= 1
            line.popleft()
            self._size -= 1
            self.size_bytes -= submission.group.size_bytes
        if taken:
            batch[log_id] = taken
        if not line:
            del self._lines[log_id]
        return bool(line) and share == 0

    def _count(self, submission: Submission) -> None:
        self._size += 1
        self.size_bytes += submission.group.size_bytes

    def _set_line(self, log_id: int, line: deque[Submission]) -> None:
        if line:
            self._lines[log_id] = line
        else:
            del self._lines[log_id]


@dataclass(slots=True, kw_only=True)
class _Capacity:
    """What a batch may still take."""

    groups: int
    guarded: int
    size_bytes: int
    is_empty: bool = True

    def fits(self, submission: Submission) -> bool:
        if self.is_empty:
            return True  # whatever its size: otherwise it would never be written
        group = submission.group
        return not (submission.alone or group.size_bytes > self.size_bytes or (group.guard and not self.guarded))

    def take(self, submission: Submission) -> None:
        self.is_empty = False
        self.groups = 0 if submission.alone else self.groups - 1
        self.guarded -= bool(submission.group.guard)
        self.size_bytes -= submission.group.size_bytes
