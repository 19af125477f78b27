# SPDX-License-Identifier: Apache-2.0
"""
An event: what happened, before it has an index in the log.

A caller canonicalises its event once, outside any lock (`prepare`). The sequencer only splices the rest of the entry
around those bytes. Bulky or personal content goes into payload parts: the event holds a salted commitment to each, so a
part can be deleted or disclosed alone without changing a proof. Format: docs/formats.md, "Event".

An event key is the one name, in the log, of the thing that an event is about: `table:`, `view:`, `namespace:`,
`policy:` … then alias, namespace levels and name joined by `/`, each percent-encoded (RFC 3986, UTF-8, upper-case hex).
So no two things share a key and a key never needs quoting: docs/formats.md, "Event keys".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Final
from urllib.parse import quote, unquote
from uuid import UUID

from ledger.errors import FormatError, LimitExceededError
from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.values import value_class

SALT_SIZE_BYTES: Final = 32
EVENT_SIZE_BYTES_MAX: Final = 64_512
"""An entry is at most 65,535 bytes (a C2SP entry bundle has 16-bit lengths); 1,023 of them are for the envelope."""
KEY_LENGTH_MAX: Final = 2_000
"""Event keys are indexed, and a row of an index holds at most 2,704 bytes."""
GROUP_EVENTS_MAX: Final = 1_024
GROUP_SIZE_BYTES_MAX: Final = 2 * 1024 * 1024
SYSTEM_ACTOR: Final = "system"
CONTROL_FAMILIES: Final = frozenset(
    {
        "policy",
        "policy_draft",
        "restriction",
        "restriction_draft",
        "access_rule",
        "contract",
        "catalog",
        "tenant",
        "key",
        "setting",
    }
)
_BEFORE_DATA: Final = b'{"event":{"data":'
_AFTER_DATA: Final = b"}}"
TYPE_FORM: Final = re.compile(r"[a-z][a-z_]*\.[a-z][a-z_]*")
KEY_FORM: Final = re.compile(rf"[!-~]{{1,{KEY_LENGTH_MAX}}}")
ACTOR_FORM: Final = re.compile(r"[0-9a-f]{32}|system")
PART_NAME_FORM: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
"""The forms of an event's texts. `prepare` enforces them, and `parse_entry` refuses others."""

_KIND = re.compile(r"[a-z][a-z_]*")
_KEYS_CACHED: Final = 4_096
"""The same tables occur again and again, and percent-encoding is slow."""


@value_class
class Part:
    """One payload part: stored outside the log under a salted commitment, and deletable alone."""

    name: str
    payload: bytes
    salt: bytes
    subject: str | None = None
    """The actor whose erasure deletes this part."""

    def __repr__(self) -> str:
        return f"Part(name={self.name!r}, {len(self.payload)} bytes)"


@value_class
class Event:
    """What happened, to what (`key`), by whom (`actor`: 32 hex digits or "system"); `occurred_at` is aware UTC."""

    type: str
    version: int
    key: str
    actor: str
    occurred_at: datetime
    data: Mapping[str, Json]
    parts: tuple[Part, ...] = ()


@value_class
class PreparedEvent:
    """An event whose canonical bytes are made and checked; `event` is what the entry will hold under that name."""

    type: str
    version: int
    key: str
    actor: str
    data: bytes
    event: bytes
    parts: tuple[Part, ...]
    is_control: bool


BLANK: Final = "lakeproof:blank"
"""The text in an event's data for which another is filled in (`prepare_blank`)."""


@value_class
class BlankEvent:
    """A prepared event in which one text of its data and its time are still to be filled in."""

    prepared: PreparedEvent
    data: tuple[bytes, bytes]
    """The data before and behind the text."""
    event: tuple[bytes, bytes, bytes]
    """The event before the text, between it and the time, and behind the time."""

    def fill(self, text: str, occurred_at: datetime) -> PreparedEvent:
        """
        Return what `prepare` makes of the event with this text and time.

        Raises as that does.
        """
        encoded = canonical.encode(text)
        (before, between, behind), (data_before, data_behind) = self.event, self.data
        time = canonical.format_time(occurred_at).encode()
        event = b"".join((before, encoded, between, time, behind))
        blank = self.prepared
        _check_size(blank.type, event)
        return PreparedEvent(
            type=blank.type,
            version=blank.version,
            key=blank.key,
            actor=blank.actor,
            data=b"".join((data_before, encoded, data_behind)),
            event=event,
            parts=blank.parts,
            is_control=blank.is_control,
        )


