# SPDX-License-Identifier: Apache-2.0
"""
Events and snapshots that applications record of their own aggregates, through the eventsourcing library.

The library's topic and serialised state are stored unchanged, byte for byte. They are the application's own vocabulary:
nothing here reads a state, and none of these is a control entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class OriginatorKind(StrEnum):
    """How the application names its aggregates: by UUIDs, or by texts. A UUID and its text are the same name."""

    UUID = "uuid"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateRecorded:
    """
    An event of an application's aggregate: the library's topic and serialised state, exact to the byte.

    A state that is UTF-8 is the text `state`, any other is `state_base64`; exactly one of the two is not null.
    `originator_version` is unique in the events of an originator, from 0; gaps are allowed.
    """

    TYPE: ClassVar[str] = "aggregate.recorded"
    VERSION: ClassVar[int] = 1

    originator_id: str
    originator_kind: OriginatorKind
    originator_version: int
    state: str | None
    state_base64: str | None
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateSnapshotted:
    """A snapshot of an application's aggregate at a version; members as those of `AggregateRecorded`."""

    TYPE: ClassVar[str] = "aggregate.snapshotted"
    VERSION: ClassVar[int] = 1

    originator_id: str
    originator_kind: OriginatorKind
    originator_version: int
    state: str | None
    state_base64: str | None
    topic: str
