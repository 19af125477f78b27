"""
The groups that wait to be appended: one line for each log, first come first served, and fair between logs.

Guarantee: however many groups wait for one log, those of another log are in the next batch. A batch never holds more
than one transaction should carry. Owned by the event loop; no lock is needed.
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
"""Twice the largest group: what one transaction may keep the heads of its logs locked for."""


@dataclass(slots=True, eq=False)
class Submission:
    """
    One caller's group on its way.

    Once `answer` is done nobody waits for it any more; if it was not cancelled, its caller has been told that the group
    is not in the log, or may be, so it must not be appended behind that answer's back.
    """

    log_id: int
    group: Group
    answer: asyncio.Future[AppendOutcome]
    deadline_s: float
    """By the event loop's clock."""
    alone: bool = False
    """True after a batch that held it was refused: it goes alone from now on, so that it cannot spoil another."""
    commit_sent: bool = False
    """True once a COMMIT that holds it went out, until that is answered or its id is looked up under the head lock."""
    found: bool = False
    """True if the last look-up under the head lock found it in the log."""
    unconfirmed: bool = False
    """True if it waits because its log is not confirmed."""

    def refuse(self, error: LedgerError) -> None:
        """Answer that nothing was appended, because of `error`, unless that cannot be known."""
        if self.answer.done():
            return
        if self.commit_sent or self.found:
            error = OutcomeUnknownError(
                f"no answer to COMMIT arrived, the group may or may not be in the log ({error})"
            )
        self.answer.set_result(AppendRefused(error=error))

    def give_up(self, when: str) -> None:
        """Answer with what is known now; `Writer._may_commit` makes that stay true."""
        if self.unconfirmed:
            error: LedgerError = UnconfirmedLogError(
                f"log {self.log_id} was not confirmed {when}: nothing is appended until the signer, whose notes lie "
                "outside of the database, has seen that its history goes on; start it, or read what it says"
            )
        else:
            error = LogUnavailableError(f"the log could not be written {when}: nothing was appended")
        self.refuse(error)


SubmissionBatch = dict[int, list[Submission]]
"""What one transaction is to append: the submissions of each log, in order."""


def submissions_of(batch: SubmissionBatch) -> list[Submission]:
    """Return what is in a batch."""
    return [submission for line in batch.values() for submission in line]


def groups_of(batch: SubmissionBatch) -> dict[int, list[Group]]:
    """Return the groups of a batch, as a transaction takes them."""
    return {log_id: [submission.group for submission in line] for log_id, line in batch.items()}


class SubmissionQueue:
    """
    What waits. Takes submissions up to `groups_max`, and up to `size_bytes_max` of them together; what is given back is
    taken in any case, and so is one that is larger than all the room there is, if nothing else waits.
    """

    def __init__(self, *, groups_max: int, size_bytes_max: int) -> None:
        self._groups_max = groups_max
        self._size_bytes_max = size_bytes_max
        self._size = 0
        self.size_bytes = 0
        """Of all groups that wait: what `Group.size_bytes` says."""
        self._lines: dict[int, deque[Submission]] = {}  # never an empty line; the log whose turn it is comes first

    def __len__(self) -> int:
        return self._size

    @property
    def logs(self) -> int:
        """How many logs something waits for."""
        return len(self._lines)

    def has_room_for(self, group: Group) -> bool:
        """Tell whether this group would be taken."""
        if self._size >= self._groups_max:
            return False
        return self.size_bytes + group.size_bytes <= self._size_bytes_max or not self._size

    def add(self, submission: Submission) -> None:
        """
        Put `submission` at the end of its log's line.

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
        """Put `submissions` at the front of their logs' lines, in their order."""
        for submission in reversed(list(submissions)):
            self._lines.setdefault(submission.log_id, deque()).appendleft(submission)
            self._count(submission)

    def take(self, groups_max: int) -> SubmissionBatch:
        """
        Take the next batch: of each log its fair share, from the front of its line.

        Nothing is taken for whom nobody waits any more. A submission that must go alone does, when its log's turn
        comes.
        """
        batch: SubmissionBatch = {}
        room = _Capacity(groups=groups_max, guarded=GUARDED_GROUPS_MAX, size_bytes=BATCH_SIZE_BYTES_MAX)
        more = list(self._lines)
        while more and room.groups > 0:
            share = max(1, room.groups // len(more))
            more = [log_id for log_id in more if self._take_share(log_id, share, room, batch)]
        for log_id in batch:
            # Behind the others next time; the line is gone if it is empty.
            if line := self._lines.pop(log_id, None):
                self._lines[log_id] = line
        return batch

    def remove_expired(self, now_s: float) -> list[Submission]:
        """Take out and return whose deadline has passed; drop those for whom nobody waits."""
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
        """Take everything out."""
        waiting = self.waiting()
        self._lines.clear()
        self._size = self.size_bytes = 0
        return waiting

    def _take_share(self, log_id: int, share: int, room: _Capacity, batch: SubmissionBatch) -> bool:
        """Move at most `share` submissions of one log into `batch`; tell whether there may be more to take."""
        line = self._lines[log_id]
        taken = batch.get(log_id, [])
        while line and share > 0 and room.groups > 0:
            submission = line[0]
            if not submission.answer.done():
                if not room.fits(submission):
                    break
                room.take(submission)
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
            return True  # whatever it is: else it would never have its turn
        group = submission.group
        return not (submission.alone or group.size_bytes > self.size_bytes or (group.guard and not self.guarded))

    def take(self, submission: Submission) -> None:
        self.is_empty = False
        self.groups = 0 if submission.alone else self.groups - 1
        self.guarded -= bool(submission.group.guard)
        self.size_bytes -= submission.group.size_bytes
