# SPDX-License-Identifier: Apache-2.0
"""
Event keys and vertex keys as people read them, and the other way round for tables. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ledger.errors import FormatError
from ledger.format.event import format_key, parse_key
from projections.errors import ProjectionError
from projections.graph.labels import VERTICES, VertexLabel

_TABLE: Final = VERTICES[VertexLabel.TABLE].key
_COLUMN: Final = VERTICES[VertexLabel.COLUMN].key
_ILLEGIBLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Control characters of terminals, characters that XML 1.0 cannot hold (section 2.2), and bidirectional controls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayName:
    """The name in a key, levels joined by dots, and its place: a catalog, or the namespace of a data set."""

    name: str
    place: str | None


def display_name(key: str) -> DisplayName:
    """
    Return the name in a vertex key; for a key that was shortened, the key itself.
    """
    try:
        kind, (first, *rest) = parse_key(key)
    except FormatError:
        return DisplayName(name=key, place=None)
    if kind == _COLUMN and rest:
        owner = display_name(first)
        return DisplayName(name=f"{owner.name}.{'.'.join(rest)}", place=owner.place)
    return DisplayName(name=".".join(rest), place=first) if rest else DisplayName(name=first, place=None)


def legible(text: str) -> str:
    """
    Return `text` as one printable line, with U+FFFD for what cannot be shown.
    """
    return _ILLEGIBLE.sub("\ufffd", text)


def key_of_table(name: str) -> str:
    """
    Return the event key of a table, given as that key or as `<catalog>.<namespace>.<table>`.

    Raises:
        ProjectionError: if it is neither.
    """
    try:
        if name.startswith(f"{_TABLE}:"):
            parse_key(name)
            return name
        alias, *path = name.split(".")
        if path:
            return format_key(_TABLE, (alias, *path))
    except FormatError as error:
        raise _no_table(name) from error
    raise _no_table(name)


def _no_table(name: str) -> ProjectionError:
    return ProjectionError(
        f"table {legible(name)!r:.100}: expected <catalog>.<namespace>.<table>, or its key "
        "table:<catalog>/<namespace>/<table> with each name percent-encoded"
    )
