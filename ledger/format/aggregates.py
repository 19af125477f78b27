# SPDX-License-Identifier: Apache-2.0
"""
Events of aggregates, as the eventsourcing library stores them in a log. Pure.

There are two kinds. A `ControlChange` is one event of an aggregate of ours, which users edit, such as a policy. Its
data is of our vocabulary, and its key is the family of its type and the aggregate's id. `AggregateRecorded` is an event
of an application's own aggregate. Its state is opaque, and a guard inserts one row for each version.

Guarantee: each version of an application's aggregate is recorded once. If a row for it exists, or a group names a
version twice, the group appends nothing. Recovery derives the same guards from the entries.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from ledger.errors import FormatError
from ledger.format.entry import Entry
from ledger.format.event import Part, format_key
from ledger.format.events import AggregateRecorded, AggregateSnapshotted, EventData, from_data
from ledger.format.guards import GuardCall

RecordedData: TypeAlias = AggregateRecorded | AggregateSnapshotted


class RecordedKind(StrEnum):
    """What is recorded of an aggregate."""

    EVENT = "event"
    SNAPSHOT = "snapshot"


RECORDED: Final[dict[RecordedKind, type[RecordedData]]] = {
    RecordedKind.EVENT: AggregateRecorded,
    RecordedKind.SNAPSHOT: AggregateSnapshotted,
}
"""The event type of each kind."""


class HasEntry(Protocol):
    """Something that has an entry."""

    @property
    def entry(self) -> Entry:
        """The entry."""


def originator_key(originator_id: str) -> str:
    """
    Return the key of an aggregate of an application: `aggregate:` and its percent-encoded id.

    Raises:
        FormatError: if the id is empty or has no UTF-8 form.
    """
    return format_key("aggregate", (originator_id,))


def state_members(state: bytes) -> dict[str, str | None]:
    """
    Return the two members that hold a state: text if it is UTF-8, so that an auditor can read it, else base64.
    """
    try:
        return {"state": state.decode(), "state_base64": None}
    except UnicodeDecodeError:
        return {"state": None, "state_base64": base64.b64encode(state).decode()}


def state_of(data: RecordedData) -> bytes:
    """
    Return the bytes of a state.

    Raises:
        FormatError: if not exactly one member holds it, and in the form that `state_members` gives it.
    """
    match data.state, data.state_base64:
        case str(text), None:
            return text.encode()
        case None, str(text):
            try:
                state = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError) as error:
                raise FormatError("state_base64", expected="base64", found=text) from error
            if state_members(state) != {"state": None, "state_base64": text}:
                raise FormatError("state_base64", expected="canonical base64 of what is not UTF-8", found=text)
            return state
        case _:
            found = [name for name in ("state", "state_base64") if getattr(data, name) is not None]
            raise FormatError("state", expected="exactly one of state and state_base64", found=found)


def parse_recorded(entry: Entry, kind: RecordedKind) -> RecordedData:
    """
    Return what an entry records of an aggregate.

    Raises:
        FormatError: if it is of another type or version, or its key is not the originator's.
    """
    cls = RECORDED[kind]
    if (entry.type, entry.version) != (cls.TYPE, cls.VERSION):
        expected, found = f"{cls.TYPE}/{cls.VERSION}", f"{entry.type}/{entry.version}"
        raise FormatError(f"entry {entry.index}", expected=expected, found=found)
    data = from_data(cls, entry.data)
    if (key := originator_key(data.originator_id)) != entry.key:
        raise FormatError(f"key of entry {entry.index}", expected=key, found=entry.key)
    return data


def recorded_guard(kind: RecordedKind, group_id: UUID, rows: Iterable[tuple[str, int, int]]) -> GuardCall:
    """
    Return the guard that holds if none of `rows` (key, version, position in the group) is recorded yet.
    """
    keys, versions, positions = zip(*rows, strict=True)
    return GuardCall(
        "recorded.insert",
        {
            "kind": kind.value,
            "group_id": group_id,
            "originators": list(keys),
            "versions": list(versions),
            "positions": list(positions),
        },
    )


def recorded_guards(group: Sequence[HasEntry]) -> Iterator[GuardCall]:
    """
    Yield the guards of recorded versions that a group ran whose guards held.

    Raises:
        FormatError: if an entry is not of the form of its type.
    """
    for kind, cls in RECORDED.items():
        entries = [one.entry for one in group if (one.entry.type, one.entry.version) == (cls.TYPE, cls.VERSION)]
        if entries:
            rows = ((one.key, parse_recorded(one, kind).originator_version, one.position) for one in entries)
            yield recorded_guard(kind, entries[0].group_id, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlChange:
    """One event of one aggregate, its actor and its time: the library's domain event. Parts are not read back."""

    event: Versioned
    actor: str
    occurred_at: datetime
    parts: tuple[Part, ...] = ()

    @property
    def originator_id(self) -> str:
        """The aggregate's key."""
        return key_of(self.event)

    @property
    def originator_version(self) -> int:
        """The aggregate's version from here on."""
        return self.event.version


class Versioned(EventData, Protocol):
    """The event of an aggregate: the aggregate's id, and its version once this event has happened (from 1)."""

    @property
    def id(self) -> str:
        """The aggregate's id."""

    @property
    def version(self) -> int:
        """The aggregate's version from here on."""


def key_of(event: Versioned) -> str:
    """
    Return the key of the aggregate an event belongs to: the family of its type and the id, as in `policy:no-drops`.
    """
    return format_key(event.TYPE.partition(".")[0], (event.id,))
