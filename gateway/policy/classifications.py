# SPDX-License-Identifier: Apache-2.0
"""
How a table is classified: in the doc of a column, as in "classification: email", and in properties of the table, as in
classification=restricted or classification.address.email=email.

`cel/tables.py` asks whether some columns are classified at all; this is what the table as a whole says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from gateway.policy.table import UnreadableMetadataError, table_of

if TYPE_CHECKING:
    from gateway.metadata import Metadata

CLASSIFICATION: Final = "classification"
CLASSIFICATIONS_MAX: Final = 50
"""Different ones of one table; of a table with more it is not known how it is classified."""
CLASSIFICATION_CHARACTERS_MAX: Final = 200
"""Of one; the same holds for a longer one."""

_FIELDS: Final = frozenset({"fields"})
_IN_DOC: Final = re.compile(rf"{CLASSIFICATION}:\s*([^\s,;]*)")


def classifications_of(metadata: Metadata) -> tuple[str, ...] | None:
    """
    Return what the docs and properties of a table say of its classification, each once, in order.

    None if there is too much of it, or if the metadata contradicts the Iceberg specification.
    """
    try:
        table = cast("Mapping[str, Any]", table_of(metadata, demanded=_FIELDS))
    except UnreadableMetadataError:
        return None
    found = {*_in_docs(field["doc"] for field in table["fields"]), *_in_properties(table["properties"])}
    if len(found) > CLASSIFICATIONS_MAX or any(len(one) > CLASSIFICATION_CHARACTERS_MAX for one in found):
        return None
    return tuple(sorted(found))


def _in_docs(docs: Iterable[str]) -> Iterable[str]:
    """Yield the first word after each "classification:", without a full stop; empty where there is none."""
    for doc in docs:
        for word in _IN_DOC.findall(doc):
            yield word.rstrip(".")


def _in_properties(properties: Mapping[str, str]) -> Iterable[str]:
    for name, value in properties.items():
        if name == CLASSIFICATION or name.startswith(f"{CLASSIFICATION}."):
            yield value
