"""
A change: one event of one thing that people edit, and who caused it when.

What people edit are aggregates: each event carries the aggregate's id and the version the aggregate has once the event
has happened, and its key in the log names both kind and id. Pure; the recorder makes entries of changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ledger.format.event import Part, format_key
from ledger.format.events import EventData


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One event of one aggregate and who caused it when: the library's domain event. Parts are not read back."""

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
