"""
The outbox: what is to leave, stored with the position that led to it, and removed when its sink has taken it.

Guarantee: a message leaves at least once, under one id, and never before one of the same key that a handler put there
earlier. A sink that is away holds up nobody else; a message that it refuses for good goes to the dead letters.
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
    """A message on its way: of `log`, tried `attempts` times before."""

    message: OutboxMessage
    log: Log
    attempts: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """The sink has it, durably as far as the sink can say."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """It was not sent, or may not have arrived: it is to be sent again, after `after_s` if the sink says so."""

    reason: str
    after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """The sink will never take it."""

    reason: str


SinkResult: TypeAlias = Delivered | RetryLater | Rejected


class Sink(Protocol):
    """Where messages go; `name` is what handlers call it, `batch_max` how many it is given at a time."""

    name: str
    batch_max: int

    async def send(self, messages: Sequence[QueuedMessage]) -> Sequence[SinkResult]:
        """
        Send messages of one log, in order; return an answer for each.

        Behind one that is postponed none of the same key is sent: it is postponed as well.

        Raises:
            TransientError: if the sink is away altogether; all messages are to come again.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxBacklog:
    """What waits for a sink in a log: how many, for how long the oldest, and how often one was tried at most."""

    sink: str
    log: Log
    messages: int
    age_s: float
    attempts: int


async def put(connection: Connection, log_id: int, messages: Sequence[OutboxMessage]) -> None:
    """
    Put messages of a log into the outbox, within the open transaction that stores the position that led to them.
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
    Remove messages that were taken, or have gone to the dead letters.
    """
    if ids:
        await connection.execute(_QUERIES["remove"], {"sink": sink, "log_id": log_id, "ids": ids})


async def postpone(connection: Connection, sink: str, log_id: int, afters_s: Mapping[str, float | None]) -> None:
    """
    Put messages off, each (by id) for the seconds given, or, if None, longer the more often it was tried.
    """
    if afters_s:
        which = {"sink": sink, "log_id": log_id, "ids": list(afters_s), "afters": list(afters_s.values())}
        pause = {"pause_s": PUT_OFF_S, "pause_s_max": PUT_OFF_S_MAX}
        await connection.execute(_QUERIES["postpone"], {**which, **pause})


async def read_backlog(connection: Connection) -> list[OutboxBacklog]:
    """
    Return what waits, by log and sink, as far as the connection's role may see.
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
