# SPDX-License-Identifier: Apache-2.0
"""Table properties that mean something here; all others are kept as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gateway.metadata.columns import Columns
from gateway.metadata.errors import InvalidUpdateError
from gateway.metadata.shapes import INT32_MAX

FORMAT_VERSION: Final = "format-version"
PREVIOUS_VERSIONS_MAX: Final = "write.metadata.previous-versions-max"
PREVIOUS_VERSIONS_MAX_DEFAULT: Final = 100

# they steer how a table is made and are never stored
_RESERVED: Final = frozenset(
    {
        FORMAT_VERSION,
        "uuid",
        "snapshot-count",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
_OF_NEW_TABLES: Final = {"write.parquet.compression-codec": "zstd"}
_RETRIES: Final = (
    "commit.retry.num-retries",
    "commit.retry.min-wait-ms",
    "commit.retry.max-wait-ms",
    "commit.retry.total-timeout-ms",
)
_ENCRYPTION: Final = frozenset({"encryption.key-id", "encryption.data-key-length"})
_ENCRYPTION_SINCE_VERSION: Final = 3
_METRICS_OF_COLUMN: Final = "write.metadata.metrics.column."
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")


def integer_property(properties: Mapping[str, str], name: str, default: int) -> int:
    """
    Return the value of a property that is a 32-bit integer, `default` if it is not set.

    Raises:
        InvalidUpdateError: if its text is no such integer.
    """
    text = properties.get(name, str(default))
    if not _INTEGER.fullmatch(text) or not -INT32_MAX - 1 <= int(text) <= INT32_MAX:
        raise InvalidUpdateError(f"Table property {name} must have integer value")
    return int(text)


def stored_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties a new table starts with: the given ones that are not reserved, and the defaults."""
    return _OF_NEW_TABLES | {name: value for name, value in given.items() if name not in _RESERVED}


def check_new_properties(properties: Mapping[str, str], columns: Columns, format_version: int) -> None:
    """
    Check the properties that the reference checks when a table is created, and only then.

    Raises:
        InvalidUpdateError: at the first that does not fit.
    """
    for name in _RETRIES:
        if integer_property(properties, name, 0) < 0:
            raise InvalidUpdateError(f"Table property {name} must have non negative integer value")
    for name in properties:
        column = name.removeprefix(_METRICS_OF_COLUMN)
        if name.startswith(_METRICS_OF_COLUMN) and column not in columns.by_path:
            text = f"Invalid metrics config, could not find column {column} from table prop {name} in schema"
            raise InvalidUpdateError(text)
    encryption = sorted(_ENCRYPTION & properties.keys())
    if encryption and format_version < _ENCRYPTION_SINCE_VERSION:
        raise InvalidUpdateError(f"Invalid properties for v{format_version}: [{', '.join(encryption)}]")
