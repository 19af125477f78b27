# SPDX-License-Identifier: Apache-2.0
"""
The metadata files that a table ever had, as the log names them: the metadata log of the last one names the newest only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from gateway.mutations import Operation
from ledger.format.entry import Entry, parse_entry
from ledger.format.events import CommitDecided, CommitSettled, from_data
from ledger.store.queries import load_queries
from ledger.store.session import Connection

PAGE_ENTRIES: Final = 1_000

_QUERIES: Final = load_queries("gateway", "purges.sql")

Reading = Callable[[], AbstractAsyncContextManager[Connection]]


async def recorded_metadata_files(
    reading: Reading, log_id: int, *, key: str, table_uuid: str
) -> AsyncIterator[Sequence[str]]:
    """
    Yield the metadata files of a table in pages, under its last name and those that it was renamed from.

    Raises:
        UnavailableError: if the database cannot be reached.
    """
    keys = [key]
    for one in keys:  # grows
        async for page in _pages(reading, log_id, one):
            settled = [from_data(CommitSettled, entry.data) for entry in page if entry.type == CommitSettled.TYPE]
            yield [
                each.metadata_location
                for each in settled
                if each.metadata_location is not None and each.table_uuid == table_uuid
            ]
            for entry in page:
                former = await _former_key(reading, log_id, entry, table_uuid)
                if former is not None and former not in keys:
                    keys.append(former)


async def _pages(reading: Reading, log_id: int, key: str) -> AsyncIterator[list[Entry]]:
    from_index = 0
    while True:
        bounds = {"log_id": log_id, "key": key, "from_index": from_index, "limit": PAGE_ENTRIES}
        async with reading() as connection:
            rows = await (await connection.execute(_QUERIES["history"], bounds)).fetchall()
        yield [parse_entry(bytes(data)) for _, data in rows]
        if len(rows) < PAGE_ENTRIES:
            return
        from_index = rows[-1][0] + 1


async def _former_key(reading: Reading, log_id: int, entry: Entry, table_uuid: str) -> str | None:
    """Return the key that a table was renamed from: of the decision on it, right before that on the new name."""
    if entry.type != CommitDecided.TYPE:
        return None
    decided = from_data(CommitDecided, entry.data)
    if decided.operation != Operation.TABLE_RENAME_TO or decided.table_uuid != table_uuid or not entry.position:
        return None
    async with reading() as connection:
        where = {"log_id": log_id, "index": entry.index - 1}
        row = await (await connection.execute(_QUERIES["entry_at"], where)).fetchone()
    return None if row is None else parse_entry(bytes(row[0])).key
