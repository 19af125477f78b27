# SPDX-License-Identifier: Apache-2.0
"""
From S3 event messages to groups: one trigger per metadata file, and one per table for the data files of a batch. Pure.

The id of each group derives from its content, so a message that SQS delivers again adds nothing. Data files are grouped
by batch: if a message is delivered again with others, it makes another trigger. That one is true as well, and has no
effect, since snapshots are known by their metadata files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from ledger.format.canonical import Json
from ledger.format.event import SYSTEM_ACTOR, derived_group_id, format_key
from ledger.format.events import Identifier, TriggerReceived, TriggerSource, prepare_event
from ledger.format.sequence import Group
from ledger.store.read import Log
from streams.errors import PoisonError
from streams.handler import DeadLetter, Message
from streams.handlers.catalog_locations import CatalogLocation, CatalogLocations
from streams.handlers.s3_messages import FileKind, TableFile, parse_s3_event, table_file

FILES_MAX: Final = 100
FILES_SIZE_BYTES_MAX: Final = 32 * 1024
"""What a trigger names of its data files: an event is at most 64,512 bytes, and a character may be written as six."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGroup:
    """A group, the log that it is for, and the messages that it comes from."""

    log: Log
    group: Group
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What a batch of messages leads to."""

    groups: tuple[LogGroup, ...] = ()
    dead: tuple[DeadLetter, ...] = ()


def gather(batch: Sequence[Message], places: CatalogLocations, *, at: datetime) -> Gathered:
    """
    Return the triggers in a batch of S3's messages.

    A message of which a part cannot be handled is dead for that part; the others lead to what they lead to.
    """
    gathering = _Gathering(places=places, at=at)
    for message in batch:
        try:
            files = [file for created in parse_s3_event(_body(message)) if (file := table_file(created))]
        except PoisonError as error:
            gathering.bury(message, error)
        else:
            gathering.add(message, files)
    return gathering.done()


def metadata_trigger(
    alias: str, location: str, *, source: TriggerSource, at: datetime, identifier: Identifier | None = None
) -> Group:
    """
    Return the trigger of one metadata file. The same file from the same source is the same group.
    """
    data = TriggerReceived(
        alias=alias,
        file_count=0,
        files=(),
        identifier=identifier,
        metadata_location=location,
        source=source,
    )
    return _group(data, alias, ["metadata", alias, location], at)


def data_trigger(place: CatalogLocation, table: str, locations: Iterable[str], *, at: datetime) -> Group:
    """
    Return the trigger of new data files below the folder `table`.
    """
    named = sorted(set(locations))
    data = TriggerReceived(
        alias=place.alias,
        file_count=len(named),
        files=_as_many_as_fit(named),
        identifier=None,
        metadata_location=None,
        source=TriggerSource.S3,
    )
    return _group(data, place.alias, ["data", place.alias, table, named], at)


@dataclass(slots=True, kw_only=True)
class _Gathering:
    """What has been gathered so far, in the order of arrival."""

    places: CatalogLocations
    at: datetime
    groups: list[LogGroup] = field(default_factory=list)
    data: dict[tuple[CatalogLocation, str], tuple[list[str], dict[str, Message]]] = field(default_factory=dict)
    dead: dict[str, DeadLetter] = field(default_factory=dict)

    def add(self, message: Message, files: Iterable[TableFile]) -> None:
        for file in files:
            try:
                place = self.places.find(file.location)
            except PoisonError as error:
                self.bury(message, error)
                continue
            match file.kind:
                case FileKind.METADATA:
                    group = metadata_trigger(place.alias, file.location, source=TriggerSource.S3, at=self.at)
                    self.groups.append(LogGroup(log=place.log, group=group, messages=(message,)))
                case FileKind.DATA:
                    locations, messages = self.data.setdefault((place, file.table), ([], {}))
                    locations.append(file.location)
                    messages[message.id] = message

    def bury(self, message: Message, error: PoisonError) -> None:
        # The first reason stands for all: whoever reads the message finds the others.
        self.dead.setdefault(message.id, DeadLetter(message=message, reason=str(error)))

    def done(self) -> Gathered:
        data = (
            LogGroup(
                log=place.log,
                group=data_trigger(place, table, locations, at=self.at),
                messages=tuple(messages.values()),
            )
            for (place, table), (locations, messages) in self.data.items()
        )
        return Gathered(groups=(*self.groups, *data), dead=tuple(self.dead.values()))


def _body(message: Message) -> bytes:
    if not isinstance(message.value, bytes):
        raise PoisonError(f"message {message.id}: expected the bytes of a message of S3, found an entry")
    return message.value


def _group(data: TriggerReceived, alias: str, content: Json, at: datetime) -> Group:
    identifier = data.identifier
    if identifier is not None and identifier.name is not None:
        key = format_key("table", (identifier.alias, *identifier.namespace, identifier.name))
    else:
        # A folder has no name that a policy or a graph knows; the catalog whose it is has one.
        key = format_key("catalog", (alias,))
    event = prepare_event(data, key=key, actor=SYSTEM_ACTOR, occurred_at=at)
    return Group(id=derived_group_id(f"{TriggerReceived.TYPE}/{data.source}", content), then=(event,))


def _as_many_as_fit(locations: Sequence[str]) -> tuple[str, ...]:
    named: list[str] = []
    size_bytes = 0
    for location in locations[:FILES_MAX]:
        size_bytes += len(location.encode())
        if size_bytes > FILES_SIZE_BYTES_MAX:
            break
        named.append(location)
    return tuple(named)
