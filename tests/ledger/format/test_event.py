# SPDX-License-Identifier: Apache-2.0
"""An event's canonical bytes, its commitments and ids: known answers, and every member that can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import FormatError, LimitExceededError, NotCanonicalError
from ledger.format import canonical
from ledger.format.entry import FIRST_PREVIOUS, Branch, format_entry, parse_entry
from ledger.format.event import (
    BLANK,
    EVENT_SIZE_BYTES_MAX,
    KEY_LENGTH_MAX,
    Event,
    Part,
    commitment,
    derived_group_id,
    is_control,
    prepare,
    prepare_blank,
    random_group_id,
    random_uuid_text,
    uuid_text,
)

SALT = bytes(range(32))
EVENT = Event(
    type="commit.settled",
    version=1,
    key="table:lake/sales/orders",
    actor="00112233445566778899aabbccddeeff",
    occurred_at=datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC),
    data={"outcome": "accepted", "n": 1},
    parts=(
        Part(name="principal", payload=b"who", salt=SALT, subject="00112233445566778899aabbccddeeff"),
        Part(name="inputs", payload=b"", salt=SALT[::-1]),
    ),
)


def test_the_bytes_of_an_event_are_these() -> None:
    inputs = sha256(b"\x03" + SALT[::-1]).hexdigest()
    principal = sha256(b"\x03" + SALT + b"who").hexdigest()
    assert prepare(EVENT).event.decode() == (
        '{"actor":"00112233445566778899aabbccddeeff","data":{"n":1,"outcome":"accepted"},'
        '"key":"table:lake/sales/orders","occurred_at":"2026-03-01T12:00:00.000005Z",'
        f'"parts":[["inputs","{inputs}"],["principal","{principal}"]],"type":"commit.settled","version":1}}'
    )


@settings(max_examples=30)
@given(
    data=st.dictionaries(st.text(st.characters(codec="ascii")), st.integers(-5, 5) | st.text() | st.none()),
    key=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=50),
)
def test_the_pieces_join_to_one_canonical_object(data: dict[str, Any], key: str) -> None:
    prepared = prepare(replace(EVENT, data=data, key=key))
    whole = cast("dict[str, Any]", canonical.decode(prepared.event))
    assert whole["data"] == data
    assert whole["key"] == key
    assert canonical.encode(data) == prepared.data


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def test_data_as_deep_as_an_entry_may_be_is_accepted_and_read_back() -> None:
    # Of an entry's levels two are its own: the entry and the event.
    prepared = prepare(replace(EVENT, data=nested(canonical.DEPTH_MAX - 2)))
    entry = format_entry(
        prepared.event,
        log="logs.example.org/a",
        index=0,
        previous=FIRST_PREVIOUS,
        recorded_at=canonical.format_time(EVENT.occurred_at),
        group_id=UUID(int=1),
        branch=Branch.THEN,
        of=1,
        position=0,
    )
    assert parse_entry(entry).data == nested(canonical.DEPTH_MAX - 2)


def test_data_too_deep_for_an_entry_is_refused_before_it_is_appended() -> None:
    with pytest.raises(NotCanonicalError, match="levels"):
        prepare(replace(EVENT, data=nested(canonical.DEPTH_MAX - 1)))


def test_a_commitment_is_over_salt_and_bytes_behind_a_prefix_of_its_own() -> None:
    # (printf '\003'; head -c 32 /dev/zero; printf hello) | sha256sum
    known = "46bebed4eefe461a4ea9a048755540829db238af07342d42396e528425349717"
    assert commitment(salt=bytes(32), payload=b"hello").hex() == known
    assert commitment(salt=bytes(31) + b"\x01", payload=b"hello").hex() != known
    assert commitment(salt=bytes(32), payload=b"hellp").hex() != known


def test_parts_are_sorted_by_name_whatever_their_order() -> None:
    assert prepare(EVENT).event == prepare(replace(EVENT, parts=EVENT.parts[::-1])).event


def test_a_part_does_not_show_its_payload_when_printed() -> None:
    assert "who" not in repr(EVENT.parts[0])


def test_what_changes_an_event_changes_its_bytes() -> None:
    changed = (
        replace(EVENT, type="commit.decided"),
        replace(EVENT, version=2),
        replace(EVENT, key="table:lake/sales/order"),
        replace(EVENT, actor="system"),
        replace(EVENT, occurred_at=EVENT.occurred_at + timedelta(microseconds=1)),
        replace(EVENT, data={"outcome": "accepted", "n": 2}),
        replace(EVENT, parts=EVENT.parts[:1]),
        replace(EVENT, parts=(replace(EVENT.parts[0], payload=b"whO"), EVENT.parts[1])),
    )
    assert len({prepare(event).event for event in (EVENT, *changed)}) == 1 + len(changed)


@pytest.mark.parametrize(
    ("spoil", "error", "named"),
    [
        (lambda e: replace(e, type="commit"), FormatError, "event type"),
        (lambda e: replace(e, type="Commit.decided"), FormatError, "event type"),
        (lambda e: replace(e, type="commit.decided\n"), FormatError, "event type"),
        (lambda e: replace(e, version=0), FormatError, "event version"),
        (lambda e: replace(e, version=True), FormatError, "event version"),
        (lambda e: replace(e, key=""), FormatError, "event key"),
        (lambda e: replace(e, key="table:a b"), FormatError, "event key"),
        (lambda e: replace(e, key="table:a\x00b"), FormatError, "event key"),
        (lambda e: replace(e, key="table:ü"), FormatError, "event key"),
        (lambda e: replace(e, key="k" * (KEY_LENGTH_MAX + 1)), LimitExceededError, "key"),
        (lambda e: replace(e, actor="alice@example.com"), FormatError, "event actor"),
        (lambda e: replace(e, actor="0" * 31), FormatError, "event actor"),
        (lambda e: replace(e, actor="A" * 32), FormatError, "event actor"),
        (lambda e: replace(e, data=["a"]), FormatError, "event data"),
        (lambda e: replace(e, data={"a": 0.5}), NotCanonicalError, "a"),
        (lambda e: replace(e, data={"a": 2**53}), NotCanonicalError, "a"),
        (lambda e: replace(e, data={"ä": 1}), NotCanonicalError, "ä"),
        (lambda e: replace(e, data={"a": "\ud800"}), NotCanonicalError, "a"),
        (lambda e: replace(e, occurred_at=datetime(2026, 3, 1)), NotCanonicalError, "time"),  # noqa: DTZ001 - naive
        (
            lambda e: replace(e, occurred_at=e.occurred_at.astimezone(timezone(timedelta(hours=1)))),
            NotCanonicalError,
            "time",
        ),
        (lambda e: replace(e, parts=e.parts[:1] * 2), FormatError, "parts"),
        (lambda e: replace(e, parts=(replace(e.parts[0], name="Who"),)), FormatError, "part name"),
        (lambda e: replace(e, parts=(replace(e.parts[0], salt=b"short"),)), FormatError, "salt"),
        (lambda e: replace(e, parts=(replace(e.parts[0], subject="alice"),)), FormatError, "subject"),
    ],
)
def test_a_member_that_is_not_of_its_form_is_refused_by_name(
    spoil: Callable[[Event], Event], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        prepare(spoil(EVENT))


def test_an_event_of_the_largest_size_is_accepted_and_one_byte_more_is_refused() -> None:
    size = len(prepare(replace(EVENT, data={"text": ""})).event)
    fits = "x" * (EVENT_SIZE_BYTES_MAX - size)
    assert len(prepare(replace(EVENT, data={"text": fits})).event) == EVENT_SIZE_BYTES_MAX
    with pytest.raises(LimitExceededError, match="64513"):
        prepare(replace(EVENT, data={"text": fits + "x"}))


def test_the_control_plane_is_told_by_the_family_of_a_type() -> None:
    assert all(is_control(f"{family}.created") for family in ("policy", "access_rule", "catalog", "tenant", "key"))
    assert is_control("contract.changed")
    assert not any(is_control(event_type) for event_type in ("commit.decided", "policys.created", "signer.created"))
    assert prepare(replace(EVENT, type="policy.created")).is_control
    assert not prepare(EVENT).is_control


@given(random=st.binary(min_size=16, max_size=16))
def test_the_texts_of_uuids_are_those_of_the_standard_library(random: bytes) -> None:
    assert random_uuid_text(random) == str(UUID(bytes=random, version=4))
    assert uuid_text(UUID(bytes=random)) == str(UUID(bytes=random))


def test_a_random_group_id_is_the_uuid_v7_of_the_standard() -> None:
    # RFC 9562, appendix A.6: the example of a UUIDv7.
    random = (0x0CC3).to_bytes(2, "big") + (0x18C4DC0C0C07398F).to_bytes(8, "big")
    made = random_group_id(now_ms=0x017F22E279B0, random=random)
    assert made == UUID("017f22e2-79b0-7cc3-98c4-dc0c0c07398f")
    assert made.version == 7


def test_a_derived_group_id_is_a_uuid_v8_of_kind_and_content() -> None:
    content: canonical.Json = {"b": 1, "a": ["x"]}
    made = derived_group_id("scan", content)
    digest = sha256(b'\x04scan\x00{"a":["x"],"b":1}').digest()
    assert made.version == 8
    assert made.variant == "specified in RFC 4122"
    assert made.bytes[:6] + made.bytes[7:8] + made.bytes[9:] == digest[:6] + digest[7:8] + digest[9:16]
    others = {derived_group_id("scans", content), derived_group_id("scan", {"b": 1, "a": ["y"]})}
    assert made not in others


# A text and a time that are not known yet

WITH_BLANK = replace(EVENT, data={"a": [BLANK], "outcome": "accepted", "n": 1})


@settings(max_examples=50)
@given(
    text=st.text(),
    others=st.dictionaries(st.text(st.characters(codec="ascii")), st.integers(-5, 5) | st.text() | st.none()),
    later=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=400)),
)
def test_a_blank_that_is_filled_is_the_event_that_would_have_been_prepared(
    text: str, others: dict[str, Any], later: timedelta
) -> None:
    blank = prepare_blank(replace(EVENT, data={**others, "blank": BLANK}))
    assert blank is not None
    at = EVENT.occurred_at + later
    assert blank.fill(text, at) == prepare(replace(EVENT, data={**others, "blank": text}, occurred_at=at))


def test_what_looks_like_the_time_is_left_alone() -> None:
    data = {"a": BLANK, "b": '"occurred_at":"2026-03-01T12:00:00.000005Z"'}
    blank = prepare_blank(replace(EVENT, data=data))
    assert blank is not None
    at = EVENT.occurred_at + timedelta(days=1)
    assert blank.fill("x", at) == prepare(replace(EVENT, data={**data, "a": "x"}, occurred_at=at))
    assert prepare_blank(replace(EVENT, data={"a": BLANK, "occurred_at": "2026-03-01T12:00:00.000005Z"})) is None


@pytest.mark.parametrize(
    "event",
    [
        EVENT,
        replace(EVENT, data={"a": BLANK, "b": BLANK}),
        replace(EVENT, data={BLANK: "a"}),
        replace(EVENT, data={BLANK: BLANK}),
        replace(EVENT, data={"a": f"{BLANK} and more"}),
        replace(EVENT, data={"a": f'"{BLANK}"'}),
        replace(EVENT, data={"a": BLANK}, key=BLANK),
    ],
    ids=["none", "two", "a name", "a name and a value", "a part", "within quotes", "the key"],
)
def test_what_has_no_one_blank_is_not_filled(event: Event) -> None:
    assert prepare_blank(event) is None


def test_what_cannot_be_prepared_cannot_be_filled_in() -> None:
    blank = prepare_blank(WITH_BLANK)
    assert blank is not None
    with pytest.raises(NotCanonicalError):
        blank.fill("\ud800", EVENT.occurred_at)
    with pytest.raises(NotCanonicalError):
        blank.fill("x", EVENT.occurred_at.replace(tzinfo=None))
    room = EVENT_SIZE_BYTES_MAX - len(blank.fill("", EVENT.occurred_at).event)
    assert len(blank.fill("x" * room, EVENT.occurred_at).event) == EVENT_SIZE_BYTES_MAX
    with pytest.raises(LimitExceededError):
        blank.fill("x" * (room + 1), EVENT.occurred_at)
