"""
Retention: payload parts are kept as long as they may be, and then erased as everything else is: said in the log first.

Only parts go; entries, and with them every proof, stay. What is erased is "all parts below this index", so that anyone
can tell from the log alone which ones those were.
"""

from __future__ import annotations

from datetime import datetime

from ledger.entry import parse_entry
from ledger.errors import BrokenError, Fault
from ledger.read import Connection, Log, read_entries, read_head


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
