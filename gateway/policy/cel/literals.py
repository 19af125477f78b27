# SPDX-License-Identifier: Apache-2.0
"""
Checks the literals of an expression: numbers, escapes and patterns.

Guarantee: every literal of a checked tree has a value, the one that the CEL language definition ("String and Bytes
Values") gives it. cel-python keeps the backslash of an unknown escape, drops the line breaks of a long string, and
finds errors in numbers and patterns only on evaluation.
"""

from __future__ import annotations

import re
from typing import Any, Final

from celpy.evaluation import Activation, CELEvalError, Evaluator

from gateway.policy.cel.functions import compile_pattern
from gateway.policy.cel.parse import Node, refuse
from gateway.policy.cel.values import Value

_STRINGS: Final = frozenset({"STRING_LIT", "MLSTRING_LIT", "BYTES_LIT"})
_PREFIX: Final = re.compile(r"[rRbB]*")
_ESCAPE: Final = re.compile(r"\\([abfnrtv\"'\\]|[0-3][0-7]{2}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})")


def value_of(literal: Node) -> Value:
    """Return the value of a literal, or the `CELEvalError` that it is (a number out of range)."""
    return Evaluator(literal, Activation()).literal(literal)


def check_literals(tree: Node) -> None:
    """
    Check every literal of `tree`, and that a literal pattern is one of RE2's.

    Raises:
        PolicyNotCompiledError: at the first that is wrong; carries its place.
    """
    for literal in tree.find_data("literal"):
        _check_literal(literal)
    for call in tree.find_pred(_is_match):
        _check_pattern(call.children[-1].children[-1])


def _check_literal(literal: Node) -> None:
    token: Any = literal.children[0]
    if token.type in _STRINGS:
        _check_string(literal, str(token))
    if isinstance(value_of(literal), CELEvalError):
        refuse(token, f"{str(token)!r:.40} is out of range")


def _check_string(literal: Node, text: str) -> None:
    prefix = _PREFIX.match(text)
    if prefix and "r" in prefix.group().lower():
        return
    if "\n" in text or "\r" in text:
        refuse(literal, r"a line break within a string is written \n")
    if "\\" in _ESCAPE.sub("", text):
        refuse(literal, r"unknown escape in a string; a backslash is written \\, or the string r'…'")


def _is_match(node: Node) -> bool:
    """Whether `node` is a call of `matches`; its name stands first in `matches(x, y)` and second in `x.matches(y)`."""
    name = {"ident_arg": 0, "member_dot_arg": 1}.get(node.data)
    return name is not None and str(node.children[name]) == "matches"


def _check_pattern(pattern: Node) -> None:
    value = value_of(pattern) if pattern.data == "literal" else None
    if not isinstance(value, str):
        return
    try:
        compile_pattern(value)
    except ValueError:
        refuse(pattern, "not an RE2 pattern, or one that is too large (there is no look-around and no back-reference)")
