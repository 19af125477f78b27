# SPDX-License-Identifier: Apache-2.0
"""
Entries as CloudEvents 1.0, in the structured JSON format, for consumers outside. No I/O here.

An event's id is `<origin>/<index>`: unique, and ordered within a log. Its data is the entry's event data and nothing
else; payload parts are never published.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ledger.format import canonical
from ledger.format.entry import Entry
from ledger.store.session import Connection
from projections.entries import LogEntry
from streams.errors import PoisonError
from streams.handler import EVERY_TYPE, Effects, Message, OutboxMessage

KAFKA: Final = "kafka"
"""The name of the sink that entries are published to."""
CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"


class Publish:
    """Puts every entry of every log into the outbox of `sink`, keyed by what it is about (implements `Handler`)."""

    name: str = "publish"
    types: frozenset[str] = EVERY_TYPE

    def __init__(self, sink: str = KAFKA) -> None:
        self._sink = sink

    async def handle(
        self,
        batch: Sequence[Message],
        reading: Connection,  # noqa: ARG002 - every handler is given one; entries are all that this one needs
    ) -> Effects:
        """Return one message an entry, those of unknown types too."""
        return Effects(outbox=tuple(self._message(message) for message in batch))

    def _message(self, message: Message) -> OutboxMessage:
        if not isinstance(message.value, LogEntry):
            raise PoisonError(f"message {message.id}: expected an entry of a log, found bytes")
        entry = message.value.entry
        return OutboxMessage(sink=self._sink, id=message.id, key=entry.key, payload=format_cloud_event(entry))


def format_cloud_event(entry: Entry) -> bytes:
    """
    Return `entry` as a CloudEvent in JSON (CloudEvents 1.0.2; JSON event format, section 3).

    The extension `typeversion` is the version of the event's type.
    """
    return canonical.encode(
        {
            "specversion": "1.0",
            "id": f"{entry.log}/{entry.index}",
            "source": entry.log,
            "type": entry.type,
            "typeversion": entry.version,
            "subject": entry.key,
            "time": canonical.format_time(entry.recorded_at),
            "datacontenttype": "application/json",
            "data": entry.data,
        }
    )
