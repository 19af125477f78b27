"""
The event key of what an identifier names. Pure.
"""

from __future__ import annotations

from ledger.events import Identifier
from ledger.keys import format_key


def table_key(identifier: Identifier | None) -> str | None:
    """
    Return the event key of the table; None if there is none, or a name in it is empty: no catalog has such a table.
    """
    if identifier is None or identifier.name is None:
        return None
    segments = (identifier.alias, *identifier.namespace, identifier.name)
    return format_key("table", segments) if all(segments) else None
