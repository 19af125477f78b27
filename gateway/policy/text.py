"""
What the text of an expression must be before anyone parses it, and where in it something stands.

Guarantee: a checked text has a UTF-8 form of at most `EXPRESSION_BYTES_MAX` bytes and is not blank. Both halves of the
engine ask for that: the gateway's, so that nothing else is sent to a worker, and the worker's, for texts of a record.
"""

from __future__ import annotations

from typing import Final

from gateway.policy.engine import PolicyNotCompiledError

EXPRESSION_BYTES_MAX: Final = 8192
"""As UTF-8. A policy longer than that is several policies."""


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


def place_of(text: str, offset: int) -> tuple[int, int]:
    """Return line and column, both from 1, of the character at `offset`."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
