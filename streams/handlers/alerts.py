# SPDX-License-Identifier: Apache-2.0
"""
Alerts: a finding of high confidence is raised once per column and kind, and delivered to a webhook as Slack's JSON.

It is raised once because the alert's group id derives from table uuid, column and kind: later snapshots of the same
column raise nothing. It is delivered at least once, under the id `<origin>/<group id>`: the outbox message is stored
with the position, and `alert.delivered` is appended before that message is removed. No value of a column is known here,
so none is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.entry import Entry, parse_entry
from ledger.format.event import SYSTEM_ACTOR, derived_group_id, parse_key
from ledger.format.events import AlertDelivered, AlertRaised, DetectionFound, EventData, prepare_event, to_data
from ledger.format.sequence import Group
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.entries import LogEntry
from streams.handler import Effects, Message, OutboxMessage
from streams.sinks.webhook import WEBHOOK
from streams.state.outbox import QueuedMessage

CONFIDENCE_PERCENT_MIN: Final = 92
"""The column's name and its values both match: a finding below may be a false positive, and raises no alert."""

SLACK_TEXT_LENGTH_MAX: Final = 2_000
"""Of one field of a section (Slack, Block Kit); names are cut to it."""

_QUERIES: Final = load_queries("streams", "alerts.sql")


class Alerts:
    """
    Raises alerts; those it raises are put into the outbox of `sink`, or of none (implements `Handler`).

    Without a sink alerts are in the log alone, and are not delivered later.
    """

    name: str = "alerts"
    types: frozenset[str] = frozenset({DetectionFound.TYPE})

    def __init__(self, *, clock: Callable[[], datetime], sink: str | None = WEBHOOK) -> None:
        self._clock = clock
        self._sink = sink

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
        """Raise what was not raised before, by an earlier entry than the one that raises it now."""
        found = [each for each in map(_finding, batch) if each is not None]
        if not found:
            return Effects()
        raised = await _read_raised(reading, batch[0].log.log_id, {alert_id(finding) for _, finding in found})
        groups: list[Group] = []
        outbox: list[OutboxMessage] = []
        for entry, finding in found:
            alert = _alert(entry, finding)
            id_ = alert_id(finding)
            # Stands it there with other content, an earlier finding raised it. With the same, this one did, and its
            # position was lost: then the group changes nothing, but its message may not be in the outbox yet.
            if raised.setdefault(id_, to_data(alert)) != to_data(alert):
                continue
            groups.append(_group(id_, alert, entry.key, self._clock()))
            if self._sink is not None:
                payload = canonical.encode(slack_message(entry.key, finding))
                outbox.append(
                    OutboxMessage(sink=self._sink, id=f"{entry.log}/{id_}", key=entry.key, payload=payload),
                )
        return Effects(groups=tuple(groups), outbox=tuple(outbox))


def alert_id(finding: DetectionFound) -> UUID:
    """
    Return the group id of the alert on this column and kind, whatever the snapshot.
    """
    return derived_group_id(
        AlertRaised.TYPE, {"column": finding.column, "kind": finding.kind.value, "table_uuid": finding.table_uuid}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertReceipt:
    """Tells the log that an alert was delivered (implements `streams.processing.sender.Receipt`)."""

    clock: Callable[[], datetime]

    def __call__(self, taken: QueuedMessage, /) -> Group:
        """Return the group of `alert.delivered`; of one alert and sink there is one."""
        alert, sink = taken.message.id.rpartition("/")[2], taken.message.sink
        delivered = AlertDelivered(alert=alert, attempt=taken.attempts + 1, sink=sink)
        id_ = derived_group_id(AlertDelivered.TYPE, {"alert": alert, "sink": sink})
        return _group(id_, delivered, taken.message.key, self.clock())


def slack_message(key: str, finding: DetectionFound) -> dict[str, Json]:
    """
    Return Slack's JSON for a finding on the table that `key` names: `text` for notifications, `blocks` to read.

    Names are other people's text: in `text`, which Slack parses, its three control characters are escaped (Slack,
    "Formatting text"); the blocks are plain text, in which nothing is parsed.
    """
    table = ".".join(parse_key(key)[1])
    title = "Personal data found"
    sentence = f"column {finding.column} of {table} holds {finding.kind.value} ({finding.confidence_percent} %)"
    fields = {
        "Table": table,
        "Column": finding.column,
        "Kind": finding.kind.value,
        "Confidence": f"{finding.confidence_percent} %",
        "Values": f"{finding.matches:,} of {finding.values:,} match",
        "Snapshot": finding.snapshot,
    }
    return {
        "text": _escaped(_cut(f"{title}: {sentence}")),
        "blocks": [
            {"type": "header", "text": _plain(title)},
            {"type": "section", "fields": [_plain(_cut(f"{name}\n{value}")) for name, value in fields.items()]},
        ],
    }


def _finding(message: Message) -> tuple[Entry, DetectionFound] | None:
    if not isinstance(message.value, LogEntry) or not isinstance(message.value.event, DetectionFound):
        return None  # of a version that this process does not know
    finding = message.value.event
    return (message.value.entry, finding) if finding.confidence_percent >= CONFIDENCE_PERCENT_MIN else None


def _alert(entry: Entry, finding: DetectionFound) -> AlertRaised:
    return AlertRaised(
        column=finding.column,
        confidence_percent=finding.confidence_percent,
        field_id=finding.field_id,
        finding=str(entry.group_id),
        kind=finding.kind,
        snapshot=finding.snapshot,
        table_uuid=finding.table_uuid,
    )


async def _read_raised(reading: Connection, log_id: int, ids: set[UUID]) -> dict[UUID, Mapping[str, Json]]:
    """Return the data of those alerts that are in the log."""
    rows = await reading.execute(_QUERIES["raised"], {"log_id": log_id, "group_ids": list(ids)}, binary=True)
    return {id_: parse_entry(bytes(entry)).data for id_, entry in await rows.fetchall()}


def _group(id_: UUID, event: EventData, key: str, now: datetime) -> Group:
    return Group(id=id_, then=(prepare_event(event, key=key, actor=SYSTEM_ACTOR, occurred_at=now),))


def _plain(text: str) -> dict[str, Json]:
    return {"type": "plain_text", "text": text, "emoji": False}


def _cut(text: str) -> str:
    return text if len(text) <= SLACK_TEXT_LENGTH_MAX else text[: SLACK_TEXT_LENGTH_MAX - 1] + "…"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
