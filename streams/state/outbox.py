# SPDX-License-Identifier: Apache-2.0
"""
The outbox: messages to sinks, stored with the position that led to them, and removed once their sink has them.

Guarantee: a message is delivered at least once, under one id, and never before an earlier message of the same key. A
sink that is down delays no other sink; a message that a sink rejects becomes a dead letter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from ledger.store.queries import load_queries
from ledger.store.read import Log
from ledger.store.session import Connection
from streams.handler import OutboxMessage
from streams.state.leases import LEASE_S, Lease

PUT_OFF_S: Final = 0.5
"""The pause after a message's first attempt, unless its sink says how long; it doubles with each further one …"""
PUT_OFF_S_MAX: Final = 300.0
"""… up to this."""

_QUERIES: Final = load_queries("streams", "outbox.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMessage:
    """A message in the outbox of `log`, after `attempts` attempts."""

    message: OutboxMessage
    log: Log
    attempts: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """The sink has the message, durably as far as the sink can tell."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """It was not sent, or may not have arrived: send it again, after `after_s` if the sink asks for that."""

    reason: str
    after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """The sink will never accept it."""

    reason: str


SinkResult: TypeAlias = Delivered | RetryLater | Rejected


class Sink(Protocol):
    """A destination of messages; handlers refer to it by `name`; it gets at most `batch_max` messages at a time."""

    name: str
    batch_max: int

    async def send(self, messages: Sequence[QueuedMessage]) -> Sequence[SinkResult]:
        """
        Send messages of one log, in order; return a result for each.

        After a message that has to be retried, none of the same key is sent: it has to be retried as well.

        Raises:
            TransientError: if the sink is unavailable; all messages have to be sent again.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxBacklog:
    """The messages of a log for a sink: their number, the age of the oldest, and the most attempts of one."""

    sink: str
    log: Log
    messages: int
    age_s: float
    attempts: int


async def put(connection: Connection, log_id: int, messages: Sequence[OutboxMessage]) -> None:
    """
    Put messages of a log into the outbox, within the open transaction that stores the position.
    """
    if not messages:
        return
    sinks = [message.sink for message in messages]
    columns = {
        "sinks": sinks,
        "ids": [message.id for message in messages],
        "keys": [message.key for message in messages],
        "payloads": [message.payload for message in messages],
    }
    await connection.execute(_QUERIES["put"], {"log_id": log_id, **columns})
    await connection.execute(_QUERIES["ensure_leases"], {"log_id": log_id, "sinks": sorted(set(sinks))})


async def claim(connection: Connection, sink: str, *, lease_s: float = LEASE_S) -> Lease | None:
    """
    Lease `sink` on the log that has waited longest; return None if nothing is due.
    """
    row = await (await connection.execute(_QUERIES["claim"], {"sink": sink, "lease_s": lease_s})).fetchone()
    return None if row is None else Lease(duty=row[0], log_id=row[1], lease=row[2], failures=row[3])


async def read_due(connection: Connection, sink: str, log_id: int, *, limit: int) -> list[QueuedMessage]:
    """
    Return the next messages of a log for `sink`, in order.
    """
    bounds = {"sink": sink, "log_id": log_id, "limit": limit}
    rows = await connection.execute(_QUERIES["due"], bounds, binary=True)
    return [
        QueuedMessage(
            message=OutboxMessage(sink=sink, id=id_, key=key, payload=bytes(payload)),
            log=Log(log_id=log_id, origin=origin, tenant=tenant, reader=reader),
            attempts=attempts,
        )
        for id_, key, payload, attempts, origin, tenant, reader in await rows.fetchall()
    ]


async def remove(connection: Connection, sink: str, log_id: int, ids: Sequence[str]) -> None:
    """
    Remove messages that were delivered or became dead letters.
    """
    if ids:
        await connection.execute(_QUERIES["remove"], {"sink": sink, "log_id": log_id, "ids": ids})


async def postpone(connection: Connection, sink: str, log_id: int, afters_s: Mapping[str, float | None]) -> None:
    """
    Delay messages, each (by id) for the seconds given or, if None, for a time that grows with its attempts.
    """
    if afters_s:
        which = {"sink": sink, "log_id": log_id, "ids": list(afters_s), "afters": list(afters_s.values())}
        pause = {"pause_s": PUT_OFF_S, "pause_s_max": PUT_OFF_S_MAX}
        await connection.execute(_QUERIES["postpone"], {**which, **pause})


async def read_backlog(connection: Connection) -> list[OutboxBacklog]:
    """
    Return the backlog by log and sink, as far as the connection's role may see.
    """
    rows = await connection.execute(_QUERIES["waiting"])
    return [
        OutboxBacklog(
            sink=sink,
            log=Log(log_id=log_id, origin=origin, tenant=tenant, reader=reader),
            messages=messages,
            age_s=age_s,
            attempts=attempts,
        )
        for sink, log_id, origin, tenant, reader, messages, _, age_s, attempts in await rows.fetchall()
    ]
