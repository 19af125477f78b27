# SPDX-License-Identifier: Apache-2.0
"""The transforms of partition and sort fields: names, and the types each takes (table spec, partition transforms)."""

from __future__ import annotations

import re
from typing import Final

from gateway.errors import BadRequestError
from gateway.metadata.columns import Column, describe_type
from gateway.metadata.errors import InvalidUpdateError
from gateway.metadata.shapes import INT32_MAX

_WITH_WIDTH: Final = re.compile(r"(bucket|truncate)\[([0-9]+)\]", re.IGNORECASE)
_PLAIN: Final = frozenset({"identity", "year", "month", "day", "hour", "void"})

_TIMESTAMPS: Final = frozenset({"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"})
_DATES: Final = _TIMESTAMPS | {"date"}
_NOT_FOR_IDENTITY: Final = frozenset({"variant", "geometry", "geography"})
_SOURCES: Final = {
    "bucket": _DATES | {"int", "long", "time", "string", "binary", "fixed", "decimal", "uuid"},
    "truncate": frozenset({"int", "long", "string", "binary", "decimal"}),
    "year": _DATES,
    "month": _DATES,
    "day": _DATES,
    "hour": _TIMESTAMPS,
}
_REFUSALS: Final = {
    "identity": "Unsupported type for identity: ",
    "bucket": "Cannot bucket by type: ",
    "truncate": "Cannot truncate type: ",
}
VOID: Final = "void"


def canonical_transform(name: str) -> str:
    """Return the one spelling of a transform's name; one that is not known stays as it is, for readers to ignore."""
    lower = name.lower()
    width = _WITH_WIDTH.fullmatch(lower)
    if width is not None:
        return f"{width[1]}[{width[2].lstrip('0') or '0'}]"
    return lower if lower in _PLAIN else name


def check_transform(name: str, at: str) -> None:
    """
    Check the width of a transform that has one.

    Raises:
        BadRequestError: if it is 0 or has more than 32 bits.
    """
    width = _WITH_WIDTH.fullmatch(name)
    if width is None:
        return
    digits = width[2].lstrip("0") or "0"
    if len(digits) > len(str(INT32_MAX)) or not 0 < int(digits) <= INT32_MAX:
        text = "Invalid truncate width" if width[1].lower() == "truncate" else "Invalid number of buckets"
        raise BadRequestError(f"{text}: {digits[:64]} (must be > 0)", field=at)


def can_transform(transform: str, column: Column) -> bool:
    """Return whether `transform` takes the type of `column`; a transform that is not known is assumed to."""
    source = re.split(r"[\[( ]", str(column.type).lower(), maxsplit=1)[0]
    kind = _kind(transform)
    if kind == "identity":
        return source not in _NOT_FOR_IDENTITY
    return source in _SOURCES.get(kind, {source})


def check_new_transform(transform: str, column: Column) -> None:
    """
    Check that a transform that is being added takes the type of `column`.

    Raises:
        InvalidUpdateError: if not, with the reference's text for this; it has another for one that no longer fits.
    """
    kind = _kind(transform)
    is_nested = not isinstance(column.type, str)
    if can_transform(transform, column) or (is_nested and kind == "identity"):
        return
    text = _REFUSALS.get(kind, "Unsupported type: ")
    raise InvalidUpdateError(text + describe_type(column.type))


def _kind(transform: str) -> str:
    return canonical_transform(transform).split("[", maxsplit=1)[0]
