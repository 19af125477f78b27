# SPDX-License-Identifier: Apache-2.0
"""
Checks the literals of an expression: numbers, escapes and patterns.

Guarantee: every literal of a checked tree has a value, the one that the CEL language definition ("String and Bytes
Values") gives it. cel-python keeps the backslash of an unknown escape, drops the line breaks of a long string, makes
surrogates, and finds errors in numbers and patterns only on evaluation. So strings and bytes are read here.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from celpy import celtypes
from celpy.evaluation import Activation, CELEvalError, Evaluator

from gateway.policy.cel.functions import compile_pattern
from gateway.policy.cel.parse import Node, refuse
from gateway.policy.cel.values import Value

_STRINGS: Final = frozenset({"STRING_LIT", "MLSTRING_LIT", "BYTES_LIT"})
_STRING: Final = re.compile(r"""([bB]?)([rR]?)("{3}|'{3}|"|')(.*)\3""", re.DOTALL)
_ESCAPE: Final = re.compile(
    r"""\\(?:(?P<itself>[?"'`\\])|(?P<space>[abfnrtv])|(?P<octal>[0-3][0-7]{2})|[xX](?P<hex>[0-9a-fA-F]{2})"""
    r"""|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|)"""
)
_SPACES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NO_FRACTION: Final = re.compile(r"-?[0-9]+\.(?![0-9])")
_WITH_PATTERN: Final = frozenset({"matches", "regex.extract", "regex.extractAll", "regex.replace"})


def value_of(literal: Node) -> Value:
    """Return the value of a literal, or the `CELEvalError` that it is (a number out of range, an unknown escape)."""
    token: Any = literal.children[0]
    if token.type not in _STRINGS:
        return Evaluator(literal, Activation()).literal(literal)
    try:
        return _read_string(str(token))
    except ValueError as error:
        return CELEvalError(str(error), ValueError)


def _read_string(text: str) -> Value:
    """
    Return the string or the bytes that a literal is.

    Raises:
        ValueError: if it is neither; says why.
    """
    found = _STRING.fullmatch(text)
    if found is None:
        raise ValueError("neither a string nor bytes")
    of_bytes, raw, quote, body = found.groups()
    if len(quote) == 1 and ("\n" in body or "\r" in body):
        raise ValueError(r"a line break within a string is written \n")
    if raw and quote in body:
        raise ValueError("a string that begins with r ends at the first quote of its kind")
    if of_bytes:
        # An escaped byte beyond ASCII is kept as the surrogate that stands for it; a text has none of its own.
        unescaped = body if raw else _ESCAPE.sub(_byte_of, body)
        return celtypes.BytesType(unescaped.encode("utf-8", "surrogateescape"))
    return celtypes.StringType(body if raw else _ESCAPE.sub(_character_of, body))


def _character_of(escape: re.Match[str]) -> str:
    digits = escape[escape.lastgroup] if escape.lastgroup else ""
    match escape.lastgroup:
        case None:
            raise ValueError(r"unknown escape in a string; a backslash is written \\, or the string r'…'")
        case "itself":
            return digits
        case "space":
            return _SPACES[digits]
        case kind:
            point = int(digits, 8 if kind == "octal" else 16)
    if 0xD800 <= point < 0xE000 or point > sys.maxunicode:
        raise ValueError("an escape in a string stands for no character")
    return chr(point)


def _byte_of(escape: re.Match[str]) -> str:
    if escape.lastgroup == "long":
        raise ValueError(r"\U is for strings, not for bytes")
    character = _character_of(escape)
    if escape.lastgroup in {"octal", "hex"} and not character.isascii():
        return chr(0xDC00 + ord(character))
    return character


def check_literals(tree: Node) -> None:
    """
    Check every literal of `tree`, and that a literal pattern is one of RE2's.

    Raises:
        PolicyNotCompiledError: at the first that is wrong; carries its place.
    """
    for literal in tree.find_data("literal"):
        _check_literal(literal)
    for pattern in _patterns(tree):
        _check_pattern(pattern)


def _check_literal(literal: Node) -> None:
    token: Any = literal.children[0]
    value = value_of(literal)
    if token.type == "FLOAT_LIT" and _NO_FRACTION.match(token):
        refuse(token, f"{str(token)!r:.40} needs a digit after the point")
    if isinstance(value, CELEvalError) and token.type in _STRINGS:
        refuse(token, str(value.args[0]))
    if isinstance(value, CELEvalError) or (token.type == "FLOAT_LIT" and math.isinf(value)):
        refuse(token, f"{str(token)!r:.40} is out of range")


def _patterns(tree: Node) -> Iterator[Node]:
    """
    Yield the arguments of all calls that are patterns: the second one of `matches(x, y)`, the last of `x.matches(y)`.
    """
    for call in tree.find_data("member_dot_arg"):
        if str(call.children[1]) == "matches":
            yield call.children[-1].children[-1]
    for call in tree.find_data("ident_arg"):
        if str(call.children[0]) in _WITH_PATTERN:
            yield call.children[-1].children[1]


def _check_pattern(pattern: Node) -> None:
    value = value_of(pattern) if pattern.data == "literal" else None
    if not isinstance(value, str):
        return
    try:
        compile_pattern(value)
    except ValueError:
        refuse(pattern, "not an RE2 pattern, or one that is too large (there is no look-around and no back-reference)")
