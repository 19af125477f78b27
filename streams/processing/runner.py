# SPDX-License-Identifier: Apache-2.0
"""
The PostgreSQL runner: the logs themselves are the source; every handler passes every log, in order.

Read `_turn` and `_handle`: a lease on one handler and log; the next messages; their groups, appended to the log first
(`execution.py`); then outbox, dead letters, cursor and lease in ONE transaction. A crash is either before or after that
transaction. If it is before, the same messages are handled again, and their groups are in the log already, under ids
that derive from them. So nothing is lost or duplicated, however many workers and processes run, and whoever takes over.

A handler that contacts hosts of tenants is not called for such messages here: they are deferred in the same transaction
and handled apart (`deferred_runner.py`), so that no host holds up a log or a worker.

A worker waits for a notification and polls every second as well; it polls at most every 250 ms while it finds nothing.
After a lost connection it reconnects with back-off; corruption ends `run`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import psycopg

from ledger.store.notifications import WakeUp, wait_for_any
from ledger.store.session import Connection, Outage
from streams.connections import PACE_S, PAUSE_S, POLL_S, connect_following, connect_reading, pass_on
from streams.errors import StreamError, TransientError
from streams.execution import HANDLE_TIMEOUT_S, BatchOutcome, HandledBatch, handle_batch
from streams.handler import Append, DeferringHandler, Handler, HostHandler
from streams.processing.deferred_runner import QUICK_S, DeferredRunner
from streams.state import cursors, dead_letters, deferred, leases, outbox
from streams.state.cursors import EntryBatch, HandlerProgress, Position
from streams.state.leases import LEASE_S, Lease, LeaseLostError, handler_duty

BATCH_MESSAGES_MAX: Final = 1_000
"""Handled at a time: enough to amortise two transactions, few enough to fit in memory (64 KiB each) and end soon."""
BATCHES_IN_A_ROW: Final = 8
"""Batches per lease, each read while the one before is appended; then other handlers and logs have their turn."""

_log = logging.getLogger(__name__)


class HandlerRunner:
    """
    Gives the entries of all tenants' logs to `handlers`, whose names differ; `dsn` works as the streams' role.

    `on_batch` is called for each batch once it is stored, `on_outbox` when messages were put into the outbox.

    No lock is needed: all fields are set once, by `__init__`. `_outage` is shared by the workers, which are tasks of
    one event loop, and touched only between awaits. Each worker has connections of its own (`_Session`). Between
    processes, leases decide who works on what (`state/leases.py`).
    """

    def __init__(
        self,
        dsn: str,
        handlers: Sequence[Handler],
        append: Append,
        *,
        workers: int = 1,
        batch_max: int = BATCH_MESSAGES_MAX,
        poll_s: float = POLL_S,
        lease_s: float = LEASE_S,
        handle_timeout_s: float = HANDLE_TIMEOUT_S,
        quick_s: float = QUICK_S,
        on_batch: Callable[[HandledBatch], None] = lambda _: None,
        on_outbox: Callable[[], None] = lambda: None,
    ) -> None:
        self._dsn = dsn
        self._given = tuple(handlers)
        self._handlers: dict[str, Handler] = {
            handler_duty(handler.name): DeferringHandler(handler) if isinstance(handler, HostHandler) else handler
            for handler in handlers
        }
        if len(self._handlers) != len(handlers):
            raise StreamError(f"handlers: expected names that differ, found {[handler.name for handler in handlers]}")
        self._append = append
        self._workers = workers
        self._batch_max = batch_max
        self._poll_s = poll_s
        self._lease_s = lease_s
        self._handle_timeout_s = handle_timeout_s
        self._on_batch = on_batch
        self._on_outbox = on_outbox
        self._outage = Outage("streams", _log)
        asking = [handler for handler in handlers if isinstance(handler, HostHandler)]
        self._asking = (
            DeferredRunner(
                dsn,
                asking,
                append,
                quick_s=quick_s,
                poll_s=poll_s,
                lease_s=lease_s,
                on_batch=on_batch,
                on_outbox=on_outbox,
            )
            if asking
            else None
        )

    @property
    def handlers(self) -> Sequence[Handler]:
        """The handlers, in the order in which they were given."""
        return self._given

    async def run(self, stop: asyncio.Event, wake: WakeUp | None = None) -> None:
        """
        Handle what comes until `stop` is set; batches that have begun are finished.

        What the database refuses for want of a right, a table or a primary server is logged, and tried again
        (`ledger.store.session`).

        Raises:
            FormatError, BrokenError: if a log is corrupt.
            psycopg.Error: if a statement is wrong in itself.
        """
        bells = [asyncio.Event() for _ in range(self._workers)]
        async with asyncio.TaskGroup() as tasks:
            ringing = tasks.create_task(pass_on(wake, bells)) if wake is not None else None
            workers = [tasks.create_task(self._work(stop, bell)) for bell in bells]
            if self._asking is not None:
                workers.append(tasks.create_task(self._asking.run(stop)))
            await asyncio.wait(workers)
            if ringing is not None:
                ringing.cancel()

    async def catch_up(self, log_id: int, to_index: int) -> None:
        """
        Handle the entries of one log below `to_index` with every handler, waiting for others that do.

        What leads to hosts is tried once; if a host does not answer, that stays, to be tried again later.

        Raises:
            StreamError: if there is no such log of a tenant, or it has fewer entries.
            psycopg.OperationalError: if a connection is lost.
            FormatError, BrokenError: if the log is corrupt.
        """
        async with self._session() as session:
            while True:
                await cursors.refresh(session.storing, self.handlers, log_id=log_id)
                progress = await cursors.read_progress(session.storing, [handler.name for handler in self.handlers])
                of_log = [each for each in progress if each.log.log_id == log_id]
                if self._handlers and (not of_log or of_log[0].size < to_index):
                    raise StreamError(f"log {log_id}: expected a tenant's log of {to_index} or more entries")
                if all(each.next_index >= to_index for each in of_log):
                    break
                if not await self._turn(session, log_id=log_id):
                    await asyncio.sleep(PAUSE_S)  # put off, or another is at work there
        if self._asking is not None:
            await self._asking.drain(log_id)

    async def progress(self) -> list[HandlerProgress]:
        """
        Return how far each handler is in each log (`lag_entries`).
        """
        async with connect_reading(self._dsn) as connection:
            return await cursors.read_progress(connection, [handler.name for handler in self.handlers])

    async def _work(self, stop: asyncio.Event, wake: asyncio.Event) -> None:
        """Take turns until `stop` is set, over as many connections as it takes."""
        while not stop.is_set():
            try:
                async with self._session() as session:
                    await self._take_turns(session, stop, wake)
            except psycopg.Error as error:
                # What was begun is undone as a whole; its lease runs out, or is taken back by its next holder.
                self._outage.failed(error)
                await wait_for_any(stop, None, timeout_s=self._outage.pause_s)

    async def _take_turns(self, session: _Session, stop: asyncio.Event, wake: asyncio.Event) -> None:
        clock = asyncio.get_running_loop().time
        tended_s = -self._poll_s
        while not stop.is_set():
            wake.clear()  # before the query: what is appended from here on rings again
            if clock() >= tended_s + self._poll_s:
                await cursors.refresh(session.storing, self.handlers)
                tended_s = clock()
            is_busy = await self._turn(session)
            self._outage.recovered()
            if is_busy:
                continue
            await wait_for_any(stop, None, timeout_s=min(PACE_S, self._poll_s))
            await wait_for_any(stop, wake, timeout_s=self._poll_s)

    async def _turn(self, session: _Session, *, log_id: int | None = None) -> bool:
        """Handle some batches of whatever has waited longest; return False if there was nothing to do."""
        lease = await cursors.claim(session.storing, self.handlers, log_id=log_id, lease_s=self._lease_s)
        if lease is None:
            return False
        try:
            place = await cursors.read_position(session.ahead, self._handlers[lease.duty].name, lease.log_id)
            batch: EntryBatch | None = await self._read(session, lease, place)
            for left in reversed(range(BATCHES_IN_A_ROW)):
                if batch is not None:
                    batch = await self._handle(session, lease, batch, left=left)
        except TransientError as error:
            _log.info("%s is put off in log %s, after %d others: %s", lease.duty, lease.log_id, lease.failures, error)
            await leases.put_off(session.storing, lease)
        except LeaseLostError as error:
            _log.info("nothing is stored: %s", error)
            await leases.drop(session.storing, lease)
        return True

    async def _handle(self, session: _Session, lease: Lease, batch: EntryBatch, *, left: int) -> EntryBatch | None:
        """
        Carry one batch out and store it; return the next one, read meanwhile, if the lease is kept for it.
        """
        handler = self._handlers[lease.duty]
        async with leases.kept(session.storing, lease, lease_s=self._lease_s):
            reading = asyncio.create_task(self._read(session, lease, batch.following if left else None))
            try:
                outcome = await handle_batch(
                    handler, batch.messages, session.reading, self._append, timeout_s=self._handle_timeout_s
                )
            except BaseException:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                raise
            following = await reading
        async with session.storing.transaction():
            if following is None:
                await leases.release(session.storing, lease)
            else:
                await leases.hold(session.storing, lease, lease_s=self._lease_s)
            await outbox.put(session.storing, lease.log_id, outcome.outbox)
            await dead_letters.put(session.storing, lease.duty, outcome.dead)
            await deferred.put(session.storing, lease.log_id, handler.name, outcome.deferred)
            await cursors.move(session.storing, handler.name, batch)
        self._tell(handler, batch, outcome)
        return following

    async def _read(self, session: _Session, lease: Lease, place: Position | None) -> EntryBatch | None:
        if place is None:
            return None
        return await cursors.read_batch(session.ahead, self._handlers[lease.duty], place, batch_max=self._batch_max)

    def _tell(self, handler: Handler, batch: EntryBatch, outcome: BatchOutcome) -> None:
        if not batch.messages:
            return
        if outcome.outbox:
            self._on_outbox()
        if outcome.deferred and self._asking is not None:
            self._asking.ring()
        counts = {"groups": outcome.groups, "outbox": len(outcome.outbox), "dead": len(outcome.dead)}
        self._on_batch(
            HandledBatch(handler=handler.name, messages=len(batch.messages) - len(outcome.deferred), **counts)
        )

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[_Session]:
        async with (
            connect_reading(self._dsn) as reading,
            connect_reading(self._dsn) as ahead,
            connect_following(self._dsn) as storing,
        ):
            yield _Session(reading=reading, ahead=ahead, storing=storing)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """
    The connections of one worker, used by its task alone: while a handler reads on `reading`, the next batch is read on
    `ahead`, and the lease is renewed on `storing`.
    """

    reading: Connection
    ahead: Connection
    storing: Connection
