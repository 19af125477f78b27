# SPDX-License-Identifier: Apache-2.0
"""
Figures of a tenant's log: its size and growth, and how many entries of each type it has.

Counting reads every entry once, so a process keeps what it has counted (`ledger/proving/tally.py`), and counts for
`COUNTING_S` at most in one request. It counts on when a long log was asked for, half of the time, so that others look
meanwhile. Until then answers say how far it has come; they neither count themselves nor wait for that.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import nullcontext
from datetime import timedelta
from typing import Any, Final

from gateway.errors import GatewayError
from gateway.http.looking.reading import Looking, own_log
from ledger.errors import LedgerError
from ledger.format import canonical
from ledger.format.entry import parse_entry
from ledger.proving.tally import Tally
from ledger.store.read import QUERIES, first_index_since, read_entry, read_head

COUNTING_S: Final = 0.03
"""At a time, once a step is done."""
TALLIES_MAX: Final = 1_000


class Figures:
    """The tallies of one process, the least recently used dropped first. Event loop only."""

    def __init__(self) -> None:
        self._tallies: OrderedDict[int, tuple[Tally, asyncio.Lock]] = OrderedDict()
        self._counting: dict[int, asyncio.Task[None]] = {}

    async def read(self, looking: Looking) -> dict[str, Any]:
        """
        Return the figures of the caller's log as JSON.

        Raises:
            UnavailableError: if the database cannot be reached.
            LedgerError: if what is stored is corrupt.
        """
        log_id, now = looking.caller.log_id, looking.gateway.clock()
        clock = asyncio.get_running_loop().time
        tally, lock = self._tally(log_id)
        # What was counted before the head is read is not beyond it.
        so_far = tally.copy() if log_id in self._counting else None
        async with nullcontext() if so_far else lock, looking.reading() as connection:
            log, head = await own_log(connection, looking.caller), await read_head(connection, log_id)
            newest = await (await connection.execute(QUERIES["latest_checkpoint"], {"log_id": log_id})).fetchone()
            first = await read_entry(connection, log_id, 0) if head.size else None
            hour, day = [
                head.size - await first_index_since(connection, log_id, now - age, size=head.size)
                for age in (timedelta(hours=1), timedelta(days=1))
            ]
            if so_far is None and log_id not in self._counting:  # nor since this request waited for its turn
                ends_s = clock() + COUNTING_S
                await tally.advance(connection, log_id, size=head.size, may_go_on=lambda: clock() < ends_s)
                if tally.counted < head.size:
                    task = asyncio.create_task(self._count_on(looking, tally, lock), name=f"count of log {log_id}")
                    self._counting[log_id] = task
            tally = so_far or tally
            if tally.counted > head.size:
                tally = Tally()  # the log was restored
            return {
                "log": log.origin,
                "entries": head.size,
                "counted": tally.counted,
                "checkpoint_size": 0 if newest is None else newest[0],
                "groups": tally.groups,
                "bytes": tally.size_bytes,
                "first_recorded_at": None if first is None else canonical.format_time(parse_entry(first).recorded_at),
                "last_recorded_at": None if head.recorded_at is None else canonical.format_time(head.recorded_at),
                "entries_last_hour": hour,
                "entries_last_day": day,
                "types": [
                    {
                        "type": each.type,
                        "entries": each.entries,
                        "bytes": each.size_bytes,
                        "first_index": each.first_index,
                        "last_index": each.last_index,
                    }
                    for each in sorted(tally.types.values(), key=lambda each: (-each.entries, each.type))
                ],
            }

    async def _count_on(self, looking: Looking, tally: Tally, lock: asyncio.Lock) -> None:
        """Count the rest of a log, until that is done or cannot be done: the next request goes on then."""
        log_id, clock = looking.caller.log_id, asyncio.get_running_loop().time
        try:
            while True:
                began_s = clock()
                async with lock, looking.reading() as connection:
                    size = (await read_head(connection, log_id)).size
                    ends_s = clock() + COUNTING_S
                    await tally.advance(connection, log_id, size=size, may_go_on=lambda: clock() < ends_s)  # noqa: B023
                if tally.counted >= size:
                    return
                await asyncio.sleep(clock() - began_s)
        except (GatewayError, LedgerError):
            return  # a request that asks for the figures is told
        finally:
            del self._counting[log_id]

    def _tally(self, log_id: int) -> tuple[Tally, asyncio.Lock]:
        kept = self._tallies.setdefault(log_id, (Tally(), asyncio.Lock()))
        self._tallies.move_to_end(log_id)
        if len(self._tallies) > TALLIES_MAX:
            self._tallies.popitem(last=False)
        return kept
