# SPDX-License-Identifier: Apache-2.0
"""
Keys as people read them: readable, and never two that look the same.
"""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console.shown_keys import shown_dotted, shown_key, shown_name, shown_pipeline, shown_text
from ledger.format.event import format_key
from projections.keys import bounded_key

NAMES = st.text(st.sampled_from(list("ab/%.» \u202e\u200b\u05d0\u0301\n<&\ufe0f")), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("orders", "orders"),
        ("Bestellungen für Köln", "Bestellungen für Köln"),
        ("注文", "注文"),
        ("a/b", "a/b"),
        ("a.b", "a%2Eb"),
        ("50%", "50%25"),
        ("a%2Fb", "a%252Fb"),
        (" a", "%20a"),
        ("a ", "a%20"),
        ("a  b", "a%20%20b"),
        ("a\nb", "a%0Ab"),
        ("a\u00a0b", "a%C2%A0b"),
        ("a\u202eb", "a%E2%80%AEb"),
        ("a\u200bb", "a%E2%80%8Bb"),
        ("a\u3164b", "a%E3%85%A4b"),
        ("a\ufe0f", "a%EF%B8%8F"),
        ("\u0301a", "%CC%81a"),
        ("e\u0301", "e\u0301"),
        ("שלום", "שלום"),
    ],
)
def test_a_name_is_readable_and_everything_in_it_is_seen(name: str, shown: str) -> None:
    assert shown_name(name) == shown
    assert unquote(shown) == name


@given(st.lists(NAMES, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=4))
def test_two_keys_never_look_the_same(one: list[str], other: list[str]) -> None:
    for kind in ("table", "dataset", "policy"):
        keys = format_key(kind, one), format_key(kind, other)
        for shown in (shown_key, shown_text):
            assert (shown(keys[0]) == shown(keys[1])) == (keys[0] == keys[1])
        assert (shown_dotted(one) == shown_dotted(other)) == (one == other)


def test_a_key_says_what_it_is_of_and_each_level_keeps_its_direction() -> None:
    assert shown_key("table:lake/sales/my%20orders") == "<bdi>lake</bdi>.<bdi>sales</bdi>.<bdi>my orders</bdi>"
    assert shown_key("table:lake/%D7%90/b") == "<bdi>lake</bdi>.<bdi>א</bdi>.<bdi>b</bdi>"
    assert shown_key("namespace:lake/a%2Fb") == "namespace:<bdi>lake</bdi>.<bdi>a/b</bdi>"
    assert shown_key("dataset:s3%3A%2F%2Fbucket/raw%2Forders") == (
        "dataset:<bdi>s3://bucket</bdi> » <bdi>raw/orders</bdi>"
    )
    assert shown_pipeline("pipeline:etl/copy%20customers") == "<bdi>etl</bdi> » <bdi>copy customers</bdi>"
    assert shown_text("dataset:s3%3A%2F%2Fbucket/raw%2Forders") == "dataset:s3://bucket » raw/orders"


def test_a_key_that_cannot_be_taken_apart_is_shown_as_it_is() -> None:
    shortened = bounded_key(format_key("table", ["lake", "my orders" * 200]))
    assert shown_key(shortened) == f"<bdi>{shortened}</bdi>"
    assert shown_key("no key\u202e%") == "<bdi>no key%E2%80%AE%</bdi>"
    for nested in (
        "column:no%20key/email",
        "column:column%3Atable%253Aa%252Fb%252Fc%2Fd/e",
        "column:table%3Aa%2Fb%2Fc/d/e",
    ):
        assert shown_key(nested) == f"<bdi>{nested}</bdi>"


def test_a_column_is_shown_with_what_it_is_a_column_of() -> None:
    assert shown_key("column:table%3Alake%2Fsales%2Fmy%2520orders/e%C2%BBmail") == (
        "column:<bdi>lake</bdi>.<bdi>sales</bdi>.<bdi>my orders</bdi> » <bdi>e%C2%BBmail</bdi>"
    )
    assert shown_text("column:dataset%3As3%253A%252F%252Fb%2Fraw/mail") == "column:dataset:s3://b » raw » mail"


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "&lt;b&gt;"])
def test_markup_in_a_name_is_text(name: str) -> None:
    shown = shown_key(format_key("table", ["lake", "sales", name]))
    levels = re.findall("<bdi>(.*?)</bdi>", shown)
    assert unquote(unescape(levels[-1])) == name
    assert not re.search(r"<(?!/?bdi>)", shown)
