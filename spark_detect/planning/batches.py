# SPDX-License-Identifier: Apache-2.0
"""
Batches: which entries of which logs are worked on together, stored as rows before anything is planned.

A batch is a number, the offset of the stream. Its rows are ranges of logs, so a replay of the batch works on the same
entries, whatever was appended since. Finished rows are done; a row that stays open, because a process died or a storage
did not answer, goes into a later batch. So nothing depends on Spark's checkpoint: it may be new.

Only one process at a time pins batches; another one waits until that process is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import Connection, sql

from ledger.store.notifications import LOG_GROWN
from ledger.store.queries import load_queries
from ledger.store.read import Log
from projections.entries import LogEntry, read_log_entry
from projections.keys import bounded_name
from projections.relational.table_names import QUERIES as NAMES
from projections.relational.table_names import TableName, read_name
from spark_detect.classify import RULESET
from spark_detect.planning.targets import ScanTarget, read_target
from spark_detect.tasks import Range

QUERIES: Final = load_queries("spark_detect", "batches.sql")
TURN: Final = 0x6C70_0010
"""Advisory lock of the process that pins batches."""
ENTRIES_OF_LOG_MAX: Final = 64
ENTRIES_MAX: Final = 256
KEPT_MAX: Final = 1_000
"""Batches that stay in the table once they are finished, for whoever asks what happened."""

Weigh: TypeAlias = Callable[[Log, ScanTarget], int]
"""Returns about how many bytes a target leads to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRange:
    """A range that is to be worked on; `attempts` counts the batches that it has been in, this one included."""

    range: Range
    log: Log
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """What waits in one log: targets behind `position`, and where the entries end that were looked at."""

    log: Log
    position: int
    end: int
    targets: Sequence[ScanTarget]


