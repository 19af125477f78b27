# SPDX-License-Identifier: Apache-2.0
"""
How much of each caller was recorded lately, so that no caller can fill the log.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

INTERVAL: Final = timedelta(seconds=60)
REMEMBERED_MAX: Final = 10_000


@dataclass(slots=True)
class RecordedCaller:
    """How often something of one caller was `recorded` in the interval that began at `since`; counted by its users."""

    since: datetime
    recorded: int = 0


class RecordedCallers:
    """The callers of one process, the last `REMEMBERED_MAX` of them. Belongs to the event loop."""

    def __init__(self) -> None:
        self._callers: OrderedDict[tuple[int, str], RecordedCaller] = OrderedDict()

    def of(self, log_id: int, actor: str, *, now: datetime) -> RecordedCaller:
        """Return a caller in the interval that holds `now`."""
        name = (log_id, actor)
        caller = self._callers.setdefault(name, RecordedCaller(since=now))
        self._callers.move_to_end(name)
        if now - caller.since >= INTERVAL:
            caller.since, caller.recorded = now, 0
        if len(self._callers) > REMEMBERED_MAX:
            self._callers.popitem(last=False)
        return caller
