# SPDX-License-Identifier: Apache-2.0
"""
What a projection is given: an entry, its event, and the payload parts that still exist. Pure.

Event types that this process does not know are skipped (`event` is None), except in the control plane: a projection
that skipped a control entry would show policies that are not in force, so an unknown type or version is an error there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import orjson

from ledger.errors import FormatError
from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.entry import Entry, parse_entry_quickly
from ledger.format.event import Part, is_control
from ledger.format.events import (
    EVENTS,
    CommitDecided,
    CommitSettled,
    LineageReceived,
    LineageReceivedV1,
    PayloadErased,
    check_erased,
    from_data,
)
from projections.errors import UnknownControlError

PRINCIPAL: Final = "principal"
"""The payload part of a decision that names the principal."""

_JSON_OPTIONS: Final = orjson.OPT_STRICT_INTEGER | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_ESCAPED_NUL: Final = rb"\u0000"
"""How JSON spells U+0000; in the bytes of a text with a backslash, too, which then costs a second encoding."""
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """
    An entry with its event: one of `ledger.format.events`, or None for a type that this process does not know.
    """

    entry: Entry
    event: object | None
    parts: Mapping[str, Part]


def read_log_entry(data: bytes, parts: Mapping[str, Part]) -> LogEntry:
    """
    Parse `data` as a log entry.

    Raises:
        FormatError: if `data` is not an entry, or a known event lacks a member: that is corruption.
        UnknownControlError: if it is a control entry of a type or version that is not known here.
    """
    entry = parse_entry_quickly(data)
    kind = EVENTS.get((entry.type, entry.version))
    if kind is None:
        if is_control(entry.type):
            raise UnknownControlError(
                f"entry {entry.index} of {entry.log}: expected a control entry of a known type, found {entry.type} "
                f"version {entry.version}: run the version of Lakeproof that wrote it, or a newer one"
            )
        return LogEntry(entry=entry, event=None, parts=parts)
    event: object = from_data(kind, entry.data)
    if isinstance(event, LineageReceivedV1):
        event = LineageReceived.of_v1(event)  # same meaning: no projection has to distinguish the versions
    return LogEntry(entry=entry, event=event, parts=parts)


def read_principal(item: LogEntry) -> str | None:
    """
    Return the principal of a commit: `sub` of the payload part `principal`; None without that part.

    Raises:
        FormatError: if the part is not a JSON object with a text, or null, as `sub`.
    """
    part = item.parts.get(PRINCIPAL)
    if part is None:
        return None
    where = f"part principal of entry {item.entry.index}"
    try:
        members = orjson.loads(part.payload)
    except orjson.JSONDecodeError:
        members = _loads(part.payload, where)  # escapes of lone surrogates, for instance
    if not isinstance(members, dict) or not isinstance(sub := members.get("sub", 0), str | None):
        raise FormatError(where, expected="an object with a text as sub", found=type(members).__name__)
    return None if sub is None else storable(sub)


def _loads(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(where, expected="JSON", found=str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalsErased:
    """
    Which parts `principal` of commits a `payload.erased` at index `at` erased; a null member selects any value.

    Only entries below `at` are selected. The principal of a commit is its actor, so `actor` says whose part it is.
    """

    at: int
    actor: str | None
    index: int | None
    before: int | None

    def row(self) -> dict[str, Json]:
        """Return it as a row for SQL."""
        return {"at": self.at, "actor": self.actor, "index": self.index, "before": self.before}

    def selects(self, *, index: int, actors: Collection[str]) -> bool:
        """Return whether the principal of the commit at `index` by one of `actors` is erased."""
        return (
            index < self.at
            and (self.actor is None or self.actor in actors)
            and (self.index is None or self.index == index)
            and (self.before is None or index < self.before)
        )


def principals_erased(entry: Entry, event: PayloadErased) -> PrincipalsErased | None:
    """
    Return which principals an erasure selects, or None if it erases other parts.

    Raises:
        FormatError: if the erasure does not say what it selects; that is corruption.
    """
    check_erased(event)
    if event.name not in {None, PRINCIPAL} or event.type not in {None, CommitDecided.TYPE}:
        return None
    return PrincipalsErased(at=entry.index, actor=event.subject, index=event.index, before=event.before)


def decision_of(entry: Entry, settled: CommitSettled) -> UUID:
    """
    Return the group id of the decision that an outcome belongs to.

    Raises:
        FormatError: if it is none.
    """
    try:
        return _uuid(settled.decision)
    except ValueError as error:
        raise FormatError(f"decision of entry {entry.index}", expected="a UUID", found=settled.decision) from error


_uuid = lru_cache(maxsize=1_024)(UUID)  # each projection asks for that of the same outcome


def recorded_text(entry: Entry) -> str:
    """
    Return when an entry was recorded, as text.
    """
    return _time_text(entry.recorded_at)


_time_text = lru_cache(maxsize=1_024)(canonical.format_time)  # that of many entries, for each projection


def storable(text: str) -> str:
    """
    Return `text` with U+FFFD where PostgreSQL cannot hold a character: U+0000 and lone surrogates.

    Keys are percent-encoded and need no replacement, so two names that differ only there still have different keys.
    """
    if text.isascii() and "\x00" not in text:
        return text  # nearly every text, and much faster
    return _UNSTORABLE.sub("\ufffd", text)


def storable_json(value: Json) -> Json:
    """
    Return `value` with every text in it storable.
    """
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {name: storable_json(member) for name, member in value.items()}
    if isinstance(value, Sequence):
        return [storable_json(item) for item in value]
    return value


def encode_json(value: Json) -> str:
    """
    Return `value` as JSON for a parameter of a statement, every text in it storable.

    The server parses it and keeps no spelling of it, so it is not canonical: to check that would cost most of a row's
    time.

    Raises:
        NotCanonicalError: if `value` is no JSON.
    """
    try:
        data = orjson.dumps(value, option=_JSON_OPTIONS)
    except orjson.JSONEncodeError:  # a lone surrogate, or a mapping that is no dict
        data = _ESCAPED_NUL
    if _ESCAPED_NUL in data:
        data = canonical.encode(storable_json(value))
    return data.decode()
