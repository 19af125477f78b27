"""
What a handler is: a plain function from a batch of messages to effects. Pure shapes; neither Kafka nor PostgreSQL.

Guarantee a runner gives: the groups of a batch are in the log before its outbox messages, its dead letters and its
position are stored together. A batch may be handled again after any failure, so a handler derives the id of each group
from its content (`ledger.format.event.derived_group_id`): what is already in the log is then not appended twice.
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
"""The `types` of a handler that is given every entry, of types too that this process does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """
    What a source delivers. `id` is unique in its source: `<origin>/<index>`, or `topic/partition/offset`.

    `log` is the log it is of, and that its groups go to. `value` is an entry of that log, or the bytes that were sent.
    """

    id: str
    log: Log
    value: LogEntry | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMessage:
    """
    What is to leave: by `sink` ("kafka", "webhook"), in order within one `key`. `payload` is JSON.

    `id` is unique in its log and sink, and stable: the same effect of the same message has the same id.
    """

    sink: str
    id: str
    key: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that can never be handled, why, and how often it was tried."""

    message: Message
    reason: str
    attempts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferred:
    """An entry whose handler has yet to ask `host`, which others run, and which may not answer."""

    message: Message
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What handling a batch leads to; groups are appended in their order."""

    groups: tuple[Group, ...] = ()
    outbox: tuple[OutboxMessage, ...] = ()
    dead: tuple[DeadLetter, ...] = ()
    deferred: tuple[Deferred, ...] = ()


class Handler(Protocol):
    """Handles batches of messages; `name` is for ever (its position is stored under it)."""

    name: str
    types: frozenset[str]
    """The types of events that it is given, or `EVERY_TYPE`; from other sources than the log it is given everything."""

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
        """
        Return the effects of `batch`: messages of one log, in order. Nothing else may be changed.

        All messages together must have the effects that they have one by one: how they are cut into batches varies.
        `reading` sees what the streams' role sees, and cannot write; no transaction is open on it.

        Raises:
            TransientError: if something is away for a moment; the same messages come again, after a pause.
            PoisonError: if one of the messages can never be handled. They then come in smaller batches; one that raises
                alone becomes a dead letter.
        """


@runtime_checkable
class HostHandler(Handler, Protocol):
    """
    A handler that asks hosts which tenants have named. Whoever passes a log defers its messages, host by host.

    `handle` is then given them one by one, apart from the log's turn, and raises `UnansweredError` if the host does not
    answer. Behind a message that waits others are handled: what they lead to must be right in any order.
    """

    async def hosts(self, batch: Sequence[Message], reading: Connection) -> Sequence[str | None]:
        """
        Return, for each message of `batch`, the host that handling it would ask; None if it would ask none.

        Raises:
            TransientError: as `handle`.
            PoisonError: as `handle`.
        """


class DeferringHandler:
    """Defers the messages of a handler that asks hosts, and has it handle the others (implements `Handler`)."""

    def __init__(self, asking: HostHandler) -> None:
        self.name = asking.name
        self.types = asking.types
        self._asking = asking

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
        """
        Return what is deferred, and the effects of what asks nobody.

        Raises:
            TransientError: as the handler.
            PoisonError: as the handler.
        """
        hosts = await self._asking.hosts(batch, reading)
        pairs = list(zip(batch, hosts, strict=True))
        deferred = tuple(Deferred(message=message, host=host) for message, host in pairs if host is not None)
        rest = [message for message, host in pairs if host is None]
        effects = await self._asking.handle(rest, reading) if rest else Effects()
        return replace(effects, deferred=deferred)
