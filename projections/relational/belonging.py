# SPDX-License-Identifier: Apache-2.0
"""
What belongs together: a decision and its outcome, the scans of what it added, what they found, and the alerts about it.

A decision names the snapshots that it adds, unless it was not made; scans, findings and alerts name table and snapshot.
Everything is read from the live generations of the read models, which may be some entries behind the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ledger.format.entry import Entry
from ledger.format.events import CommitDecided, CommitSettled, from_data
from ledger.store.session import Connection
from projections.entries import decision_of
from projections.relational.commits import Commit, read_commit_at, read_commits_of_group, read_commits_of_snapshots
from projections.relational.findings import (
    Alert,
    Finding,
    ScanSummary,
    read_alerts_of_snapshots,
    read_findings_of_snapshots,
    read_scans_of_snapshots,
)

EACH_MAX: Final = 200
"""Rows of each kind."""
SNAPSHOTS_MAX: Final = 100
"""Snapshots of one decision that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Belonging:
    """What belongs to some decisions on one table, view or namespace; each list has at most `EACH_MAX`."""

    commits: Sequence[Commit]
    scans: Sequence[ScanSummary]
    findings: Sequence[Finding]
    alerts: Sequence[Alert]

    def indices(self) -> Iterator[int]:
        """Yield the indices of the entries that say so."""
        for commit in self.commits:
            yield commit.index
            if commit.settled_index is not None:
                yield commit.settled_index
        for rows in (self.scans, self.findings, self.alerts):
            yield from (row.index for row in rows)


NOTHING: Final = Belonging(commits=(), scans=(), findings=(), alerts=())


async def read_belonging(connection: Connection, commits: Sequence[Commit]) -> Belonging:
    """
    Return what belongs to `commits`, which are decisions on one thing; the first that may have added snapshots counts.
    """
    with_snapshots = next((each for each in commits if each.added and each.table_uuid is not None), None)
    if with_snapshots is None or with_snapshots.table_uuid is None:
        return Belonging(commits=commits, scans=(), findings=(), alerts=())
    return await _of_snapshots(connection, commits, with_snapshots.table_uuid, with_snapshots.added)


async def read_belonging_of_entry(connection: Connection, log_id: int, entry: Entry) -> Belonging:
    """
    Return what belongs to an entry: to a decision, its outcome, or what names a snapshot of a table.
    """
    if entry.type == CommitDecided.TYPE:
        commit = await read_commit_at(connection, entry.index)
        return await read_belonging(connection, [] if commit is None else [commit])
    if entry.type == CommitSettled.TYPE:
        group = await read_commits_of_group(connection, decision_of(entry, from_data(CommitSettled, entry.data)))
        return await read_belonging(connection, [each for each in group if each.key == entry.key])
    table_uuid, snapshot = entry.data.get("table_uuid"), entry.data.get("snapshot")
    if not isinstance(table_uuid, str) or not isinstance(snapshot, str):
        return NOTHING
    commits = await read_commits_of_snapshots(
        connection, log_id, table_uuid=table_uuid, snapshots=[snapshot], before=entry.index
    )
    return await _of_snapshots(connection, commits, table_uuid, [snapshot])


async def _of_snapshots(
    connection: Connection, commits: Sequence[Commit], table_uuid: str, snapshots: Sequence[str]
) -> Belonging:
    named = list(snapshots)[:SNAPSHOTS_MAX]
    return Belonging(
        commits=commits,
        scans=await read_scans_of_snapshots(connection, table_uuid=table_uuid, snapshots=named, limit=EACH_MAX),
        findings=await read_findings_of_snapshots(connection, table_uuid=table_uuid, snapshots=named, limit=EACH_MAX),
        alerts=await read_alerts_of_snapshots(connection, table_uuid=table_uuid, snapshots=named, limit=EACH_MAX),
    )
