# SPDX-License-Identifier: Apache-2.0
"""
An entry: an event at its index in one log, chained to the entry before it.

The members of an entry sort so that `event` comes first. So formatting splices text around bytes that the caller made
before any lock. Parsing is strict: bytes that are not canonical, or have a member too many or too few, are not an
entry. Format: docs/formats.md, "Entry".

`read_envelope` reads what verification needs of an entry without building it, at twice the speed. Guarantee: it accepts
exactly the bytes that `parse_entry` accepts. One regular expression recognises the fixed members of an entry as
`format_entry` writes them, and only `data`, whose members differ from type to type, is decoded. What the expression
does not recognise goes to `parse_entry`, which accepts or refuses it. So the expression is only a shortcut.
`parse_entry_quickly` takes the same shortcut to the whole entry, for who reads every entry of a log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple, cast
from uuid import UUID

from ledger.errors import FormatError
from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.event import (
    ACTOR_FORM,
    GROUP_EVENTS_MAX,
    KEY_FORM,
    KEY_LENGTH_MAX,
    PART_NAME_FORM,
    TYPE_FORM,
    uuid_text,
)

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

    `log` is an origin (no character that JSON escapes, see `check_origin`), `recorded_at` a formatted time.
    """
    # One text around the event: this runs for every entry while the head is locked.
    rest = (
        f',"group":{{"branch":"{branch}","id":"{uuid_text(group_id)}","of":{of},"position":{position}}},'
        f'"index":{index},"log":"{log}","previous":"{previous.hex()}","recorded_at":"{recorded_at}"}}'
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
    Return the entry whose bytes are `data`.

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


class Envelope(NamedTuple):
    """
    The members of an entry that place it in the log, texts in UTF-8.

    `parts` is the canonical list of names and commitments, which `commitments` reads. A named tuple, because one is
    made for every verified entry, and a dataclass would take a fifth of the time.
    """

    key: bytes
    parts: bytes
    type: bytes
    branch: bytes
    group_id: bytes
    of: int
    position: int
    entry_index: int
    log: bytes
    previous: bytes
    recorded_at: bytes


_TIME = rb"[0-9]{4}-[01][0-9]-[0-3][0-9]T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z"
_KEY = rb"[!#-\[\]-~]{1,%d}" % KEY_LENGTH_MAX  # those of `KEY_FORM` that JSON does not escape
_COUNT = rb"(?:0|[1-9][0-9]{0,14})"
_PART = rb'\["%b","[0-9a-f]{64}"\]' % PART_NAME_FORM.pattern.encode()
_UUID = rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

_ENTRY = re.compile(
    rb'\{"event":\{"actor":"(%(actor)b)","data":(\{.*\}),"key":"(%(key)b)","occurred_at":"(%(time)b)",'
    rb'"parts":(\[(?:%(part)b(?:,%(part)b)*)?\]),"type":"(%(type)b)","version":([1-9][0-9]{0,14})\},'
    rb'"group":\{"branch":"(then|else)","id":"(%(uuid)b)","of":(%(count)b),"position":(%(count)b)\},'
    rb'"index":(%(count)b),"log":"(%(origin)b)","previous":"([0-9a-f]{64})","recorded_at":"(%(time)b)"\}'
    % {
        b"actor": ACTOR_FORM.pattern.encode(),
        b"key": _KEY,
        b"type": TYPE_FORM.pattern.encode(),
        b"origin": ORIGIN_FORM.pattern.encode(),
        b"time": _TIME,
        b"part": _PART,
        b"uuid": _UUID,
        b"count": _COUNT,
    }
)
_PART_NAME = re.compile(rb'\["([a-z0-9_]+)"')
_PART_COMMITMENT = re.compile(rb'\["([a-z0-9_]+)","([0-9a-f]{64})"\]')

_BRACKETS_MAX = canonical.DEPTH_MAX - 2
"""`data` with more brackets than this may be nested too deeply for an entry, where it is two levels down."""


def read_envelope(data: bytes) -> Envelope:
    """
    Return the envelope of the entry whose bytes are `data`.

    Raises:
        FormatError: if `data` is not an entry, exactly as `parse_entry` does.
    """
    match = _ENTRY.fullmatch(data)
    if match is None or len(data) > ENTRY_SIZE_BYTES_MAX:
        return _envelope(parse_entry(data))
    _, body, key, occurred_at, parts, kind, _, branch, group_id, *places = match.groups()
    of_text, position_text, index, log, previous, recorded_at = places
    of, position = int(of_text), int(position_text)
    if not (_fits(body, parts, of, position) and _is_time(occurred_at) and _is_known_time(recorded_at)):
        return _envelope(parse_entry(data))
    canonical.decode(body)
    return Envelope(key, parts, kind, branch, group_id, of, position, int(index), log, previous, recorded_at)


def parse_entry_quickly(data: bytes) -> Entry:
    """
    Return what `parse_entry` returns, in half the time if the entry is as `format_entry` writes it.

    Raises:
        FormatError: if `data` is not an entry, exactly as `parse_entry` does.
    """
    match = _ENTRY.fullmatch(data)
    if match is None or len(data) > ENTRY_SIZE_BYTES_MAX:
        return parse_entry(data)
    actor, body, key, occurred_at, parts, kind, version, branch, group_id, *places = match.groups()
    of_text, position_text, index, log, previous, recorded_at = places
    of, position = int(of_text), int(position_text)
    if not (_fits(body, parts, of, position) and _is_known_time(occurred_at) and _is_known_time(recorded_at)):
        return parse_entry(data)
    return Entry(
        log=_known_text(log),
        index=int(index),
        previous=bytes.fromhex(previous.decode()),
        recorded_at=_known_time(recorded_at),
        group_id=_known_uuid(group_id),
        branch=_BRANCHES[branch],
        of=of,
        position=position,
        type=_known_text(kind),
        version=int(version),
        key=_known_text(key),
        actor=_known_text(actor),
        occurred_at=_known_time(occurred_at),
        data=cast("dict[str, Json]", canonical.decode(body)),
        parts={name.decode(): bytes.fromhex(hexed.decode()) for name, hexed in _PART_COMMITMENT.findall(parts)},
    )


def _fits(body: bytes, parts: bytes, of: int, position: int) -> bool:
    """Return whether what `_ENTRY` does not tell of an entry is as it has to be; what it is unsure of does not fit."""
    return (
        position < of <= GROUP_EVENTS_MAX
        and body.count(b"{") + body.count(b"[") <= _BRACKETS_MAX
        and (len(parts) == 2 or _are_sorted_and_unique(_PART_NAME.findall(parts)))
    )


def commitments(envelope: Envelope) -> dict[str, bytes]:
    """
    Return the commitments to the entry's payload parts, by name (docs/formats.md, "Event").
    """
    pairs = cast("list[tuple[str, str]]", canonical.decode(envelope.parts))
    return {name: bytes.fromhex(commitment) for name, commitment in pairs}


def _envelope(entry: Entry) -> Envelope:
    return Envelope(
        key=entry.key.encode(),
        parts=canonical.encode([[name, commitment.hex()] for name, commitment in entry.parts.items()]),
        type=entry.type.encode(),
        branch=entry.branch.value.encode(),
        group_id=str(entry.group_id).encode(),
        of=entry.of,
        position=entry.position,
        entry_index=entry.index,
        log=entry.log.encode(),
        previous=entry.previous.hex().encode(),
        recorded_at=canonical.format_time(entry.recorded_at).encode(),
    )


def _is_time(text: bytes) -> bool:
    """Return whether a text of the right form is a date that exists."""
    try:
        datetime.fromisoformat(text[:-1].decode("ascii"))
    except ValueError:
        return False
    return True


_is_known_time = lru_cache(maxsize=16)(_is_time)  # the entries of a batch were recorded at the same time


# What the entries of a group, a batch, or a log have in common.
@lru_cache(maxsize=16)
def _known_time(text: bytes) -> datetime:
    return canonical.parse_time(text.decode())


@lru_cache(maxsize=16)
def _known_uuid(text: bytes) -> UUID:
    return UUID(text.decode())


@lru_cache(maxsize=1_024)
def _known_text(text: bytes) -> str:
    return text.decode()


_BRANCHES: Final = {branch.value.encode(): branch for branch in Branch}


def _are_sorted_and_unique(names: list[bytes]) -> bool:
    return names == sorted(set(names))
