# SPDX-License-Identifier: Apache-2.0
"""
Verifies the payload parts that PostgreSQL still holds against the commitments in their entries.

Separate from `database.py` because it needs a role that may read payload parts; the auditor's role may not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ledger.errors import BrokenError, Fault
from ledger.format.entry import parse_entry
from ledger.format.event import commitment
from ledger.format.sealing import PLAIN, Opener, StoredPart
from ledger.format.verification import ProgressCallback
from ledger.store.queries import load_queries
from ledger.store.read import Log
from ledger.store.session import Connection
from ledger.verify.database_pages import read_sound_head

_QUERIES: Final = load_queries("ledger.store", "verify.sql")
_PAGE: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsReport:
    """
    How many payload parts, of how many entries, match. `sealed` ones are encrypted and could not be opened, although
    the log does not say that they were erased: no keys were given, or their key is gone.
    """

    checked: int
    entries: int
    sealed: int


async def verify_parts(
    connection: Connection,
    log: Log,
    *,
    opener: Opener | None = None,
    first: int = 0,
    progress: ProgressCallback = lambda _done, _of: None,
) -> PartsReport:
    """
    Check every payload part that still exists, of entries from `first` on, against the commitment in its entry.

    `connection` reads as a role that may see payload parts. `opener` has the keys of sealed parts; without it these are
    only counted. The entries are not verified here: see `verify_database`.

    Raises:
        BrokenError: (`Fault.PART`) at the first that does not match; carries the index of its entry.
    """
    size = (await read_sound_head(connection, log.log_id)).head.size
    checked = entries = sealed = 0
    latest, before = -1, (-1, "")
    for start in range(first, size, _PAGE):
        bounds = {"log_id": log.log_id, "from_index": start, "to_index": min(start + _PAGE, size)}
        cursor = await connection.execute(_QUERIES["parts_with_entries"], bounds, binary=True)
        for index, name, subject, key_id, stored, entry in await cursor.fetchall():
            where = f"ledger.parts {name}"
            if name is None or stored is None:
                raise BrokenError(Fault.PART, where=where, expected="a part with a name", found="NULL", index=index)
            if (index, name) == before:  # no index has kept the second one out
                raise BrokenError(Fault.PART, where=where, expected="one part", found="several", index=index)
            before = index, name
            known = PLAIN if key_id is None else opener
            part = None if known is None else known.open(StoredPart(index, name, subject, key_id, bytes(stored)))
            if part is None:
                sealed += 1
                continue
            expected = parse_entry(bytes(entry)).parts.get(name)
            found = commitment(salt=part.salt, payload=part.payload)
            if found != expected:
                raise BrokenError(
                    Fault.PART,
                    where=where,
                    expected=expected.hex() if expected else "no part of this name",
                    found=found.hex(),
                    index=index,
                )
            checked += 1
            entries += index != latest
            latest = index
        progress(min(start + _PAGE, size), size)
    stray = await (await connection.execute(_QUERIES["stray_part"], {"log_id": log.log_id, "size": size})).fetchone()
    if stray is not None:
        where = f"ledger.parts {stray[1]}"
        raise BrokenError(
            Fault.PART, where=where, expected=f"parts of entries below {size}", found="one", index=stray[0]
        )
    return PartsReport(checked=checked, entries=entries, sealed=sealed)
