# SPDX-License-Identifier: Apache-2.0
"""
Tables, views and data sets as people name them, and their event keys. Pure.
"""

from __future__ import annotations

from typing import Final

from ledger.errors import FormatError
from ledger.format.event import format_key, parse_key
from projections.errors import ProjectionError

KINDS: Final = ("table", "view", "dataset")
LEVELS_MIN: Final = 3


def key_of_data(text: str) -> str:
    """
    Return the key that `text` is, or that of the table `alias.namespace.table`.

    Raises:
        ProjectionError: if it is neither.
    """
    expected = f"table {text!r:.120}: expected alias.namespace.table, or a key of one of the kinds {', '.join(KINDS)}"
    try:
        if ":" in text:
            if parse_key(text)[0] not in KINDS:
                raise ProjectionError(expected)
            return text
        levels = text.split(".")
        if len(levels) < LEVELS_MIN:
            raise ProjectionError(expected)
        return format_key("table", levels)
    except FormatError as error:
        raise ProjectionError(expected) from error
