# SPDX-License-Identifier: Apache-2.0
"""
Plans one table: reads the metadata files that entries name, looks up marks, and plans what is due. Blocking.

The rules are in `snapshots.py`; this module gets what they need from the database and the lake. A fault of a table
fails its scans alone; a storage that does not answer raises, and the whole range is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ledger.format.event import format_key
from ledger.format.events import CatalogCreated, ScanFault
from ledger.store.read import Log
from projections.errors import SecretMissingError, StorageUnavailableError
from projections.lake.storage import Storage
from projections.relational.catalogs import CatalogRow
from projections.relational.table_names import identifier_of, resolve_key
from spark_detect.classify import RULESET
from spark_detect.errors import ScanError
from spark_detect.files.iceberg_metadata import (
    COLUMNS_MAX,
    LiveFile,
    SnapshotState,
    TableState,
    read_added,
    read_live,
    read_table,
)
from spark_detect.job_folder import Lake
from spark_detect.marks import scan_group_id
from spark_detect.planning.batches import Batches
from spark_detect.planning.snapshots import Due, Slices, adds_nothing, due_snapshots, lost_adders, split
from spark_detect.planning.targets import ScanRequest, ScanTarget, catalog_of
from spark_detect.tasks import UNREAD_MAX, Range, Scan, Task

NEWEST_MAX: Final = 100
GAPS_MAX: Final = 1_000
FORMATS: Final = frozenset({"PARQUET"})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTargets:
    """The targets of one table in one range, in the order of the log, and the catalogs of that log."""

    range: Range
    log: Log
    targets: Sequence[ScanTarget]
    catalogs: Mapping[str, CatalogCreated]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A metadata file that was read, for a target."""

    target: ScanTarget
    catalog: CatalogRow
    storage: Storage
    state: TableState


