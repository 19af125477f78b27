# SPDX-License-Identifier: Apache-2.0
"""
Handles deferred messages (`state/deferred.py`), which need a third-party host, with few tasks and apart from the logs.

Hosts that answered quickly the last time have tasks of their own; hosts that are new, slow or do not answer share other
tasks. So a host must answer before it is served together with those that do, and one that stops answering is among them
once. Each tenant has at most one task of either kind, and the host that was served least recently comes next: whatever
hosts a tenant names, and however many, the messages of other tenants wait for a few answers at most, and the logs not
at all.

The groups of a message are in the log before the message is removed, as for any batch (`execution.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import psycopg

from ledger.store.notifications import wait_for_any
from ledger.store.session import Connection, Outage
from streams.connections import PAUSE_S, POLL_S, connect_following, connect_reading
from streams.errors import TransientError, UnansweredError
from streams.execution import BatchOutcome, HandledBatch, handle_batch
from streams.handler import Append, HostHandler, Message
from streams.state import dead_letters, deferred, outbox
from streams.state.deferred import HostLease
from streams.state.leases import LEASE_S, LeaseLostError, handler_duty

QUICK_MAX: Final = 2
"""Hosts that are contacted at a time, of the quick ones …"""
SLOW_MAX: Final = 2
"""… and of the others."""
OF_LOG_MAX: Final = 1
"""Of either kind, for messages of one log."""
QUICK_S: Final = 5.0
"""A host is quick if a message, from request to stored effects, takes at most this, on a busy machine."""
TURN_S: Final = 2.0
"""A host is served for this time, message by message; then others have their turn."""
ASK_TIMEOUT_S: Final = 60.0
"""If a handler takes longer for one message, its host counts as not answering."""
NOT_NOW_S: Final = 1.0
"""The pause if something other than the host is unavailable: the log, or a read model."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """The tasks for the quick hosts, or for the others."""

    is_quick: bool
    size: int
    bell: asyncio.Event


class DeferredRunner:
    """
    Passes deferred messages to `handlers`; `dsn` works as the streams' role.

    `on_batch` is called for each message once it is stored, `on_outbox` when messages were put into the outbox.

    No lock is needed: all fields are set once, by `__init__`. `ring` must be called on the event loop of `run`. Each
    task has connections of its own; between tasks and processes, the leases of hosts decide.
    """

    def __init__(
        self,
        dsn: str,
        handlers: Sequence[HostHandler],
        append: Append,
        *,
        quick_max: int = QUICK_MAX,
        slow_max: int = SLOW_MAX,
        quick_s: float = QUICK_S,
        poll_s: float = POLL_S,
        lease_s: float = LEASE_S,
        on_batch: Callable[[HandledBatch], None] = lambda _: None,
        on_outbox: Callable[[], None] = lambda: None,
    ) -> None:
        self._dsn = dsn
        self._handlers = {handler.name: handler for handler in handlers}
        self._append = append
        self._pools = (
            _Pool(is_quick=True, size=quick_max, bell=asyncio.Event()),
            _Pool(is_quick=False, size=slow_max, bell=asyncio.Event()),
        )
        self._quick_s = quick_s
        self._poll_s = poll_s
        self._lease_s = lease_s
        self._on_batch = on_batch
        self._on_outbox = on_outbox

    def ring(self) -> None:
        """Wake the tasks: messages were deferred."""
        for pool in self._pools:
            pool.bell.set()

    async def run(self, stop: asyncio.Event) -> None:
        """
        Handle deferred messages until `stop` is set. A request in progress is abandoned: its message is tried again.

        Raises:
            FormatError, BrokenError: if a log is corrupt.
            psycopg.Error: if a statement is wrong in itself.
        """
        async with asyncio.TaskGroup() as tasks:
            for pool in self._pools:
                tasks.create_task(self._serve(pool, stop))

    async def drain(self, log_id: int) -> None:
        """
        Handle the due messages of one log, one by one; those without an answer stay and are tried again later.

        Raises:
            psycopg.OperationalError: if a connection is lost.
            FormatError, BrokenError: if the log is corrupt.
        """
        stop = asyncio.Event()
        async with connect_following(self._dsn) as claiming:
            is_busy = True
            while is_busy:
                is_busy = False
                for pool in self._pools:
                    while (lease := await self._claim(claiming, pool, log_id=log_id)) is not None:
                        is_busy = True
                        await self._ask(lease, stop)

    async def _serve(self, pool: _Pool, stop: asyncio.Event) -> None:
        """Ask the hosts of one kind until `stop` is set, over as many connections as it takes."""
        outage = Outage(f"streams, {'quick' if pool.is_quick else 'slow'} hosts", _log)
        while not stop.is_set():
            try:
                async with connect_following(self._dsn) as claiming, asyncio.TaskGroup() as tasks:
                    await self._hand_out(pool, claiming, tasks, stop, outage)
            except* psycopg.Error as group:
                # What was begun is undone as a whole; its lease runs out.
                outage.failed(_first(group))
                await wait_for_any(stop, None, timeout_s=outage.pause_s)

    async def _hand_out(
        self, pool: _Pool, claiming: Connection, tasks: asyncio.TaskGroup, stop: asyncio.Event, outage: Outage
    ) -> None:
        running: set[asyncio.Task[None]] = set()
        while not stop.is_set():
            pool.bell.clear()  # before the query: what is deferred from here on rings again
            while len(running) < pool.size and (lease := await self._claim(claiming, pool)) is not None:
                task = tasks.create_task(self._ask(lease, stop))
                running.add(task)
                task.add_done_callback(running.discard)
                task.add_done_callback(lambda _: pool.bell.set())
            outage.recovered()
            await wait_for_any(stop, None, timeout_s=min(PAUSE_S, self._poll_s))
            await wait_for_any(stop, pool.bell, timeout_s=self._poll_s)

    async def _claim(self, connection: Connection, pool: _Pool, *, log_id: int | None = None) -> HostLease | None:
        return await deferred.claim(
            connection,
            list(self._handlers),
            is_quick=pool.is_quick,
            of_log_max=OF_LOG_MAX,
            lease_s=self._lease_s,
            log_id=log_id,
        )

    async def _ask(self, lease: HostLease, stop: asyncio.Event) -> None:
        """Handle messages for one host until it fails to answer, none is left, or its time is over."""
        clock = asyncio.get_running_loop().time
        ends_s = clock() + TURN_S
        async with connect_reading(self._dsn) as reading, connect_following(self._dsn) as storing:
            try:
                while (message := await deferred.read_next(reading, lease)) is not None and not stop.is_set():
                    begun_s = clock()
                    async with deferred.kept(storing, lease, lease_s=self._lease_s):
                        outcome = await self._handle(lease, message, reading, stop)
                    if outcome is None:
                        break
                    is_quick, is_over = clock() - begun_s <= self._quick_s, clock() >= ends_s
                    hold_s = None if is_over else self._lease_s
                    await self._store(storing, lease, message, outcome, is_quick=is_quick, hold_s=hold_s)
                    if is_over:
                        return
                await deferred.drop(storing, lease, pause_s=0)
            except _MissedError as error:
                dead = await deferred.missed(storing, lease, error.message, str(error))
                _log.info("%s did not answer %s of log %s: %s", lease.host, lease.handler, lease.log_id, error)
                if dead:
                    self._on_batch(HandledBatch(handler=lease.handler, messages=0, groups=0, outbox=0, dead=dead))
            except LeaseLostError as error:
                _log.info("nothing is stored: %s", error)
            except TransientError as error:
                _log.info("%s is put off at %s for log %s: %s", lease.handler, lease.host, lease.log_id, error)
                await deferred.drop(storing, lease, pause_s=NOT_NOW_S)

    async def _handle(
        self, lease: HostLease, message: Message, reading: Connection, stop: asyncio.Event
    ) -> BatchOutcome | None:
        """Return what a message leads to; None if `stop` is set before that is known."""
        handler = self._handlers[lease.handler]
        handling = asyncio.create_task(
            handle_batch(handler, [message], reading, self._append, timeout_s=ASK_TIMEOUT_S), name=f"ask {lease.host}"
        )
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({handling, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return handling.result() if handling.done() else None
        except UnansweredError as error:
            raise _MissedError(message, error) from error
        finally:
            for task in (handling, stopping):
                task.cancel()
            await asyncio.gather(handling, stopping, return_exceptions=True)

    async def _store(
        self,
        storing: Connection,
        lease: HostLease,
        message: Message,
        outcome: BatchOutcome,
        *,
        is_quick: bool,
        hold_s: float | None,
    ) -> None:
        async with storing.transaction():
            await deferred.handled(storing, lease, message, is_quick=is_quick, hold_s=hold_s)
            await outbox.put(storing, lease.log_id, outcome.outbox)
            await dead_letters.put(storing, handler_duty(lease.handler), outcome.dead)
        if outcome.outbox:
            self._on_outbox()
        counts = {"groups": outcome.groups, "outbox": len(outcome.outbox), "dead": len(outcome.dead)}
        self._on_batch(HandledBatch(handler=lease.handler, messages=1, **counts))


class _MissedError(TransientError):
    """The host did not answer for `message`."""

    def __init__(self, message: Message, error: UnansweredError) -> None:
        super().__init__(str(error))
        self.message = message


def _first(group: BaseExceptionGroup[psycopg.Error]) -> psycopg.Error:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, psycopg.Error):
        raise error
    return error
