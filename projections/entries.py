"""
What a projection is handed: an entry, the event it holds, and the payload parts that still exist. Pure.

Types that this process does not know are skipped (`event` is None), except in the control plane: there a projection
that skipped would show policies that are not in force, so an unknown type or version is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ledger.entry import Entry, parse_entry
from ledger.errors import FormatError
from ledger.event import Part, is_control
from ledger.events import EVENTS, from_data
from projections.errors import UnknownControlError

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """An entry in its place; `event` is one of `ledger.events`, or None for a type that this process does not know."""

    entry: Entry
    event: object | None
    parts: Mapping[str, Part]


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asked for a commit, as its payload part `principal` tells."""

    sub: str | None
    email: str | None
    roles: tuple[str, ...]


def read_log_entry(data: bytes, parts: Mapping[str, Part]) -> LogEntry:
    """
    Return the log entry that `data` is.

    Raises:
        FormatError: if `data` is not an entry, or a known event lacks a member: that is corruption.
        UnknownControlError: if it is a control entry of a type or version that is not known here.
    """
    entry = parse_entry(data)
    kind = EVENTS.get((entry.type, entry.version))
    if kind is None:
        if is_control(entry.type):
            raise UnknownControlError(
                f"entry {entry.index} of {entry.log}: expected a control entry of a known type, found {entry.type} "
                f"version {entry.version}: run the version of Lakeproof that wrote it, or a newer one"
            )
        return LogEntry(entry=entry, event=None, parts=parts)
    return LogEntry(entry=entry, event=from_data(kind, entry.data), parts=parts)


def read_principal(item: LogEntry) -> Principal | None:
    """
    Return what the part `principal` says, or None if the entry has none or it was erased.

    Raises:
        FormatError: if the part is not an object with these members.
    """
    part = item.parts.get("principal")
    if part is None:
        return None
    where = f"part principal of entry {item.entry.index}"
    try:
        members = json.loads(part.payload)
    except (ValueError, RecursionError) as error:
        raise FormatError(where, expected="JSON", found=str(error)) from error
    if not isinstance(members, dict):
        raise FormatError(where, expected="an object", found=type(members).__name__)
    sub, email, roles = members.get("sub"), members.get("email"), members.get("roles", [])
    if not isinstance(sub, str | None) or not isinstance(email, str | None) or not isinstance(roles, list):
        raise FormatError(where, expected="strings sub and email, a list of roles", found=sorted(members))
    return Principal(
        sub=None if sub is None else storable(sub),
        email=None if email is None else storable(email),
        roles=tuple(storable(role) for role in roles if isinstance(role, str)),
    )


def storable(text: str) -> str:
    """
    Return `text` with U+FFFD where PostgreSQL cannot hold a character: U+0000 and lone surrogates.

    Keys need no such thing: they are percent-encoded. Two names that differ only there still have two keys.
    """
    return _UNSTORABLE.sub("\ufffd", text)
