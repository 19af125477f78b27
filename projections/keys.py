# SPDX-License-Identifier: Apache-2.0
"""
Keys of tables, data sets and jobs, and keys and names cut to what an index can hold. Pure.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Final

from ledger.format.event import format_key
from ledger.format.events import Identifier

NAME_BYTES_MAX: Final = 600
"""Several names share one B-tree entry, which holds at most 2,704 bytes; a longer name is stored as its hash."""

KEY_BYTES_MAX: Final = 1_024
"""A key is part of a B-tree entry of at most 2,704 bytes; a longer key is stored as its beginning and its hash."""

KEYS_CACHED: Final = 4_096
"""The same tables, namespaces, jobs and people occur again and again, and percent-encoding is slow."""


def table_key(identifier: Identifier | None) -> str | None:
    """
    Return the event key of the table; None without an identifier, or if one of its names is empty.
    """
    if identifier is None or identifier.name is None:
        return None
    segments = (identifier.alias, *identifier.namespace, identifier.name)
    return format_key("table", segments) if all(segments) else None


def bounded_name(name: str) -> str:
    """
    Return `name`, or, if it is longer than an index can hold, its SHA-256 in hex.
    """
    encoded = name.encode()
    return name if len(encoded) <= NAME_BYTES_MAX else sha256(encoded).hexdigest()


def bounded_key(key: str) -> str:
    """
    Return `key` if it has at most 1,024 bytes, else its beginning, `#` and the SHA-256 of the whole.

    `#` is in no percent-encoded key, so a shortened key never equals a whole one.
    """
    if len(key) <= KEY_BYTES_MAX:
        return key
    digest = sha256(key.encode()).hexdigest()
    return f"{key[: KEY_BYTES_MAX - len(digest) - 1]}#{digest}"


@lru_cache(maxsize=KEYS_CACHED)
def pipeline_key(namespace: str, name: str) -> str:
    """
    Return the bounded key of an OpenLineage job.
    """
    return bounded_key(format_key("pipeline", (namespace, name)))
