# SPDX-License-Identifier: Apache-2.0
"""
Names in paths: split before they are decoded, bounded, and unambiguous.
"""

from __future__ import annotations

import unicodedata
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadRequestError
from gateway.identifiers import (
    NAME_LENGTH_MAX,
    NAMESPACE_LEVELS_MAX,
    NAMESPACE_SEPARATOR,
    Target,
    check_new_name,
    parse_alias,
    parse_name,
    parse_name_segment,
    parse_namespace,
    parse_namespace_segment,
)
from ledger.format.event import KEY_LENGTH_MAX, parse_key

READABLE = ["finance", "my table", "été", "таблица", "表", "a-b.c", "🦆", "naïve_2", "ﬁnance"]
CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0xD800, 0xDFFF)]

names = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\u2028\u2029"), min_size=1, max_size=40
).filter(lambda name: name not in {".", ".."})
namespaces = st.lists(names, min_size=1, max_size=4).map(tuple)


@given(names)
def test_a_name_survives_its_path(name: str) -> None:
    assert parse_name_segment(quote(name, safe="")) == name
    assert parse_name_segment(quote(name, safe="/:@!$&'()*+,;=")) == name, "however much of it is encoded"


@given(namespaces)
def test_a_namespace_survives_its_path(namespace: tuple[str, ...]) -> None:
    assert parse_namespace_segment(quote(NAMESPACE_SEPARATOR.join(namespace), safe="")) == namespace
    assert parse_namespace(list(namespace), field="namespace") == namespace


@given(st.tuples(namespaces, names), st.tuples(namespaces, names))
def test_two_tables_never_share_a_key(one: tuple[tuple[str, ...], str], other: tuple[tuple[str, ...], str]) -> None:
    targets = []
    for namespace, name in (one, other):
        try:
            targets.append(Target(alias="lake", namespace=namespace, name=name))
        except BadRequestError:
            return  # too long together
    assert (targets[0].key == targets[1].key) == (one == other)
    kind, (alias, *path) = parse_key(targets[0].key)
    assert (kind, alias, tuple(path)) == ("table", "lake", (*one[0], one[1]))


def test_a_table_and_the_namespace_of_its_name_have_two_keys() -> None:
    table = Target(alias="lake", namespace=("a",), name="b")
    namespace = Target(alias="lake", namespace=("a", "b"))
    assert (table.key, namespace.key) == ("table:lake/a/b", "namespace:lake/a/b")
    assert (table.path, namespace.path) == ("a.b", "a.b")
    assert (table.kind, namespace.kind) == ("table", "namespace")


@pytest.mark.parametrize("control", CONTROLS)
def test_control_characters_and_surrogates_are_refused(control: str) -> None:
    for text in (control, f"a{control}", f"{control}a", f"a{control}b"):
        with pytest.raises(BadRequestError, match=rf"^name: expected no control .* U\+{ord(control):04X}$"):
            parse_name(text, field="name")


@pytest.mark.parametrize("value", ["", "x" * (NAME_LENGTH_MAX + 1), ".", "..", None, 1, b"x", ["x"]])
def test_what_is_no_name_is_refused(value: object) -> None:
    with pytest.raises(BadRequestError, match=r"^name: expected "):
        parse_name(value, field="name")
    assert parse_name("x" * NAME_LENGTH_MAX, field="name") == "x" * NAME_LENGTH_MAX
    assert parse_name("...", field="name") == "..."


@pytest.mark.parametrize("value", [None, "a", [], {}, ["x"] * (NAMESPACE_LEVELS_MAX + 1), 1])
def test_what_is_no_list_of_names_is_refused(value: object) -> None:
    with pytest.raises(BadRequestError, match=r"^namespace: expected a list of 1 to 16 names"):
        parse_namespace(value, field="namespace")


@pytest.mark.parametrize("segment", ["%FF", "%C0%AF", "%ED%A0%80", "a%E2%82"])
def test_a_segment_that_is_no_utf_8_is_refused(segment: str) -> None:
    for parse in (parse_name_segment, parse_namespace_segment):
        with pytest.raises(BadRequestError, match="expected percent-encoded UTF-8"):
            parse(segment)


def test_a_percent_sign_that_encodes_nothing_is_itself() -> None:
    assert parse_name_segment("100%25") == "100%"
    assert parse_name_segment("100%") == "100%"
    assert parse_name_segment("%252F") == "%2F", "decoded once"


@pytest.mark.parametrize("alias", ["", "a b", "a/b", "a.b", "ü", "a\n", "x" * 65, "%2e"])
def test_what_is_no_alias_is_refused(alias: str) -> None:
    with pytest.raises(BadRequestError, match=r"^warehouse: expected 1 to 64"):
        parse_alias(alias, field="warehouse")
    assert parse_alias("x" * 64) == "x" * 64


def test_names_that_make_too_long_a_key_are_refused() -> None:
    room = KEY_LENGTH_MAX - len("namespace:lake/")
    longest = ("x" * 255,) * 7
    rest = room - sum(len(level) + 1 for level in longest)
    assert len(Target(alias="lake", namespace=(*longest, "x" * rest)).key) == KEY_LENGTH_MAX
    with pytest.raises(BadRequestError, match=r"^namespace: expected names of at most 2000 bytes together"):
        Target(alias="lake", namespace=(*longest, "x" * (rest + 1)))
    with pytest.raises(BadRequestError, match=r"^table: "):
        Target(alias="lake", namespace=longest, name="ü" * 255)


@pytest.mark.parametrize("name", READABLE)
def test_a_name_of_any_script_is_readable(name: str) -> None:
    check_new_name(name, field="name")


@given(st.text(min_size=1, max_size=12))
def test_a_readable_name_shows_all_that_it_holds(name: str) -> None:
    try:
        check_new_name(name, field="name")
    except BadRequestError:
        return
    assert unicodedata.normalize("NFC", name) == name == name.strip()
    assert not {unicodedata.category(one) for one in name} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
