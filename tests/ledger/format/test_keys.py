# SPDX-License-Identifier: Apache-2.0
"""Event keys: one name a thing, and one thing a name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import FormatError
from ledger.format.event import format_key, parse_key

NAMES = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("kind", "segments", "key"),
    [
        ("table", ["lake", "sales", "orders"], "table:lake/sales/orders"),
        ("table", ["lake", "a/b", "c"], "table:lake/a%2Fb/c"),
        ("namespace", ["lake", "grün"], "namespace:lake/gr%C3%BCn"),
        ("policy", ["p 1:x%"], "policy:p%201%3Ax%25"),
        ("view", ["A-Z.a_z~9"], "view:A-Z.a_z~9"),  # RFC 3986, section 2.3: unreserved characters stand for themselves
        ("log", ["authority/system"], "log:authority%2Fsystem"),
    ],
)
def test_a_key_is_spelled_like_this(kind: str, segments: list[str], key: str) -> None:
    assert format_key(kind, segments) == key
    assert parse_key(key) == (kind, tuple(segments))


@settings(max_examples=50)
@given(NAMES)
def test_every_name_comes_back_from_its_key(segments: list[str]) -> None:
    key = format_key("table", segments)
    assert key.isascii()
    assert key.isprintable()
    assert " " not in key
    assert parse_key(key) == ("table", tuple(segments))


@settings(max_examples=50)
@given(NAMES, NAMES)
def test_two_names_never_share_a_key(one: list[str], other: list[str]) -> None:
    assert (format_key("table", one) == format_key("table", other)) == (one == other)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "table",
        "table:",
        ":lake",
        "table:lake//orders",
        "table:lake/",
        "table:a b",
        "table:a%2fb",  # lower-case hex
        "table:%61",  # an unreserved character need not be encoded, so it must not be
        "table:%FF",  # not UTF-8
        "table:%",
        "table:ü",
        "table:\ud800",
        "Table:lake",
        "ta ble:lake",
    ],
)
def test_another_spelling_is_no_key(key: str) -> None:
    with pytest.raises(FormatError, match="event key"):
        parse_key(key)


@pytest.mark.parametrize(
    ("kind", "segments"), [("table", []), ("table", ["a", ""]), ("", ["a"]), ("a:b", ["c"]), ("table", ["\ud800"])]
)
def test_what_would_name_nothing_or_two_things_has_no_key(kind: str, segments: list[str]) -> None:
    with pytest.raises(FormatError, match="event key"):
        format_key(kind, segments)
