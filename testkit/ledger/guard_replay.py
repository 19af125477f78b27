# SPDX-License-Identifier: Apache-2.0
"""
Guarded rows are a function of the log. This compares the live rows of one guarded table with those that its log tells.

A table is described by how its rows are read (key and value, of one log) and by what each entry does to them; the
catalog's tables or any other can be described the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, LiteralString, TypeVar

import psycopg

from ledger.format.entry import Branch, Entry

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedTable(Generic[K, V]):
    """`select` returns (key, value) of the log %(log_id)s; `apply` changes the rows as one entry says."""

    select: LiteralString
    apply: Callable[[dict[K, V], Entry], None]

    def live(self, database: str, log_id: int) -> dict[K, V]:
        """Return the rows that are there."""
        with psycopg.connect(database) as connection:
            return dict(connection.execute(self.select, {"log_id": log_id}).fetchall())

    def replayed(self, entries: Iterable[Entry]) -> dict[K, V]:
        """Return the rows that there must be: what the log tells, and nothing else."""
        rows: dict[K, V] = {}
        for entry in entries:
            self.apply(rows, entry)
        return rows


def _apply_aggregate(rows: dict[str, int], entry: Entry) -> None:
    # An else branch says that a guard did not hold: it changed nothing.
    if entry.branch is Branch.THEN and isinstance(version := entry.data.get("version"), int):
        assert version == rows.get(entry.key, 0) + 1, f"{entry.key} goes from {rows.get(entry.key)} to {version}"
        rows[entry.key] = version


AGGREGATES: GuardedTable[str, int] = GuardedTable(
    select="SELECT key, version FROM ledger.aggregates WHERE log_id = %(log_id)s", apply=_apply_aggregate
)
