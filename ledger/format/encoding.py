# SPDX-License-Identifier: Apache-2.0
"""
The one spelling of bytes and of numbers in the text formats of C2SP: base64 and decimal.

Guarantee: a parser here accepts exactly what its formatter writes, so that different texts have different meanings.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from ledger.errors import FormatError

SIZE_MAX: Final = 2**63 - 1
"""Sizes and indexes fit a signed 64-bit integer, as in PostgreSQL and in every implementation of these formats."""


def format_base64(data: bytes) -> str:
    """Return `data` in standard base64 with padding (RFC 4648, section 4), the only one in these formats."""
    return base64.b64encode(data).decode("ascii")


def parse_base64(text: str, *, what: str) -> bytes:
    """
    Return the bytes that `format_base64` writes as `text`; `what` names them in the error.

    Raises:
        FormatError: if `text` is any other spelling (alphabet, padding, white space, spare bits).
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:  # ValueError: text outside ASCII
        raise FormatError(what, expected="base64", found=text) from error
    if format_base64(data) != text:
        raise FormatError(what, expected=f"the base64 {format_base64(data)!r:.100}", found=text)
    return data


def parse_decimal(text: str, *, what: str) -> int:
    """
    Return the number from 0 to 2^63 - 1 that `text` spells in ASCII decimal; `what` names it in the error.

    Raises:
        FormatError: if `text` is any other spelling (leading zeros, signs, digits of other scripts) or too large.
    """
    # Bounded before it becomes a number: Python refuses to read very long ones, with an error that is not ours.
    if text.isascii() and text.isdigit() and len(text) <= len(str(SIZE_MAX)):
        number = int(text)
        if number <= SIZE_MAX and str(number) == text:
            return number
    raise FormatError(what, expected="a decimal number from 0 to 2^63 - 1 without leading zeros", found=text)
