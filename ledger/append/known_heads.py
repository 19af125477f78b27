# SPDX-License-Identifier: Apache-2.0
"""
The heads of logs as this process has left them, and when it is worth appending to one before it is read.

What is known here decides only which way an append takes. That a head is still the known one is checked by the server,
under the head's lock, in the transaction that appends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from ledger.format.sequence import LogHead

HEADS_KEPT_MAX: Final = 1_000
"""Logs whose heads are kept, about 1 KiB each."""
DISTRUST_MAX: Final = 64
"""Appends in a row behind one's own that are asked for at most, before a head is taken to be known again."""


@dataclass(slots=True, kw_only=True)
class _Known:
    head: LogHead
    own: int = 0
    """Appends in a row that found the head as the process had left it."""
    asked: int = 0
    """How many of these have to come before the head is expected. It doubles whenever another process was first."""
    hits: int = 0
    """Expectations in a row that were met, since `asked` was changed."""


class KnownHeads:
    """
    Heads that one session has left, by log_id, least recently used first.

    Several processes that write one log would miss half of the time. So a log whose head was not as expected has to be
    found unchanged by others once, then twice, and so on: at most one append of so many is tried in vain.
    """

    def __init__(self) -> None:
        # Only the writer's task touches it, and `wake` while that task is idle.
        self._known: dict[int, _Known] = {}

    def expected(self, log_id: int) -> LogHead | None:
        """Return the head that the log has if no other process has appended; None if it is not known, or not likely."""
        known = self._known.get(log_id)
        return None if known is None or known.own < known.asked else known.head

    def note_read(self, log_id: int, head: LogHead) -> None:
        """Note a head that was read under its lock."""
        if (known := self._known.get(log_id)) is not None:
            known.own = known.own + 1 if head == known.head else 0

    def note_left(self, log_id: int, head: LogHead) -> None:
        """Note a head as a COMMIT has left it."""
        known = self._known.pop(log_id, None)
        if head.recorded_at is None:
            return  # the log is empty
        if known is None:
            known = _Known(head=head)
        known.head = head
        self._known[log_id] = known
        if len(self._known) > HEADS_KEPT_MAX:
            del self._known[next(iter(self._known))]

    def note_met(self, log_id: int) -> None:
        """Note that a head was as expected."""
        if (known := self._known.get(log_id)) is not None:
            known.hits += 1
            if known.hits > known.asked:
                known.asked, known.hits = known.asked // 2, 0

    def note_missed(self, log_id: int) -> None:
        """Note that a head was not as expected, or not free."""
        if (known := self._known.get(log_id)) is not None:
            known.own, known.hits = 0, 0
            known.asked = min(max(1, 2 * known.asked), DISTRUST_MAX)


class DatabaseClock:
    """
    What the database's clock shows at least, from what it has shown.

    A reading has always arrived after it was taken. So this process's clock, moved by the largest difference that was
    ever seen, is behind the database's, unless one of the two was set. The server checks that it is, and by how much.
    """

    def __init__(self, clock: Callable[[], datetime] | None = None) -> None:
        self._clock = clock or partial(datetime.now, UTC)
        self._ahead: timedelta | None = None
        """By how much the database's clock is ahead of this process's, at least."""

    def note(self, reading: datetime) -> None:
        """Note what the database's clock has shown, when the answer arrives."""
        ahead = reading - self._clock()
        if self._ahead is None or ahead > self._ahead:
            self._ahead = ahead

    def now(self) -> datetime | None:
        """Return a time that the database's clock has reached, and not long ago; None if nothing is known of it."""
        return None if self._ahead is None else self._clock() + self._ahead

    def forget(self) -> None:
        """Begin anew: one of the clocks may have been set."""
        self._ahead = None
