# SPDX-License-Identifier: Apache-2.0
"""
Checks the text of an expression before it is parsed, and finds the line and column of a position.

Guarantee: a checked text has a UTF-8 form of at most `EXPRESSION_BYTES_MAX` bytes and is not blank. The gateway checks
that before it sends a text to a worker, and the worker checks it again. A new text, which is about to be saved, also
has no control characters, and at most `TOKENS_MAX` tokens, `NESTING_MAX` open brackets and `BACKSLASHES_MAX`
backslashes, counted in one pass before any parser sees it: a parser's time grows with them. Stored texts are not held
to these bounds: they keep their meaning.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from gateway.policy.engine import PolicyNotCompiledError

EXPRESSION_BYTES_MAX: Final = 16_384
"""As UTF-8. A policy longer than that is several policies."""

TOKENS_MAX: Final = 2_048
"""Names, numbers, strings and operators. Parsing takes up to a tenth of a millisecond for each."""

NESTING_MAX: Final = 32
"""Brackets open at once. Nobody reads more."""

BACKSLASHES_MAX: Final = 1_024
"""Inside and outside of strings. A pattern has a few; nothing sensible needs a thousand."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""All but tab and line ends. The log writes one with six bytes, and so an entry with many would be too large."""

_TOKENS: Final = re.compile(
    r"""
      (?P<blank> \s+ | //[^\n]* )
    | [rRbB]{0,2} (?: \"{3} (?:\\[\s\S]|(?!\"{3})[^\\])* \"{3} | \'{3} (?:\\[\s\S]|(?!\'{3})[^\\])* \'{3}
                    | \" (?:\\.|[^\"\\\n])* \" | \' (?:\\.|[^\'\\\n])* \' )
    | (?P<open> [(\[{] )
    | (?P<close> [)\]}] )
    | [^\W]+
    | [\s\S]
    """,
    re.VERBOSE,
)
"""The tokens of a text, roughly: enough to count them, and unambiguous for each character."""


def check_text(expression: str) -> None:
    """
    Check the text of an expression.

    Raises:
        PolicyNotCompiledError: if it is blank, too long, or has no UTF-8 form; carries the place.
    """
    try:
        size_bytes = len(expression.encode())
    except UnicodeEncodeError as error:
        line, column = place_of(expression, error.start)
        raise PolicyNotCompiledError("a lone surrogate is not a character", line=line, column=column) from error
    if size_bytes > EXPRESSION_BYTES_MAX:
        reason = f"the expression has {size_bytes} bytes; at most {EXPRESSION_BYTES_MAX} are allowed"
        raise PolicyNotCompiledError(reason, line=1, column=1)
    if not expression.strip():
        raise PolicyNotCompiledError("the expression is empty", line=1, column=1)


def check_new_text(expression: str) -> None:
    """
    Check the text of an expression that is about to be saved.

    Raises:
        PolicyNotCompiledError: if it is blank, too long or too intricate, or has a control character; carries the place
            of that.
    """
    check_text(expression)
    if control := _CONTROL.search(expression):
        line, column = place_of(expression, control.start())
        reason = rf"a control character; in a string it is written \u{ord(control[0]):04x}"
        raise PolicyNotCompiledError(reason, line=line, column=column)
    backslashes = expression.count("\\")
    if backslashes > BACKSLASHES_MAX:
        reason = f"the expression has {backslashes} backslashes; at most {BACKSLASHES_MAX} are allowed"
        raise PolicyNotCompiledError(reason, line=1, column=1)
    tokens = depth = 0
    for token in _TOKENS.finditer(expression):
        if token.lastgroup == "blank":
            continue
        tokens += 1
        depth = max(0, depth + (token.lastgroup == "open") - (token.lastgroup == "close"))
        if tokens > TOKENS_MAX:
            _refuse(expression, token.start(), f"more than {TOKENS_MAX} names, values and signs")
        if depth > NESTING_MAX:
            _refuse(expression, token.start(), f"nested too deeply: more than {NESTING_MAX} open brackets")


def _refuse(expression: str, offset: int, reason: str) -> NoReturn:
    line, column = place_of(expression, offset)
    raise PolicyNotCompiledError(f"{reason}; split it into several policies", line=line, column=column)


def place_of(text: str, offset: int) -> tuple[int, int]:
    """Return line and column, both from 1, of the character at `offset`."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def mark_place(text: str, *, line: int, column: int) -> str:
    """
    Return line `line` of `text` with a caret under column `column` (both from 1), indented by four spaces.
    """
    lines = text.split("\n")
    shown = lines[line - 1] if line <= len(lines) else ""
    before = re.sub(r"[^\t]", " ", shown[: column - 1].ljust(column - 1))  # a tab stays as wide as it is above
    return f"    {shown}\n    {before}^"
