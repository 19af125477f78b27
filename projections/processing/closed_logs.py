"""
Erasing in the read models of a log that is closed: no entry of that log will ever tell them of it.

The erasure stands in the log that goes on from the closed one. Here it is applied as if it were the closed log's next
entry, so that what is left is what a rebuild makes of the parts that are left.
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


async def forget(dsn: str, projections: Sequence[Projection], log: Log, erased: PayloadErased) -> None:
    """
    Take what came from parts that are erased out of the read models of a closed log; harmless when repeated.

    Out of the live generations; others are dropped. `dsn` works as the projector role. The parts must be deleted
    already: what is projected later does not see them.

    Raises:
        StaleGenerationError: if a live generation is of another version: once it is replaced, this can be repeated.
        RebuildRunningError: if a rebuild is under way, which may have read the parts: once it has ended, repeat this.
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
