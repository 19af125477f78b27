# SPDX-License-Identifier: Apache-2.0
"""
Finds and redacts a login in bytes or text, in the forms it takes: plain, in JSON, and in a URL. Pure.

For what is kept outside the log in the clear. Nothing there says whom it is about, so it is searched for a login.
It matches where it is a word of its own, in any case: `etl` does not match `etl_orders`, and matches `ETL/1`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

ERASED: Final = "erased"
"""Replaces a login."""

_BEFORE: Final = r"(?:(?<!\w)|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4})|(?<=%[0-9a-f]{2}))"
"""A word begins after a character that is no letter, or after an escape of JSON or of a URL, which ends in letters."""


class LoginMatcher:
    """Matches the login of one person."""

    def __init__(self, login: str) -> None:
        spelled = {login, login.lower(), login.upper()}  # in bytes, case is known for ASCII only
        forms = spelled | {json.dumps(each)[1:-1] for each in spelled}
        forms |= {json.dumps(each, ensure_ascii=False)[1:-1] for each in spelled}
        forms |= {form.replace("/", "\\/") for form in forms}
        forms |= {quote(each, safe=safe) for each in spelled for safe in ("", "/", "@/")}
        either = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
        pattern = f"{_BEFORE}(?:{either})(?!\\w)"
        self._text = re.compile(pattern, re.IGNORECASE)
        self._bytes = re.compile(pattern.encode(), re.IGNORECASE)

    def matches(self, text: str | bytes | None) -> bool:
        """
        Return whether a text, or bytes of any kind, contain the login.
        """
        if isinstance(text, bytes):
            # In bytes, letters beyond ASCII do not count as letters: there may be one match more, never one less.
            return self._bytes.search(text) is not None
        return text is not None and self._text.search(text) is not None

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """
        Yield the start and end of each match in some bytes.
        """
        return (found.span() for found in self._bytes.finditer(data))

    def redact(self, text: str) -> str:
        """
        Return a text with `erased` in place of the login.
        """
        return self._text.sub(ERASED, text)

    def redact_json(self, payload: bytes) -> bytes:
        """
        Return a JSON text with `erased` in place of the login in its strings and names; what is not JSON is replaced
        wholly.
        """
        try:
            members = json.loads(payload)
        except (ValueError, RecursionError):
            return json.dumps(ERASED).encode()
        return json.dumps(self._redacted(members), ensure_ascii=False, separators=(",", ":")).encode()

    def _redacted(self, value: Any) -> Any:
        match value:
            case str():
                return self.redact(value)
            case list():
                return [self._redacted(each) for each in value]
            case dict():
                return {self.redact(name): self._redacted(each) for name, each in value.items()}
            case _:
                return value
