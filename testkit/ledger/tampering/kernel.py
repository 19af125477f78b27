# SPDX-License-Identifier: Apache-2.0
"""
Counts the pages that the compiled kernel accepts: of tampering with a log that it leaves alone, it would say nothing.

Verification decides by itself whether it uses the kernel, and answers the same without: so what was fast is counted,
never assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ledger.format.tiles import TILE_WIDTH
from ledger.format.verification import EntryRules
from ledger.verify import fast


@dataclass(slots=True)
class PagesAccepted:
    """How many pages were accepted since counting began."""

    pages: int = 0


@contextmanager
def counted_pages() -> Iterator[PagesAccepted]:
    """Count the pages that the kernel accepts in this process meanwhile, of rows and of bundles."""
    counted = PagesAccepted()
    loaded = fast.FastPath

    class CountingFastPath(loaded):  # type: ignore[misc, valid-type]  # whichever is loaded: one may count for another
        def accept(self, page: fast.FastPage, rules: EntryRules) -> bool:
            is_accepted = super().accept(page, rules)
            counted.pages += is_accepted
            return bool(is_accepted)

        def accept_rows(self, page: fast.FastPage, rules: EntryRules) -> int | None:
            control: int | None = super().accept_rows(page, rules)
            counted.pages += control is not None
            return control

    fast.FastPath = CountingFastPath  # type: ignore[misc]
    try:
        yield counted
    finally:
        fast.FastPath = loaded  # type: ignore[misc]


def pages_of(*sizes: int) -> int:
    """Return how many pages logs of these sizes have."""
    return sum(-(-size // TILE_WIDTH) for size in sizes)
