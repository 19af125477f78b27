"""
What is wrong with work that goes on all the same: logged once as long as it stays the same, and that it has passed.
"""

from __future__ import annotations

import logging


class Complaints:
    """What each kind of work complains of now; owned by the tasks of one event loop."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._standing: dict[str, str] = {}

    def tell(self, what: str, text: str) -> None:
        """Log that `text` is wrong with `what`, or, if it is empty, that nothing is any more."""
        before, self._standing[what] = self._standing.get(what, ""), text
        if text and text != before:
            self._log.warning("%s: %s", what, text)
        elif before and not text:
            self._log.info("%s: as they should be again", what)
