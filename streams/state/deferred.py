"""
Deferred messages: entries that a cursor has passed, and whose handler has yet to ask a host that others run.

Each waits for its host, apart from the log it is of. A host is asked under a lease, by one at a time. One that does not
answer is left alone for a while, longer each time, and so is the message it was asked for, so that the next attempt is
made for another. A message becomes a dead letter, in the transaction that removes it here,

- when it was tried in vain `ATTEMPTS_MAX` times itself: the host answers, but not to this; or
- when its host has not answered `ATTEMPTS_MAX` times in a row, whatever it was asked for, all of them while the message
  waited.

So whatever is deferred is handled, or is a dead letter, and never both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ledger.store.queries import load_queries
from ledger.store.read import Log, read_entries
from ledger.store.session import Connection
from projections.entries import LogEntry, storable
from streams.errors import StreamError
from streams.handler import DeadLetter, Deferred, Message
from streams.state import dead_letters
from streams.state.cursors import read_message
from streams.state.leases import LeaseLostError, handler_duty, renewed

ATTEMPTS_MAX: Final = 8
PAUSE_S: Final = 2.0
"""The pause after a first failure …"""
PAUSE_GROWTH: Final = 4
"""… which grows by this with each further one in a row …"""
PAUSE_S_MAX: Final = 1_800.0
"""… up to this. All together are 71 minutes: a store that is away for an hour makes no dead letter."""
REASON_LENGTH_MAX: Final = 500
HOST_LENGTH_MAX: Final = 255

_QUERIES: Final = load_queries("streams", "deferred.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLease:
    """The right to ask `host` what messages of a log make a handler ask."""

    log_id: int
    handler: str
    host: str
    lease: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProgress:
    """How many messages wait for a host, and how often in a row it did not answer, with the last reason."""

    handler: str
    log: Log
    host: str
    messages: int
    failures: int
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredCount:
    """How many messages of a log a handler has deferred."""

    handler: str
    log: Log
    messages: int
    failures: int


async def put(connection: Connection, log_id: int, handler: str, deferred: Sequence[Deferred]) -> None:
    """
    Store messages that wait for hosts, within the open transaction that moves the handler's cursor past them.

    Raises:
        StreamError: if one is no entry of a log: whoever delivered it must deliver it again.
    """
    if not deferred:
        return
    indices: list[int] = []
    for each in deferred:
        if not isinstance(each.message.value, LogEntry):
            raise StreamError(f"message {each.message.id}: expected an entry of a log, which alone can be deferred")
        indices.append(each.message.value.entry.index)
    hosts = [storable(each.host)[:HOST_LENGTH_MAX] for each in deferred]
    which = {"log_id": log_id, "handler": handler, "hosts": hosts}
    await connection.execute(_QUERIES["put_hosts"], which)
    await connection.execute(_QUERIES["put"], {**which, "indices": indices})


async def claim(
    connection: Connection,
    handlers: Sequence[str],
    *,
    is_quick: bool,
    of_log_max: int,
    lease_s: float,
    log_id: int | None = None,
) -> HostLease | None:
    """
    Lease a host for which a message is due, among those that answered soon or the others; None if there is none.
    """
    which = {
        "handlers": list(handlers),
        "is_quick": is_quick,
        "of_log_max": of_log_max,
        "lease_s": lease_s,
        "log_id": log_id,
    }
    row = await (await connection.execute(_QUERIES["claim"], which)).fetchone()
    return None if row is None else HostLease(log_id=row[0], handler=row[1], host=row[2], lease=row[3])


async def read_next(connection: Connection, lease: HostLease) -> Message | None:
    """
    Return the next message that is due for the leased host, None if there is none.

    Raises:
        FormatError: if its entry is not an entry, or a known event lacks a member: that is corruption.
        BrokenError: if its entry is missing.
    """
    row = await (await connection.execute(_QUERIES["next"], _which(lease))).fetchone()
    if row is None:
        return None
    index, origin, tenant, reader = row
    log = Log(log_id=lease.log_id, origin=origin, tenant=tenant, reader=reader)
    (entry,) = await read_entries(connection, lease.log_id, from_index=index, to_index=index + 1)
    return read_message(log, entry)


async def handled(
    connection: Connection, lease: HostLease, message: Message, *, is_quick: bool, hold_s: float | None
) -> None:
    """
    Remove a message for which the host has answered, in the open transaction that stores what that led to.

    The lease is kept for another `hold_s`, or given back (None).

    Raises:
        LeaseLostError: if another has taken over; the transaction must be undone.
    """
    answered = {**_which(lease), "is_quick": is_quick, "hold_s": hold_s}
    if await (await connection.execute(_QUERIES["answered"], answered)).fetchone() is None:
        raise _lost(lease)
    if await (await connection.execute(_QUERIES["remove"], _entry(lease, message))).fetchone() is None:
        raise LeaseLostError(f"message {message.id}: another has handled it")


async def missed(connection: Connection, lease: HostLease, message: Message, reason: str) -> int:
    """
    Store, in a transaction, that the host did not answer when it was asked for `message`; give the lease back.

    Returns how many messages became dead letters.

    Raises:
        LeaseLostError: if another has taken over; nothing is stored.
    """
    reason = storable(reason)[:REASON_LENGTH_MAX]
    pauses = {"pause_s": PAUSE_S, "pause_s_max": PAUSE_S_MAX, "pause_growth": PAUSE_GROWTH}
    async with connection.transaction():
        told = {**_which(lease), **pauses, "reason": reason}
        host = await (await connection.execute(_QUERIES["missed"], told)).fetchone()
        if host is None:
            raise _lost(lease)
        tried = await connection.execute(_QUERIES["postpone"], {**_entry(lease, message), **pauses})
        row = await tried.fetchone()
        if row is None:
            raise LeaseLostError(f"message {message.id}: another has handled it")
        dead = 0
        if row[0] >= ATTEMPTS_MAX:
            await connection.execute(_QUERIES["remove"], _entry(lease, message))
            letter = DeadLetter(message=message, reason=f"tried {row[0]} times: {reason}", attempts=row[0])
            await dead_letters.put(connection, handler_duty(lease.handler), [letter])
            dead += 1
        if host[0] >= ATTEMPTS_MAX:
            why = f"{lease.host} has not answered {host[0]} times in a row, at last: {reason}"
            buried = {**_which(lease), "reason": why, "attempts": host[0]}
            dead += (await connection.execute(_QUERIES["bury"], buried)).rowcount
            await connection.execute(_QUERIES["begin_anew"], _which(lease))
        return dead


@asynccontextmanager
async def kept(connection: Connection, lease: HostLease, *, lease_s: float) -> AsyncIterator[None]:
    """
    Keep `lease` from running out while the context is open; nothing else may use `connection` meanwhile.

    One that was lost all the same is noticed when something is stored under it.
    """
    async with renewed(connection, _QUERIES["renew"], _which(lease), lease_s=lease_s):
        yield


async def drop(connection: Connection, lease: HostLease, *, pause_s: float) -> None:
    """
    Give the lease back with nothing learned about the host; it is asked again after a pause.
    """
    await connection.execute(_QUERIES["drop"], {**_which(lease), "pause_s": pause_s})


async def read_hosts(connection: Connection) -> list[HostProgress]:
    """
    Return the hosts that messages wait for, or that do not answer, as far as the connection's role may see.
    """
    rows = await connection.execute(_QUERIES["hosts"])
    return [
        HostProgress(
            handler=handler,
            log=Log(log_id=log_id, origin=origin, tenant=tenant, reader=reader),
            host=host,
            messages=messages,
            failures=failures,
            reason=reason,
        )
        for handler, log_id, origin, tenant, reader, host, messages, failures, reason in await rows.fetchall()
    ]


async def count_deferred(connection: Connection) -> list[DeferredCount]:
    """
    Return how many messages wait for hosts, by handler and log, as far as the connection's role may see.
    """
    rows = await connection.execute(_QUERIES["counts"])
    return [
        DeferredCount(
            handler=handler,
            log=Log(log_id=log_id, origin=origin, tenant=tenant, reader=reader),
            messages=messages,
            failures=failures,
        )
        for handler, log_id, origin, tenant, reader, messages, failures in await rows.fetchall()
    ]


def _which(lease: HostLease) -> dict[str, object]:
    return {"log_id": lease.log_id, "handler": lease.handler, "host": lease.host, "lease": lease.lease}


def _entry(lease: HostLease, message: Message) -> dict[str, object]:
    if not isinstance(message.value, LogEntry):
        raise StreamError(f"message {message.id}: expected an entry of a log, which alone can be deferred")
    return {"log_id": lease.log_id, "handler": lease.handler, "index": message.value.entry.index}


def _lost(lease: HostLease) -> LeaseLostError:
    return LeaseLostError(f"{lease.handler} at {lease.host} for log {lease.log_id}: another has taken over")
