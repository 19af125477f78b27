"""
Makes the marks of scans again from the log: every scan that is recorded is counted in its mark, whatever asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from ledger.entry import Entry
from ledger.events import ScanCompleted, ScanFailed, from_data
from ledger.guards import GuardCall


class Told(Protocol):
    """An entry that is replayed."""

    @property
    def entry(self) -> Entry:
        """The entry."""


def scan_guards(group: Sequence[Told]) -> Iterator[GuardCall]:
    """
    Tell which marks a group has made or counted.
    """
    for told in group:
        scan: ScanCompleted | ScanFailed
        match told.entry.type:
            case ScanCompleted.TYPE:
                scan = from_data(ScanCompleted, told.entry.data)
            case ScanFailed.TYPE:
                scan = from_data(ScanFailed, told.entry.data)
            case _:
                continue
        mark = {"table_uuid": scan.table_uuid, "snapshot": scan.snapshot, "ruleset": scan.ruleset}
        yield GuardCall("scan.requested", mark)
