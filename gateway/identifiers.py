# SPDX-License-Identifier: Apache-2.0
"""
Names that arrive in paths: catalog alias, namespace levels, table name.

Paths are split before they are decoded: `%2F` is a character of a name, not a separator. The levels of a namespace are
separated by the unit separator 0x1F (Iceberg REST specification). Every name is bounded and free of control characters
before any other code uses it.

A new name must in addition read as what it is (`check_new_name`). Older names without this property are still read,
written and dropped.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import field
from functools import lru_cache
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote

from gateway.confusables import find_ignorable
from gateway.errors import BadRequestError
from ledger.format.event import KEY_LENGTH_MAX, format_key
from ledger.format.events import Identifier
from ledger.values import value_class

NAME_LENGTH_MAX: Final = 255
NAMESPACE_LEVELS_MAX: Final = 16
NAMESPACE_SEPARATOR: Final = "\x1f"
TARGETS_MAX: Final = 4_096
"""Targets of which the parsed path is kept."""
KEPT_LENGTH_MAX: Final = 256
"""Characters of a path whose target is kept: together some MiB."""

Named: TypeAlias = Literal["table", "view", "function"]
"""What a name in a namespace can be of."""

_ALIAS = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_UNREADABLE: Final = {
    "Cc": "control",
    "Cf": "format",
    "Cn": "unassigned",
    "Co": "private-use",
    "Cs": "surrogate",
    "Zl": "line-separating",
    "Zp": "paragraph-separating",
}
"""Categories of characters that a new name must not contain. Bidirectional controls and joiners are in `Cf`."""
_BLANK = "\u2800"
"""BRAILLE PATTERN BLANK: a symbol by its category, and invisible."""
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@value_class
class Target:
    """
    What a request is about: a catalog's alias, a namespace (perhaps empty), and the name of a table, a view or a
    function (None: the namespace).

    `key` is its event key.

    Raises:
        BadRequestError: if its names are too long together: they become one event key, which is bounded.
    """

    alias: str
    namespace: tuple[str, ...]
    name: str | None = None
    is_view: bool = False
    is_function: bool = False
    key: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", format_key(self.kind, (self.alias, *self.levels)))
        if (length := len(self.key)) > KEY_LENGTH_MAX:
            raise BadRequestError(
                f"expected names of at most {KEY_LENGTH_MAX} bytes together, percent-encoded, found {length}",
                field=self.kind,
            )

    def __hash__(self) -> int:
        return hash(self.key)  # a text is hashed once

    @property
    def kind(self) -> str:
        """Return "table", "view", "function" or "namespace"."""
        if self.name is None:
            return "namespace"
        if self.is_function:
            return "function"
        return "view" if self.is_view else "table"

    @property
    def levels(self) -> tuple[str, ...]:
        """Return the namespace, and the name behind it if there is one."""
        return self.namespace if self.name is None else (*self.namespace, self.name)

    @property
    def path(self) -> str:
        """Return the dotted name, as in SQL."""
        return ".".join(self.levels)

    def identifier(self) -> Identifier:
        """Return the identifier as events hold it."""
        return Identifier(alias=self.alias, namespace=self.namespace, name=self.name)


def parse_alias(text: str, *, field: str = "prefix") -> str:
    """
    Return a catalog's alias.

    Raises:
        BadRequestError: if it is not 1 to 64 letters, digits, `_` or `-`.
    """
    if not _ALIAS.fullmatch(text):
        raise BadRequestError(f"expected 1 to 64 letters, digits, '_' or '-', found {text!r:.80}", field=field)
    return text


def parse_name(text: object, *, field: str) -> str:
    """
    Return one name (a level of a namespace or a table).

    Raises:
        BadRequestError: if it is empty, too long, `.` or `..` (clients drop these from a path), or holds control
            characters or lone surrogates.
    """
    if not isinstance(text, str):
        raise BadRequestError(f"expected a string, found {text!r:.80}", field=field)
    if not 1 <= len(text) <= NAME_LENGTH_MAX:
        raise BadRequestError(f"expected 1 to {NAME_LENGTH_MAX} characters, found {len(text)}", field=field)
    if found := _FORBIDDEN.search(text):
        raise BadRequestError(f"expected no control characters, found U+{ord(found[0]):04X}", field=field)
    if text in {".", ".."}:
        raise BadRequestError(f"expected a name that a path can hold, found {text!r}", field=field)
    return text


def check_new_name(name: str, *, field: str) -> None:
    """
    Check that a new name, as `parse_name` returned it, reads as what it is.

    Raises:
        BadRequestError: if it is not in Unicode's form NFC, begins or ends with white space, begins with a combining
            mark, or holds a character that is invisible, unassigned, or a blank other than the space.
    """
    for character in name:
        category = unicodedata.category(character)
        if category in _UNREADABLE:
            kind = _UNREADABLE[category]
        elif character == _BLANK or find_ignorable(character):
            kind = "invisible"
        elif category == "Zs" and character != " ":
            kind = "blank"
        else:
            continue
        raise BadRequestError(f"expected a name without {kind} characters, found U+{ord(character):04X}", field=field)
    if name != name.strip():
        raise BadRequestError(f"expected a name without outer spaces, found {name!r:.80}", field=field)
    if unicodedata.category(name[0]).startswith("M"):
        raise BadRequestError(
            f"expected a name that begins with a character of its own, found the mark U+{ord(name[0]):04X}", field=field
        )
    if not unicodedata.is_normalized("NFC", name):
        raise BadRequestError(
            f"expected a name in Unicode's form NFC, found another form of {unicodedata.normalize('NFC', name)!r:.80}",
            field=field,
        )


def parse_namespace(levels: object, *, field: str) -> tuple[str, ...]:
    """
    Return the levels of a namespace given as a list.

    Raises:
        BadRequestError: if it is not a list of 1 to 16 names.
    """
    if not isinstance(levels, list | tuple) or not 1 <= len(levels) <= NAMESPACE_LEVELS_MAX:
        raise BadRequestError(
            f"expected a list of 1 to {NAMESPACE_LEVELS_MAX} names, found {levels!r:.80}", field=field
        )
    return tuple(parse_name(level, field=f"{field}[{position}]") for position, level in enumerate(levels))


def decode_segment(segment: str, *, field: str) -> str:
    """
    Return a percent-encoded segment of a raw path as text.

    Raises:
        BadRequestError: if it is not UTF-8.
    """
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError as error:
        raise BadRequestError("expected percent-encoded UTF-8", field=field) from error


def parse_namespace_segment(segment: str, *, field: str = "namespace") -> tuple[str, ...]:
    """
    Return the levels of a namespace given as one raw path segment (or query value), separated by 0x1F.

    Raises:
        BadRequestError: if it is not a namespace.
    """
    return parse_namespace(decode_segment(segment, field=field).split(NAMESPACE_SEPARATOR), field=field)


def parse_name_segment(segment: str, *, field: str = "table") -> str:
    """
    Return a name given as one raw path segment.

    Raises:
        BadRequestError: if it is not a name.
    """
    return parse_name(decode_segment(segment, field=field), field=field)


def parse_target(alias: str, namespace: str | None, name: str | None, *, kind: Named = "table") -> Target:
    """
    Return what the raw segments of a path name: `name` is that of a `kind`.

    Raises:
        BadRequestError: if one is not a name.
    """
    length = len(alias) + len(namespace or "") + len(name or "")
    parse = _kept_target if length <= KEPT_LENGTH_MAX else _kept_target.__wrapped__
    return parse(alias, namespace, name, kind)


@lru_cache(maxsize=TARGETS_MAX)
def _kept_target(alias: str, namespace: str | None, name: str | None, kind: Named) -> Target:
    levels = () if namespace is None else parse_namespace_segment(namespace)
    parsed = None if name is None else parse_name_segment(name, field=kind)
    return Target(
        alias=parse_alias(alias),
        namespace=levels,
        name=parsed,
        is_view=kind == "view",
        is_function=kind == "function",
    )
