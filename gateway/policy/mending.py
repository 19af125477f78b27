# SPDX-License-Identifier: Apache-2.0
"""
Looks for the smallest edits after which a mistyped expression compiles: a backtick in place of a quote, a parenthesis
too many or too few.

Guarantee: what is offered compiles, and differs from what was written in at most `EDITS_MAX` characters, which are
backticks and parentheses. It is offered to be read and copied, and never used by itself: it need not be what was meant.
A parenthesis is added at the beginning or the end only, since elsewhere there would be several places for it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final

EDITS_MAX: Final = 3
PLACES_MAX: Final = 24
"""Places where an edit is tried; an expression with more of them is mended by its author."""
LOOKED_AT_MAX: Final = 4_000
COMPILED_MAX: Final = 12

_ALTERNATIVES: Final = re.compile(r"\|\||\?")
_QUOTES: Final = "'\""
_OPENING: Final = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """At `offset` of an expression, the character `found` (empty: none) becomes `put` (empty: none)."""

    offset: int
    found: str
    put: str


async def find_edits(expression: str, compiles: Callable[[str], Awaitable[bool]]) -> tuple[Edit, ...]:
    """
    Return the fewest edits after which `expression` compiles, in their order; none if few do not help.
    """
    looked_at = islice(_candidates(expression), LOOKED_AT_MAX)
    closed = (edits for edits in looked_at if _is_closed(edited(expression, edits)))
    for edits in islice(closed, COMPILED_MAX):
        if await compiles(edited(expression, edits)):
            return edits
    return ()


def edited(text: str, edits: tuple[Edit, ...]) -> str:
    """
    Return `text` after `edits`, which are sorted, and each at a place of its own.
    """
    pieces, at = [], 0
    for edit in edits:
        pieces += [text[at : edit.offset], edit.put]
        at = edit.offset + len(edit.found)
    return "".join([*pieces, text[at:]])


def _candidates(expression: str) -> Iterator[tuple[Edit, ...]]:
    """Yield sets of edits, the smallest first, and those that replace before those that remove."""
    backticks = [offset for offset, char in enumerate(expression) if char == "`"]
    parentheses = [offset for offset, char in enumerate(expression) if char in "()"]
    if len(backticks) + len(parentheses) > PLACES_MAX:
        return
    removed = [Edit(offset, expression[offset], "") for offset in reversed(parentheses)]
    added = [Edit(len(expression.rstrip()), "", ")"), Edit(0, "", "(")]
    every = [
        *(Edit(offset, "`", quote) for quote in _QUOTES for offset in backticks),
        # Where an alternative stands, less of it would be grouped without a parenthesis: the rule might permit more.
        *((added + removed) if _ALTERNATIVES.search(expression) else (removed + added)),
        *(Edit(offset, "`", "") for offset in backticks),
    ]
    for count in range(1, EDITS_MAX + 1):
        for edits in combinations(every, count):
            if len({edit.offset for edit in edits}) == count:
                yield tuple(sorted(edits))


def _is_closed(expression: str) -> bool:
    """Return whether its strings and brackets seem to be closed: what is not need not be compiled to be refused."""
    open_brackets: list[str] = []
    at = 0
    while at < len(expression):
        char = expression[at]
        if char in _QUOTES:
            at = _end_of_string(expression, at)
            if at < 0:
                return False
        elif char == "`":
            return False
        elif char in _OPENING.values():
            open_brackets.append(char)
        elif char in _OPENING and (not open_brackets or open_brackets.pop() != _OPENING[char]):
            return False
        at += 1
    return not open_brackets


def _end_of_string(expression: str, at: int) -> int:
    """Return the offset of the quote that ends the string which begins at `at`; -1 if none does."""
    quote, at = expression[at], at + 1
    while at < len(expression) and expression[at] != quote:
        at += 2 if expression[at] == "\\" else 1
    return at if at < len(expression) else -1
