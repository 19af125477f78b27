# SPDX-License-Identifier: Apache-2.0
"""
The sender: delivers the outbox to its sinks, at least once, in order within a key.

Read `_turn`: a lease on one sink and log; the next messages; the sink's results; receipts of delivered messages are
appended to the log BEFORE the messages are removed. So after a crash a delivered message is recorded in the log, or
sent again under the same id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import psycopg

from ledger.errors import GroupMismatchError, LedgerError
from ledger.format.sequence import Group
from ledger.store.notifications import WakeUp, wait_for_any
from ledger.store.session import Connection, Outage
from streams.connections import PACE_S, POLL_S, connect_storing, pass_on
from streams.errors import StreamError, TransientError
from streams.execution import UNAVAILABLE
from streams.handler import Append
from streams.state import dead_letters, leases, outbox
from streams.state.leases import LEASE_S, Lease, LeaseLostError, sink_duty
from streams.state.outbox import Delivered, QueuedMessage, Rejected, RetryLater, Sink, SinkResult

SEND_TIMEOUT_S: Final = 300.0

_log = logging.getLogger(__name__)


class Receipt(Protocol):
    """Makes the log entry for a message that its sink accepted."""

    def __call__(self, taken: QueuedMessage, /) -> Group | None:
        """Return the group to append, with an id that derives from the message's; None to append nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBatch:
    """Counts of one batch of messages by result."""

    sink: str
    taken: int
    postponed: int
    refused: int


class Sender:
    """
    Sends the outbox to `sinks`; `dsn` works as the streams' role, `receipts` are by the sink's name.

    No lock is needed: all fields are set once, by `__init__`. Each sink has one task with a connection of its own;
    between processes, leases on sink and log decide.
    """

    def __init__(
        self,
        dsn: str,
        sinks: Sequence[Sink],
        append: Append,
        *,
        receipts: Mapping[str, Receipt] | None = None,
        poll_s: float = POLL_S,
        lease_s: float = LEASE_S,
        on_sent: Callable[[SentBatch], None] = lambda _: None,
    ) -> None:
        self._dsn = dsn
        self._sinks = {sink.name: sink for sink in sinks}
        if len(self._sinks) != len(sinks):
            raise StreamError(f"sinks: expected names that differ, found {[sink.name for sink in sinks]}")
        self._append = append
        self._receipts = receipts or {}
        self._poll_s = poll_s
        self._lease_s = lease_s
        self._on_sent = on_sent

    async def run(self, stop: asyncio.Event, wake: WakeUp | None = None) -> None:
        """
        Send messages until `stop` is set. A batch in progress is finished; an outage of the database is waited out.

        Raises:
            BrokenError: if a log is corrupt.
            psycopg.Error: if a statement is wrong in itself.
        """
        bells = [asyncio.Event() for _ in self._sinks]
        async with asyncio.TaskGroup() as tasks:
            ringing = tasks.create_task(pass_on(wake, bells)) if wake is not None else None
            # One task a sink: a slow one holds up no other.
            pairs = zip(self._sinks.values(), bells, strict=True)
            working = [tasks.create_task(self._work(sink, stop, bell)) for sink, bell in pairs]
            await asyncio.wait([*working, tasks.create_task(stop.wait())])
            if ringing is not None:
                ringing.cancel()

    async def drain(self) -> None:
        """
        Send what is due now, until nothing is that can be sent; what was put off stays.

        Raises:
            psycopg.OperationalError: if the connection is lost.
        """
        async with connect_storing(self._dsn) as connection:
            for sink in self._sinks.values():
                while await self._turn(connection, sink):
                    pass

    async def _work(self, sink: Sink, stop: asyncio.Event, wake: asyncio.Event) -> None:
        outage = Outage(f"outbox to {sink.name}", _log)
        while not stop.is_set():
            try:
                async with connect_storing(self._dsn) as connection:
                    while not stop.is_set():
                        wake.clear()  # before the query: what is put there from here on rings again
                        is_busy = await self._turn(connection, sink)
                        outage.recovered()
                        if is_busy:
                            continue
                        await wait_for_any(stop, None, timeout_s=min(PACE_S, self._poll_s))
                        await wait_for_any(stop, wake, timeout_s=self._poll_s)
            except psycopg.Error as error:
                outage.failed(error)
                await wait_for_any(stop, None, timeout_s=outage.pause_s)

    async def _turn(self, connection: Connection, sink: Sink) -> bool:
        """Send some messages of the log that has waited longest; return False if none was due."""
        lease = await outbox.claim(connection, sink.name, lease_s=self._lease_s)
        if lease is None:
            return False
        try:
            messages = await outbox.read_due(connection, sink.name, lease.log_id, limit=sink.batch_max)
            async with leases.kept(connection, lease, lease_s=self._lease_s):
                sorted_ = await self._send(sink, messages)
                await self._tell(sink, sorted_.taken)
            async with connection.transaction():
                await leases.release(connection, lease)
                await _store(connection, sink.name, lease, sorted_)
        except TransientError as error:
            _log.info("%s is put off in log %s: %s", lease.duty, lease.log_id, error)
            await leases.put_off(connection, lease)
        except LeaseLostError as error:
            _log.info("nothing is stored: %s", error)
        else:
            counts = {"taken": len(sorted_.taken), "postponed": len(sorted_.postponed), "refused": len(sorted_.refused)}
            self._on_sent(SentBatch(sink=sink.name, **counts))
        return True

    async def _send(self, sink: Sink, messages: Sequence[QueuedMessage]) -> _Sorted:
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                answers = await sink.send(messages) if messages else ()
        except TimeoutError as error:
            raise TransientError(f"sink {sink.name}: expected answers within {SEND_TIMEOUT_S:g} s") from error
        return _sort(messages, answers)

    async def _tell(self, sink: Sink, taken: Sequence[QueuedMessage]) -> None:
        """Append the receipts of delivered messages."""
        receipt = self._receipts.get(sink.name)
        if receipt is None:
            return
        for message in taken:
            group = receipt(message)
            try:
                if group is not None:
                    await self._append(message.log.log_id, group)
            except GroupMismatchError:
                # The log has a receipt of an earlier attempt, after which the row was not removed.
                continue
            except LedgerError as error:
                if isinstance(error, UNAVAILABLE):
                    raise TransientError(str(error)) from error
                raise


