# SPDX-License-Identifier: Apache-2.0
"""
The message of a policy: a text with fields of the commit in braces, as in `{commit.name} needs an owner`.

Guarantee: `fill` is total and bounded. A field is one of `FIELDS`, which every commit has, and its value is cut at
`VALUE_LENGTH_MAX` characters; characters that do not print are escaped, so that no name or property can break a line of
somebody's terminal or log. `{{` and `}}` are braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gateway.errors import BadRequestError
from gateway.policy.examples import EMPTY
from gateway.policy.nearest import nearest

if TYPE_CHECKING:
    from ledger.format.canonical import Json

VALUE_LENGTH_MAX: Final = 200
FILLED_LENGTH_MAX: Final = 1_000
"""Characters of a message with its values."""
PARSED_MAX: Final = 1_024

_PIECES: Final = re.compile(r"\{\{|\}\}|\{(?P<field>[^{}]*)\}|(?P<brace>[{}])|[^{}]+")
_CUT: Final = "…"


def _fields_of(variables: Mapping[str, Json], prefix: str = "") -> Iterator[str]:
    """Yield the paths of all texts and numbers among the fields that every commit has."""
    for name, value in variables.items():
        if isinstance(value, Mapping):
            yield from _fields_of(value, f"{prefix}{name}.")
        elif isinstance(value, str | int) and not isinstance(value, bool):
            yield prefix + name


FIELDS: Final = tuple(_fields_of(EMPTY))
"""The fields that a message can hold: texts and numbers that every commit has."""


def check_message(message: str) -> None:
    """
    Check that every brace in a message belongs to a field in `FIELDS`, or is doubled.

    Raises:
        BadRequestError: at the first that does not; names the nearest field.
    """
    for piece in _PIECES.finditer(message):
        if piece["brace"]:
            raise BadRequestError(
                f"character {piece.start() + 1}: expected a field between {{ and }}, as in {{commit.name}}, found a "
                f"brace alone: write {piece[0] * 2} for a brace",
                field="message",
            )
        if (name := piece["field"]) is not None and name not in FIELDS:
            raise BadRequestError(
                f"character {piece.start() + 1}: expected a field that is a text or a number, found {name!r:.80}; the "
                f"nearest is {nearest(name[:80], FIELDS)}; write {{{{ for a brace",
                field="message",
            )


@lru_cache(maxsize=PARSED_MAX)
def fields_in(message: str) -> tuple[str, ...]:
    """
    Return the fields of a message that `check_message` has accepted, as in `commit.name`.
    """
    return tuple(name for _, name in _parsed(message) if name is not None)


def fill(message: str, variables: Mapping[str, Json]) -> str:
    """
    Return a message that `check_message` has accepted, with the values of a commit.
    """
    filled = "".join(text if name is None else _value(variables, name) for text, name in _parsed(message))
    return filled if len(filled) <= FILLED_LENGTH_MAX else filled[: FILLED_LENGTH_MAX - 1] + _CUT


@lru_cache(maxsize=PARSED_MAX)
def _parsed(message: str) -> tuple[tuple[str, str | None], ...]:
    """Return the pieces of a message: a text, or the name of a field."""
    return tuple(
        (piece[0][0] if piece[0] in {"{{", "}}"} else piece[0], piece["field"]) for piece in _PIECES.finditer(message)
    )


def _value(variables: Mapping[str, Json], name: str) -> str:
    value: Json = variables
    for field in name.split("."):
        value = value.get(field) if isinstance(value, Mapping) else None
    text = value if isinstance(value, str) else str(value) if isinstance(value, int) else ""
    cut = text if len(text) <= VALUE_LENGTH_MAX else text[: VALUE_LENGTH_MAX - 1] + _CUT
    if cut.isprintable():
        return cut
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in cut)
