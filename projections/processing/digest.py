# SPDX-License-Identifier: Apache-2.0
"""
The digest of a generation: SHA-256 over its rows as canonical JSON, one per line, ordered by natural keys.

Two generations have the same digest exactly if they have the same content, whatever ids the database gave to rows. It
can also be computed from the log alone, without a database.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

from ledger.format import canonical
from ledger.format.canonical import Json


class GenerationDigest:
    """A digest computed row by row."""

    def __init__(self, *, projection: str, version: int) -> None:
        self._hash = sha256(canonical.encode([projection, version]) + b"\n")

    def add(self, *row: Json) -> None:
        """
        Add a row; rows must come in the order of their natural keys.

        Raises:
            NotCanonicalError: if a value has no canonical form.
        """
        self._hash.update(canonical.encode(row) + b"\n")

    def digest(self) -> bytes:
        """Return the 32 bytes."""
        return self._hash.digest()


def time_text(t: datetime | None) -> str | None:
    """
    Return a time read from the database, in any time zone, as canonical text.
    """
    return None if t is None else canonical.format_time(t.astimezone(UTC))
