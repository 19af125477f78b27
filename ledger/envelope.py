"""
The envelope of an entry, read without building the entry: what verification needs of it, at twice the speed.

Guarantee: `read_envelope` accepts exactly the bytes that `ledger.entry.parse_entry` accepts. One regular expression
recognises the fixed members of an entry as `format_entry` spells them, and only `data`, whose members differ from type
to type, is decoded. Whatever the expression does not recognise goes to `parse_entry`, which accepts or refuses it: the
expression is a short cut, never a second opinion.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple, cast

from ledger import canonical
from ledger.entry import ENTRY_SIZE_BYTES_MAX, ORIGIN_FORM, Entry, parse_entry
from ledger.event import ACTOR_FORM, GROUP_EVENTS_MAX, KEY_LENGTH_MAX, PART_NAME_FORM, TYPE_FORM


class Envelope(NamedTuple):
    """
    The members of an entry that place it, texts in UTF-8.

    `parts` is the canonical list of names and commitments, which `commitments` reads. A named tuple, not a dataclass:
    one is made for every entry that is verified, and a dataclass would take a fifth of the time.
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
_KEY = rb"[!#-\[\]-~]{1,%d}" % KEY_LENGTH_MAX  # of `KEY_FORM`, what JSON spells as itself
_COUNT = rb"(?:0|[1-9][0-9]{0,14})"
_PART = rb'\["%b","[0-9a-f]{64}"\]' % PART_NAME_FORM.pattern.encode()
_UUID = rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

_ENTRY = re.compile(
    rb'\{"event":\{"actor":"(?:%(actor)b)","data":(\{.*\}),"key":"(%(key)b)","occurred_at":"(%(time)b)",'
    rb'"parts":(\[(?:%(part)b(?:,%(part)b)*)?\]),"type":"(%(type)b)","version":[1-9][0-9]{0,14}\},'
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

_BRACKETS_MAX = canonical.DEPTH_MAX - 2
"""`data` with more brackets than this may be nested too deeply for an entry, in which it stands two levels down."""


def read_envelope(data: bytes) -> Envelope:
    """
    Return the envelope of the entry that `data` is, to the byte.

    Raises:
        FormatError: if `data` is not an entry, exactly as `ledger.entry.parse_entry` does.
    """
    match = _ENTRY.fullmatch(data)
    if match is None or len(data) > ENTRY_SIZE_BYTES_MAX:
        return _envelope(parse_entry(data))
    body, key, occurred_at, parts, kind, branch, group_id, of_text, position_text, index, log, previous, recorded_at = (
        match.groups()
    )
    of, position = int(of_text), int(position_text)
    if (
        position >= of
        or of > GROUP_EVENTS_MAX
        or body.count(b"{") + body.count(b"[") > _BRACKETS_MAX
        or not (_is_time(occurred_at) and _is_known_time(recorded_at))
        or (len(parts) > 2 and not _are_sorted_and_unique(_PART_NAME.findall(parts)))
    ):
        return _envelope(parse_entry(data))
    canonical.decode(body)
    return Envelope(key, parts, kind, branch, group_id, of, position, int(index), log, previous, recorded_at)


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
    """Tell whether a text of the right form names a day that exists."""
    try:
        datetime.fromisoformat(text[:-1].decode("ascii"))
    except ValueError:
        return False
    return True


_is_known_time = lru_cache(maxsize=16)(_is_time)  # the entries of a batch were recorded at the same time


def _are_sorted_and_unique(names: list[bytes]) -> bool:
    return names == sorted(set(names))
