"""
Which checkpoints have arrived in the database, as the signer remembers it beside its notes.

A note is kept before it leaves, so a note whose row is missing may never have arrived: the signer died in between, and
puts it back. One that has arrived and is missing was removed. The file is written without waiting for the disk: after a
power cut it may tell less, never more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ledger import canonical
from ledger.errors import LedgerError

ARRIVALS_FILE: Final = "arrived-notes"


def read_arrivals(directory: Path) -> dict[str, int]:
    """
    Return the size of the newest checkpoint of each log that has arrived, by origin; nothing where that is not known.
    """
    try:
        told = canonical.decode((directory / ARRIVALS_FILE).read_bytes())
    except (OSError, LedgerError):
        return {}
    if not isinstance(told, dict):
        return {}
    return {origin: size for origin, size in told.items() if isinstance(size, int)}


def keep_arrivals(directory: Path, arrived: Mapping[str, int]) -> None:
    """
    Remember that checkpoints have arrived; where the disk refuses, less is known. Only for who holds the lock.
    """
    known = read_arrivals(directory)
    newer = {origin: size for origin, size in arrived.items() if size > known.get(origin, 0)}
    if not newer:
        return
    fresh = directory / f"{ARRIVALS_FILE}.new"
    with suppress(OSError):
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(canonical.encode({**known, **newer}))
        fresh.replace(directory / ARRIVALS_FILE)
