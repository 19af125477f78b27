# SPDX-License-Identifier: Apache-2.0
"""
Futures that perhaps nobody waits for, and work that is done while its task waits for something else.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def retrieve(done: Future[Any]) -> None:
    """
    Mark a future's exception as retrieved, so that asyncio does not log it where all who waited have gone.

    For `add_done_callback`. Whoever still waits gets the exception as before.
    """
    if not done.cancelled():
        done.exception()


class Meanwhile(Generic[T]):
    """
    Short work that the task which makes this will need done later, and which blocks nobody but the event loop.

    It is done while the task waits for something else: `behind` what the task wakes by that, and what is woken by
    those, and so on, if that is ready to run (0: right when the task waits). If the result is needed before, it is done
    then. It is done once, in any case by the one who needs it; if it fails, `result` raises why.
    """

    def __init__(self, work: Callable[[], T], *, behind: int = 0) -> None:
        self._work = work
        self._result: list[T] = []
        self._error: Exception | None = None
        self._later(behind)

    def result(self) -> T:
        """Return what the work returns, or raise what it raises."""
        self._do()
        if self._error is not None:
            raise self._error
        return self._result[0]

    def _later(self, behind: int) -> None:
        if behind:
            asyncio.get_running_loop().call_soon(self._later, behind - 1)
        else:
            asyncio.get_running_loop().call_soon(self._do)

    def _do(self) -> None:
        if self._result or self._error is not None:
            return
        try:
            self._result.append(self._work())
        except Exception as error:  # noqa: BLE001 - whatever it is, the one who needs the result is told
            self._error = error
