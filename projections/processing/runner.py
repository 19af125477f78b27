# SPDX-License-Identifier: Apache-2.0
"""
The runner: applies new entries to every projection of every tenant's log.

One batch is one transaction: lock the live generation, read the cursor, apply the entries from there on, and move the
cursor. A crash undoes the whole batch, so nothing is lost and nothing is applied twice, however many processes run. A
generation that another process holds is skipped; its holder does the work. Projections near the end of a log share a
transaction. If that fails, each has its own: one that fails takes nothing from the others.

The runner waits for a notification (`wake`) and polls every second as well, since a notification can be missed. The
first change after a rest is applied at once. While changes keep coming, rounds begin at most every 250 ms, and each
applies what has come since; a backlog is applied without a pause. A round does not wait for the disk, unless it must
(`DURABLE`). After a lost connection the runner reconnects with back-off; corruption ends `run`. A log whose control
plane needs a newer version stops where it is, and the other logs continue: one tenant must not hold up all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import psycopg
from psycopg import AsyncConnection

from ledger.errors import LedgerError
from ledger.format.events import LineageReceived, PayloadErased
from ledger.format.sealing import PLAIN, Opener
from ledger.store.notifications import WakeUp, wait_for_any
from ledger.store.read import Log
from ledger.store.session import Connection, Outage
from projections.errors import ProjectionError, StaleGenerationError, UnknownControlError
from projections.processing import cursors
from projections.processing.cursors import FIRST_GENERATION, Live, Progress
from projections.processing.projection import (
    BATCH_ENTRIES_MAX,
    Projection,
    SharedEntries,
    SharedParts,
    Transaction,
    apply_from,
    apply_unmoved,
)

POLL_S: Final = 1.0

PACE_S: Final = 0.25
"""Rounds that find changes begin this far apart: a round takes some thirty statements, however few its entries are."""

AWAITED: Final = (LineageReceived,)
"""
Events whose sender waits until they are applied, and sends the next one after that: no pause follows them. The answer
to lineage says which of its edges are not drawn.
"""

DURABLE: Final = (PayloadErased,)
"""
Events that are on the disk once their batch is applied: what was erased must not be there again after a crash of the
server. It may lose the last batches of others, with their cursors, and they are applied again.
"""

IDLE_IN_TRANSACTION_TIMEOUT_S: Final = 30
"""A process that was suspended within a batch loses its lock after this time."""


_log = logging.getLogger(__name__)


class ProjectionRunner:
    """
    Applies entries to the live generations of `projections`.

    `dsn` works as the projector role, `opener` opens sealed payload parts. `on_applied` is called with the name of a
    projection and the number of entries after each batch.

    No lock is needed: all fields but one are set once, by `__init__`. `too_old_for` is written only by the task of
    `run`, on its event loop, and may be read from that loop. `catch_up` and `progress` open connections of their own
    and may run at the same time as `run`. Between processes, the row locks of `projections.live` decide.
    """

    def __init__(
        self,
        dsn: str,
        projections: Sequence[Projection],
        *,
        batch_max: int = BATCH_ENTRIES_MAX,
        poll_s: float = POLL_S,
        pace_s: float = PACE_S,
        opener: Opener = PLAIN,
        on_applied: Callable[[str, int], None] = lambda _name, _entries: None,
    ) -> None:
        self._dsn = dsn
        self._projections = {projection.name: projection for projection in projections}
        self._batch_max = batch_max
        self._poll_s = poll_s
        self._pace_s = pace_s
        self._opener = opener
        self._on_applied = on_applied
        self.too_old_for: dict[int, str] = {}
        """Logs (log_id) that `run` skips until a newer version runs, with the reason."""

    async def run(self, stop: asyncio.Event, wake: WakeUp | None = None) -> None:
        """
        Keep all projections up to date until `stop` is set; a batch that has begun is finished.

        If the database refuses because a privilege, a table or a primary server is missing, that is logged and retried
        (`ledger.store.session`).

        Raises:
            FormatError, BrokenError: if a log is corrupt.
            psycopg.Error: if a statement is wrong in itself.
        """
        outage = Outage("projections", _log)
        while not stop.is_set():
            try:
                async with connect(self._dsn) as connection:
                    # No batch waits for the disk, which commits wait for: see `DURABLE`.
                    await connection.execute("SET synchronous_commit = off")
                    while not stop.is_set():
                        if wake is not None:
                            wake.clear()  # before reading: a later append notifies again
                        began = asyncio.get_running_loop().time()
                        done = await self._round(connection, stop)
                        outage.recovered()
                        if not done.applied:
                            await wait_for_any(stop, wake, timeout_s=self._poll_s)
                        elif not (done.backlog or done.awaited):
                            spent_s = asyncio.get_running_loop().time() - began
                            await wait_for_any(stop, None, timeout_s=max(self._pace_s - spent_s, 0))
            except psycopg.Error as error:
                # The transaction is rolled back: the next connection continues at the cursor.
                outage.failed(error)
                await wait_for_any(stop, None, timeout_s=outage.pause_s)

    async def catch_up(self, log_id: int, to_index: int) -> None:
        """
        Apply the entries of one log below `to_index` to every projection, waiting for other processes that do.

        Raises:
            StaleGenerationError: if a live generation is of another version of its projection.
            ProjectionError: if there is no such log of a tenant, or it has fewer entries.
        """
        async with connect(self._dsn) as connection:
            progress = [each for each in await self._progress(connection) if each.log.log_id == log_id]
            if not progress or progress[0].size < to_index:
                raise ProjectionError(f"log {log_id}: expected a tenant's log of {to_index} or more entries")
            read = SharedEntries()
            for each in progress:
                projection = self._projections[each.projection]
                await ensure(connection, projection, each.log)
                if each.version not in {None, projection.version}:
                    raise _stale(projection, each.log, each.version)
                at = each.next_index
                while at < to_index:
                    async with connection.transaction():
                        live = await cursors.hold_live(connection, projection.name, log_id)
                        if live.version != projection.version:
                            raise _stale(projection, each.log, live.version)
                        indices = await apply_from(
                            live.next_index,
                            projection,
                            self._transaction(connection, each.log, live),
                            to_index=min(to_index, live.next_index + self._batch_max),
                            read=read,
                        )
                    at = indices.stop

    async def progress(self) -> list[Progress]:
        """
        Return how far each projection of each log is (`lag_entries`).
        """
        async with connect(self._dsn) as connection:
            return await self._progress(connection)

    async def _progress(self, connection: Connection) -> list[Progress]:
        return await cursors.read_progress(connection, self._projections)

    async def _round(self, connection: Connection, stop: asyncio.Event) -> _Round:
        """Apply one batch to each generation that is behind."""
        done, read = _Round(), SharedEntries()
        progress = await self._progress(connection)
        for log_id, of_log in groupby(progress, key=lambda each: each.log.log_id):
            behind: list[Progress] = []
            for each in of_log:
                projection = self._projections[each.projection]
                if stop.is_set():
                    return done
                if each.generation is None:
                    await ensure(connection, projection, each.log)
                elif each.version != projection.version:
                    continue
                if each.lag_entries:
                    behind.append(each)
            if not behind:
                continue
            is_near = log_id not in self.too_old_for and all(each.lag_entries <= self._batch_max for each in behind)
            if is_near and await self._apply_together(connection, behind, read, done):
                continue
            for each in behind:
                if stop.is_set():
                    return done
                await self._apply_alone(connection, each, read, done)
        return done

    async def _apply_together(
        self, connection: Connection, behind: Sequence[Progress], read: SharedEntries, done: _Round
    ) -> bool:
        """Apply one batch of a log to several projections in one transaction; return False if one of them fails."""
        try:
            await self._advance(connection, behind, read, done)
        except (psycopg.Error, LedgerError, ProjectionError):
            if connection.closed:
                raise
            return False  # whatever it is, it is met again by the projection that fails, alone
        return True

    async def _apply_alone(self, connection: Connection, each: Progress, read: SharedEntries, done: _Round) -> None:
        """Apply one batch of a log to one projection, unless the log needs a newer version."""
        try:
            await self._advance(connection, [each], read, done)
        except UnknownControlError as error:
            if each.log.log_id not in self.too_old_for:
                _log.warning("the projections of %s wait for a newer version: %s", each.log.origin, error)
            self.too_old_for[each.log.log_id] = str(error)

    async def _advance(
        self, connection: Connection, behind: Sequence[Progress], read: SharedEntries, done: _Round
    ) -> None:
        """Apply one batch to the live generations of a log in one transaction, but for those that others hold."""
        applied: list[tuple[Progress, int]] = []
        moves: dict[int, dict[str, int]] = {}
        is_durable = False
        async with connection.transaction():
            parts = SharedParts()
            held = await cursors.try_hold_live(connection, [each.projection for each in behind], behind[0].log.log_id)
            for each in behind:
                live, projection = held.get(each.projection), self._projections[each.projection]
                # Held by another process, which does the work; or another version was switched to since we looked.
                if live is not None and live.version == projection.version:
                    transaction = self._transaction(connection, each.log, live)
                    indices = await apply_unmoved(
                        live.next_index,
                        projection,
                        transaction,
                        to_index=min(each.size, live.next_index + self._batch_max),
                        read=read,
                        read_parts_of=parts,
                    )
                    applied.append((each, len(indices)))
                    if indices:
                        moves.setdefault(indices.stop, {})[each.projection] = live.generation
                        done.awaited |= read.holds(AWAITED)
                        is_durable |= read.holds(DURABLE)
            for next_index, generations in moves.items():
                await cursors.move_together(connection, behind[0].log.log_id, generations, next_index=next_index)
            if is_durable:
                await connection.execute("SET LOCAL synchronous_commit = on")
        for each, entries in applied:
            done.applied += entries
            done.backlog |= 0 < entries < each.lag_entries
            self._on_applied(each.projection, entries)

    def _transaction(self, connection: Connection, log: Log, live: Live) -> Transaction:
        return Transaction(connection=connection, log=log, generation=live.generation, opener=self._opener)


@dataclass(slots=True)
class _Round:
    """What one round did."""

    applied: int = 0
    """How many entries, each counted once for each projection."""
    backlog: bool = False
    """Whether a generation that it applied to is still behind the log's end at its beginning."""
    awaited: bool = False
    """Whether some of the entries are `AWAITED`."""


def _stale(projection: Projection, log: Log, version: int) -> StaleGenerationError:
    return StaleGenerationError(
        f"projection {projection.name} of {log.origin}: expected a live generation of version {projection.version}, "
        f"found {version}: replace it"
    )


async def ensure(connection: Connection, projection: Projection, log: Log) -> None:
    """
    Create the first, empty generation of a log's projection and make it live, unless there is a live one.
    """
    async with connection.transaction():
        if await cursors.read_live(connection, projection.name, log.log_id) is not None:
            return
        # The insert waits for another process that creates the same generation; then nothing is left to do.
        if await cursors.insert(connection, projection.name, log.log_id, FIRST_GENERATION, version=projection.version):
            await projection.prepare(Transaction(connection=connection, log=log, generation=FIRST_GENERATION))
            await cursors.insert_live(connection, projection.name, log.log_id, FIRST_GENERATION)


@asynccontextmanager
async def connect(dsn: str) -> AsyncIterator[Connection]:
    """
    Yield a connection for writing projections, in autocommit mode; an idle transaction ends by timeout.
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
