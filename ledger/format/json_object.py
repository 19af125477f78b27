# SPDX-License-Identifier: Apache-2.0
"""
Reads a JSON object from bytes of others: bounded, and with one kind of error for whatever is wrong with them.

`canonical` reads what we have written ourselves; here is what requests, answers, messages and files hold.
"""

from __future__ import annotations

from typing import Any

import orjson

from ledger.errors import FormatError


def parse_object(data: bytes | str, *, what: str, size_bytes_max: int | None = None) -> dict[str, Any]:
    """
    Return the JSON object that `data` is; of a repeated name the last value counts (RFC 8259, section 4).

    `what` names the data in errors. `size_bytes_max` is its limit, None where it was bounded while it arrived. The
    nesting is bounded by the parser (1,024 levels).

    Raises:
        FormatError: if it is larger, no JSON in UTF-8, or no object; shows nothing of its contents.
    """
    if size_bytes_max is not None:
        size_bytes = len(data) if isinstance(data, bytes) else len(data.encode(errors="surrogatepass"))
        if size_bytes > size_bytes_max:
            raise FormatError(what, expected=f"at most {size_bytes_max} bytes", found=size_bytes)
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise FormatError(what, expected="JSON", found=str(error)) from error
    if not isinstance(parsed, dict):
        raise FormatError(what, expected="a JSON object", found=type(parsed).__name__)
    return parsed