def commitment(*, salt: bytes, payload: bytes) -> bytes:
    """
    Return SHA-256(0x03 || salt || payload), the commitment to a payload part (docs/formats.md, "Hashes").
    """
    return sha256(b"\x03" + salt + payload).digest()


def is_control(event_type: str) -> bool:
    """
    Return whether entries of this type belong to the control plane, and so raise the head's control index.
    """
    return event_type.partition(".")[0] in CONTROL_FAMILIES


def prepare(event: Event) -> PreparedEvent:
    """
    Return `event` with its canonical bytes.

    Raises:
        FormatError: if the type, version, key, actor, data or a part is not of its form.
        NotCanonicalError: if `data` or `occurred_at` lies outside the canonical profile.
        LimitExceededError: if the event is over 64,512 bytes, or its key over 2,000.
    """
    _check_members(event)
    parts = tuple(sorted(event.parts, key=lambda part: part.name))
    _check_parts(parts)
    # Encoded at its place in the entry, so that its depth counts from there: the whole entry must be canonical.
    data = canonical.encode({"event": {"data": event.data}})[len(_BEFORE_DATA) : -len(_AFTER_DATA)]
    # Member names sort as actor < data < key < …, and of the other members only a key may need escapes: the pieces join
    # to one canonical object.
    commitments = ",".join(
        [f'["{part.name}","{commitment(salt=part.salt, payload=part.payload).hex()}"]' for part in parts]
    )
    tail = (
        f',"occurred_at":"{canonical.format_time(event.occurred_at)}","parts":[{commitments}],"type":"{event.type}",'
        f'"version":{_encoded_again(event.version).decode()}}}'
    )
    encoded = b'{"actor":"%b","data":%b,"key":%b%b' % (
        event.actor.encode(),
        data,
        _encoded_again(event.key),
        tail.encode(),
    )
    _check_size(event.type, encoded)
    return PreparedEvent(
        type=event.type,
        version=event.version,
        key=event.key,
        actor=event.actor,
        data=data,
        event=encoded,
        parts=parts,
        is_control=is_control(event.type),
    )


def prepare_blank(event: Event) -> BlankEvent | None:
    """
    Prepare an event before all of it is known: for the text `BLANK` in its data, and its time, others are filled in.

    None if that text does not stand there once, as a value of its own.

    Raises as `prepare`.
    """
    prepared = prepare(event)
    blank = b'"%b"' % BLANK.encode()
    time = b'"occurred_at":"%b"' % canonical.format_time(event.occurred_at).encode()
    # Quotes within texts are escaped, so a text with its quotes is a value, or the name of a member.
    if prepared.data.count(blank) != 1 or prepared.event.count(blank) != 1 or prepared.event.count(time) != 1:
        return None
    if b"%b:" % blank in prepared.data:
        return None
    data_before, _, data_behind = prepared.data.partition(blank)
    before, _, rest = prepared.event.partition(blank)
    between, found, behind = rest.partition(time)
    if not found:
        return None
    name = b'"occurred_at":"'
    return BlankEvent(prepared=prepared, data=(data_before, data_behind), event=(before, between + name, b'"' + behind))


def _check_size(event_type: str, encoded: bytes) -> None:
    if len(encoded) > EVENT_SIZE_BYTES_MAX:
        raise LimitExceededError(f"event {event_type}, bytes", found=len(encoded), limit=EVENT_SIZE_BYTES_MAX)


_encoded_again: Final = lru_cache(maxsize=_KEYS_CACHED, typed=True)(canonical.encode)
"""Encodes keys and versions, of which the same ones occur again and again."""


