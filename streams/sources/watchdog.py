# SPDX-License-Identifier: Apache-2.0
"""
Notices a consumer that does nothing: messages wait, nothing is committed, and nobody says why.

Some fatal errors of a consumer group end in silence; then the only cure is a new process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from streams.errors import StreamError

STALLED_AFTER_S: Final = 60.0


class StalledError(StreamError):
    """Messages wait and nothing was committed for too long: this process is to be started again."""


@dataclass(slots=True, kw_only=True)
class Watchdog:
    """
    Compares what was committed over time; stalls after `stalled_after_s`. Times are of any steady clock, in seconds.
    """

    stalled_after_s: float = STALLED_AFTER_S
    _committed: int | None = field(default=None, init=False)
    _since_s: float = field(default=0.0, init=False)

    def observe(self, *, now_s: float, committed: int, end: int) -> None:
        """
        Record that `committed` of `end` messages (sums over all partitions) are done.

        Raises:
            StalledError: if some wait, and none was committed for too long.
        """
        if committed >= end or committed != self._committed:
            self._committed, self._since_s = committed, now_s
            return
        if (idle_s := now_s - self._since_s) >= self.stalled_after_s:
            raise StalledError(
                f"{end - committed} messages wait and none was committed for {idle_s:.0f} s: start this process again"
            )
