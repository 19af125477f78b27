# SPDX-License-Identifier: Apache-2.0
"""
What a projection is handed, and what it must not be handed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import FormatError, NotCanonicalError
from ledger.format.event import Part
from ledger.format.events import CommitDecided
from projections.entries import encode_json, read_log_entry, read_principal, storable, storable_json
from projections.errors import UnknownControlError

if TYPE_CHECKING:
    from ledger.format.canonical import Json
    from testkit.projections.story import Story


def test_a_known_event_is_typed_and_an_unknown_one_is_none(story: Story) -> None:
    story.decided()
    story.raw("commit.dreamt")
    known, unknown = story.entries()
    assert isinstance(known.event, CommitDecided)
    assert unknown.event is None
    assert unknown.entry.index == 1


@pytest.mark.parametrize(("event_type", "version"), [("policy.bent", 1), ("key.created", 3), ("tenant.left", 1)])
def test_an_unknown_control_entry_is_an_error(story: Story, event_type: str, version: int) -> None:
    story.raw(event_type, version)
    with pytest.raises(UnknownControlError, match=rf"{event_type} version {version}"):
        story.entries()


def test_bytes_that_are_no_entry_are_an_error() -> None:
    with pytest.raises(FormatError):
        read_log_entry(b"{}", {})


def test_a_missing_member_of_our_own_event_is_corruption(story: Story) -> None:
    decided = story.decision()
    story.add(replace(decided, event=decided.event.replace(b'"policy_set":"' + b"0" * 64 + b'",', b"")))
    with pytest.raises(FormatError, match="exactly the members"):
        story.entries()


@pytest.mark.parametrize(
    ("payload", "expected"),
    [(b'{"sub":"ada"}', "ada"), (b'{"sub":null}', None), (b'{"sub":"a\\u0000\\ud800b"}', "a\ufffd\ufffdb")],
)
def test_the_principal_is_read_from_its_part(story: Story, payload: bytes, expected: str | None) -> None:
    story.decided()
    (item,) = story.entries()
    part = Part(name="principal", payload=payload, salt=bytes(32))
    assert read_principal(replace(item, parts={"principal": part})) == expected
    assert read_principal(replace(item, parts={})) is None


@pytest.mark.parametrize("payload", [b"", b"\xff", b"[]", b"{}", b'{"sub":1}', b"[" * 100_000])
def test_a_principal_that_is_not_of_its_form_is_corruption(story: Story, payload: bytes) -> None:
    story.decided()
    (item,) = story.entries()
    part = Part(name="principal", payload=payload, salt=bytes(32))
    with pytest.raises(FormatError, match="principal"):
        read_principal(replace(item, parts={"principal": part}))


@given(st.text())
def test_storable_text_differs_only_where_postgresql_cannot_hold_it(text: str) -> None:
    stored = storable(text)
    assert len(stored) == len(text)
    assert all(now == before for now, before in zip(stored, text, strict=True) if now != "\ufffd")
    assert "\x00" not in stored
    stored.encode()


def test_every_text_in_a_value_is_made_storable() -> None:
    assert storable_json({"a": ["\x00", 1, None, {"b": "\ud800"}]}) == {"a": ["\ufffd", 1, None, {"b": "\ufffd"}]}


TEXTS = st.text() | st.sampled_from(["\x00", "\ud800", "\\u0000", "\\\x00", "a\U0001f600"])
LEAVES = TEXTS | st.integers(-(2**53) + 1, 2**53 - 1) | st.booleans() | st.none()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner)))
def test_a_row_is_encoded_as_its_storable_value(value: Json) -> None:
    text = encode_json(value)
    assert json.loads(text) == storable_json(value)
    text.encode()


def test_tuples_and_read_only_mappings_are_encoded() -> None:
    assert json.loads(encode_json([MappingProxyType({"a": ("b", "\x00")})])) == [{"a": ["b", "\ufffd"]}]


@pytest.mark.parametrize("value", [datetime(2026, 1, 1, tzinfo=UTC), object(), 2**53])
def test_what_is_no_json_is_not_encoded(value: Any) -> None:
    with pytest.raises(NotCanonicalError):
        encode_json([value])
