# SPDX-License-Identifier: Apache-2.0
"""
Keys of events as people read them: what they name, without the percent-encoding. Pure.

Guarantee: two keys never look the same. What cannot be seen, changes the direction of text, or would be taken for a
separator stays percent-encoded, and so does the percent sign. Levels of a catalog are joined by `.`, as engines have
them; other names, such as those of data sets, which have slashes of their own, by `»`. Each level is a `<bdi>`, so that
right-to-left names do not change the order of levels. Look-alike letters are not told apart here
(`gateway/confusables.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final
from unicodedata import category

from markupsafe import Markup, escape

from gateway.http.looking.sight import target_of
from ledger.errors import FormatError
from ledger.format.event import parse_key

LEVEL: Final = "."
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


def shown_pieces(key: str) -> list[tuple[str, bool]]:
    """
    Return a key as pieces of text, each with whether it is a name, which keeps a direction of its own: its kind, unless
    it is a table's, and its names. A key that was shortened is shown as it is.
    """
    kind, pieces = _parts(key)
    return pieces if kind in {"table", ""} else [(f"{kind}:", False), *pieces]


def shown_key(key: str) -> Markup:
    """
    Return a key as HTML: its pieces, the names of them isolated.
    """
    return _html(shown_pieces(key))


def shown_text(key: str) -> str:
    """
    Return a key as plain text, with its kind.
    """
    kind, pieces = _parts(key)
    text = "".join(each for each, _ in pieces)
    return f"{kind}:{text}" if kind else text


def shown_pipeline(key: str) -> Markup:
    """
    Return the key of a pipeline as HTML, without its kind.
    """
    return _html(_parts(key)[1])


def _html(pieces: Iterable[tuple[str, bool]]) -> Markup:
    return Markup("").join(
        Markup("<bdi>{}</bdi>").format(each) if is_name else escape(each) for each, is_name in pieces
    )


def _parts(key: str) -> tuple[str, list[tuple[str, bool]]]:
    """Return the kind of a key and its names with what separates them; no kind, and one name, if it has none."""
    try:
        kind, segments = parse_key(key)
    except FormatError:
        return "", [("".join(each if each.isascii() and each.isprintable() else _encoded(each) for each in key), True)]
    if kind == _COLUMN:
        return _column_parts(key, segments)
    if target_of(key) is not None:
        return kind, _joined(LEVEL, (shown_name(name) for name in segments))
    return kind, _joined(f" {OF} ", (shown_name(name, beside=OF) for name in segments))


def _column_parts(key: str, segments: Sequence[str]) -> tuple[str, list[tuple[str, bool]]]:
    """Return the parts of the key of a column, whose first name is the key of what it is a column of."""
    owner, names = segments[0], segments[1:]
    if len(names) != 1 or owner.startswith(f"{_COLUMN}:") or not _parts(owner)[0]:
        return "", [(key, True)]
    return _COLUMN, [*shown_pieces(owner), (f" {OF} ", False), (shown_name(names[0], beside=OF), True)]


def _joined(beside: str, names: Iterable[str]) -> list[tuple[str, bool]]:
    return [piece for name in names for piece in ((beside, False), (name, True))][1:]


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
