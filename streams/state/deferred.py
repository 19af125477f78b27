# SPDX-License-Identifier: Apache-2.0
"""
Deferred messages: entries that a cursor has passed, and whose handler still needs an answer of a third-party host.

Each waits for its host, apart from its log. A host is contacted under a lease, by one task at a time. If it does not
answer, it is left alone for a while, longer each time; so is the message, so that the next attempt is for another one.
A message becomes a dead letter, in the transaction that removes it here,

- when it failed `ATTEMPTS_MAX` times itself: the host answers, but not for this message; or
- when its host failed to answer `ATTEMPTS_MAX` times in a row, for any message, all while this one waited.

So a deferred message is either handled or becomes a dead letter, and never both.
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
"""… up to this. The sum is 71 minutes: a store that is down for an hour causes no dead letter."""
REASON_LENGTH_MAX: Final = 500
HOST_LENGTH_MAX: Final = 255

_QUERIES: Final = load_queries("streams", "deferred.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLease:
    """The right to contact `host` for the deferred messages of a log and handler."""

    log_id: int
    handler: str
    host: str
    lease: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProgress:
    """How many messages wait for a host, and its failures in a row, with the last reason."""

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
        StreamError: if one is no entry of a log: its source has to deliver it again.
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
    Lease a host for which a message is due, among the quick or the other hosts; None if there is none.
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
        BrokenError: if its entry is missing, is not an entry, or is of a known event that lacks a member.
    """
    row = await (await connection.execute(_QUERIES["next"], _which(lease))).fetchone()
    if row is None:
        return None
    index, origin, tenant, reader = row
    log = Log(log_id=lease.log_id, origin=origin, tenant=tenant, reader=reader)
    (entry,) = await read_entries(connection, lease.log_id, from_index=index, to_index=index + 1)
    return read_message(log, index, entry)


async def handled(
    connection: Connection, lease: HostLease, message: Message, *, is_quick: bool, hold_s: float | None
) -> None:
    """
    Remove a message for which the host has answered, in the open transaction that stores its effects.

    The lease is extended by `hold_s`, or released (None).

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
    Store, in a transaction, that the host did not answer for `message`; release the lease.

    Returns how many messages became dead letters.

    Raises:
        LeaseLostError: if another has taken over; nothing is stored.
    """
    reason = storable(reason)[:REASON_LENGTH_MAX]
    pauses = {"pause_s": PAUSE_S, "pause_s_max": PAUSE_S_MAX, "pause_growth": PAUSE_GROWTH}
    async with connection.transaction():
        failure = {**_which(lease), **pauses, "reason": reason}
        host = await (await connection.execute(_QUERIES["missed"], failure)).fetchone()
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
    Renew `lease` while the context is open; nothing else may use `connection` meanwhile.

    If it is lost all the same, storing under it raises.
    """
    async with renewed(connection, _QUERIES["renew"], _which(lease), lease_s=lease_s):
        yield


async def drop(connection: Connection, lease: HostLease, *, pause_s: float) -> None:
    """
    Release the lease without a result about the host; it is contacted again after a pause.
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
