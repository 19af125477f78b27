# SPDX-License-Identifier: Apache-2.0
"""
Keys of events as people read them: what they name, without the percent-encoding. Pure.

Guarantee: two keys never look the same. What cannot be seen, changes the direction of text, or would be taken for a
separator stays percent-encoded, and so does the percent sign. Levels of a catalog are joined by `/`; other names, such
as those of data sets, which have slashes of their own, by `»`. Each level is a `<bdi>`, so that right-to-left names do
not change the order of levels. Look-alike letters are not told apart here (`gateway/confusables.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from unicodedata import category

from markupsafe import Markup, escape

from gateway.http.looking.sight import target_of
from ledger.errors import FormatError
from ledger.format.event import parse_key

LEVEL: Final = "/"
OF: Final = "»"
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""What counts as printable and shows nothing: fillers, variation selectors, the empty Braille pattern."""
_COLUMN: Final = "column"


def shown_name(name: str, *, beside: str = LEVEL) -> str:
    """
    Return a name so that everything in it is seen; `beside` separates it from others, and is encoded in it.

    `urllib.parse.unquote` makes the name of it again.
    """
    return "".join(
        character if _is_seen(name, place, beside) else _encoded(character) for place, character in enumerate(name)
    )


def shown_dotted(names: Iterable[str]) -> str:
    """
    Return the levels of a table's name, joined by dots, as plain text.
    """
    return ".".join(shown_name(name, beside=".") for name in names)


def shown_key(key: str) -> Markup:
    """
    Return a key as HTML: its kind, unless it is a table's, and its names. A key that was shortened is shown as it is.
    """
    kind, beside, names = _parts(key)
    return _levels(beside, names) if kind in {"table", ""} else Markup("{}:{}").format(kind, _levels(beside, names))


def shown_text(key: str) -> str:
    """
    Return a key as plain text, with its kind.
    """
    kind, beside, names = _parts(key)
    return f"{kind}:{beside.join(names)}" if kind else beside.join(names)


def shown_pipeline(key: str) -> Markup:
    """
    Return the key of a pipeline as HTML, without its kind.
    """
    _, beside, names = _parts(key)
    return _levels(beside, names)


def _levels(beside: str, names: Iterable[str]) -> Markup:
    return escape(beside).join(Markup("<bdi>{}</bdi>").format(name) for name in names)


def _parts(key: str) -> tuple[str, str, list[str]]:
    """Return the kind, the separator and the shown names of a key; no kind, and one name, if it has none."""
    try:
        kind, segments = parse_key(key)
    except FormatError:
        return "", "", ["".join(each if each.isascii() and each.isprintable() else _encoded(each) for each in key)]
    if kind == _COLUMN:  # its first name is a key itself, encoded twice
        return "", "", [key]
    if target_of(key) is not None:
        return kind, LEVEL, [shown_name(name) for name in segments]
    return kind, f" {OF} ", [shown_name(name, beside=OF) for name in segments]


def _encoded(character: str) -> str:
    """Return every byte of a character, also of one that a URL need not encode."""
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", errors="surrogatepass"))


def _is_seen(name: str, place: int, beside: str) -> bool:
    character = name[place]
    if character == " ":  # one between two others: more of them would look like one, and the first and last like none
        return 0 < place < len(name) - 1 and " " not in (name[place - 1], name[place + 1])
    if place == 0 and category(character).startswith("M"):  # it would be set upon what stands before the name
        return False
    return character not in {beside, "%"} and character.isprintable() and _BLANK.fullmatch(character) is None
