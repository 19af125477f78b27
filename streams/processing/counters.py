# SPDX-License-Identifier: Apache-2.0
"""
Counters of one process's streams since they started, printed when they stop.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from streams.execution import HandledBatch
from streams.processing.sender import SentBatch


@dataclass(slots=True, kw_only=True)
class Counters:
    """Counts; `add_batch` and `add_sent` are what a runner and a sender are given to report to."""

    messages_handled: int = 0
    groups_appended: int = 0
    """Groups that are in the log; those that an earlier attempt put there are among them."""
    messages_sent: int = 0
    dead_letters: int = 0

    def add_batch(self, turn: HandledBatch) -> None:
        """Add what a runner did with one batch."""
        self.messages_handled += turn.messages
        self.groups_appended += turn.groups
        self.dead_letters += turn.dead

    def add_sent(self, sent: SentBatch) -> None:
        """Add what a sender did with one batch."""
        self.messages_sent += sent.taken
        self.dead_letters += sent.refused

    def as_row(self) -> dict[str, object]:
        """Return the counts by name."""
        return asdict(self)

    def sentence(self) -> str:
        """Return the counts as people read them."""
        return (
            f"{self.messages_handled:,} messages handled, {self.groups_appended:,} groups appended, "
            f"{self.messages_sent:,} messages sent, {self.dead_letters:,} dead letters"
        )
