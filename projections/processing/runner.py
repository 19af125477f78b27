"""
The runner: brings every projection of every tenant's log up to the log's end, and keeps it there.

One batch is one transaction: it takes the lock on the live generation, reads the cursor, applies the entries behind it
and moves the cursor. Whatever dies, dies before or after that, so nothing is lost and nothing is applied twice, however
many processes run. A generation that another process holds is passed over; its holder does the work.

The runner wakes at a notification (`wake`) and also polls every second, because a notification can be missed. A lost
connection is made again with back-off; corruption ends `run`. A log whose control plane holds what only a newer version
knows is left where it is, and the others go on: one tenant must not hold up all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

import psycopg
from psycopg import AsyncConnection

from ledger.format.sealing import PLAIN, Opener
from ledger.store.notifications import WakeUp, wait_for_any
from ledger.store.read import Log
from ledger.store.session import Connection, Outage
from projections.errors import ProjectionError, StaleGenerationError, UnknownControlError
from projections.processing import cursors
from projections.processing.cursors import FIRST_GENERATION, Progress
from projections.processing.projection import BATCH_ENTRIES_MAX, Projection, Transaction, apply_batch

POLL_S: Final = 1.0

IDLE_IN_TRANSACTION_TIMEOUT_S: Final = 30
"""A process that was stopped in the middle of a batch gives its lock back after this."""


_log = logging.getLogger(__name__)


class Runner:
    """
    Applies entries to the live generations of `projections`.

    `dsn` works as the projector role, `opener` opens sealed payload parts.
    """

    def __init__(
        self,
        dsn: str,
        projections: Sequence[Projection],
        *,
        batch_max: int = BATCH_ENTRIES_MAX,
        poll_s: float = POLL_S,
        opener: Opener = PLAIN,
        on_applied: Callable[[str, int], None] = lambda _name, _entries: None,
    ) -> None:
        self._dsn = dsn
        self._projections = {projection.name: projection for projection in projections}
        self._batch_max = batch_max
        self._poll_s = poll_s
        self._opener = opener
        self._on_applied = on_applied
        self.too_old_for: dict[int, str] = {}
        """The logs (log_id) that `run` leaves where they are until a newer version runs, and why."""

    async def run(self, stop: asyncio.Event, wake: WakeUp | None = None) -> None:
        """
        Keep all projections up to date until `stop` is set; a batch that has begun is finished.

        What the database refuses for want of a right, a table or a primary server is said, and asked for again
        (`ledger.store.session`).

        Raises:
            FormatError, BrokenError: if a log is corrupt.
            psycopg.Error: if a statement is wrong in itself.
        """
        outage = Outage("projections", _log)
        while not stop.is_set():
            try:
                async with connect(self._dsn) as connection:
                    while not stop.is_set():
                        if wake is not None:
                            wake.clear()  # before looking: what is appended from here on rings again
                        applied = await self._round(connection, stop)
                        outage.recovered()
                        if not applied:
                            await wait_for_any(stop, wake, timeout_s=self._poll_s)
            except psycopg.Error as error:
                # The transaction is undone as a whole: the next connection begins where the cursor stands.
                outage.failed(error)
                await wait_for_any(stop, None, timeout_s=outage.pause_s)

    async def catch_up(self, log_id: int, to_index: int) -> None:
        """
        Apply the entries of one log below `to_index` to every projection, waiting for another process that does.

        Raises:
            StaleGenerationError: if a live generation is of another version of its projection.
            ProjectionError: if there is no such log of a tenant, or it has fewer entries.
        """
        async with connect(self._dsn) as connection:
            progress = [each for each in await self._progress(connection) if each.log.log_id == log_id]
            if not progress or progress[0].size < to_index:
                raise ProjectionError(f"log {log_id}: expected a tenant's log of {to_index} or more entries")
            for each in progress:
                projection = self._projections[each.projection]
                await ensure(connection, projection, each.log)
                if each.version not in {None, projection.version}:
                    raise _stale(projection, each.log, each.version)
                at = each.next_index
                while at < to_index:
                    at = (await self._advance(connection, projection, each.log, to_index, cursors.lock_live)).stop

    async def progress(self) -> list[Progress]:
        """
        Return how far each projection of each log is (`lag_entries`).
        """
        async with connect(self._dsn) as connection:
            return await self._progress(connection)

    async def _progress(self, connection: Connection) -> list[Progress]:
        return await cursors.read_progress(connection, self._projections)

    async def _round(self, connection: Connection, stop: asyncio.Event) -> int:
        """Apply one batch wherever something is to be applied; return the number of entries."""
        applied = 0
        for each in await self._progress(connection):
            projection = self._projections[each.projection]
            if stop.is_set():
                break
            if each.generation is None:
                await ensure(connection, projection, each.log)
            elif each.version != projection.version or not each.lag_entries:
                continue
            # Held: its holder does the work. Stale: another version was switched to since we looked; it is not ours.
            with suppress(_HeldByOtherError, StaleGenerationError):
                applied += await self._apply(connection, projection, each)
        return applied

    async def _apply(self, connection: Connection, projection: Projection, each: Progress) -> int:
        """Apply one batch of a log, unless it holds what only a newer version knows; return the number of entries."""
        log_id = each.log.log_id
        try:
            indices = await self._advance(connection, projection, each.log, each.size, _lock_or_pass)
        except UnknownControlError as error:
            if log_id not in self.too_old_for:
                _log.warning("the projections of %s wait for a newer version: %s", each.log.origin, error)
            self.too_old_for[log_id] = str(error)
            return 0
        self._on_applied(projection.name, len(indices))
        return len(indices)

    async def _advance(
        self, connection: Connection, projection: Projection, log: Log, to_index: int, lock: _Lock
    ) -> range:
        """Apply one batch to the live generation in a transaction of its own; return the indices applied."""
        async with connection.transaction():
            generation = await lock(connection, projection.name, log.log_id)
            live = await cursors.read_live(connection, projection.name, log.log_id)
            if live is None or live.version != projection.version:
                raise _stale(projection, log, live.version if live else None)
            transaction = Transaction(connection=connection, log=log, generation=generation, opener=self._opener)
            return await apply_batch(projection, transaction, to_index=to_index, batch_max=self._batch_max)


class _Lock(Protocol):
    async def __call__(self, connection: Connection, projection: str, log_id: int, /) -> int: ...


class _HeldByOtherError(Exception):
    """Another process applies to this generation, or compares it; not an error to anyone."""


def _stale(projection: Projection, log: Log, version: int | None) -> StaleGenerationError:
    return StaleGenerationError(
        f"projection {projection.name} of {log.origin}: expected a live generation of version {projection.version}, "
        f"found {version}: replace it"
    )


async def _lock_or_pass(connection: Connection, projection: str, log_id: int) -> int:
    generation = await cursors.try_lock_live(connection, projection, log_id)
    if generation is None:
        raise _HeldByOtherError
    return generation


async def ensure(connection: Connection, projection: Projection, log: Log) -> None:
    """
    Make the first, empty generation of a log's projection and let it be live, unless there is one.
    """
    async with connection.transaction():
        if await cursors.read_live(connection, projection.name, log.log_id) is not None:
            return
        # The insert waits for another process that is making the same generation; then there is nothing left to do.
        if await cursors.insert(connection, projection.name, log.log_id, FIRST_GENERATION, version=projection.version):
            await projection.prepare(Transaction(connection=connection, log=log, generation=FIRST_GENERATION))
            await cursors.insert_live(connection, projection.name, log.log_id, FIRST_GENERATION)


@asynccontextmanager
async def connect(dsn: str) -> AsyncIterator[Connection]:
    """
    Yield a connection for writing projections: no transaction is open, and none may stay idle.
    """
    async with await AsyncConnection.connect(
        dsn, autocommit=True, connect_timeout=5, application_name="lakeproof projections"
    ) as connection:
        await connection.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, false),"
            " set_config('default_transaction_isolation', 'read committed', false)",
            (f"{IDLE_IN_TRANSACTION_TIMEOUT_S}s",),
        )
        yield connection