def _check_members(event: Event) -> None:
    if not TYPE_FORM.fullmatch(event.type):
        raise FormatError("event type", expected="family.verb_in_past_tense", found=event.type)
    if type(event.version) is not int or event.version < 1:
        raise FormatError("event version", expected="a whole number from 1", found=event.version)
    if len(event.key) > KEY_LENGTH_MAX:
        raise LimitExceededError(f"key of event {event.type}, bytes", found=len(event.key), limit=KEY_LENGTH_MAX)
    if not KEY_FORM.fullmatch(event.key):
        raise FormatError("event key", expected="printable ASCII without spaces (ledger.format.event)", found=event.key)
    if not ACTOR_FORM.fullmatch(event.actor):
        raise FormatError("event actor", expected="32 hex digits or 'system'", found=event.actor)
    if not isinstance(event.data, Mapping):
        raise FormatError("event data", expected="an object", found=event.data)


def _check_parts(parts: tuple[Part, ...]) -> None:
    names = [part.name for part in parts]
    if len(set(names)) != len(names):
        raise FormatError("event parts", expected="names unique in the event", found=names)
    for part in parts:
        if not PART_NAME_FORM.fullmatch(part.name):
            raise FormatError("part name", expected="a lower-case word of at most 63 characters", found=part.name)
        if len(part.salt) != SALT_SIZE_BYTES:
            raise FormatError(f"salt of part {part.name}", expected="32 random bytes", found=f"{len(part.salt)} bytes")
        if part.subject is not None and not ACTOR_FORM.fullmatch(part.subject):
            raise FormatError(f"subject of part {part.name}", expected="an actor", found=part.subject)


def derived_group_id(kind: str, content: Json) -> UUID:
    """
    Return the UUIDv8 of the first 16 bytes of SHA-256(0x04 || kind || 0x00 || canonical content).

    A group whose id is derived from its content is appended once, however often it is submitted: docs/formats.md,
    "Hashes".
    """
    digest = bytearray(sha256(b"\x04" + kind.encode() + b"\x00" + canonical.encode(content)).digest()[:16])
    digest[6] = 0x80 | (digest[6] & 0x0F)
    digest[8] = 0x80 | (digest[8] & 0x3F)
    return UUID(bytes=bytes(digest))


def random_group_id(*, now_ms: int, random: bytes) -> UUID:
    """
    Return the UUIDv7 of `now_ms` (Unix milliseconds) and ten random bytes (RFC 9562, section 5.7).
    """
    value = bytearray(now_ms.to_bytes(6, "big") + random[:10])
    value[6] = 0x70 | (value[6] & 0x0F)
    value[8] = 0x80 | (value[8] & 0x3F)
    return UUID(bytes=bytes(value))


def random_uuid_text(random: bytes) -> str:
    """
    Return the text of the UUIDv4 of 16 random bytes (RFC 9562, section 5.4).
    """
    digits = random.hex()
    variant = f"{0x8 | (int(digits[16], 16) & 0x3):x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def uuid_text(uuid: UUID) -> str:
    """
    Return what `str` makes of a UUID, which takes several times as long.
    """
    digits = f"{uuid.int:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def format_key(kind: str, segments: Iterable[str]) -> str:
    """
    Return the event key of the thing of `kind` that `segments` name, outermost first.

    Raises:
        FormatError: if `kind` is not a lower-case word, or there is no segment, or an empty one, or one without a UTF-8
            form. Otherwise two things could share a key, or a key could name nothing.
    """
    if not _KIND.fullmatch(kind):
        raise FormatError("event key", expected="a lower-case word before the colon", found=kind)
    names = list(segments)
    if not all(names) or not names:
        raise FormatError("event key", expected="one segment or more, none of them empty", found=names)
    try:
        return f"{kind}:" + "/".join(quote(name, safe="") for name in names)
    except UnicodeEncodeError as error:
        raise FormatError("event key", expected="segments with a UTF-8 form", found=names) from error


@lru_cache(maxsize=_KEYS_CACHED)
def parse_key(key: str) -> tuple[str, tuple[str, ...]]:
    """
    Return the kind and the segments of an event key.

    Raises:
        FormatError: if `key` is not what `format_key` makes of them.
    """
    kind, _, rest = key.partition(":")
    segments = tuple(unquote(segment) for segment in rest.split("/"))
    if format_key(kind, segments) != key:
        raise FormatError("event key", expected="kind:segment/segment/…, percent-encoded", found=key)
    return kind, segments
