# SPDX-License-Identifier: Apache-2.0
"""
Appends `lineage.cycle_found` to the log: one for each event and each edge that was refused.

The projection decides and cannot append, so the process that runs the projections calls `append_cycles`. The id of the
group derives from the lineage event and the edge, and its content is a function of the log: several processes may
append the same, at any time and again after a crash, and the log has it once. The projection marks a cycle as reported
when it applies that entry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

import psycopg

from ledger.errors import GroupMismatchError, LogUnavailableError, OutcomeUnknownError, QueueFullError
from ledger.format.event import SYSTEM_ACTOR, derived_group_id
from ledger.format.events import LineageCycleFound, prepare_event
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.notifications import WakeUp, wait_for_any
from ledger.store.read import Log
from ledger.store.session import Connection, back_off_s
from projections.lineage.edges import QUERIES
from projections.processing.runner import connect

BATCH_MAX: Final = 100
"""Cycles appended at a time."""
POLL_S: Final = 1.0

Append = Callable[[int, Group], Awaitable[Appended | Stale]]
Clock = Callable[[], datetime]

_log = logging.getLogger(__name__)


async def append_cycles(connection: Connection, append: Append, log: Log | None = None, *, clock: Clock) -> int:
    """
    Append the unreported cycles of `log`, or of every log that the connection's role may see; return their number.

    They are read from the live generation, so the same cycles are found again until the projection has applied the
    entries.

    Raises:
        LedgerError: if an append fails.
    """
    parameters = {"log_id": None if log is None else log.log_id, "limit": BATCH_MAX}
    rows = await (await connection.execute(QUERIES["unreported"], parameters)).fetchall()
    for log_id, lineage, source, target, path in rows:
        found = LineageCycleFound(lineage=str(lineage), path=tuple(path), source=source, target=target)
        with suppress(GroupMismatchError):  # another version of the projection has reported it, with another path
            await append(log_id, cycle_group(found, at=clock()))
    return len(rows)


def cycle_group(found: LineageCycleFound, *, at: datetime) -> Group:
    """
    Return the group that reports one cycle; its event key is the table that would have been made from itself.
    """
    event = prepare_event(found, key=found.target, actor=SYSTEM_ACTOR, occurred_at=at)
    content = {"lineage": found.lineage, "source": found.source, "target": found.target}
    return Group(id=derived_group_id(LineageCycleFound.TYPE, content), then=(event,))


async def keep_appending_cycles(
    dsn: str, append: Append, stop: asyncio.Event, wake: WakeUp | None = None, *, clock: Clock
) -> None:
    """
    Append cycles until `stop` is set; `dsn` works as the projector role.

    What fails now, or is interrupted by a lost connection, is appended later: nothing waits for it.
    """
    failures = 0
    while not stop.is_set():
        try:
            async with connect(dsn) as connection:
                while not stop.is_set():
                    if wake is not None:
                        wake.clear()  # before reading: a later cycle notifies again
                    appended = await append_cycles(connection, append, clock=clock)
                    failures = 0
                    # After a full round there may be more; what it appended is found again until it is projected.
                    await wait_for_any(stop, wake, timeout_s=back_off_s(0) if appended == BATCH_MAX else POLL_S)
        except (psycopg.OperationalError, LogUnavailableError, OutcomeUnknownError, QueueFullError) as error:
            if not failures:
                _log.warning("cycles in lineage are reported later: %s", error)
            await wait_for_any(stop, None, timeout_s=back_off_s(failures))
            failures += 1
