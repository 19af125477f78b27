# SPDX-License-Identifier: Apache-2.0
"""
Strict JSON for bodies that others send: what two parsers could read in two ways is refused.

Guarantee: a returned value has no duplicate member, no NaN or infinity, no lone surrogate, and at most 100 levels.
Whatever the bytes are, the only error is `InvalidLineageError`. Each event of a batch keeps its own bytes exactly as
they were sent, because the log keeps them; an invalid event does not affect the others.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from projections.errors import InvalidLineageError

BODY_SIZE_BYTES_MAX: Final = 1024 * 1024
EVENTS_MAX: Final = 10_000
"""Values in a batch. So many valid events do not fit into 1 MiB."""
DEPTH_MAX: Final = 100

BODY: Final = "body"
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_STRING_OR_BRACKET: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_SCALAR: Final = re.compile(r"[^,\]\s]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawJson:
    """A JSON value and its own bytes."""

    value: Any
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedBody:
    """One value or a batch; an invalid value of a batch is replaced by its error."""

    is_batch: bool
    values: tuple[RawJson | InvalidLineageError, ...]


def parse_body(body: bytes) -> ParsedBody:
    """
    Return the values of a JSON array, or the one value that `body` is, each with its own bytes.

    Raises:
        InvalidLineageError: if it is not JSON, is over 1 MiB, or an array of more than 10,000 values or of none; or if
            it is one value that is not as described above.
    """
    if len(body) > BODY_SIZE_BYTES_MAX:
        raise InvalidLineageError(BODY, f"expected at most {BODY_SIZE_BYTES_MAX} bytes, found {len(body)}")
    try:
        text = body.decode()
        at = _skip(text, 0)
        if text.startswith("[", at):
            return ParsedBody(is_batch=True, values=tuple(_batch(text, at + 1)))
        value, end = _value(text, at)
        _check_end(text, end)
        return ParsedBody(is_batch=False, values=(value,))
    except ValueError as error:  # also of UTF-8
        raise InvalidLineageError(BODY, f"expected JSON in UTF-8, found something else ({error!s:.100})") from error


def _batch(text: str, at: int) -> Iterator[RawJson | InvalidLineageError]:
    """Yield the values of the array whose first value begins at `at`."""
    at = _skip(text, at)
    for count in range(1, EVENTS_MAX + 1):
        try:
            value, end = _value(text, at)
            yield value
        except InvalidLineageError as error:
            end = _end_of(text, at)
            yield error
        at = _skip(text, end)
        if text.startswith("]", at):
            _check_end(text, at + 1)
            return
        if not text.startswith(",", at):
            raise InvalidLineageError(BODY, f"expected a comma or ] after event {count}")
        at = _skip(text, at + 1)
    raise InvalidLineageError(BODY, f"expected at most {EVENTS_MAX} events, found more: send several batches")


def _value(text: str, at: int) -> tuple[RawJson, int]:
    """Return the value that begins at `at`, and where it ends."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError as error:
        raise InvalidLineageError(BODY, f"expected at most {DEPTH_MAX} levels, found more") from error
    _check(value)
    return RawJson(value=value, raw=text[at:end].encode()), end


def _end_of(text: str, at: int) -> int:
    """Return where a value ends that is refused, however deep it is: where its brackets are closed."""
    if text[at : at + 1] not in {"{", "["}:
        scalar = _SCALAR.match(text, at)
        return at if scalar is None else scalar.end()
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text, at):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(match[0], 0)
        if depth == 0:
            return match.end()
    raise InvalidLineageError(BODY, "expected JSON, found brackets that are not closed")


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _check_end(text: str, at: int) -> None:
    if _skip(text, at) != len(text):
        raise InvalidLineageError(BODY, "expected nothing behind the JSON value, found more")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise InvalidLineageError(_shown(name), "expected each member once, found one twice")
        members[name] = value
    return members


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise InvalidLineageError(BODY, f"expected numbers that fit 64 bits, found {text:.40}")
    return number


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:  # thousands of digits
        raise InvalidLineageError(BODY, f"expected whole numbers that can be read, found {text:.40}…") from error


def _no_constant(text: str) -> float:
    raise InvalidLineageError(BODY, f"expected JSON, found {text}")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_members, parse_float=_finite, parse_int=_whole, parse_constant=_no_constant
)


def _check(root: object) -> None:
    """Refuse what is too deep, and text without a UTF-8 form."""
    stack: list[tuple[object, int]] = [([root], 0)]
    while stack:
        value, depth = stack.pop()
        if depth > DEPTH_MAX:
            raise InvalidLineageError(BODY, f"expected at most {DEPTH_MAX} levels, found more")
        if isinstance(value, dict):
            for name in value:
                _check_text(name)
        members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for member in members:
            if isinstance(member, str):
                _check_text(member)
            elif isinstance(member, dict | list) and (member or depth == DEPTH_MAX):
                stack.append((member, depth + 1))


def _check_text(text: str) -> None:
    if text.isascii():
        return  # nearly every one, and much faster
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidLineageError(_shown(text), "expected text with a UTF-8 form, found a lone surrogate") from error


def _shown(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()[:80] or BODY
