# SPDX-License-Identifier: Apache-2.0
"""
Continuation tokens: the index of the log from which a reader goes on, and the filters that it reads by.

A token is the sealed text (`gateway/http/sealed_texts.py`) of the JSON list of index and filters, for one catalog: the
alias is its context.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.errors import BadRequestError
from gateway.http.events.query import EventFilters, parse_filters
from gateway.http.sealed_texts import open_text, seal_text

LABEL: Final = b"lakeproof/events-token/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a reader goes on, the index of an entry, and by which filters."""

    index: int
    filters: EventFilters


def format_token(key: bytes, position: Position, *, alias: str) -> str:
    """
    Return the token for `position` in the events of the catalog `alias`; `key` is its tenant's.
    """
    return seal_text(key, [position.index, position.filters.members()], label=LABEL, context=alias)


def parse_token(key: bytes, token: str, *, alias: str) -> Position:
    """
    Return the position that `format_token` has made the token of.

    Raises:
        BadRequestError: if it has not, for this tenant and catalog.
    """
    index, filters = open_text(key, token, label=LABEL, context=alias, refusal=_not_ours())
    return Position(index=index, filters=parse_filters(filters))


def _not_ours() -> BadRequestError:
    return BadRequestError(
        "expected a token of an earlier answer about this catalog, found another text: without a token, events are read"
        " from the beginning",
        field="continuation-token",
    )
