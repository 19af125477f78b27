"""
Asking hosts for what deferred messages need of them (`deferred.py`): by few tasks of their own, beside the log's turns.

A host that answered soon when it was last asked is asked by some of them; one that is new, slow, or does not answer by
others. So a host has to answer before it is served beside those that do, and one that stops is among them once. Each
tenant has at most one of either kind, and the one that was served least recently comes next: whatever hosts a tenant
names, and however many, the others' messages are a few answers behind it at worst, and the logs' turns not at all.

What an answer leads to is in the log before the message is removed, as of any batch (`handling.py`).
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
"""Hosts that are asked at a time, of those that answered soon …"""
SLOW_MAX: Final = 2
"""… and of the others."""
OF_LOG_MAX: Final = 1
"""Of either, for messages of one log."""
QUICK_S: Final = 5.0
"""Soon: a message, from the question to what the answer led to, on a machine that has much else to do."""
TURN_S: Final = 2.0
"""So long a host is asked for one message after another; then others have their turn."""
ASK_TIMEOUT_S: Final = 60.0
"""A handler that takes longer for one message counts as one whose host did not answer."""
NOT_NOW_S: Final = 1.0
"""The pause where something else than the host is away: the log, or a read model."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """So many hosts are asked at a time, of those that are quick or the others."""

    is_quick: bool
    size: int
    bell: asyncio.Event


class DeferredRunner:
    """
    Has `handlers` handle what was deferred; `dsn` works as the streams' role.

    `on_batch` is told of each message once that is stored, `on_outbox` when messages were put into the outbox.
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
        """Have the hosts looked at now: messages were deferred."""
        for pool in self._pools:
            pool.bell.set()

    async def run(self, stop: asyncio.Event) -> None:
        """
        Ask until `stop` is set. A host that is being asked then is not waited for: its message comes again.

        Raises:
            FormatError, BrokenError: if a log is corrupt.
            psycopg.Error: if a statement is wrong in itself.
        """
        async with asyncio.TaskGroup() as tasks:
            for pool in self._pools:
                tasks.create_task(self._serve(pool, stop))

    async def drain(self, log_id: int) -> None:
        """
        Ask for whatever of one log is due now, one by one; what no host answered stays, to be tried again later.

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
        asked: set[asyncio.Task[None]] = set()
        while not stop.is_set():
            pool.bell.clear()  # before looking: what is deferred from here on rings again
            while len(asked) < pool.size and (lease := await self._claim(claiming, pool)) is not None:
                task = tasks.create_task(self._ask(lease, stop))
                asked.add(task)
                task.add_done_callback(asked.discard)
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
        """Handle messages for one host until it does not answer, none is left, or its turn is over."""
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
    """The host did not answer when it was asked for `message`."""

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
