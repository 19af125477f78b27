# SPDX-License-Identifier: Apache-2.0
"""
JSON as text: finds the members of an object, so that one can be replaced while all other bytes stay as they are.

The gateway does not rewrite what engines and upstreams send: numbers, escapes, spaces and the order of members are
kept. Parsers disagree on which of two members of one name counts, so a text that is judged here and applied by another
server must not have duplicates.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, ParamSpec, TypeVar

import orjson

from gateway.errors import BadRequestError
from ledger.values import value_class

SMALL_BYTES: Final = 256 * 1024
"""A few milliseconds of parsing."""

P = ParamSpec("P")
R = TypeVar("R")

_SPACE: Final = " \t\n\r"
_DECODER = json.JSONDecoder()


@value_class
class Member:
    """A member of an object, and the position of its value in the text."""

    name: str
    value: Any
    start: int
    end: int


def members(text: str, start: int = 0) -> list[Member]:
    """
    Return the members of the object that begins at `start` (after spaces), in order, duplicates included.

    Raises:
        BadRequestError: if there is no JSON object.
    """
    try:
        return list(_each_member(text, start))
    except (ValueError, IndexError, RecursionError) as error:
        raise _no_object(error) from error


def first_member(text: str, name: str) -> Member | None:
    """
    Return the first member of that name of the object that `text` begins with; what is behind it is not read. None if
    there is none.

    Raises:
        BadRequestError: if there is no JSON object, up to there.
    """
    try:
        return next((member for member in _each_member(text, 0) if member.name == name), None)
    except (ValueError, IndexError, RecursionError) as error:
        raise _no_object(error) from error


def _no_object(error: Exception) -> BadRequestError:
    return BadRequestError(f"expected a JSON object: {error}", field="body")


def _each_member(text: str, start: int) -> Iterator[Member]:
    at = _expect(text, start, "{")
    if text[at] == "}":
        return
    while True:
        if text[at] != '"':
            message = f"expected the name of a member at character {at}"
            raise ValueError(message)
        name, at = _DECODER.raw_decode(text, at)
        begin = _expect(text, at, ":")
        value, end = _DECODER.raw_decode(text, begin)
        yield Member(name=name, value=value, start=begin, end=end)
        at = _skip(text, end) if text[end] in _SPACE else end
        if text[at] == "}":
            return
        at = _expect(text, at, ",")


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _expect(text: str, at: int, character: str) -> int:
    """Return the position of the next token after `character`, which may follow spaces."""
    if text[at] in _SPACE:
        at = _skip(text, at)
    if text[at] != character:
        message = f"expected {character!r} at character {at}"
        raise ValueError(message)
    return _skip(text, at + 1) if text[at + 1] in _SPACE else at + 1


def replaced(text: str, changes: Iterable[tuple[Member, str]]) -> str:
    """
    Return the text with the values of some members replaced by other JSON texts; everything else is unchanged.
    """
    pieces: list[str] = []
    at = 0
    for member, value in sorted(changes, key=lambda change: change[0].start):
        pieces += (text[at : member.start], value)
        at = member.end
    return "".join((*pieces, text[at:]))


async def off_loop(work: Callable[P, R], size_bytes: int, *arguments: P.args, **options: P.kwargs) -> R:
    """
    Return the result of `work` on `size_bytes` of JSON: in a thread if large, so that the event loop is not held up.
    """
    if size_bytes <= SMALL_BYTES:
        return work(*arguments, **options)
    return await asyncio.to_thread(work, *arguments, **options)


def check_unambiguous(body: bytes) -> str:
    """
    Return a JSON body as text if all parsers agree on it: UTF-8, and no name twice in one object.

    Raises:
        BadRequestError: otherwise; names the member.
    """
    try:
        text = body.decode("utf-8")
        if not _is_written_once(body):
            json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"expected JSON in UTF-8 with each member once: {error}", field="body") from error
    return text


def _is_written_once(body: bytes) -> bool:
    """Return whether a body is what its value is written as: so most are, and none of these has a name twice."""
    try:
        return orjson.dumps(orjson.loads(body)) == body
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return False  # what is wrong with it, Python's parser tells


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        message = f"the member {twice!r:.80} stands twice in one object"
        raise ValueError(message)
    return found
