# SPDX-License-Identifier: Apache-2.0
"""
The names and strings of an expression, found by a scan of its characters, without the parser of the child process.

Guarantee: for an expression that compiles, `mentions` misses no variable that it reads, `reads` misses neither variable
nor field, and `fields_named` finds a field only where it is named outside of strings and comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from gateway.policy.vocabulary import Fields

REMEMBERED_MAX: Final = 4_096

_TOKEN: Final = re.compile(
    r"//[^\n]*"
    r"|(?P<prefix>[rRbB]{0,2})(?P<quote>'''|\"\"\"|'|\")(?P<text>(?:\\.|.)*?)(?P=quote)"
    r"|[_a-zA-Z][_a-zA-Z0-9]*"
    r"|\s+"
    r"|.",
    re.DOTALL,
)
_FIELD: Final = re.compile(r"\s*\.\s*([_a-zA-Z][_a-zA-Z0-9]*)(?![_a-zA-Z0-9]|\s*\()")
"""Behind a name: one of its fields, and not a method that is called on the whole of it."""
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def mentions(expression: str, names: Iterable[str]) -> frozenset[str]:
    """
    Return those of `names` that occur anywhere in `expression`, also in strings and comments.
    """
    return frozenset(name for name in names if _is_mentioned(expression, name))


@lru_cache(maxsize=REMEMBERED_MAX)
def _is_mentioned(expression: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", expression, re.ASCII) is not None


def reads(expression: str, variables: Fields) -> dict[str, frozenset[str] | None]:
    """
    Return what `expression` may read: the variables, and the known fields of each, or None for the whole of it.

    More rather than less: names in strings, in comments, and behind another name's dot count, too. Only `name.field`,
    with nothing but blanks between, is less than the whole of `name`.
    """
    found: dict[str, frozenset[str] | None] = {}
    for name, known in variables.items():
        places = list(re.finditer(rf"\b{re.escape(name)}\b", expression, re.ASCII))
        if not places:
            continue
        fields = [_FIELD.match(expression, place.end()) for place in places]
        named = frozenset(field[1] for field in fields if field is not None and field[1] in (known or ()))
        is_whole = known is None or len(named) == 0 or any(field is None or field[1] not in known for field in fields)
        found[name] = None if is_whole else named
    return found


@lru_cache(maxsize=REMEMBERED_MAX)
def fields_named(expression: str, variable: str) -> frozenset[str]:
    """
    Return the fields of `variable` that `expression` names, as in `variable.field`.
    """
    words = _words(expression)
    return frozenset(
        field
        for before, name, dot, field in zip(["", *words], words, words[1:], words[2:], strict=False)
        if name == variable and before != "." and dot == "." and field.isidentifier()
    )


@lru_cache(maxsize=REMEMBERED_MAX)
def texts_in(expression: str) -> tuple[str, ...]:
    """
    Return the strings in `expression`, each once, in their order, with escapes decoded.
    """
    tokens = _TOKEN.finditer(expression)
    texts = (_ESCAPED.sub(r"\1", token["text"]) for token in tokens if token["quote"])
    return tuple(dict.fromkeys(texts))


def texts_near(expression: str, names: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """
    Return for each of `names` the strings that it seems to be compared with: those after it, up to the next name.

    In `'x' in roles` or `'x' == path`, it is the string before.
    """
    found: dict[str, list[str]] = {}
    current, before = "", ["", ""]
    for token in _TOKEN.finditer(expression):
        word = token[0]
        if word.startswith("//") or not word.strip():
            continue
        if token["quote"]:
            text = _ESCAPED.sub(r"\1", token["text"])
            found.setdefault(current, []).append(text)
            word = "'" + text
        elif word in names and before[-1] != ".":
            current = word
            if before[-1] in {"=", "in"}:
                compared = [one[1:] for one in before[-3:] if one.startswith("'")]
                found.setdefault(current, []).extend(compared[-1:])
        before.append(word)
    return {name: tuple(dict.fromkeys(texts)) for name, texts in found.items() if name in names}


def _words(expression: str) -> list[str]:
    """Return names and signs in their order: no strings, no comments, no blanks."""
    tokens = _TOKEN.finditer(expression)
    return [token[0] for token in tokens if not token["quote"] and not token[0].startswith("//") and token[0].strip()]
