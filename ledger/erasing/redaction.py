"""
Where bytes or a text mention a login, in the forms that it takes: as it is, in JSON, and in a URL. Pure.

For what is kept beside the log in the clear: nothing there says whom it is about, so a person's login is looked for. It
counts wherever it stands as a word of its own, in capitals too: `etl` is not found in `etl_orders`, and is in `ETL/1`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

ERASED: Final = "erased"
"""What stands where a login stood."""

_BEFORE: Final = r"(?:(?<!\w)|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4})|(?<=%[0-9a-f]{2}))"
"""A word begins behind what is none, or behind an escape of JSON or of a URL, which ends in letters."""


class LoginMatcher:
    """The login of one person, to be looked for."""

    def __init__(self, login: str) -> None:
        spelled = {login, login.lower(), login.upper()}  # bytes know no capitals beyond ASCII
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
        Tell whether a text, or bytes of whatever kind, mention the login.
        """
        if isinstance(text, bytes):
            # Letters beyond ASCII are not letters in bytes: one more is found there, and never one less.
            return self._bytes.search(text) is not None
        return text is not None and self._text.search(text) is not None

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """
        Yield from where to where in some bytes the login stands.
        """
        return (found.span() for found in self._bytes.finditer(data))

    def redact(self, text: str) -> str:
        """
        Return a text with `erased` in place of the login.
        """
        return self._text.sub(ERASED, text)

    def redact_json(self, payload: bytes) -> bytes:
        """
        Return a JSON text with `erased` in place of the login in its strings and names; of what is none, nothing stays.
        """
        try:
            members = json.loads(payload)
        except (ValueError, RecursionError):
            return json.dumps(ERASED).encode()
        return json.dumps(self._cleared(members), ensure_ascii=False, separators=(",", ":")).encode()

    def _cleared(self, value: Any) -> Any:
        match value:
            case str():
                return self.redact(value)
            case list():
                return [self._cleared(each) for each in value]
            case dict():
                return {self.redact(name): self._cleared(each) for name, each in value.items()}
            case _:
                return value
