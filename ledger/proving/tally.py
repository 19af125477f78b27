# SPDX-License-Identifier: Apache-2.0
"""
Counts the entries of a log by type, a bounded step at a time.

Entries never change, so what was counted once stays counted: a tally of a long log is complete after some steps, and
afterwards costs what has been appended since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from ledger.proving.search import QUERIES, TypeFigures
from ledger.store.session import Connection

STEP_MAX: Final = 5_000
"""Entries counted by one statement: some 5 MB, usually below 15 ms."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What the first `counted` entries of a log are: how many groups they begin, and the figures of each type."""

    counted: int = 0
    groups: int = 0
    types: dict[str, TypeFigures] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Return how many bytes the counted entries have."""
        return sum(each.size_bytes for each in self.types.values())

    def copy(self) -> Tally:
        """Return what is counted now: the same however far this one goes on."""
        return replace(self, types=dict(self.types))

    async def advance(self, connection: Connection, log_id: int, *, size: int, may_go_on: Callable[[], bool]) -> None:
        """
        Count on, up to `size`, by one step at least, and further as long as `may_go_on`.

        A log that is shorter than what was counted was restored from a backup: it is counted anew.
        """
        if size < self.counted:
            self.counted, self.groups, self.types = 0, 0, {}
        while self.counted < size:
            to_index = min(size, self.counted + STEP_MAX)
            bounds = {"log_id": log_id, "from_index": self.counted, "size": to_index}
            for row in await (await connection.execute(QUERIES["entries_by_type"], bounds)).fetchall():
                self._add(*row)
            self.counted = to_index
            if not may_go_on():
                return

    def _add(self, type_: str, entries: int, groups: int, size_bytes: int, first: int, last: int) -> None:
        self.groups += groups
        known = self.types.get(type_)
        self.types[type_] = TypeFigures(
            type=type_,
            entries=entries + (known.entries if known else 0),
            size_bytes=size_bytes + (known.size_bytes if known else 0),
            first_index=known.first_index if known else first,
            last_index=last,
        )
