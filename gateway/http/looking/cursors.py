# SPDX-License-Identifier: Apache-2.0
"""
Cursors: where a list goes on, as a sealed text (`gateway/http/sealed_texts.py`) that only continues the same request.

The place is an index of the log or a key, which no rebuild of a read model changes.
"""

from __future__ import annotations

from typing import Final

from gateway.errors import BadRequestError
from gateway.http.looking.query import CURSOR
from gateway.http.sealed_texts import open_text, seal_text

LABEL: Final = b"lakeproof/cursor/v1"


def format_cursor(key: bytes, place: int | str, *, context: str) -> str:
    """
    Return the cursor that continues behind `place`; `key` is the tenant's, `context` what was asked for.
    """
    return seal_text(key, place, label=LABEL, context=context)


def parse_index_cursor(key: bytes, cursor: str, *, context: str) -> int:
    """
    Return the index that `format_cursor` has made the cursor of.

    Raises:
        BadRequestError: if it has not, for this tenant and request.
    """
    place = open_text(key, cursor, label=LABEL, context=context, refusal=_not_ours())
    if not isinstance(place, int):
        raise _not_ours()
    return place


def parse_key_cursor(key: bytes, cursor: str, *, context: str) -> str:
    """
    Return the key that `format_cursor` has made the cursor of. Raises as `parse_index_cursor`.
    """
    place = open_text(key, cursor, label=LABEL, context=context, refusal=_not_ours())
    if not isinstance(place, str):
        raise _not_ours()
    return place


def _not_ours() -> BadRequestError:
    return BadRequestError(
        "expected the cursor of an earlier answer to the same request, with the same filters, found another text: "
        "without a cursor, the list begins anew",
        field=CURSOR,
    )
