# SPDX-License-Identifier: Apache-2.0
"""
The page tokens of the built-in catalog: a token is the last name of the page before it, percent-encoded.

A request without a token receives the whole list (REST specification, paging).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from gateway.errors import BadRequestError

PAGE_SIZE_MAX: Final = 1_000
PAGE_TOKEN_LENGTH_MAX: Final = 16 * 1024

_SEPARATOR: Final = "/"


def parse_name_token(token: str | None) -> str:
    """
    Return the name after which the page begins ("": at the first).

    Raises:
        BadRequestError: if the token is not one of ours.
    """
    if not token:
        return ""
    if len(token) > PAGE_TOKEN_LENGTH_MAX or "\x00" in (after := unquote(token)):
        raise BadRequestError("expected a token of an earlier page", field="pageToken")
    return after


def format_name_token(name: str) -> str:
    """
    Return the token for the page after `name`.
    """
    return quote(name, safe="")


def parse_namespace_token(token: str | None) -> tuple[str, ...]:
    """
    Return the namespace after which the page begins (none: at the first).

    Raises:
        BadRequestError: if the token is not one of ours.
    """
    return tuple(unquote(level) for level in parse_name_token(token).split(_SEPARATOR)) if token else ()


def format_namespace_token(levels: tuple[str, ...]) -> str:
    """
    Return the token for the page after the namespace `levels`.
    """
    return quote(_SEPARATOR.join(quote(level, safe="") for level in levels), safe="")


def rows_of_page(page_token: str | None, page_size: int | None) -> int:
    """
    Return how many rows to read at a time.
    """
    if page_token is None or page_size is None:
        return PAGE_SIZE_MAX
    return min(page_size, PAGE_SIZE_MAX)
