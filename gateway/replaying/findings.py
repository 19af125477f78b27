# SPDX-License-Identifier: Apache-2.0
"""
What detection knew of tables at places of a log, made again from its entries.

Guarantee: it is what `projections.relational.current_findings.read_current` gave there, since both follow from the same
entries; the read models are not asked. The bytes of every entry hash to the leaf that was stored with it.

A replay asks for places that mostly follow each other, so each table's findings are folded forward as it goes on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from gateway.commit.look_ups import findings_view
from gateway.policy.variables import NO_FINDINGS, FindingsView
from gateway.replaying.reading import SEARCH_ENTRIES
from gateway.replaying.recorded import QUERIES, Lend, parse_stored
from ledger.format import canonical
from projections.entries import read_log_entry
from projections.errors import NotKnownNowError
from projections.relational.current_findings import FindingsFold, Told, stored, told_by

ENTRIES_MAX: Final = 200_000
"""Entries of detection that are kept, some 100 MB; in a log with more, nothing is known at places behind them."""
VALUES_KEPT: Final = 8
"""Of each table: decisions that are recorded one after the other may have been judged in another order."""


@dataclass(slots=True)
class _Table:
    """What entries say of one table, in log order, of which the first `applied` are in `fold`."""

    told: list[Told] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    fold: FindingsFold = field(default_factory=FindingsFold)
    applied: int = 0
    values: OrderedDict[int, FindingsView | None] = field(default_factory=OrderedDict)

    def value(self, count: int) -> FindingsView | None:
        """Return what the first `count` entries say; None if that is more than is shown."""
        if count not in self.values:
            if count < self.applied:
                self.fold, self.applied = FindingsFold(), 0
            for told in self.told[self.applied : count]:
                self.fold.apply(told)
            self.applied = count
            try:
                self.values[count] = findings_view(self.fold.value(as_of=0))
            except NotKnownNowError:
                self.values[count] = None
            if len(self.values) > VALUES_KEPT:
                self.values.popitem(last=False)
        return self.values[count]


class RecordedFindings:
    """
    The findings of one log's tables at each of its places, or of one table alone. Belongs to one replay; event loop
    only.
    """

    def __init__(self, lend: Lend, log_id: int, *, table_uuid: str | None = None) -> None:
        self._lend = lend
        self._log_id = log_id
        self._table_uuid = table_uuid
        self._tables: dict[str, _Table] = {}
        self._end = 0
        self._kept = 0
        self._known_to: int | None = None
        """Beyond this index too many entries would have to be kept; None as long as all were."""

    async def read(self, end: int) -> None:
        """
        Read the entries before index `end` that were not read yet.

        Raises:
            BrokenError: if one of them is corrupt.
        """
        while self._end < end and self._known_to is None:
            # What is about one table alone is little: it is read at once. An entry that holds its uuid somewhere may be
            # about another table, which does no harm.
            to_index = end if self._table_uuid is not None else min(self._end + SEARCH_ENTRIES, end)
            bounds: dict[str, object] = {
                "log_id": self._log_id,
                "from_index": self._end,
                "to_index": to_index,
                "named": None if self._table_uuid is None else canonical.encode(self._table_uuid),
            }
            async with self._lend() as connection:
                rows = await (await connection.execute(QUERIES["entries_of_detection"], bounds, binary=True)).fetchall()
            for index, entry, leaf in rows:
                parse_stored(index, entry, leaf)
                if self._kept == ENTRIES_MAX:
                    self._known_to = index
                    return
                if (told := told_by(read_log_entry(bytes(entry), {}))) is not None:
                    table = self._tables.setdefault(told.table_uuid, _Table())
                    table.told.append(told)
                    table.indices.append(index)
                    self._kept += 1
            self._end = to_index

    def count(self, table_uuid: str | None, as_of: int) -> int:
        """Return how many entries before index `as_of` are about a table, which says which of its findings hold."""
        table = self._tables.get(stored(table_uuid)) if table_uuid is not None else None
        return 0 if table is None else bisect_left(table.indices, as_of)

    def at(self, table_uuid: str | None, as_of: int) -> FindingsView | None:
        """
        Return what was known of a table at index `as_of`, up to which all was read; None if that is too much.

        Its `as_of` is 0: the caller has it.
        """
        if self._known_to is not None and as_of > self._known_to:
            return None
        table = self._tables.get(stored(table_uuid)) if table_uuid is not None else None
        return NO_FINDINGS if table is None else table.value(self.count(table_uuid, as_of))
