# SPDX-License-Identifier: Apache-2.0
"""
A reader that follows a log as it grows: what it has seen, it has seen once, and it has missed nothing.
"""

from __future__ import annotations

import asyncio

import psycopg
from psycopg import AsyncConnection

from ledger.format.entry import parse_entry
from ledger.store.read import read_entries

PAGE_ENTRIES = 500
POLL_S = 0.02


class Tail:
    """Reads a log from its last index on, over and over, over another connection whenever one was lost."""

    def __init__(self, dsn: str, log_id: int) -> None:
        self.seen: list[bytes] = []
        """Every entry, in the order in which they came."""
        self.lost = 0
        self._dsn = dsn
        self._log_id = log_id

    async def follow(self, stop: asyncio.Event) -> None:
        """Read until `stop` is set and nothing is left."""
        while True:
            try:
                async with await AsyncConnection.connect(self._dsn, autocommit=True, connect_timeout=5) as connection:
                    while True:
                        was_set = stop.is_set()
                        if await self._read(connection) == 0:
                            if was_set:
                                return
                            await asyncio.sleep(POLL_S)
            except psycopg.OperationalError:
                self.lost += 1
                await asyncio.sleep(POLL_S)

    async def _read(self, connection: AsyncConnection[tuple[object, ...]]) -> int:
        at = len(self.seen)
        entries = await read_entries(connection, self._log_id, from_index=at, to_index=at + PAGE_ENTRIES)
        for expected, entry in enumerate(entries, start=at):
            index = parse_entry(entry).index
            assert index == expected, f"behind entry {expected - 1} comes {index}"
        self.seen += entries
        return len(entries)

    def check(self, entries: list[bytes]) -> None:
        """Check that it has seen exactly these: none missed, none twice, none that is not there any more."""
        assert self.seen == entries, f"the reader has seen {len(self.seen)} entries, the log holds {len(entries)}"