class TablePlanner:
    """Plans tables; may be called from several threads, as a connection of psycopg may."""

    def __init__(self, batches: Batches, lake: Lake, *, bytes_max: int) -> None:
        self._batches = batches
        self._lake = lake
        self._bytes_max = bytes_max

    def weigh(self, log: Log, target: ScanTarget, catalogs: Mapping[str, CatalogCreated]) -> int:
        """Return about how many bytes `target` leads to; 0 if that is not known."""
        if target.metadata_location is None:
            return self._bytes_max  # all live files of a table: as much as there may be
        nowhere = Range(log_id=log.log_id, from_index=target.index, to_index=target.index + 1)
        table = TableTargets(range=nowhere, log=log, targets=(), catalogs=catalogs)
        try:
            read = self._read(table, target, target.metadata_location)
        except (ScanError, StorageUnavailableError, SecretMissingError):
            return 0
        named = target.snapshots or (() if read is None else read.state.heads)
        states = () if read is None else (read.state.snapshots.get(each) for each in named)
        return sum(state.added_bytes for state in states if state is not None)

    def plan(self, table: TableTargets) -> list[Task]:
        """
        Return the tasks for one table; the newest metadata file is read first, since it lists the most snapshots.

        Raises:
            StorageUnavailableError, SecretMissingError: if its files cannot be reached now.
        """
        tasks: dict[int, list[Task]] = {}
        faults: list[tuple[ScanTarget, ScanError]] = []
        reads: list[_Read] = []
        commits = [target for target in table.targets if target.request is None]
        named = dict.fromkeys(snapshot for target in commits for snapshot in target.snapshots)
        seen: set[int] = set()
        for target in reversed(commits):
            if target.snapshots and seen.issuperset(target.snapshots):
                continue
            try:
                read = self._read(table, target, target.metadata_location or "")
            except ScanError as error:
                faults.append((target, error))
                continue
            if read is not None:
                reads.append(read)
                seen.update(read.state.snapshots)
        for read in reversed(reads):
            # The oldest first: a snapshot that has expired since is no gap, if an older file still knows it.
            present = [each for each in named if each in read.state.snapshots]
            self._plan_snapshots(table, read, present or list(read.state.heads), tasks)
        for target, fault in faults:
            self._plan_fault(table, target, fault, seen, tasks)
        planned = [task for those in tasks.values() for task in those]
        for target in table.targets:
            if target.request is not None:
                planned += self._plan_request(table, target, target.request)
        return planned

    def _read(self, table: TableTargets, target: ScanTarget, location: str) -> _Read | None:
        """Return the metadata at `location`, or None if no catalog of this log has its files there."""
        catalog = catalog_of(target, location, table.catalogs, log=table.log, warehouse=self._lake.warehouse)
        if catalog is None:
            _log.info("entry %d of %s: no catalog holds %s", target.index, table.log.origin, location)
            return None
        storage = self._lake.storage_of(catalog)
        state = read_table(storage, location)
        if target.table_uuid not in {None, state.table_uuid}:
            message = f"expected table {target.table_uuid}, found {state.table_uuid}"
            raise ScanError(ScanFault.METADATA_UNREADABLE, file=location, message=message)
        return _Read(target=target, catalog=catalog, storage=storage, state=state)

    def _plan_snapshots(
        self, table: TableTargets, read: _Read, named: Sequence[int], tasks: dict[int, list[Task]]
    ) -> None:
        state = read.state
        known = {*state.snapshots, *(each.parent for each in state.snapshots.values() if each.parent is not None)}
        marked = self._batches.marks(table.log.log_id, state.table_uuid, known)
        for due in due_snapshots(state, named, marked | tasks.keys()):
            tasks[due.snapshot_id] = self._plan_due(table, read, due)

    def _plan_due(self, table: TableTargets, read: _Read, due: Due) -> list[Task]:
        snapshot = read.state.snapshots[due.snapshot_id]
        try:
            if adds_nothing(read.state, due):
                return self._tasks(table, read, snapshot, [], gaps=())
            if due.gap is None:
                return self._tasks(table, read, snapshot, read_added(read.storage, snapshot), gaps=())
            files, lost = self._lost_files(table, read, due)
            gaps = list(dict.fromkeys([due.gap, *sorted(lost)]))
            return self._tasks(table, read, snapshot, files, gaps=gaps)
        except ScanError as error:
            return [_failing(self._scan_of(table, read, snapshot.snapshot_id), read.catalog, error)]

    def _lost_files(self, table: TableTargets, read: _Read, due: Due) -> tuple[list[LiveFile], set[int]]:
        """Return what a snapshot added, and what is live in it of parents that are scanned no other way; and those."""
        live = read_live(read.storage, read.state.snapshots[due.snapshot_id])
        lost = lost_adders(read.state, due, live)
        lost -= self._batches.marks(table.log.log_id, read.state.table_uuid, lost)
        return [file for file in live if file.snapshot_id == due.snapshot_id or file.snapshot_id in lost], lost

    def _plan_request(self, table: TableTargets, target: ScanTarget, request: ScanRequest) -> list[Task]:
        """Return the tasks of a requested scan, unless it is in the log, or there is nothing to scan."""
        newest = self._newest(table, target)
        if newest is None:
            _log.info("entry %d of %s: no commit tells where its table is", target.index, table.log.origin)
            return []
        target = replace(target, metadata_location=newest)
        try:
            read = self._read(table, target, newest)
        except ScanError as error:
            return [task for each in target.snapshots for task in self._failed(table, target, each, error)]
        snapshot_id = request.snapshot if read is None or request.snapshot is not None else read.state.current
        snapshot = None if read is None or snapshot_id is None else read.state.snapshots.get(snapshot_id)
        if read is None or snapshot is None:
            return []  # nothing was ever committed, or it has expired: there is nothing left to scan
        scan = self._scan_of(table, read, snapshot.snapshot_id)
        if self._is_recorded(scan):
            return []
        try:
            every = request.snapshot is None
            files = read_live(read.storage, snapshot) if every else read_added(read.storage, snapshot)
            return self._tasks(table, read, snapshot, files, gaps=())
        except ScanError as error:
            return [_failing(scan, read.catalog, error)]

    def _plan_fault(
        self, table: TableTargets, target: ScanTarget, error: ScanError, seen: set[int], tasks: dict[int, list[Task]]
    ) -> None:
        """Plan what a metadata file that is missing was to tell from a newer one; what none tells has failed."""
        left = [each for each in target.snapshots if each not in seen]
        newest = self._newest(table, target) if left else None
        if newest not in {None, target.metadata_location}:
            try:
                read = self._read(table, target, newest or "")
            except ScanError:
                read = None
            if read is not None:
                seen.update(read.state.snapshots)
                self._plan_snapshots(table, read, [each for each in left if each in read.state.snapshots], tasks)
        for snapshot_id in left:
            if snapshot_id not in seen and snapshot_id not in tasks:
                tasks[snapshot_id] = self._failed(table, target, snapshot_id, error)

    def _newest(self, table: TableTargets, target: ScanTarget) -> str | None:
        """Return where the newest metadata file of a table is, as the log knows."""
        if target.key is None:
            return None
        for newest in self._batches.newest_of_table(table.log.log_id, target.key, limit=NEWEST_MAX):
            same = target.table_uuid is None or newest.table_uuid in {None, target.table_uuid}
            if newest.metadata_location is not None and same:
                return newest.metadata_location
        # The log names it only before it had this name.
        return None if target.table_uuid is None else self._batches.newest_scanned(table.log.log_id, target.table_uuid)

    def _failed(self, table: TableTargets, target: ScanTarget, snapshot_id: int, error: ScanError) -> list[Task]:
        """Return the task that records a failure, if there is a table to record it of."""
        location = target.metadata_location or ""
        catalog = catalog_of(target, location, table.catalogs, log=table.log, warehouse=self._lake.warehouse)
        if target.table_uuid is None or catalog is None:
            return []
        if target.request is None and self._batches.marks(table.log.log_id, target.table_uuid, [snapshot_id]):
            return []
        scan = self._scan(table, target, snapshot_id, location=location, table_uuid=target.table_uuid)
        return [] if self._is_recorded(scan) else [_failing(scan, catalog, error)]

    def _scan_of(self, table: TableTargets, read: _Read, snapshot_id: int) -> Scan:
        state = read.state
        return self._scan(table, read.target, snapshot_id, location=state.location, table_uuid=state.table_uuid)

    def _scan(
        self, table: TableTargets, target: ScanTarget, snapshot_id: int, *, location: str, table_uuid: str
    ) -> Scan:
        """Return the scan of a snapshot before anything is known of its files."""
        key = self._key(table, target, table_uuid)
        return Scan(
            range=table.range,
            key=key or format_key("table_uuid", (table_uuid,)),
            identifier=None if key is None else identifier_of(key),
            metadata_location=location,
            table_uuid=table_uuid,
            snapshot=str(snapshot_id),
            ruleset=RULESET,
            request=None if target.request is None else target.request.group_id,
            gaps=(),
            files=0,
            rows=0,
            is_sampled=False,
            columns=(),
            columns_cut=0,
            cut=(),
            tasks=1,
        )

    def _key(self, table: TableTargets, target: ScanTarget, table_uuid: str) -> str | None:
        """Return the key of what the table of a metadata file is called; None if nobody knows."""
        if target.is_certain:
            return target.key
        names = self._batches.names(table.log.log_id, table_uuid, target.key)
        return resolve_key(names, table_uuid=table_uuid, said=target.key)

    def _is_recorded(self, scan: Scan) -> bool:
        return self._batches.is_recorded(scan.range.log_id, scan_group_id(scan))

    def _tasks(
        self,
        table: TableTargets,
        read: _Read,
        snapshot: SnapshotState,
        files: Sequence[LiveFile],
        *,
        gaps: Sequence[int],
    ) -> list[Task]:
        """Return the tasks that read `files`; without any file, one that reads nothing."""
        _check_files(files)
        every = read.state.columns(snapshot) if files else ()
        columns, cut = every[:COLUMNS_MAX], every[COLUMNS_MAX:]
        slices, is_sampled = split(files, columns, size_bytes_max=self._bytes_max)
        slices = slices or [Slices(slices=(), columns=(), counts_rows=True)]
        scan = replace(
            self._scan_of(table, read, snapshot.snapshot_id),
            gaps=tuple(map(str, gaps[:GAPS_MAX])),
            files=len(files),
            rows=sum(file.rows for file in files),
            is_sampled=is_sampled,
            columns=columns,
            columns_cut=len(cut),
            cut=cut[:UNREAD_MAX],
            tasks=len(slices),
        )
        return [
            Task(
                scan=scan,
                catalog=read.catalog,
                slices=each.slices,
                columns=each.columns,
                counts_rows=each.counts_rows,
            )
            for each in slices
        ]


def _check_files(files: Iterable[LiveFile]) -> None:
    """
    Check that every file is of a kind that can be read.

    Raises:
        ScanError: for the first that is not.
    """
    for file in files:
        if file.is_encrypted:
            raise ScanError(ScanFault.FILE_ENCRYPTED, file=file.location, message="the manifest names a key for it")
        if file.format not in FORMATS:
            message = f"expected Parquet, found {file.format}"
            raise ScanError(ScanFault.FORMAT_UNSUPPORTED, file=file.location, message=message)


def _failing(scan: Scan, catalog: CatalogRow, error: ScanError) -> Task:
    return Task(scan=scan, catalog=catalog, slices=(), columns=(), fault=error.fault, at_fault=error.file)
