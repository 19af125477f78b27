# SPDX-License-Identifier: Apache-2.0
"""
Futures that perhaps nobody waits for.
"""

from __future__ import annotations

from asyncio import Future
from typing import Any


def retrieve(done: Future[Any]) -> None:
    """
    Mark a future's exception as retrieved, so that asyncio does not log it where all who waited have gone.

    For `add_done_callback`. Whoever still waits gets the exception as before.
    """
    if not done.cancelled():
        done.exception()
