"""
Which heads other processes hold, and for which of them this process waits.

A head that is held is skipped, so that the other logs of a batch go on. Skipping alone would starve a log that several
processes write: it is free only for moments. So after three rounds, or when there is nothing else to do, a head is
waited for, alone and for a bounded time. One that is still held then is stuck rather than busy (its process was stopped
in a transaction, say), and for a while it is only skipped: it costs the other logs a fifth of the time at most.

While other processes write, no head is asked for before there is a batch to write: it would be held the longer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

SKIPS_MAX: Final = 3
"""Rounds in which a head is skipped before it is waited for."""
LOCK_WAIT_MS: Final = 100
WAIT_AGAIN_S: Final = 4 * LOCK_WAIT_MS / 1000
SHARED_S: Final = 1.0
"""For so long after a head was found held, other processes are taken to write, too."""


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