class Batches:
    """
    The batches of one process. Blocking; `dsn` works as the detector role.

    `connection` may be used by several threads: psycopg lets one query run at a time. The other fields belong to the
    stream: `pin` and `open_ranges` are never called at once. Planners in other threads only run queries.
    """

    def __init__(self, dsn: str, *, bytes_max: int, entries_max: int = ENTRIES_MAX) -> None:
        self._bytes_max = bytes_max
        self._entries_max = entries_max
        self._has_turn = False
        self._looked_at: dict[int, int] = {}
        self._served = 0
        self.connection: Connection[Any] = psycopg.connect(
            dsn, autocommit=True, connect_timeout=5, application_name="lakeproof detection"
        )
        self.connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(LOG_GROWN)))

    def close(self) -> None:
        """Give back the turn and the connection."""
        self.connection.close()

    def finished(self) -> int:
        """Return the number up to which every batch is done with."""
        return self._number("finished_batch")

    def last(self) -> int:
        """Return the highest number that a batch has; 0 if there is none."""
        return self._number("last_batch")

    def pin(self, weigh: Weigh) -> int | None:
        """
        Pin a batch of what waits; return its number, or None if nothing does or it is another process's turn.

        Ranges that were left open come first; then each log in turn gives one entry, until the batch is full.
        """
        if not self.take_turn():
            return None
        waiting = self._waiting()
        is_open = self._is("is_open")
        chosen = self._choose(waiting, weigh)
        idle = [each for each in waiting if not each.targets]
        if not chosen and not is_open:
            for each in idle:
                self._move_position(each.log.log_id, each.end)
            return None
        with self.connection.transaction():
            batch = self.last() + 1
            self.connection.execute(QUERIES["pin_again"], {"batch": batch})
            for each, to_index in chosen:
                bounds = {"log_id": each.log.log_id, "from_index": each.position, "to_index": to_index}
                self.connection.execute(QUERIES["pin"], {**bounds, "batch": batch})
                self._move_position(each.log.log_id, to_index)
            self.connection.execute(QUERIES["prune"], {"before": batch - KEPT_MAX})
        return batch

    def wait(self, timeout_s: float) -> None:
        """Return when a log has grown, or after `timeout_s`."""
        for _ in self.connection.notifies(timeout=timeout_s, stop_after=1):
            return

    def open_ranges(self, batch: int) -> list[OpenRange]:
        """
        Return what `batch`, or any before it, has still to do; counts the attempt. Nothing if it is another's turn.
        """
        if not self.take_turn():
            return []
        rows = self.connection.execute(QUERIES["open_ranges"], {"batch": batch}).fetchall()
        return [
            OpenRange(
                range=Range(log_id=log_id, from_index=from_index, to_index=to_index),
                log=Log(log_id=log_id, origin=origin, tenant=tenant, reader=None),
                attempts=attempts,
            )
            for _, log_id, origin, tenant, from_index, to_index, attempts in sorted(rows, key=lambda row: row[:2])
        ]

    def targets(self, within: Range) -> list[ScanTarget]:
        """
        Return what the entries of a range lead to, in order.

        Raises:
            FormatError: if one of them is corrupt.
        """
        bounds = {"log_id": within.log_id, "from_index": within.from_index, "to_index": within.to_index}
        rows = self.connection.execute(QUERIES["entries_of_interest"], {**bounds, "limit": None}).fetchall()
        return _targets(bytes(row[1]) for row in rows)

    def newest_of_table(self, log_id: int, key: str, *, limit: int) -> list[ScanTarget]:
        """Return what the newest entries about a table lead to, newest first."""
        bounds = {"log_id": log_id, "key": key, "limit": limit}
        rows = self.connection.execute(QUERIES["newest_of_table"], bounds).fetchall()
        return _targets(bytes(row[1]) for row in rows)

    def names(self, log_id: int, table_uuid: str, key: str | None) -> list[TableName]:
        """Return what a table is called, and which table is called `key`, as far as the read models have seen it."""
        parameters = {"log_id": log_id, "uuids": [bounded_name(table_uuid)], "keys": [] if key is None else [key]}
        return [read_name(row) for row in self.connection.execute(NAMES["live_names"], parameters).fetchall()]

    def newest_scanned(self, log_id: int, table_uuid: str) -> str | None:
        """Return where the metadata file is that the last scan of a table has read, as the read models have it."""
        parameters = {"log_id": log_id, "table_uuid": bounded_name(table_uuid)}
        row = self.connection.execute(QUERIES["newest_scanned"], parameters).fetchone()
        return None if row is None else str(row[0])

    def catalog_entries(self, log_id: int) -> list[LogEntry]:
        """Return the entries about the catalogs of a log, in order."""
        rows = self.connection.execute(QUERIES["catalog_entries"], {"log_id": log_id}).fetchall()
        return [read_log_entry(bytes(row[1]), {}) for row in rows]

    def marks(self, log_id: int, table_uuid: str, snapshots: Iterable[int]) -> set[int]:
        """Return which of `snapshots` bear a mark, of any ruleset."""
        parameters = {"log_id": log_id, "table_uuid": table_uuid, "snapshots": [str(each) for each in snapshots]}
        return {int(row[0]) for row in self.connection.execute(QUERIES["marks"], parameters).fetchall()}

    def is_recorded(self, log_id: int, group_id: object) -> bool:
        """Return whether a group is in the log."""
        return self._is("recorded", log_id=log_id, group_id=group_id)

    def finish(self, done: Range) -> None:
        """Mark a range as done with."""
        self.connection.execute(QUERIES["finish"], {"log_id": done.log_id, "from_index": done.from_index})

    def postpone(self, postponed: Range) -> None:
        """Put a range off, whose storage did not answer."""
        bounds = {"log_id": postponed.log_id, "from_index": postponed.from_index}
        self.connection.execute(QUERIES["postpone"], bounds)

    def take_turn(self) -> bool:
        """Return whether it is this process's turn; it keeps it until it closes."""
        self._has_turn = self._has_turn or self._is("take_turn", lock=TURN)
        return self._has_turn

    def _waiting(self) -> list[_Waiting]:
        waiting = []
        for log_id, origin, tenant, size, position in self.connection.execute(QUERIES["moved_logs"]).fetchall():
            if self._looked_at.get(log_id) == size:
                continue
            bounds = {"log_id": log_id, "from_index": position, "to_index": size, "limit": ENTRIES_OF_LOG_MAX}
            rows = self.connection.execute(QUERIES["entries_of_interest"], bounds).fetchall()
            end = size if len(rows) < ENTRIES_OF_LOG_MAX else rows[-1][0] + 1
            log = Log(log_id=log_id, origin=origin, tenant=tenant, reader=None)
            targets = _targets(bytes(row[1]) for row in rows)
            waiting.append(_Waiting(log=log, position=position, end=end, targets=targets))
            if not rows:
                self._looked_at[log_id] = size
        return waiting

    def _choose(self, waiting: Sequence[_Waiting], weigh: Weigh) -> list[tuple[_Waiting, int]]:
        """Return logs, and up to which index each is in the batch."""
        lines = [each for each in waiting if each.targets]
        lines.sort(key=lambda each: (each.log.log_id <= self._served, each.log.log_id))
        rounds = zip_longest(*([(each, target) for target in each.targets] for each in lines))
        queue = [one for one in chain.from_iterable(rounds) if one is not None]
        taken: dict[int, int] = {}
        size_bytes = 0
        for number, (each, _) in enumerate(queue):
            # A single one is taken whatever it weighs, so it need not be weighed.
            size_bytes += weigh(each.log, queue[number][1]) if len(queue) > 1 else 0
            if taken and (number >= self._entries_max or size_bytes > self._bytes_max):
                break
            taken[each.log.log_id] = taken.get(each.log.log_id, 0) + 1
            self._served = each.log.log_id
        return [(each, _end(each, taken[each.log.log_id])) for each in lines if each.log.log_id in taken]

    def _move_position(self, log_id: int, to_index: int) -> None:
        self.connection.execute(QUERIES["move_position"], {"log_id": log_id, "to_index": to_index})

    def _number(self, query: str) -> int:
        row = self.connection.execute(QUERIES[query]).fetchone()
        return 0 if row is None else int(row[0])

    def _is(self, query: str, **parameters: object) -> bool:
        row = self.connection.execute(QUERIES[query], parameters).fetchone()
        return row is not None and bool(row[0])


def _end(waiting: _Waiting, taken: int) -> int:
    return waiting.end if taken == len(waiting.targets) else waiting.targets[taken - 1].index + 1


def _targets(entries: Iterable[bytes]) -> list[ScanTarget]:
    found = (read_target(read_log_entry(entry, {}), ruleset=RULESET) for entry in entries)
    return [target for target in found if target is not None]
