"""
What makes two groups the same: equal types, versions, keys, actors, data, and payload parts.

Not compared are times, the random salts of parts (a stored commitment is checked under its stored salt), and parts that
were erased since. Whatever differs is named, since the caller has used one id for two things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledger import canonical
from ledger.entry import Entry
from ledger.event import PreparedEvent, commitment


def difference(events: Sequence[PreparedEvent], others: Sequence[PreparedEvent]) -> str | None:
    """
    Return in words the first difference between the events of a group and `others`, those of its twin, or None.
    """
    if differs := _count_difference(events, len(others)):
        return differs
    for position, (event, other) in enumerate(zip(events, others, strict=True)):
        if differs := _member_difference(_members(event), _members(other), position):
            return differs
        if [(part.name, part.payload) for part in event.parts] != [(part.name, part.payload) for part in other.parts]:
            return f"event {position}: parts"
    return None


def difference_from_stored(
    events: Sequence[PreparedEvent], entries: Sequence[Entry], salts: Sequence[Mapping[str, bytes]]
) -> str | None:
    """
    Return in words the first difference between the events of a group and its stored entries, or None.

    `salts` holds, for each entry, those of the parts still there, by name.
    """
    if differs := _count_difference(events, len(entries)):
        return differs
    for position, (event, entry, known) in enumerate(zip(events, entries, salts, strict=True)):
        stored = (entry.type, entry.version, entry.key, entry.actor, canonical.encode(entry.data))
        if differs := _member_difference(_members(event), stored, position):
            return differs
        if [part.name for part in event.parts] != list(entry.parts):
            return f"event {position}: names of parts"
        for part in event.parts:
            salt = known.get(part.name)
            if salt is not None and commitment(salt=salt, payload=part.payload) != entry.parts[part.name]:
                return f"event {position}: part {part.name}"
    return None


_MEMBERS = ("type", "version", "key", "actor", "data")


def _members(event: PreparedEvent) -> tuple[object, ...]:
    return (event.type, event.version, event.key, event.actor, event.data)


def _count_difference(events: Sequence[PreparedEvent], others: int) -> str | None:
    return None if len(events) == others else f"{others} events, now {len(events)}"


def _member_difference(ours: tuple[object, ...], others: tuple[object, ...], position: int) -> str | None:
    for name, one, other in zip(_MEMBERS, ours, others, strict=True):
        if one != other:
            return f"event {position}: {name}"
    return None
