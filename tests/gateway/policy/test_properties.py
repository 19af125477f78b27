# SPDX-License-Identifier: Apache-2.0
"""
Java's .properties files: what they mean, and where each character of a value stands.

Known answers are of the documentation of `java.util.Properties.load`, where it has one.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.properties import PropertiesError, parse_properties, plain_lines


def read(text: str) -> list[tuple[str, str]]:
    return [(each.key, each.value) for each in parse_properties(plain_lines(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Truth = Beauty", [("Truth", "Beauty")]),
        (" Truth:Beauty", [("Truth", "Beauty")]),
        ("Truth                    :Beauty", [("Truth", "Beauty")]),
        (
            "fruits       apple, banana, pear, \\\n              cantaloupe, watermelon, \\\n              kiwi, mango",
            [("fruits", "apple, banana, pear, cantaloupe, watermelon, kiwi, mango")],
        ),
        ("cheeses", [("cheeses", "")]),
        ("\\:\\=", [(":=", "")]),
        ("k=v\\\\\nl=w", [("k", "v\\"), ("l", "w")]),
        ("# a\\\n! b\nk = # c", [("k", "# c")]),
        ("k=a\\\n# b", [("k", "a# b")]),
        ("k = a\\tb\\u0041\\z \n", [("k", "a\tbAz ")]),
        ("k=\\ud83d\\ude00\\ud83d", [("k", "\U0001f600\ud83d")]),
        ("\ufeffk=a\\\r\n   b\rl w=x\r", [("k", "ab"), ("l", "w=x")]),
        ("k==a", [("k", "=a")]),
        ("k=a\\", [("k", "a")]),
        ("", []),
        (" \\\n \\\n", []),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: list[tuple[str, str]]) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "place"), [("k=\\u12", (1, 3)), ("a=1\n\\uXYZW=b", (2, 1)), ("k=a\\\n  b\\u004\\\n  ", (2, 4))]
)
def test_an_escape_without_four_digits_is_refused_with_its_place(text: str, place: tuple[int, int]) -> None:
    with pytest.raises(PropertiesError, match="four hexadecimal digits") as refused:
        parse_properties(text)
    assert (refused.value.line, refused.value.column) == place


@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), max_size=6), st.booleans())
def test_what_is_written_with_escapes_is_read_again(pairs: list[tuple[str, str]], is_continued: bool) -> None:
    def escaped(text: str) -> str:
        pieces = []
        for char in text:
            code = char.encode("utf-16-be", "surrogatepass").hex()
            pieces += [f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4)]
        return ("\\\n \t" if is_continued else "").join(pieces)

    text = "".join(f"x{escaped(key)} = {escaped(value)}\n" for key, value in pairs)
    plain = plain_lines(text)
    assert [(each.key, each.value) for each in parse_properties(plain)] == [
        (f"x{_joined(key)}", _joined(value)) for key, value in pairs
    ]


@given(st.text(alphabet="ab= :\\\n\t#!u0041", max_size=40))
def test_each_character_of_a_value_is_where_its_offset_says(text: str) -> None:
    try:
        found = parse_properties(text)
    except PropertiesError:
        return
    for each in found:
        assert len(each.offsets) == len(each.value) + 1
        assert list(each.offsets) == sorted(set(each.offsets))
        assert each.offset <= each.offsets[0] <= each.offsets[-1] <= each.end <= len(text)
        for char, offset in zip(each.value, each.offsets, strict=False):
            assert text[offset] in {char, "\\"}


def _joined(text: str) -> str:
    """Return `text` with two surrogates that follow one another as one character, as Java and Python have it."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
