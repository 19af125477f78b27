# SPDX-License-Identifier: Apache-2.0
"""An entry's bytes: one form, which formatting gives and parsing demands to the byte."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import FormatError, LedgerError
from ledger.format import canonical
from ledger.format.entry import (
    ENTRY_SIZE_BYTES_MAX,
    FIRST_PREVIOUS,
    ORIGIN_LENGTH_MAX,
    Branch,
    check_origin,
    format_entry,
    parse_entry,
)
from ledger.format.event import EVENT_SIZE_BYTES_MAX, Event, Part, prepare
from ledger.format.merkle import leaf_hash

GROUP = UUID("017f22e2-79b0-7cc3-98c4-dc0c0c07398f")
TIME = "2026-03-01T12:00:00.000005Z"
PLAIN = Event(
    type="commit.decided",
    version=1,
    key="table:lake/sales/orders",
    actor="system",
    occurred_at=datetime(2026, 3, 1, 11, 59, tzinfo=UTC),
    data={"text": 'quo"te \\ \u2028 𝄞', "n": -1},
    parts=(Part(name="inputs", payload=b"in", salt=bytes(32)),),
)
EVENT = prepare(PLAIN)
ENTRY = format_entry(
    EVENT.event,
    log="logs.example/system",
    index=17,
    previous=bytes(range(32)),
    recorded_at=TIME,
    group_id=GROUP,
    branch=Branch.ELSE,
    of=2,
    position=1,
)


def test_the_bytes_of_an_entry_are_these() -> None:
    assert (
        b'{"event":' + EVENT.event + b',"group":{"branch":"else","id":"017f22e2-79b0-7cc3-98c4-dc0c0c07398f","of":2,'
        b'"position":1},"index":17,"log":"logs.example/system",'
        b'"previous":"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",'
        b'"recorded_at":"2026-03-01T12:00:00.000005Z"}'
    ) == ENTRY


def test_what_was_formatted_is_parsed_again() -> None:
    entry = parse_entry(ENTRY)
    assert (entry.log, entry.index, entry.previous) == ("logs.example/system", 17, bytes(range(32)))
    assert (entry.group_id, entry.branch, entry.of, entry.position) == (GROUP, Branch.ELSE, 2, 1)
    assert entry.recorded_at == datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)
    assert entry.occurred_at == datetime(2026, 3, 1, 11, 59, tzinfo=UTC)
    assert (entry.type, entry.version, entry.key, entry.actor) == (
        "commit.decided",
        1,
        "table:lake/sales/orders",
        "system",
    )
    assert entry.data == {"text": 'quo"te \\ \u2028 𝄞', "n": -1}
    assert list(entry.parts) == ["inputs"]


@settings(max_examples=30)
@given(
    index=st.integers(0, 2**53 - 1),
    previous=st.binary(min_size=32, max_size=32),
    group=st.uuids(),
    of=st.integers(1, 1024),
    data=st.dictionaries(st.text(st.characters(codec="ascii"), max_size=5), st.text() | st.booleans(), max_size=4),
    log=st.text(st.sampled_from("abz019.-_/~!#'(),:;<=>?@[]^`{|}*$%&"), min_size=1, max_size=ORIGIN_LENGTH_MAX),
)
def test_the_splice_is_canonical_whatever_it_holds(
    index: int, previous: bytes, group: UUID, of: int, data: dict[str, Any], log: str
) -> None:
    check_origin(log)
    event = event_of(data)
    entry = format_entry(
        event,
        log=log,
        index=index,
        previous=previous,
        recorded_at=TIME,
        group_id=group,
        branch=Branch.THEN,
        of=of,
        position=of - 1,
    )
    whole = cast("dict[str, Any]", canonical.decode(entry))
    assert canonical.encode(whole) == entry
    parsed = parse_entry(entry)
    assert (parsed.index, parsed.previous, parsed.group_id, parsed.of) == (index, previous, group, of)
    assert parsed.log == log
    assert parsed.data == data


def event_of(data: dict[str, Any]) -> bytes:
    event = Event(
        type="a.b", version=1, key="k", actor="system", occurred_at=datetime(2026, 3, 1, tzinfo=UTC), data=data
    )
    return prepare(event).event


def test_the_largest_event_fits_into_an_entry_of_the_longest_envelope() -> None:
    entry = format_entry(
        bytes(EVENT_SIZE_BYTES_MAX),
        log="x" * ORIGIN_LENGTH_MAX,
        index=2**63 - 1,
        previous=FIRST_PREVIOUS,
        recorded_at=TIME,
        group_id=GROUP,
        branch=Branch.THEN,
        of=1024,
        position=1023,
    )
    assert len(entry) <= ENTRY_SIZE_BYTES_MAX


def test_a_changed_byte_is_refused_or_read_as_another_entry() -> None:
    for at in range(len(ENTRY)):
        damaged = bytearray(ENTRY)
        damaged[at] ^= 1
        with suppress(FormatError):
            assert parse_entry(bytes(damaged)) != parse_entry(ENTRY)
        assert leaf_hash(bytes(damaged)) != leaf_hash(ENTRY)


def changed(*path: str | int, to: object) -> bytes:
    """Return ENTRY with one member changed."""
    whole = cast("Any", canonical.decode(ENTRY))
    inner = whole
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = to
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (changed("index", to=-1), "index"),
        (changed("index", to="17"), "index"),
        (changed("index", to=True), "index"),
        (changed("log", to=None), "log"),
        (changed("previous", to="00"), "previous"),
        (changed("previous", to="F" * 64), "previous"),
        (changed("recorded_at", to="2026-03-01T12:00:00Z"), "time"),
        (changed("recorded_at", to="2026-03-01T12:00:00.000005+00:00"), "time"),
        (changed("recorded_at", to=0), "recorded_at"),
        (changed("extra", to=1), "entry"),
        (changed("event", to=[]), "event"),
        (changed("event", "extra", to=1), "event"),
        (changed("log", to="logs example/system"), "log origin"),
        (changed("log", to=""), "log origin"),
        (changed("event", "actor", to="ada@example.org"), "event.actor"),
        (changed("event", "actor", to=None), "event.actor"),
        (changed("event", "key", to="tablé"), "event.key"),
        (changed("event", "key", to=""), "event.key"),
        (changed("event", "key", to="k" * 2_001), "event.key"),
        (changed("event", "type", to="Commit Decided2"), "event.type"),
        (changed("event", "parts", to=[["A b", "0" * 64]]), "part name"),
        (changed("event", "parts", to=[["a" * 64, "0" * 64]]), "part name"),
        (changed("event", "version", to=0), "version"),
        (changed("event", "type", to=1), "type"),
        (changed("event", "data", to=[]), "data"),
        (changed("event", "occurred_at", to="yesterday"), "time"),
        (changed("event", "parts", to={}), "parts"),
        (changed("event", "parts", to=[["inputs"]]), "parts"),
        (changed("event", "parts", to=[["inputs", "00"]]), "commitment"),
        (changed("event", "parts", to=[["b", "0" * 64], ["a", "0" * 64]]), "parts"),
        (changed("event", "parts", to=[["a", "0" * 64], ["a", "0" * 64]]), "parts"),
        (changed("event", "parts", to=["ab"]), "parts"),
        (changed("group", to=None), "group"),
        (changed("group", "extra", to=None), "group"),
        (changed("group", "branch", to="maybe"), "branch"),
        (changed("group", "id", to="017F22E2-79B0-7CC3-98C4-DC0C0C07398F"), "group.id"),
        (changed("group", "id", to="not a uuid"), "group.id"),
        (changed("group", "of", to=1), "position"),
        (changed("group", "of", to=1025), "group.of"),
        (changed("group", "position", to=2), "position"),
        (ENTRY + b" ", "canonical"),
        (b" " + ENTRY, "canonical"),
        (ENTRY.replace(b'"index":17', b'"index":17.0'), "canonical"),
        (ENTRY.replace(b"\xe2\x80\xa8", b"\\u2028"), "canonical"),
        (ENTRY.replace(b'"of":2,"position":1', b'"position":1,"of":2'), "canonical"),
        (ENTRY[:-1], "canonical"),
        (b"", "canonical"),
        (b"[]", "entry"),
        (b"\xff\xfe", "canonical"),
        (b"x" * (ENTRY_SIZE_BYTES_MAX + 1), "65535"),
    ],
)
def test_bytes_that_are_not_exactly_an_entry_are_refused_by_name(data: bytes, named: str) -> None:
    with pytest.raises(FormatError, match=named):
        parse_entry(data)


TEXTS = st.text('azAZ09_.~:/%"\\ é\n', max_size=6)


@settings(max_examples=80)
@given(
    kind=TEXTS | st.from_regex(r"[a-z_]{1,3}\.[a-z_]{1,3}", fullmatch=True),
    key=TEXTS | st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
    actor=TEXTS | st.just("system") | st.from_regex(r"[0-9a-f]{31,33}", fullmatch=True),
    name=TEXTS | st.from_regex(r"[a-z0-9_]{1,65}", fullmatch=True),
    version=st.integers(-1, 2) | st.integers(2**53 - 2, 2**53),
)
def test_what_can_be_prepared_is_what_an_entry_may_hold(
    kind: str, key: str, actor: str, name: str, version: int
) -> None:
    spoilt = {"type": kind, "key": key, "actor": actor, "version": version}
    for member, value in spoilt.items():
        event = replace(PLAIN, **{member: value})  # type: ignore[arg-type]
        assert _is_prepared(event) == _is_parsed(changed("event", member, to=value))
    event = replace(PLAIN, parts=(Part(name=name, payload=b"", salt=bytes(32)),))
    assert _is_prepared(event) == _is_parsed(changed("event", "parts", to=[[name, "0" * 64]]))


def _is_prepared(event: Event) -> bool:
    try:
        prepare(event)
    except LedgerError:
        return False
    return True


def _is_parsed(data: bytes) -> bool:
    try:
        parse_entry(data)
    except FormatError:
        return False
    return True


@settings(max_examples=50)
@given(
    st.binary(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(repr).map(str.encode)
)
def test_no_bytes_at_all_make_the_parser_raise_anything_else(data: bytes) -> None:
    with pytest.raises(LedgerError):
        parse_entry(data)


@pytest.mark.parametrize(
    ("origin", "accepts"),
    [
        ("lakeproof.invalid/1a2b3c4d/system", True),
        ("x" * 255, True),
        ("", False),
        ("x" * 256, False),
        ("with space", False),
        ("with+plus", False),
        ('with"quote', False),
        ("with\\backslash", False),
        ("new\nline", False),
        ("line\n", False),
        ("ünicode", False),
        ("nul\x00", False),
    ],
)
def test_an_origin_is_printable_ascii_that_json_does_not_escape(origin: str, accepts: bool) -> None:
    if accepts:
        check_origin(origin)
        assert canonical.encode(origin) == f'"{origin}"'.encode()
    else:
        with pytest.raises(FormatError, match="log origin"):
            check_origin(origin)
