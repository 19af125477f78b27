"""
The event key of what an identifier names, and names as an index can hold them. Pure.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from ledger.format.event import format_key
from ledger.format.events import Identifier

NAME_BYTES_MAX: Final = 600
"""Three names and more stand in one index entry, which ends at 2,704 bytes; a longer one stands there as its hash."""


def table_key(identifier: Identifier | None) -> str | None:
    """
    Return the event key of the table; None if there is none, or a name in it is empty: no catalog has such a table.
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
