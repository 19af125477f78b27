"""
The groups of a batch that the log holds already, as the rules compare them with what a caller asks for again.

Guarantee: a group comes back whole, or its log is called broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from ledger.entry import parse_entry
from ledger.erasing.sealing import Opener, StoredPart
from ledger.errors import BrokenError, Fault
from ledger.read import QUERIES
from ledger.sequence import StoredGroup


async def read_stored_groups(
    connection: AsyncConnection[Any], firsts: Sequence[tuple[int, int, bytes]], opener: Opener
) -> dict[tuple[int, UUID], StoredGroup]:
    """
    Return the groups whose first entries were found, by log_id and group id, with the salts of the parts still there.

    `firsts` are (log_id, index, entry).

    Raises:
        FormatError: if an entry is not an entry.
        BrokenError: if one is missing, or a part is not what was sealed.
    """
    ranges = {(log_id, index): parse_entry(entry) for log_id, index, entry in firsts}
    bounds = {
        "log_ids": [log_id for log_id, _ in ranges],
        "firsts": [index for _, index in ranges],
        "ends": [index + first.of for (_, index), first in ranges.items()],
    }
    entries = {(log_id, index): entry for log_id, index, entry in firsts}
    cursor = await connection.execute(QUERIES["entries_of_groups"], bounds)
    entries |= {(log_id, index): bytes(entry) for log_id, index, entry in await cursor.fetchall()}
    salts: dict[tuple[int, int], dict[str, bytes]] = {}
    cursor = await connection.execute(QUERIES["salts_of_groups"], bounds)
    for log_id, index, name, subject, key_id, sealed in await cursor.fetchall():
        part = opener.open(StoredPart(index, name, subject, key_id, bytes(sealed)))
        if part is not None:
            salts.setdefault((log_id, index), {})[name] = part.salt
    stored: dict[tuple[int, UUID], StoredGroup] = {}
    for (log_id, index), first in ranges.items():
        places = [(log_id, at) for at in range(index, index + first.of)]
        if any(place not in entries for place in places):
            raise BrokenError(
                Fault.GROUP,
                where="ledger.entries",
                expected=f"{first.of} entries of group {first.group_id}",
                found=f"{sum(place in entries for place in places)}",
                index=index,
            )
        stored[log_id, first.group_id] = StoredGroup(
            entries=tuple(entries[place] for place in places),
            salts=tuple(salts.get(place, {}) for place in places),
        )
    return stored
