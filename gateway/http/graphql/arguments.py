# SPDX-License-Identifier: Apache-2.0
"""
Arguments of fields: each within its bounds, and cursors, which are those of the routes. What is wrong is said in one
sentence that begins with the argument's name.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeVar

from gateway.admin.limits import check_text
from gateway.errors import BadRequestError
from gateway.http.graphql.loading import Asking
from gateway.http.looking.cursors import format_cursor, parse_index_cursor, parse_key_cursor
from gateway.http.looking.query import (
    AS_OF,
    CURSOR,
    CURSOR_LENGTH_MAX,
    INDEX_MAX,
    LIMIT,
    LIMIT_MAX,
    OF_NOW_ALONE,
    TEXT_LENGTH_MAX,
    check_known,
)
from projections.errors import ProjectionError
from projections.graph.display_names import key_of_table
from projections.lineage.read import HOPS_MAX
from projections.relational.commits import INDEX_END

LIMIT_DEFAULT: Final = 10

E = TypeVar("E", bound=StrEnum)


def checked_limit(limit: int) -> int:
    """Return how many items one list may have. Raises as `checked_number`."""
    return checked_number(limit, field=LIMIT, least=1, most=LIMIT_MAX)


def check_now(as_of: int | None) -> None:
    """
    Check that something is asked as it is now, of which no earlier state is kept.

    Raises:
        BadRequestError: if it is asked as of an entry.
    """
    if as_of is not None:
        raise BadRequestError(OF_NOW_ALONE, field=AS_OF)


def checked_percent(percent: int) -> int:
    """Return a confidence. Raises as `checked_number`."""
    return checked_number(percent, field="confidence", least=0, most=100)


def checked_hops(hops: int) -> int:
    """Return how far lineage is followed. Raises as `checked_number`."""
    return checked_number(hops, field="hops", least=1, most=HOPS_MAX)


def checked_number(number: int, *, field: str, least: int, most: int) -> int:
    """
    Return a number.

    Raises:
        BadRequestError: if it is not `least` to `most`.
    """
    if not least <= number <= most:
        raise BadRequestError(f"expected a whole number from {least} to {most}, found {number}", field=field)
    return number


def checked_as_of(as_of: int | None) -> int | None:
    """Return the index of an entry, if there is one. Raises as `checked_number`."""
    return None if as_of is None else checked_number(as_of, field=AS_OF, least=0, most=INDEX_MAX)


def key_behind(asking: Asking, cursor: str | None, *, context: str) -> str:
    """Return the key that a list continues behind. Raises BadRequestError if that is no cursor of this list."""
    return "" if cursor is None else parse_key_cursor(asking.cursor_key, checked_cursor(cursor), context=context)


def index_below(asking: Asking, cursor: str | None, *, context: str) -> int:
    """Return the index that a list continues below. Raises as `key_behind`."""
    if cursor is None:
        return INDEX_END
    return parse_index_cursor(asking.cursor_key, checked_cursor(cursor), context=context)


def cursor_to(asking: Asking, place: int | str | None, *, context: str) -> str | None:
    """Return the cursor of what continues a list behind a place; None at its end."""
    return None if place is None else format_cursor(asking.cursor_key, place, context=context)


def checked_cursor(cursor: str) -> str:
    """
    Return a cursor, unread.

    Raises:
        BadRequestError: if it can be none.
    """
    return check_text(cursor, field=CURSOR, length_max=CURSOR_LENGTH_MAX)


def checked_texts(**given: str | None) -> dict[str, str]:
    """
    Return the texts that were given, by name.

    Raises:
        BadRequestError: if one is empty, too long, or has control characters.
    """
    return {
        name: check_text(text, field=name, length_max=TEXT_LENGTH_MAX)
        for name, text in given.items()
        if text is not None
    }


def table_key_of(name: str, *, field: str) -> str:
    """
    Return the key of a table that is given by name or key.

    Raises:
        BadRequestError: if it is neither.
    """
    try:
        return key_of_table(check_text(name, field=field, length_max=TEXT_LENGTH_MAX))
    except ProjectionError as error:
        raise BadRequestError(str(error), field=field) from error


def one_of(kind: type[E], text: str, *, field: str) -> E:
    """
    Return one of a closed set: a label, a direction, a state.

    Raises:
        BadRequestError: if it is none of them.
    """
    return kind(check_known(text, kind, field=field))
