# SPDX-License-Identifier: Apache-2.0
"""
What other processes were lately first to change, so that commits need not go on racing them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Final

LATELY_S: Final = 30.0
RACES_MAX: Final = 4_096


class Races:
    """The paths of the requests that have lost a race within the last 30 s; of many, the last ones. Event loop only."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lost_s: OrderedDict[str, float] = OrderedDict()

    def note(self, path: str) -> None:
        """Note that another process was first to change what is at `path`."""
        self._lost_s[path] = self._clock()
        self._lost_s.move_to_end(path)
        if len(self._lost_s) > RACES_MAX:
            self._lost_s.popitem(last=False)

    def was_lost(self, path: str) -> bool:
        """Return whether one was lost there lately."""
        lost_s = self._lost_s.get(path)
        return lost_s is not None and self._clock() - lost_s < LATELY_S
