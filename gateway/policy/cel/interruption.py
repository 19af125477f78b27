# SPDX-License-Identifier: Apache-2.0
"""
Stops an evaluation that takes too long without ending its process: it checks a flag at each node.

Guarantee: once the flag is set, `check` raises at the next node that is evaluated, token that is parsed, or list or map
that is converted, and only there. No cache is being changed at these points, so nothing is left inconsistent. One
operation on a very large value may not reach such a point for long; then the process is killed.
"""

from __future__ import annotations


class JudgingStopped(BaseException):
    """The evaluation was stopped. Not an `Exception`, so that no handler takes it for an error of the expression."""


class Interruption:
    """Set by the thread that reads the pipe, checked by the thread that evaluates; calls have numbers."""

    __slots__ = ("_current", "_stopped")

    def __init__(self) -> None:
        self._current = 0
        self._stopped = -1

    def begin(self, call: int) -> None:
        """Set the number of the call that is evaluated from now on; numbers only grow."""
        self._current = call

    def stop(self, call: int) -> None:
        """Stop the evaluation of `call`; no effect on others if it has ended already, or has not started."""
        self._stopped = call

    def check(self) -> None:
        """
        Raise if the current call was stopped.

        Raises:
            JudgingStopped: if so.
        """
        if self._stopped == self._current:
            raise JudgingStopped
