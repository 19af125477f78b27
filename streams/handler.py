# SPDX-License-Identifier: Apache-2.0
"""
What a handler is: a plain function from a batch of messages to effects. Pure; neither Kafka nor PostgreSQL.

A runner guarantees: the groups of a batch are in the log before its outbox messages, its dead letters and its position
are stored together. A batch may be handled again after any failure, so a handler derives the id of each group from its
content (`ledger.format.event.derived_group_id`): groups that are in the log already are not appended twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

from ledger.format.sequence import Appended, Group, Stale
from ledger.store.read import Log
from ledger.store.session import Connection
from projections.entries import LogEntry

Append = Callable[[int, Group], Awaitable[Appended | Stale]]
"""Appends a group to the log of that log_id, durably; raises `ledger.errors.LedgerError`."""

EVERY_TYPE: Final = frozenset({"*"})
"""The `types` of a handler of every entry, including types that this process does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """
    What a source delivers. `id` is unique in its source: `<origin>/<index>`, or `topic/partition/offset`.

    `log` is the log that it belongs to, and that its groups go to. `value` is an entry of that log, or the bytes sent.
    """

    id: str
    log: Log
    value: LogEntry | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMessage:
    """
    A message for `sink` ("kafka", "webhook"), delivered in order within one `key`. `payload` is JSON.

    `id` is unique in its log and sink, and stable: the same effect of the same message has the same id.
    """

    sink: str
    id: str
    key: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that cannot be handled, the reason, and the number of attempts."""

    message: Message
    reason: str
    attempts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferred:
    """An entry whose handler needs an answer of `host`, which a third party runs and which may not answer."""

    message: Message
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The effects of a batch; groups are appended in their order."""

    groups: tuple[Group, ...] = ()
    outbox: tuple[OutboxMessage, ...] = ()
    dead: tuple[DeadLetter, ...] = ()
    deferred: tuple[Deferred, ...] = ()


class Handler(Protocol):
    """Handles batches of messages; `name` never changes, since its position is stored under it."""

    name: str
    types: frozenset[str]
    """The types of events that it handles, or `EVERY_TYPE`; other sources than the log deliver everything."""

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
        """
        Return the effects of `batch`: messages of one log, in order. Nothing else may be changed.

        A batch must have the effects of its messages one by one: how messages are cut into batches varies. `reading`
        is read-only and works as the streams' role; no transaction is open on it.

        Raises:
            TransientError: if something is unavailable; the same messages are delivered again, after a pause.
            PoisonError: if one of the messages can never be handled. They are then delivered in smaller batches; one
                that raises alone becomes a dead letter.
        """


@runtime_checkable
class HostHandler(Handler, Protocol):
    """
    A handler that sends requests to hosts which tenants name. The runner defers such messages, host by host.

    `handle` then gets them one by one, apart from the log's order, and raises `UnansweredError` if the host does not
    answer. Later messages are handled while one waits: the effects must be right in any order.
    """

    async def hosts(self, batch: Sequence[Message], reading: Connection) -> Sequence[str | None]:
        """
        Return, for each message of `batch`, the host that handling it would contact; None if none.

        Raises:
            TransientError: as `handle`.
            PoisonError: as `handle`.
        """


class DeferringHandler:
    """Defers the messages of a `HostHandler` that need a host, and passes the others to it (implements `Handler`)."""

    def __init__(self, handler: HostHandler) -> None:
        self.name = handler.name
        self.types = handler.types
        self._handler = handler

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
        """
        Return what is deferred, and the effects of the messages that need no host.

        Raises:
            TransientError: as the handler.
            PoisonError: as the handler.
        """
        hosts = await self._handler.hosts(batch, reading)
        pairs = list(zip(batch, hosts, strict=True))
        deferred = tuple(Deferred(message=message, host=host) for message, host in pairs if host is not None)
        rest = [message for message, host in pairs if host is None]
        effects = await self._handler.handle(rest, reading) if rest else Effects()
        return replace(effects, deferred=deferred)
