"""
Retention: payload parts are kept as long as they may be, and then erased as everything else is: said in the log first.

Only parts go; entries, and with them every proof, stay. What is erased is "all parts below this index", so that anyone
can tell from the log alone which ones those were. Messages that never became entries lie elsewhere (`KeptMessages`),
are in no proof, and are just deleted at that age.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from ledger.entry import parse_entry
from ledger.errors import BrokenError, Fault
from ledger.read import Connection, Log, read_entries, read_head


class KeptMessages(Protocol):
    """Messages of tenants that could not be handled, kept as they came: what they hold, and about whom, is unknown."""

    async def delete_before(self, log: Log, before: datetime, /) -> int:
        """Delete those of a log that are kept since before then; return how many."""

    async def reclaim(self) -> None:
        """Let the database's files forget what was deleted of them."""


async def first_index_since(connection: Connection, log: Log, since: datetime) -> int:
    """
    Return the index of the first entry recorded at or after `since`; the log's size if there is none.

    Times never fall in a log, so a binary search finds it: about twenty reads in a million entries.

    Raises:
        BrokenError: if an entry is missing.
    """
    low, high = 0, (await read_head(connection, log.log_id)).size
    while low < high:
        middle = (low + high) // 2
        entries = await read_entries(connection, log.log_id, from_index=middle, to_index=middle + 1)
        if not entries:
            raise BrokenError(
                Fault.INDEX, where="ledger.entries", expected=f"entry {middle}", found="none", index=middle
            )
        if parse_entry(entries[0]).recorded_at < since:
            low = middle + 1
        else:
            high = middle
    return low
