# SPDX-License-Identifier: Apache-2.0
"""
Marks: a snapshot is scanned once per ruleset, and a requested scan once per request.

A mark is a guarded row, inserted in the transaction that appends the scan, so there is no scan without its mark and no
mark without its scan. Group ids derive from what was scanned: a repeated scan appends nothing.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ledger.format.event import derived_group_id
from ledger.format.guards import Guard, GuardCall
from ledger.store.queries import load_queries
from spark_detect.tasks import Scan

GUARDS: Final = tuple(
    Guard(name=name.replace("_", ".", 1), statements=(statement,))
    for name, statement in load_queries("spark_detect", "guards.sql").items()
)


def scan_guard(scan: Scan) -> GuardCall:
    """
    Return the guard that marks a scan.
    """
    parameters = {"table_uuid": scan.table_uuid, "snapshot": scan.snapshot, "ruleset": scan.ruleset}
    return GuardCall("scan.first" if scan.request is None else "scan.requested", parameters)


def scan_group_id(scan: Scan) -> UUID:
    """
    Return the id of the group that records a scan.
    """
    content = {
        "request": scan.request,
        "ruleset": scan.ruleset,
        "snapshot": scan.snapshot,
        "table_uuid": scan.table_uuid,
    }
    return derived_group_id("scan", content)
