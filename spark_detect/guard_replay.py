# SPDX-License-Identifier: Apache-2.0
"""
Rebuilds the marks of scans from the log: every recorded scan is counted in its mark, whatever requested it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ledger.format.events import EVENTS, ScanCompleted, ScanFailed, from_data
from ledger.format.guards import EntryWithParts, GuardCall


def scan_guards(group: Sequence[EntryWithParts]) -> Iterator[GuardCall]:
    """
    Tell which marks a group has made or counted.
    """
    for entry in group:
        kind = EVENTS.get((entry.entry.type, entry.entry.version))
        if kind is None or kind.TYPE not in {ScanCompleted.TYPE, ScanFailed.TYPE}:
            continue
        scan: Any = from_data(kind, entry.entry.data)
        mark = {"table_uuid": scan.table_uuid, "snapshot": scan.snapshot, "ruleset": scan.ruleset}
        yield GuardCall("scan.requested", mark)
