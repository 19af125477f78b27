"""
How a judging that takes too long is stopped without ending its process: at the next node, by being asked.

Guarantee: `check` raises once it has been told to, at the next node that is evaluated, token that is parsed, or list or
map that is converted, and only there, so that nothing is left half done: no cache is being changed at these places, and
what is thrown away belongs to the one call. What comes to no such place for long (one operation on a very large value)
is not stopped by this; its process is killed.
"""

from __future__ import annotations


class JudgingStopped(BaseException):
    """The judging was told to stop: no error of an expression, nor what `except Exception` may take for one."""


class Interruption:
    """Set from the thread that reads the pipe, looked at by the one that judges; a call is named by its number."""

    __slots__ = ("_current", "_stopped")

    def __init__(self) -> None:
        self._current = 0
        self._stopped = -1

    def begin(self, call: int) -> None:
        """Say which call is judged from now on; numbers only grow."""
        self._current = call

    def stop(self, call: int) -> None:
        """Tell the judging of `call` to stop; one that has ended already, or has not begun, is nobody else's."""
        self._stopped = call

    def check(self) -> None:
        """
        Raise if the call at work was told to stop.

        Raises:
            JudgingStopped: if so.
        """
        if self._stopped == self._current:
            raise JudgingStopped
