# SPDX-License-Identifier: Apache-2.0
"""
What "nothing was found" rests on: how many of a table's snapshots were scanned, and what was left out. Pure.

That nothing was found in a table means little by itself: it may not have been scanned, or not completely. So every
answer about personal data comes with this coverage, and clears a table only if `gaps` is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from projections.graph.scans import COMPLETED, FAILED

SNAPSHOTS_MAX: Final = 1_000
"""The last snapshots of a table: what became of older ones is not looked at."""
SCANS_MAX: Final = 50
"""Scans whose unread columns are named, the newest first."""
NAMED_MAX: Final = 10
"""Unread columns that are named in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A column that was not scanned, and why."""

    column: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanCoverage:
    """
    What is known of the scans of a table.

    Of its `snapshots`, `scanned` were scanned, `failed` could not be, and `pending` have no scan yet. `sampled` were
    read in part; the scans of `silent` ones are so old that they do not say what they left out. `unread` are the
    columns that the newest scans left out; `columns_unread` is the highest count of one scan. If `is_cut`, the table
    has more snapshots: all is of the last `SNAPSHOTS_MAX` then.
    """

    snapshots: int
    scanned: int
    failed: int
    pending: int
    sampled: int
    silent: int
    columns_unread: int
    unread: tuple[Unread, ...]
    is_cut: bool

    @property
    def gaps(self) -> tuple[str, ...]:
        """What is missing for a complete answer, one sentence each."""
        found = []
        if not self.snapshots:
            found.append("no snapshot of it is known, so nothing was looked at")
        if self.is_cut:
            found.append(f"only its last {SNAPSHOTS_MAX:,} snapshots were looked at")
        if self.pending:
            found.append(f"{_snapshots(self.pending)} not scanned yet")
        if self.failed:
            found.append(f"{_snapshots(self.failed)} could not be scanned")
        if self.sampled:
            found.append(f"of {_snapshots(self.sampled)} a sample was read, not every row")
        if self.silent:
            found.append(f"the scans of {_snapshots(self.silent)} do not say which columns they left out")
        if self.columns_unread:
            named = [f"{one.column} ({one.reason})" for one in self.unread[:NAMED_MAX]]
            more = max(self.columns_unread, len(self.unread)) - len(named)
            rest = f" and {more} more" if more else ""
            found.append(f"columns not looked at: {', '.join(named)}{rest}")
        return tuple(found)

    @property
    def nothing(self) -> str:
        """What it means if nothing was found."""
        if not self.scanned:
            return "not known: it was not scanned"
        return "no personal data in what was looked at" if self.gaps else "no personal data found"

    @property
    def summary(self) -> str:
        """How many of the snapshots were scanned."""
        return f"{self.scanned} of {'the last ' if self.is_cut else ''}{_snapshots(self.snapshots)} scanned"


def coverage_of(rows: Iterable[Sequence[Any]]) -> ScanCoverage:
    """
    Return the coverage from the rows of the query `scanned` (`graph.sql`), the first value of which says what each is.

    A snapshot that was scanned under several rulesets counts once: as scanned if any of them was completed.
    """
    counts: dict[str | None, tuple[int, int, int]] = {}
    columns: dict[str, Unread] = {}
    most, is_cut = 0, False
    for what, status, count, sampled, silent, named in rows:
        match what:
            case "snapshots":
                counts[status] = int(count), int(sampled), int(silent)
            case "unread":
                most = max(most, int(count))
                for column, reason in named or ():
                    columns.setdefault(column, Unread(column=str(column), reason=str(reason).replace("_", " ")))
            case _:
                is_cut = True
    scanned, failed, pending = (counts.get(status, (0, 0, 0)) for status in (COMPLETED, FAILED, None))
    return ScanCoverage(
        snapshots=sum(each[0] for each in counts.values()),
        scanned=scanned[0],
        failed=failed[0],
        pending=pending[0],
        sampled=scanned[1],
        silent=scanned[2],
        columns_unread=most,
        unread=tuple(columns[name] for name in sorted(columns)),
        is_cut=is_cut,
    )


def _snapshots(count: int) -> str:
    return f"{count} snapshot{'' if count == 1 else 's'}"