@dataclass(slots=True)
class _Sorted:
    """The messages of one batch by result; of each key, only the first one to be retried."""

    taken: list[QueuedMessage] = field(default_factory=list)
    postponed: dict[str, float | None] = field(default_factory=dict)
    refused: list[tuple[QueuedMessage, str]] = field(default_factory=list)


def _sort(messages: Sequence[QueuedMessage], answers: Sequence[SinkResult]) -> _Sorted:
    found = _Sorted()
    waiting: set[str] = set()
    for message, answer in zip(messages, answers, strict=True):
        match answer:
            case Delivered():
                found.taken.append(message)
            case Rejected(reason=reason):
                found.refused.append((message, reason))
            case RetryLater(after_s=after_s, reason=reason) if message.message.key not in waiting:
                waiting.add(message.message.key)
                found.postponed[message.message.id] = after_s
                _log.info("sink %s: message %s is put off: %s", message.message.sink, message.message.id, reason)
            case RetryLater():
                pass  # it waits for the message before it
    return found


async def _store(connection: Connection, sink: str, lease: Lease, found: _Sorted) -> None:
    """Remove what was delivered or is dead; delay what has to be retried."""
    gone = [each.message.id for each in (*found.taken, *(each for each, _ in found.refused))]
    await dead_letters.put_refused(connection, sink_duty(sink), found.refused)
    await outbox.remove(connection, sink, lease.log_id, gone)
    await outbox.postpone(connection, sink, lease.log_id, found.postponed)
