# SPDX-License-Identifier: Apache-2.0
"""
Problems of work that continues all the same: each is logged once for as long as it stays the same, and when it is over.
"""

from __future__ import annotations

import logging


class ProblemLog:
    """The present problem of each kind of work; owned by the tasks of one event loop."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._current: dict[str, str] = {}

    def report(self, what: str, text: str) -> None:
        """Log that `what` has the problem `text`; an empty text means that it has none any more."""
        before, self._current[what] = self._current.get(what, ""), text
        if text and text != before:
            self._log.warning("%s: %s", what, text)
        elif before and not text:
            self._log.info("%s: as they should be again", what)
