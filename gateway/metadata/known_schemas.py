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
    text = _text(schema)
    return index_columns(parse_schema(schema, "schema")) if text is None else _columns_of(text)


@lru_cache(maxsize=KNOWN_MAX)
def _columns_of(text: bytes) -> Columns:
    return index_columns(parse_schema(orjson.loads(text), "schema"))


def check_schemas_bounds(schemas: Sequence[Any], at: str) -> None:
    """
    Check that the list of a table's schemas can be walked by recursion, stored and written again.

    Raises:
        BadRequestError: as `check_bounds`.
    """
    text = _text(schemas)
    if text is None:
        check_bounds(schemas, at)
    else:
        _check_bounds_of(text, at)


@lru_cache(maxsize=KNOWN_MAX)
def _check_bounds_of(text: bytes, at: str) -> None:
    check_bounds(orjson.loads(text), at)


def _text(value: object) -> bytes | None:
    """Return the text to remember a value by; None for one that is too large, or that JSON cannot hold."""
    try:
        text = orjson.dumps(value)
    except orjson.JSONEncodeError:
        return None
    return text if len(text) <= TEXT_SIZE_BYTES_MAX else None
