# SPDX-License-Identifier: Apache-2.0
"""
Questions and answers: events of no vocabulary, and a handler whose effects are easy to count.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ledger.format.canonical import Json
from ledger.format.event import Event, PreparedEvent, derived_group_id, prepare
from ledger.format.events import to_data
from ledger.format.sequence import Group
from ledger.store.session import Connection
from projections.entries import LogEntry
from streams.errors import PoisonError, UnansweredError
from streams.handler import Effects, Message, OutboxMessage

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ASKED, ANSWERED, OTHER = "test.asked", "test.answered", "test.told"
POISON = "poison"


def noon() -> datetime:
    """Return the time, which stands still."""
    return NOON


def told(event_type: str = ASKED, *, key: str = "table:lake/sales/orders", **data: Json) -> PreparedEvent:
    """Return an event of any type, prepared."""
    return prepare(Event(type=event_type, version=1, key=key, actor="system", occurred_at=NOON, data=data))


def happened(data: Any, *, key: str = "table:lake/sales/orders") -> PreparedEvent:
    """Return one of the events of `ledger.format.events`, prepared."""
    kind = type(data)
    event = Event(type=kind.TYPE, version=kind.VERSION, key=key, actor="system", occurred_at=NOON, data=to_data(data))
    return prepare(event)


class Answering:
    """
    Answers each question: one group in the log and one message in the outbox, with ids that derive from the question.

    A question whose data says so is poison.
    """

    def __init__(self, name: str = "answering", types: frozenset[str] = frozenset({ASKED})) -> None:
        self.name = name
        self.types = types
        self.handled: list[str] = []

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:  # noqa: ARG002 - a handler's shape
        """Return the answers."""
        groups: list[Group] = []
        outbox: list[OutboxMessage] = []
        for message in batch:
            self.handled.append(message.id)
            question = data_of(message)
            if POISON in question:
                raise PoisonError(f"{message.id} is poison: {question[POISON]}")
            effects = self.answer(message)
            groups += effects.groups
            outbox += effects.outbox
        return Effects(groups=tuple(groups), outbox=tuple(outbox))

    def answer(self, message: Message) -> Effects:
        """Return the answer to one question."""
        answer = told(ANSWERED, question=message.id, by=self.name)
        group = Group(id=derived_group_id("answer", [self.name, message.id]), then=(answer,))
        message_out = OutboxMessage(sink="test", id=f"{self.name}/{message.id}", key="k", payload=b"{}")
        return Effects(groups=(group,), outbox=(message_out,))


def data_of(message: Message) -> dict[str, Any]:
    """Return the data of the entry that a message is."""
    assert isinstance(message.value, LogEntry)
    return dict(message.value.entry.data)


class AnsweringHosts(Answering):
    """
    Answers each question that names a host once that host is asked; those of `silent` hosts do not answer.

    A question that is `lost` is never answered, although its host answers others.
    """

    def __init__(self, *silent: str) -> None:
        super().__init__()
        self.silent = set(silent)
        self.asked: list[str] = []

    async def hosts(self, batch: Sequence[Message], reading: Connection) -> Sequence[str | None]:  # noqa: ARG002 - a handler's shape
        """Return the hosts that the questions name."""
        return [data_of(message).get("host") for message in batch]

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
        """Ask the host of each question, then return the answers."""
        for message in batch:
            question = data_of(message)
            if (host := question.get("host")) is not None:
                self.asked.append(host)
            if host in self.silent or "lost" in question:
                raise UnansweredError(f"{host} does not answer {message.id}")
        return await super().handle(batch, reading)
