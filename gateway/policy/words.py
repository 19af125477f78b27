# SPDX-License-Identifier: Apache-2.0
"""
The names and strings of an expression, found by a scan of its characters, without the parser of the child process.

Guarantee: for an expression that compiles, `mentions` misses no variable that it reads, `reads` misses neither variable
nor field, and `fields_named` finds a field only where it is named outside of strings and comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Final

from gateway.policy.engine import CEDAR_KINDS, POLICY, Program
from gateway.policy.vocabulary import LOOKED_UP, ON_DEMAND, TIME_READ_BY, Fields, read_of_argument, variables_of

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
_ARGUMENT: Final = re.compile(r"(?<![_a-zA-Z0-9.])([_a-z]+)\([^\S\n]*(?:[_a-zA-Z][_a-zA-Z0-9]*[^\S\n]*,[^\S\n]*)?$")
"""
Before a name: a function of which it is the first argument, or the second after another name, on one line: on the line
before, it could stand in a comment.
"""
_ARGUMENT_CHARACTERS_MAX: Final = 256
_WHOLE_ARGUMENT: Final = re.compile(r"\s*[,)]")
_TIME_READ: Final = re.compile(rf"(?<![_a-zA-Z0-9]){TIME_READ_BY}\s*(?://[^\n]*\n\s*)*\(")
_BY_NAME: Final = frozenset({"ref", "actions", "api", "grant", "uuid"})
_WHOLE_CONTEXT: Final = re.compile(r"\bcontext\b(?!\s*\.)", re.ASCII)
"""Where `context` stands in a policy in Cedar, and not one of its attributes."""
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def mentions(expression: str, names: Iterable[str]) -> frozenset[str]:
    """
    Return those of `names` that occur anywhere in `expression`, also in strings and comments.
    """
    return frozenset(name for name in names if _is_mentioned(expression, name))


def may_read(program: Program, names: Iterable[str]) -> bool:
    """
    Return whether an access rule may read one of the variables `names`, in whichever language it is written.

    A policy in Cedar reads who, what and to what by its scope, and the rest by name.
    """
    if program.judged_as not in CEDAR_KINDS:
        return bool(mentions(program.expression, names))
    by_name = _BY_NAME.intersection(names)
    return by_name != frozenset(names) or _may_read_in_cedar(program.expression, by_name)


@lru_cache(maxsize=REMEMBERED_MAX)
def _may_read_in_cedar(expression: str, names: frozenset[str]) -> bool:
    # An escape may hide a name in a string, and the whole of the context has all of them.
    is_open = "\\" in expression or _WHOLE_CONTEXT.search(expression) is not None
    return bool(names) and (is_open or bool(mentions(expression, names)))


@lru_cache(maxsize=REMEMBERED_MAX)
def _is_mentioned(expression: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", expression, re.ASCII) is not None


def reads(expression: str, variables: Fields) -> dict[str, frozenset[str] | None]:
    """
    Return what `expression` may read: the variables, and the known fields of each, or None for the whole of it.

    More rather than less: names in strings, in comments, and behind another name's dot count, too. Only `name.field`,
    with nothing but blanks between, is less than the whole of `name`, and so is `name` as an argument of a function of
    tables. Of variables that are looked up (`LOOKED_UP`), strings and comments count only where an escape makes it hard
    to tell where a string ends.
    """
    found: dict[str, frozenset[str] | None] = {}
    for name, known in variables.items():
        places = list(re.finditer(rf"\b{re.escape(name)}\b", expression, re.ASCII))
        if not places or (name in LOOKED_UP and "\\" not in expression and not names(expression, name)):
            continue
        named: frozenset[str] | None = frozenset()
        for place in places:
            fields = None if known is None else _fields_at(expression, place, known)
            named = None if named is None or fields is None else named | fields
        found[name] = named
    if "request" in variables and _TIME_READ.search(expression):
        named = found.get("request", frozenset())
        found["request"] = None if named is None else named | {"time"}
    return found


def _fields_at(expression: str, place: re.Match[str], known: Mapping[str, object]) -> frozenset[str] | None:
    """Return the fields that are read of a variable at one place where its name stands; None for the whole of it."""
    if field := _FIELD.match(expression, place.end()):
        return frozenset({field[1]}) if field[1] in known else None
    if not _WHOLE_ARGUMENT.match(expression, place.end()):
        return None
    before = expression[max(0, place.start() - _ARGUMENT_CHARACTERS_MAX) : place.start()]
    called = _ARGUMENT.search(before)
    return None if called is None else read_of_argument(called[1], known)


@lru_cache(maxsize=REMEMBERED_MAX)
def _on_demand_in(expression: str) -> Mapping[str, frozenset[str]]:
    found = reads(expression, variables_of(POLICY))
    wanted = {
        variable: fields if (named := found[variable]) is None else fields & named
        for variable, fields in ON_DEMAND.items()
        if variable in found
    }
    return {variable: fields for variable, fields in wanted.items() if fields}


def on_demand(expressions: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """
    Return which of the fields that are made on demand (`ON_DEMAND`) some of the policies `expressions` may read.
    """
    found: dict[str, frozenset[str]] = {}
    for expression in expressions:
        for variable, fields in _on_demand_in(expression).items():
            found[variable] = found.get(variable, frozenset()) | fields
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


def grant_fields(program: Program) -> frozenset[str]:
    """
    Return the fields of `grant` that an access rule names: `grant.roles`, and in Cedar `context.grant.roles`.
    """
    if program.judged_as not in CEDAR_KINDS:
        return fields_named(program.expression, "grant")
    return _grant_fields_in_cedar(program.expression)


@lru_cache(maxsize=REMEMBERED_MAX)
def _grant_fields_in_cedar(expression: str) -> frozenset[str]:
    words = _words(expression)
    fives = zip(words, words[1:], words[2:], words[3:], words[4:], strict=False)
    named = [five[-1] for five in fives if five[:-1] == ("context", ".", "grant", ".")]
    return frozenset(field for field in named if field.isidentifier())


@lru_cache(maxsize=REMEMBERED_MAX)
def names(expression: str, variable: str) -> bool:
    """
    Return whether `expression` names `variable` outside of strings and comments: no field, and no function.
    """
    words = _words(expression)
    return any(
        word == variable and before != "." and after != "("
        for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False)
    )


@lru_cache(maxsize=REMEMBERED_MAX)
def texts_in(expression: str) -> tuple[str, ...]:
    """
    Return the strings in `expression`, each once, in their order, with escapes decoded.
    """
    tokens = _TOKEN.finditer(expression)
    texts = (_ESCAPED.sub(r"\1", token["text"]) for token in tokens if token["quote"])
    return tuple(dict.fromkeys(texts))


@lru_cache(maxsize=REMEMBERED_MAX)
def roles_in_cedar(expression: str) -> tuple[str, ...]:
    """
    Return the roles that a policy in Cedar names: `Role::"analyst"`, `principal.role == "analyst"`, and so on.
    """
    tokens, words = _cedar_tokens(expression)
    found: list[int] = []
    for at in range(len(words)):
        match words[at : at + 4]:
            case ["Role", ":", ":", ""] | ["role", "=", "=", ""]:
                found.append(at + 3)
            case ["roles", ".", "contains" | "containsAny" | "containsAll", "("]:
                listed = takewhile(lambda place: words[place] in {"", "[", ","}, range(at + 4, len(words)))
                found += [place for place in listed if not words[place]]
    return _texts_at(found, tokens)


@lru_cache(maxsize=REMEMBERED_MAX)
def actions_in_cedar(expression: str) -> tuple[str, ...]:
    """
    Return the actions and groups of them that a policy in Cedar names, as in `Action::"read"`.
    """
    tokens, words = _cedar_tokens(expression)
    return _texts_at([at + 3 for at in range(len(words)) if words[at : at + 4] == ["Action", ":", ":", ""]], tokens)


def _cedar_tokens(expression: str) -> tuple[list[re.Match[str]], list[str]]:
    """Return the tokens of a policy in Cedar but for comments and white space, and their words: empty for strings."""
    tokens = [token for token in _TOKEN.finditer(expression) if not token[0].startswith("//") and token[0].strip()]
    return tokens, ["" if token["quote"] else token[0] for token in tokens]


def _texts_at(places: Sequence[int], tokens: Sequence[re.Match[str]]) -> tuple[str, ...]:
    """Return the strings at some places, each once, with escapes decoded."""
    return tuple(dict.fromkeys(_ESCAPED.sub(r"\1", tokens[place]["text"]) for place in places))


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


@lru_cache(maxsize=REMEMBERED_MAX)
def compared_with(expression: str, variable: str) -> Mapping[str, bool]:
    """
    Return the strings that `variable` itself is compared with: true for those by `==`, `!=` or `in`, false for those
    that one of its methods takes.
    """
    tokens = [token for token in _TOKEN.finditer(expression) if not token[0].startswith("//") and token[0].strip()]
    words = ["" if token["quote"] else token[0] for token in tokens]
    texts = [_ESCAPED.sub(r"\1", token["text"]) if token["quote"] else None for token in tokens]
    found: dict[str | None, bool] = {}
    for at, word in enumerate(words):
        if word != variable or words[at - 1 : at] == ["."]:
            continue
        match words[at + 1 : at + 4]:
            case ["=" | "!", "=", ""]:
                found[texts[at + 3]] = True
            case ["in", "[", *_]:
                listed = takewhile(lambda place: words[place] in {"", ","}, range(at + 3, len(words)))
                found |= dict.fromkeys((texts[place] for place in listed), True)
            case [".", _, "("]:
                found |= {text: False for text in texts[at + 4 : at + 5] if text not in found}
        if words[at + 1 : at + 2] == ["."]:
            continue
        if words[max(0, at - 3) : at] in (["", "=", "="], ["", "!", "="]):
            found[texts[at - 3]] = True
        if words[max(0, at - 2) : at] == ["", "in"]:
            found[texts[at - 2]] = True
    return {text: is_whole for text, is_whole in found.items() if text is not None}


def _words(expression: str) -> list[str]:
    """Return names and signs in their order: no strings, no comments, no blanks."""
    tokens = _TOKEN.finditer(expression)
    return [token[0] for token in tokens if not token["quote"] and not token[0].startswith("//") and token[0].strip()]
