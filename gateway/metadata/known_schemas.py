# SPDX-License-Identifier: Apache-2.0
"""
What follows from the text of a schema alone, remembered by that text: most commits leave a table's schemas as they are.

Only what was found to be right is remembered. A schema with another text, however alike, is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import orjson

from gateway.metadata.columns import Columns, index_columns
from gateway.metadata.schemas import parse_schema
from gateway.metadata.shapes import check_bounds

KNOWN_MAX: Final = 256
TEXT_SIZE_BYTES_MAX: Final = 32 * 1024
"""Some hundred columns. What is larger is not remembered; with `KNOWN_MAX`, this bounds the memory."""


def columns_of(schema: Mapping[str, Any]) -> Columns:
    """
    Return the columns of a stored schema.

    Raises:
        BadRequestError: if it is not a schema. InvalidUpdateError: if its ids or names are not its own.
    """
    text = text_of(schema)
    return index_columns(parse_schema(schema, "schema")) if text is None else _columns_of(text)


@lru_cache(maxsize=KNOWN_MAX)
def _columns_of(text: bytes) -> Columns:
    return index_columns(parse_schema(orjson.loads(text), "schema"))


@lru_cache(maxsize=KNOWN_MAX)
def columns_in(text: bytes, schema_id: int) -> Columns:
    """
    Return the columns of one schema of a list, of which `text` is what `known_text` has returned.

    Raises as `columns_of`.
    """
    return columns_of(next(schema for schema in orjson.loads(text) if schema["schema-id"] == schema_id))


def known_text(schemas: Sequence[Any], text: bytes | None, at: str) -> bytes | None:
    """
    Check that the list of a table's schemas can be walked by recursion, stored and written again. `text` is its
    `sorted_text_of`; return that, the same object for all lists with this text.

    Raises:
        BadRequestError: as `check_bounds`.
    """
    if text is None:
        check_bounds(schemas, at)
        return None
    return _known_text(text, at)


@lru_cache(maxsize=KNOWN_MAX)
def _known_text(text: bytes, at: str) -> bytes:
    check_bounds(orjson.loads(text), at)
    return text


def text_of(value: object) -> bytes | None:
    """Return the text to remember a value by; None for one that is too large, or that JSON cannot hold."""
    return _text_of(value, 0)


def sorted_text_of(value: object) -> bytes | None:
    """Return the text of a value with its members sorted; None as `text_of`."""
    return _text_of(value, orjson.OPT_SORT_KEYS)


def _text_of(value: object, option: int) -> bytes | None:
    try:
        text = orjson.dumps(value, option=option)
    except orjson.JSONEncodeError:
        return None
    return text if len(text) <= TEXT_SIZE_BYTES_MAX else None
