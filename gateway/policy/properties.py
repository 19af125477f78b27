# SPDX-License-Identifier: Apache-2.0
"""
Parses Java's .properties files, as `java.util.Properties.load` does, and keeps where each character came from.

Guarantee: one pass, linear in the size of the file. The text of a value is continued over lines and written with
escapes; `Property.offsets` says for each of its characters where in the file it stands, so that an error in a value is
shown in the file. That is why no library does it: those that there are return values without places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.policy.text import place_of

_LINE: Final = re.compile(r"[ \t\f]*(?P<text>[^\n]*)(?:\n|\Z)")
_BLANKS: Final = " \t\f"
_SEPARATORS: Final = "=:"
_ESCAPES: Final = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}
_HEX_4: Final = re.compile(r"[0-9A-Fa-f]{4}")


class PropertiesError(Exception):
    """The text is not a .properties file; `line` and `column` (both from 1) say where, `reason` says why."""

    def __init__(self, reason: str, *, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.reason = reason
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """
    A key and its value, without escapes.

    `offset` is that of the key in the text, `end` that of the end of the last line; `offsets` has one for each
    character of the value, and one for its end.
    """

    key: str
    value: str
    offset: int
    end: int
    offsets: Sequence[int]


def plain_lines(text: str) -> str:
    """Return `text` without a byte order mark, its lines ended by line feeds: what offsets count in."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def parse_properties(text: str) -> tuple[Property, ...]:
    """
    Return the properties of a file in their order; `text` is of `plain_lines`. A key may occur more than once.

    Raises:
        PropertiesError: at a `\\u` that no four hexadecimal digits follow.
    """
    return tuple(_property(text, offsets, end) for offsets, end in _logical_lines(text))


def _logical_lines(text: str) -> Iterator[tuple[list[int], int]]:
    """Yield the offsets of each property's characters, and where its last line ends: no comments, no line ends."""
    offsets: list[int] = []
    is_continued = False
    for line in _LINE.finditer(text):
        start, end = line.span("text")
        if not is_continued and (start == end or text[start] in "#!"):
            continue
        backslashes = end - len(text[start:end].rstrip("\\")) - start
        is_continued = backslashes % 2 == 1
        offsets.extend(range(start, end - 1 if is_continued else end))
        if not is_continued and offsets:
            yield offsets, end
            offsets = []
    if offsets:
        yield offsets, len(text)


def _property(text: str, offsets: Sequence[int], end: int) -> Property:
    at = 0
    while at < len(offsets) and (char := text[offsets[at]]) not in _BLANKS and char not in _SEPARATORS:
        at += 2 if char == "\\" else 1
    value = _after(text, offsets, at, _BLANKS)
    if value < len(offsets) and text[offsets[value]] in _SEPARATORS:
        value = _after(text, offsets, value + 1, _BLANKS)
    key, _ = _unescaped(text, offsets[:at], end)
    plain, places = _unescaped(text, offsets[value:], end)
    return Property(key=key, value=plain, offset=offsets[0], end=end, offsets=places)


def _after(text: str, offsets: Sequence[int], at: int, chars: str) -> int:
    while at < len(offsets) and text[offsets[at]] in chars:
        at += 1
    return at


def _unescaped(text: str, offsets: Sequence[int], end: int) -> tuple[str, tuple[int, ...]]:
    """Return the text at `offsets` without escapes, and where each of its characters stands, and its end."""
    chars: list[str] = []
    places: list[int] = []
    at = 0
    while at < len(offsets):
        char, width = text[offsets[at]], 1
        if char == "\\":
            char, width = _escape(text, offsets[at + 1 : at + 6], offsets[at])
        if chars and "\ud800" <= chars[-1] <= "\udbff" and "\udc00" <= char <= "\udfff":
            chars[-1] = (chars[-1] + char).encode("utf-16", "surrogatepass").decode("utf-16")
        elif char:
            chars.append(char)
            places.append(offsets[at])
        at += width
    return "".join(chars), (*places, offsets[-1] + 1 if offsets else end)


def _escape(text: str, following: Sequence[int], offset: int) -> tuple[str, int]:
    """Return what the escape at `offset` stands for, and how many characters it has; nothing for one at the end."""
    if not following:
        return "", 1
    char = text[following[0]]
    if char != "u":
        return _ESCAPES.get(char, char), 2
    digits = "".join(text[each] for each in following[1:])
    if not _HEX_4.fullmatch(digits):
        line, column = place_of(text, offset)
        raise PropertiesError(f"expected four hexadecimal digits after \\u, found {digits!r}", line=line, column=column)
    return chr(int(digits, 16)), 6
