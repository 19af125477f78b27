"""
Verifies the payload parts that PostgreSQL still holds against the commitments in their entries.

Apart from `database.py` because it needs a role that may see parts, which the auditor's may not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ledger.entry import parse_entry
from ledger.errors import BrokenError, Fault
from ledger.event import SALT_SIZE_BYTES, commitment
from ledger.queries import load_queries
from ledger.read import Connection, Log, read_head
from ledger.verify.rules import Progress

_QUERIES: Final = load_queries("ledger", "verify.sql")
_PAGE: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsReport:
    """How many payload parts, of how many entries, match; `sealed` ones are encrypted, and were not looked at."""

    checked: int
    entries: int
    sealed: int


async def verify_parts(
    connection: Connection, log: Log, *, progress: Progress = lambda _done, _of: None
) -> PartsReport:
    """
    Check every payload part that still exists against the commitment in its entry.

    `connection` reads as a role that may see payload parts. The entries are believed: see `verify_database`.

    Raises:
        BrokenError: (`Fault.PART`) at the first that does not match; carries the index of its entry.
    """
    size = (await read_head(connection, log.log_id)).size
    checked = entries = sealed = 0
    latest = -1
    for first in range(0, size, _PAGE):
        bounds = {"log_id": log.log_id, "from_index": first, "to_index": min(first + _PAGE, size)}
        cursor = await connection.execute(_QUERIES["parts_with_entries"], bounds, binary=True)
        for index, name, part, is_sealed, entry in await cursor.fetchall():
            if is_sealed:
                sealed += 1
                continue
            expected = parse_entry(bytes(entry)).parts.get(name)
            found = commitment(salt=bytes(part[:SALT_SIZE_BYTES]), payload=bytes(part[SALT_SIZE_BYTES:]))
            if len(part) < SALT_SIZE_BYTES or found != expected:
                raise BrokenError(
                    Fault.PART,
                    where=f"ledger.parts {name}",
                    expected=expected.hex() if expected else "no part of this name",
                    found=found.hex(),
                    index=index,
                )
            checked += 1
            entries += index != latest
            latest = index
        progress(min(first + _PAGE, size), size)
    return PartsReport(checked=checked, entries=entries, sealed=sealed)
