"""
An entry: an event in its place in one log, chained to the entry before it.

The members of an entry sort so that `event` comes first; formatting is therefore a splice around bytes the caller made
before any lock. Parsing is strict: an entry that is not canonical to the byte, or has a member too many or too few, is
not an entry. Format: docs/formats.md, "Entry".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, cast
from uuid import UUID

from ledger import canonical
from ledger.canonical import Json
from ledger.errors import FormatError
from ledger.event import ACTOR_FORM, GROUP_EVENTS_MAX, KEY_FORM, PART_NAME_FORM, TYPE_FORM

ENTRY_SIZE_BYTES_MAX: Final = 65_535
ORIGIN_LENGTH_MAX: Final = 255
ORIGIN_FORM: Final = re.compile(rf"[!#-*,-\[\]-~]{{1,{ORIGIN_LENGTH_MAX}}}")
FIRST_PREVIOUS: Final = bytes(32)
"""`previous` of the entry at index 0."""

_HASH = re.compile(r"[0-9a-f]{64}")
_ENTRY_MEMBERS = {"event", "group", "index", "log", "previous", "recorded_at"}
_EVENT_MEMBERS = {"actor", "data", "key", "occurred_at", "parts", "type", "version"}
_GROUP_MEMBERS = {"branch", "id", "of", "position"}


class Branch(StrEnum):
    """Which events of a group were appended: those for a guard that held (or none), or those for one that did not."""

    THEN = "then"
    ELSE = "else"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A parsed entry. `parts` maps names to commitments; hashes are bytes; times are aware UTC."""

    log: str
    index: int
    previous: bytes
    recorded_at: datetime
    group_id: UUID
    branch: Branch
    of: int
    position: int
    type: str
    version: int
    key: str
    actor: str
    occurred_at: datetime
    data: Mapping[str, Json]
    parts: Mapping[str, bytes]


def format_entry(
    event: bytes,
    *,
    log: str,
    index: int,
    previous: bytes,
    recorded_at: str,
    group_id: UUID,
    branch: Branch,
    of: int,
    position: int,
) -> bytes:
    """
    Return the entry's bytes: canonical JSON spliced around the canonical `event`.

    `log` is an origin (no character that JSON escapes: see `check_origin`), `recorded_at` a formatted time.
    """
    # One text around the event, and the id's digits cut by hand: this runs for every entry while the head is locked.
    digits = group_id.bytes.hex()
    rest = (
        f',"group":{{"branch":"{branch}","id":"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-'
        f'{digits[20:]}","of":{of},"position":{position}}},"index":{index},"log":"{log}","previous":"{previous.hex()}",'
        f'"recorded_at":"{recorded_at}"}}'
    )
    return b'{"event":' + event + rest.encode()


def check_origin(origin: str) -> None:
    """
    Check that `origin` can name a log: printable ASCII without spaces, plus, quotes or backslashes (C2SP signed-note).

    Raises:
        FormatError: otherwise.
    """
    if not ORIGIN_FORM.fullmatch(origin):
        raise FormatError(
            "log origin",
            expected="1 to 255 printable ASCII characters, no space, plus, quote or backslash",
            found=origin,
        )


def parse_entry(data: bytes) -> Entry:
    """
    Return the entry that `data` is, to the byte.

    Raises:
        FormatError: if `data` is not canonical JSON of exactly the members of an entry, each of its form.
    """
    if len(data) > ENTRY_SIZE_BYTES_MAX:
        raise FormatError("entry", expected=f"at most {ENTRY_SIZE_BYTES_MAX} bytes", found=f"{len(data)} bytes")
    entry = _members(canonical.decode(data), _ENTRY_MEMBERS, "entry")
    event = _members(entry["event"], _EVENT_MEMBERS, "entry.event")
    group = _members(entry["group"], _GROUP_MEMBERS, "entry.group")
    of, position = _count(group["of"], "group.of"), _count(group["position"], "group.position")
    if of > GROUP_EVENTS_MAX:
        raise FormatError("group.of", expected=f"at most {GROUP_EVENTS_MAX}", found=of)
    if position >= of:
        raise FormatError("group.position", expected=f"less than {of}", found=position)
    version = _count(event["version"], "event.version")
    if version < 1:
        raise FormatError("event.version", expected="1 or more", found=version)
    check_origin(log := _text(entry["log"], "log"))
    return Entry(
        log=log,
        index=_count(entry["index"], "index"),
        previous=_hash(entry["previous"], "previous"),
        recorded_at=canonical.parse_time(_text(entry["recorded_at"], "recorded_at")),
        group_id=_uuid(group["id"]),
        branch=_branch(group["branch"]),
        of=of,
        position=position,
        type=_of_form(TYPE_FORM, event["type"], "event.type", "family.verb_in_past_tense"),
        version=version,
        key=_of_form(KEY_FORM, event["key"], "event.key", "1 to 2,000 printable ASCII characters, no space"),
        actor=_of_form(ACTOR_FORM, event["actor"], "event.actor", "32 hex digits or 'system'"),
        occurred_at=canonical.parse_time(_text(event["occurred_at"], "event.occurred_at")),
        data=_object(event["data"], "event.data"),
        parts=_parts(event["parts"]),
    )


def _object(value: Json, what: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise FormatError(what, expected="an object", found=value)
    return cast("dict[str, Json]", value)


def _members(value: Json, names: set[str], what: str) -> dict[str, Json]:
    members = _object(value, what)
    if members.keys() != names:
        raise FormatError(what, expected=f"exactly the members {sorted(names)}", found=sorted(members))
    return members


def _text(value: Json, what: str) -> str:
    if not isinstance(value, str):
        raise FormatError(what, expected="a string", found=value)
    return value


def _of_form(form: re.Pattern[str], value: Json, what: str, expected: str) -> str:
    text = _text(value, what)
    if not form.fullmatch(text):
        raise FormatError(what, expected=expected, found=text)
    return text


def _count(value: Json, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise FormatError(what, expected="a whole number from 0", found=value)
    return value


def _hash(value: Json, what: str) -> bytes:
    text = _text(value, what)
    if not _HASH.fullmatch(text):
        raise FormatError(what, expected="64 lower-case hex digits", found=text)
    return bytes.fromhex(text)


def _uuid(value: Json) -> UUID:
    text = _text(value, "group.id")
    try:
        parsed = UUID(text)
    except ValueError as error:
        raise FormatError("group.id", expected="a UUID", found=text) from error
    if str(parsed) != text:
        raise FormatError("group.id", expected="a UUID in lower-case hex with hyphens", found=text)
    return parsed


def _branch(value: Json) -> Branch:
    try:
        return Branch(_text(value, "group.branch"))
    except ValueError as error:
        raise FormatError("group.branch", expected="'then' or 'else'", found=value) from error


def _parts(value: Json) -> dict[str, bytes]:
    if not isinstance(value, list):
        raise FormatError("event.parts", expected="a list of [name, hash] pairs", found=value)
    parts: dict[str, bytes] = {}
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise FormatError("event.parts", expected="[name, hash] pairs", found=pair)
        name = _of_form(PART_NAME_FORM, pair[0], "part name", "a lower-case word of at most 63 characters")
        parts[name] = _hash(pair[1], "part commitment")
    if list(parts) != sorted(parts) or len(parts) != len(value):
        raise FormatError("event.parts", expected="names sorted and unique", found=value)
    return parts
