# SPDX-License-Identifier: Apache-2.0
"""
Erasure in the read models of a closed log, to which no `payload.erased` will ever be appended.

The erasure is recorded in the log that continues the closed one. Here it is applied as if it were the next entry of the
closed log, so the result is what a rebuild would make of the remaining payload parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ledger.format.entry import parse_entry
from ledger.format.events import PayloadErased
from ledger.store.read import Log, read_entries
from projections.entries import LogEntry
from projections.errors import StaleGenerationError
from projections.processing import cursors
from projections.processing.generations import drop_others, sole_rebuild
from projections.processing.projection import Projection, Transaction
from projections.processing.runner import connect


async def erase_from_closed(dsn: str, projections: Sequence[Projection], log: Log, erased: PayloadErased) -> None:
    """
    Remove what came from erased parts from the read models of a closed log; it may be repeated.

    Live generations are changed, others are dropped. `dsn` works as the projector role. The parts must be deleted
    before, so that nothing projects them later.

    Raises:
        StaleGenerationError: if a live generation is of another version: replace it, then repeat this.
        RebuildRunningError: if a rebuild is under way, which may have read the parts: repeat this once it has ended.
    """
    async with connect(dsn) as connection:
        for projection in projections:
            if await cursors.read_live(connection, projection.name, log.log_id) is None:
                continue
            async with sole_rebuild(connection, projection, log), connection.transaction():
                await drop_others(connection, projection, log)
                generation = await cursors.lock_live(connection, projection.name, log.log_id)
                live = await cursors.read_live(connection, projection.name, log.log_id)
                if live is None or live.version != projection.version:
                    raise StaleGenerationError(
                        f"projection {projection.name} of {log.origin}: expected a live generation of version "
                        f"{projection.version}, found {live and live.version}: replace it"
                    )
                if not live.next_index:
                    continue
                (last,) = await read_entries(
                    connection, log.log_id, from_index=live.next_index - 1, to_index=live.next_index
                )
                entry = replace(parse_entry(last), index=live.next_index)
                transaction = Transaction(connection=connection, log=log, generation=generation)
                await projection.apply([LogEntry(entry=entry, event=erased, parts={})], transaction)
