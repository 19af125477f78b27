# SPDX-License-Identifier: Apache-2.0
"""
The one JSON form that is hashed and stored: RFC 8785 (JCS), restricted.

Guarantee: a value has exactly one encoding, and `decode` accepts nothing but that encoding.

RFC 8785 leaves two things to implementations that have gone wrong elsewhere: how floats are printed, and that member
names sort by UTF-16 code units. The profile removes both: no floats, and member names in ASCII, where code units,
code points and UTF-8 bytes sort alike. Integers stay within ±(2^53 - 1), the range in which every JSON reader agrees
(RFC 8785, section 3.2.2.3, through ECMAScript), and lone surrogates are refused, since they have no UTF-8 form.
In this profile orjson with sorted keys writes what RFC 8785 prescribes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias, cast

import orjson

from ledger.errors import FormatError, NotCanonicalError

Json: TypeAlias = "bool | int | str | Sequence[Json] | Mapping[str, Json] | None"

INTEGER_MAX = 2**53 - 1

DEPTH_MAX = 100
"""Nesting of arrays and objects: far above what an event needs, and below the limits of JSON parsers."""

_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER  # strict: refuse integers over 53 bits
_LEAVES = frozenset({str, int, bool, type(None)})


def encode(value: Json) -> bytes:
    """
    Return the canonical bytes of `value` (UTF-8, no white space, sorted member names).

    Objects are dicts, arrays are lists or tuples; a StrEnum member is its string. Every other type is refused, bytes
    and datetimes among them: their text form is the caller's choice, not this module's.

    Raises:
        NotCanonicalError: if `value` lies outside the profile; names the path to the first misfit.
    """
    try:
        _check_profile(value, 1)  # first, because orjson sets no limit to tuples within tuples
        return orjson.dumps(value, option=_OPTIONS)
    except (orjson.JSONEncodeError, NotCanonicalError) as error:
        raise NotCanonicalError(_first_misfit(value) or f"value: expected canonical JSON, found {error}") from error


def decode(data: bytes) -> Json:
    """
    Return the value whose canonical encoding `data` is.

    Raises:
        FormatError: if `data` is not JSON, lies outside the profile, or is not the canonical spelling of its value
            (order, white space, escapes, repeated names).
    """
    try:
        value = cast("Json", orjson.loads(data))
        canonical = encode(value)
    except orjson.JSONDecodeError as error:
        raise FormatError("canonical JSON", expected=f"JSON ({error})", found=data) from error
    except NotCanonicalError as error:
        raise FormatError("canonical JSON", expected=f"a value of the profile ({error})", found=data) from error
    if canonical != data:
        raise FormatError("canonical JSON", expected=f"the canonical spelling {canonical!r:.200}", found=data)
    return value


def format_time(t: datetime) -> str:
    """
    Return `t` as `YYYY-MM-DDTHH:MM:SS.ffffffZ`, always with six digits of fraction.

    Raises:
        NotCanonicalError: if `t` is naive or not in UTC.
    """
    if t.tzinfo is not UTC and t.utcoffset() != timedelta(0):
        raise NotCanonicalError(f"time: expected an aware datetime in UTC, found {t!r}")
    return t.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def parse_time(text: str) -> datetime:
    """
    Return the aware UTC datetime that `format_time` writes as `text`.

    Raises:
        FormatError: if `text` is any other spelling, or no time at all.
    """
    expected = "YYYY-MM-DDTHH:MM:SS.ffffffZ"
    try:
        t = datetime.fromisoformat(text)
    except ValueError as error:
        raise FormatError("time", expected=expected, found=text) from error
    if t.tzinfo is not UTC or format_time(t) != text:
        raise FormatError("time", expected=expected, found=text)
    return t


def _check_profile(value: Any, depth: int) -> None:
    """
    Refuse what orjson would write although the profile forbids it: floats, UUIDs, enums, names outside ASCII, depth.

    orjson itself refuses wide integers and lone surrogates, and is faster at it.
    """
    kind = type(value)
    members: Iterable[object]
    if kind is dict:
        members = value.values()
        for name in value:
            if type(name) is not str or not name.isascii():
                raise NotCanonicalError("a member name outside ASCII")
    elif kind is list or kind is tuple:
        members = value
    elif kind in _LEAVES or isinstance(value, StrEnum):
        return
    else:
        raise NotCanonicalError(f"a {kind.__name__}")
    if depth > DEPTH_MAX:
        raise NotCanonicalError("too many levels")
    for member in members:
        # Leaves are checked inline, without a call for each: this loop is most of the cost of an encoding.
        if type(member) not in _LEAVES:
            _check_profile(member, depth + 1)


def _first_misfit(root: object) -> str | None:
    """Return path, expected and found of the first value outside the profile, or None; slow, for refusals only."""
    stack: list[tuple[object, str, int]] = [(root, "value", 1)]
    while stack:
        value, path, depth = stack.pop()
        if (reason := _misfit(value)) is not None:
            return f"{path:.200}: {reason}"
        if depth > DEPTH_MAX and isinstance(value, dict | list | tuple):
            return f"{path:.200}: expected at most {DEPTH_MAX} levels, found more"
        if isinstance(value, dict):
            for name in value:
                if type(name) is not str or not name.isascii():
                    return f"{path:.200}: expected a member name in ASCII, found {name!r:.80}"
            stack.extend((value[name], f"{path}.{name}", depth + 1) for name in reversed(value))
        elif isinstance(value, list | tuple):
            stack.extend((value[i], f"{path}[{i}]", depth + 1) for i in reversed(range(len(value))))
    return None


def _misfit(value: object) -> str | None:
    """Return why `value` itself, without its members, lies outside the profile, or None."""
    kind = type(value)
    if kind is int and abs(cast("int", value)) > INTEGER_MAX:
        return f"expected an integer within ±(2^53 - 1), found one of {cast('int', value).bit_length()} bits"
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            return f"expected text with a UTF-8 form, found a lone surrogate at character {error.start}"
    if kind in _LEAVES or kind in {dict, list, tuple} or isinstance(value, StrEnum):
        return None
    return f"expected null, boolean, integer, string, array or object, found {kind.__name__}"
