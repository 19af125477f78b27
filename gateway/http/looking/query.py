# SPDX-License-Identifier: Apache-2.0
"""
Parameters of the query of a request that looks: each known, at most once, and within its bounds.

A parameter that is not known is refused: a filter that is not applied would show what was not asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

from fastapi import Request

from gateway.admin.limits import check_text, parse_expiry
from gateway.errors import BadRequestError

TEXT_LENGTH_MAX: Final = 2_000
"""As long as an event key may be."""
INDEX_MAX: Final = 2**53 - 2
CURSOR: Final = "cursor"
CURSOR_LENGTH_MAX: Final = 8_192
"""A cursor may hold an event key."""
LIMIT: Final = "limit"
AS_OF: Final = "as_of"
OF_NOW_ALONE: Final = "expected none here: what this answer is made of is kept as it is now alone"
"""What is answered to `as_of` where only the present state is kept."""
LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 500
NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,14}")
_FREE: Final = frozenset({CURSOR, LIMIT})
"""What may differ between a request and the one that continues it."""

E = TypeVar("E", bound=StrEnum)


class Query:
    """
    The parameters of one request, which may have those in `names`.

    Raises:
        BadRequestError: if it has another one, or one twice.
    """

    def __init__(self, request: Request, *names: str) -> None:
        self._path = request.url.path
        self._given: dict[str, str] = {}
        for name, value in request.query_params.multi_items():
            if name == AS_OF and name not in names:
                raise BadRequestError(OF_NOW_ALONE, field=AS_OF)
            if name not in names:
                known = f"parameters of {', '.join(names)}, found another" if names else "no parameters, found one"
                raise BadRequestError(f"expected {known}", field=_short(name))
            if name in self._given:
                raise BadRequestError("expected it once, found it repeated", field=name)
            self._given[name] = value

    def text(self, name: str, *, length_max: int = TEXT_LENGTH_MAX) -> str | None:
        """
        Return a text, None if there is none.

        Raises:
            BadRequestError: if it is empty, too long, or has control characters.
        """
        value = self._given.get(name)
        return None if value is None else check_text(value, field=name, length_max=length_max)

    def number(self, name: str, *, least: int, most: int) -> int | None:
        """
        Return a whole number, None if there is none.

        Raises:
            BadRequestError: if it is none from `least` to `most`.
        """
        value = self._given.get(name)
        if value is None:
            return None
        if not NUMBER.fullmatch(value) or not least <= int(value) <= most:
            raise BadRequestError(f"expected a whole number from {least} to {most}, found {value!r:.40}", field=name)
        return int(value)

    def limit(self) -> int:
        """Return how many things one answer may have. Raises as `number`."""
        found = self.number(LIMIT, least=1, most=LIMIT_MAX)
        return LIMIT_DEFAULT if found is None else found

    def time(self, name: str) -> datetime | None:
        """
        Return a time, None if there is none.

        Raises:
            BadRequestError: if it is not one of RFC 3339.
        """
        value = self._given.get(name)
        return None if value is None else parse_expiry(value, field=name)

    def one_of(self, name: str, kind: type[E]) -> E | None:
        """
        Return one of a closed set, None if there is none.

        Raises:
            BadRequestError: if it is none of them.
        """
        value = self._given.get(name)
        return None if value is None else kind(check_known(value, kind, field=name))

    def known(self, name: str, known: Iterable[str]) -> str | None:
        """
        Return one of some texts, None if there is none.

        Raises:
            BadRequestError: if it is none of them.
        """
        value = self._given.get(name)
        return None if value is None else check_known(value, known, field=name)

    @property
    def cursor(self) -> str | None:
        """Return the cursor, unread."""
        return self.text(CURSOR, length_max=CURSOR_LENGTH_MAX)

    @property
    def context(self) -> str:
        """Return what a cursor is good for: the path and all parameters but those that may differ."""
        return context_of(self._path, self._given)


def context_of(path: str, given: Mapping[str, str]) -> str:
    """
    Return what a cursor is good for: a request for `path` with these parameters, but for those that may differ.
    """
    return "\n".join([path, *(f"{name}={value}" for name, value in sorted(given.items()) if name not in _FREE)])


def check_known(text: str, known: Iterable[str], *, field: str) -> str:
    """
    Return a text that is one of those that are known: of another one nothing could be found, whatever there is.

    Raises:
        BadRequestError: if it is none of them.
    """
    texts = [*known]
    if text not in texts:
        raise BadRequestError(f"expected one of {', '.join(texts)}, found {text!r:.80}", field=field)
    return text


def parse_index(text: str, *, field: str) -> int:
    """
    Return the index that a path names.

    Raises:
        BadRequestError: if it is none.
    """
    if not NUMBER.fullmatch(text):
        raise BadRequestError(f"expected the index of an entry, found {text!r:.40}", field=field)
    return int(text)


def _short(name: str) -> str:
    return name if len(name) <= 80 and name.isprintable() else "query"
