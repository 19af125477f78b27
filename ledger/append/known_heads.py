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
SHARE_MIN: Final = 0.75
"""Of its last appends, how many have to have found the head as the process had left it, for the next to expect it."""
LAST: Final = 8
"""How many appends that share is about; it is a moving average, in which later ones weigh more."""


@dataclass(slots=True, kw_only=True)
class _Known:
    head: LogHead
    share: float = 1.0
    """Of appends that found the head as the process had left it."""
    was_own: bool = True
    """Whether the last one did."""
    has_missed: bool = False
    """Whether what is read next is that of an append that was counted when it missed."""

    def count(self, *, was_own: bool) -> None:
        self.was_own = was_own
        self.share += (was_own - self.share) / LAST


class KnownHeads:
    """
    Heads that one session has left, by log_id, least recently used first.

    To expect a head saves a round trip if it is met, and costs one if it is missed. So it is expected if that would
    have been right for the last append, and for most of those before: whoever takes turns with others misses once, and
    in no order of appends is more than one of three a miss.
    """

    def __init__(self) -> None:
        # Only the writer's task touches it, and `wake` while that task is idle.
        self._known: dict[int, _Known] = {}

    def expected(self, log_id: int) -> LogHead | None:
        """Return the head that the log has if no other process has appended; None if it is not known, or not likely."""
        known = self._known.get(log_id)
        return known.head if known is not None and known.was_own and known.share >= SHARE_MIN else None

    def note_read(self, log_id: int, head: LogHead) -> None:
        """Note a head that an append has read under its lock."""
        if (known := self._known.get(log_id)) is not None:
            if not known.has_missed:
                known.count(was_own=head == known.head)
            known.has_missed = False

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
            known.count(was_own=True)

    def note_missed(self, log_id: int) -> None:
        """Note that a head was not as expected, or not free; the append goes on and reads it."""
        if (known := self._known.get(log_id)) is not None:
            known.count(was_own=False)
            known.has_missed = True


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
