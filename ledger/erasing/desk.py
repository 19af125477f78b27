"""
What operators' commands work with when payload parts are to be erased (`commands/erasing.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from ledger.erasing.erase import Eraser
from ledger.read import Connection, Log


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasingDesk:
    """
    An installation in which payload parts are erased.

    `connection` works as the eraser, in autocommit mode. `reclaim` lets the files of the database forget what was
    erased from a log up to an index, in the read models, too.
    """

    connection: Connection
    eraser: Eraser
    reclaim: Callable[[Log, int], Awaitable[None]]
    clock: Callable[[], datetime]
