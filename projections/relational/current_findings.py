# SPDX-License-Identifier: Apache-2.0
"""
What detection knows of one table as of the log: of each column and kind the newest finding, whether somebody has said
that it is real, and the last scan.

Guarantee: it is a function of the table's uuid and of the entries before `as_of`, whichever way it is made.
`read_current` takes what the live generation of the findings has, and the entries from its cursor to the end of the
log, all in one snapshot. `FindingsFold` takes the entries alone, so that what was known at a place of the log can be
made again from it.

The uuid is the table's own, so a rename changes nothing. A repeated scan replaces what the scan of the same snapshot
under the same ruleset found before; a scan of another snapshot leaves it, since it reads other files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

from ledger.format import canonical
from ledger.format.entry import Entry
from ledger.format.events import DetectionFound, FindingReviewed, ScanCompleted, ScanCompletedV1, ScanFailed
from ledger.store.session import Connection
from projections.entries import LogEntry, read_log_entry, storable
from projections.errors import NotKnownNowError
from projections.keys import bounded_name
from projections.processing.digest import time_text
from projections.relational.finding_reviews import FindingState, state_of
from projections.relational.findings import FINDINGS, QUERIES

BEHIND_ENTRIES_MAX: Final = 10_000
"""Entries between the live generation and the end of the log; as many are read in place of the rows that they make."""
FINDINGS_MAX: Final = 5_000
"""Of one table: beyond them nothing is known of it."""
TYPES: Final = (DetectionFound.TYPE, FindingReviewed.TYPE, ScanCompleted.TYPE, ScanFailed.TYPE)
"""The entries that say what detection knows."""

_COLUMNS: Final = (
    *("index", "group_id", "column", "field_id", "kind", "confidence_percent", "matches", "values"),
    *("snapshot", "found_at"),
)
"""What a row of the query `current_findings` has."""

ONE_SNAPSHOT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
"""The first statement of a transaction all of whose reads are of one moment."""

Scan: TypeAlias = tuple[str, str]
"""Snapshot and ruleset, as rows have them."""
_Found: TypeAlias = tuple[int, str]
"""Field id and kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentFinding:
    """
    Personal data of one kind in one column: `matches` of `values` that are not null. `found_at` is RFC 3339, in UTC.
    """

    index: int
    group_id: UUID
    column: str
    field_id: int
    kind: str
    confidence_percent: int
    matches: int
    values: int
    snapshot: str
    found_at: str
    state: FindingState = FindingState.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFindings:
    """
    The findings of a table, by field id and kind, and its last complete scan (empty texts if it was never scanned).

    They are those of the entries before index `as_of`.
    """

    columns: tuple[CurrentFinding, ...] = ()
    scanned_at: str = ""
    scanned_snapshot: str = ""
    as_of: int = 0


@dataclass(frozen=True, slots=True)
class Scanned:
    """The last scan of a snapshot under a ruleset; `group_id` is of the entries that told of it."""

    index: int
    group_id: UUID
    recorded_at: str
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The last review of a column and kind: its verdict, and the confidence of the finding that it was about."""

    verdict: str
    confidence_percent: int


@dataclass(frozen=True, slots=True)
class ReviewTold:
    """That somebody has reviewed a column and kind."""

    field_id: int
    kind: str
    review: Reviewed


What: TypeAlias = Scanned | CurrentFinding | ReviewTold


@dataclass(frozen=True, slots=True)
class Told:
    """
    What one entry says of a table: that a snapshot was scanned under a ruleset, what was found in it, or whether that
    is real.
    """

    table_uuid: str
    scan: Scan
    what: What


@dataclass(slots=True)
class FindingsFold:
    """What entries about one table, in log order, say of its findings."""

    _scans: dict[Scan, Scanned] = field(default_factory=dict)
    _found: dict[Scan, dict[_Found, CurrentFinding]] = field(default_factory=dict)
    _newest: dict[_Found, CurrentFinding] = field(default_factory=dict)
    _reviews: dict[_Found, Reviewed] = field(default_factory=dict)
    _last: tuple[Scan, Scanned] | None = None
    """The last complete scan."""

    def apply(self, told: Told) -> None:
        """Apply what the next entry says."""
        found = self._found.setdefault(told.scan, {})
        match told.what:
            case Scanned() as scanned:
                self._replace(told.scan, scanned)
            case CurrentFinding() as finding:
                found[finding.field_id, finding.kind] = finding
                self._newest[finding.field_id, finding.kind] = finding
            case ReviewTold() as told_review:
                self._reviews[told_review.field_id, told_review.kind] = told_review.review

    def _replace(self, scan: Scan, scanned: Scanned) -> None:
        """Let a scan replace what another one of the same snapshot and ruleset found."""
        found = self._found[scan]
        self._scans[scan] = scanned
        self._found[scan] = kept = {at: one for at, one in found.items() if one.group_id == scanned.group_id}
        if any(self._newest.get(at) is one for at, one in found.items() if at not in kept):
            every = (one for of_scan in self._found.values() for one in of_scan.values())
            self._newest = {(one.field_id, one.kind): one for one in sorted(every, key=lambda one: one.index)}
        if scanned.is_complete:
            self._last = (scan, scanned)
        elif self._last is not None and self._last[0] == scan:
            complete = [(at, one) for at, one in self._scans.items() if one.is_complete]
            self._last = max(complete, key=lambda last: last[1].index, default=None)

    @property
    def replaced(self) -> Sequence[tuple[str, str, UUID]]:
        """Return snapshot and ruleset of each scan, and its group: what others found in the same is replaced."""
        return [(*scan, scanned.group_id) for scan, scanned in self._scans.items()]

    def value(
        self,
        earlier: Iterable[CurrentFinding] = (),
        scanned: tuple[str, str] | None = None,
        reviews: Mapping[_Found, Reviewed] | None = None,
        *,
        as_of: int,
    ) -> TableFindings:
        """
        Return the findings of the entries that were applied, which are all before index `as_of`, over what is known
        from entries before them.

        `earlier` is the newest finding of each column and kind, and `scanned` the time and snapshot of the last
        complete scan, both without what is `replaced`; `reviews` are those from earlier entries.

        Raises:
            NotKnownNowError: if there are more than `FINDINGS_MAX`.
        """
        newest = {(one.field_id, one.kind): one for one in earlier} | self._newest
        if len(newest) > FINDINGS_MAX:
            raise NotKnownNowError(f"expected at most {FINDINGS_MAX:,} findings of one table, found more")
        if self._last is not None:
            (snapshot, _), last = self._last
            scanned = (last.recorded_at, snapshot)
        scanned_at, scanned_snapshot = scanned or ("", "")
        known = {**(reviews or {}), **self._reviews}
        return TableFindings(
            columns=tuple(_with_state(newest[at], known.get(at)) for at in sorted(newest)),
            scanned_at=scanned_at,
            scanned_snapshot=scanned_snapshot,
            as_of=as_of,
        )


def told_by(item: LogEntry) -> Told | None:
    """
    Return what an entry says of a table; None if it is none of detection's.
    """
    entry = item.entry
    match item.event:
        case ScanCompleted() | ScanCompletedV1() | ScanFailed() as event:
            is_complete = not isinstance(event, ScanFailed)
            what: What = Scanned(entry.index, entry.group_id, _time(entry), is_complete)
        case DetectionFound() as event:
            what = _finding(entry, event)
        case FindingReviewed() as event:
            review = Reviewed(event.verdict.value, event.confidence_percent)
            what = ReviewTold(event.field_id, event.kind.value, review)
        case _:
            return None
    return Told(stored(event.table_uuid), (stored(event.snapshot), stored(event.ruleset)), what)


def stored(text: str) -> str:
    """
    Return a name of an entry of detection as rows have it.
    """
    return storable(bounded_name(text))


async def read_current(connection: Connection, log_id: int, table_uuid: str | None) -> TableFindings:
    """
    Return what is known of a table as of now. A table without a uuid is a new one: nothing is known of it.

    `connection` works as a role that sees this log, in a transaction in which nothing was read yet; its snapshot
    becomes that of the whole transaction.

    Raises:
        NotKnownNowError: if the live generation is more than `BEHIND_ENTRIES_MAX` entries behind the log, or the table
            has more than `FINDINGS_MAX`.
    """
    async with connection.pipeline():
        await connection.execute(ONE_SNAPSHOT)
        end = await read_end(connection, log_id, FINDINGS)
    if table_uuid is None:
        return TableFindings(as_of=end.size)
    # An entry about the table has its uuid, as JSON, somewhere: most entries about others are not fetched.
    tails = await _read_tails(connection, log_id, end, {stored(table_uuid)}, named=canonical.encode(table_uuid))
    return await _read_table(connection, log_id, end, stored(table_uuid), tails)


async def read_of_tables(connection: Connection, log_id: int, table_uuids: Collection[str]) -> dict[str, TableFindings]:
    """
    Return what is known of some tables, by uuid. `connection` is in a transaction with `ONE_SNAPSHOT`.

    Raises:
        NotKnownNowError: as `read_current`.
    """
    if not table_uuids:
        return {}
    end = await read_end(connection, log_id, FINDINGS)
    tails = await _read_tails(connection, log_id, end, {stored(uuid) for uuid in table_uuids}, named=b"")
    return {uuid: await _read_table(connection, log_id, end, stored(uuid), tails) for uuid in table_uuids}


@dataclass(frozen=True, slots=True)
class End:
    """
    The size of a log, and how far a projection of it is: the cursor of its live generation (None: there is none yet).
    """

    projection: str
    size: int
    next_index: int
    generation: int | None

    def check_not_behind(self) -> None:
        """
        Check that the projection is not too far behind the log.

        Raises:
            NotKnownNowError: if it is more than `BEHIND_ENTRIES_MAX` entries behind.
        """
        if self.size - self.next_index > BEHIND_ENTRIES_MAX:
            raise NotKnownNowError(
                f"expected the projection {self.projection} at most {BEHIND_ENTRIES_MAX:,} entries behind the log, "
                "found it further behind: see that projections run (`lakeproof projections status` shows how far they "
                "are), and try again"
            )


async def read_end(connection: Connection, log_id: int, projection: str) -> End:
    """
    Return where a log ends, and how far a projection of it is.

    Raises:
        NotKnownNowError: if there is no such log that the connection's role sees.
    """
    of_log = {"log_id": log_id, "projection": projection}
    row = await (await connection.execute(QUERIES["end"], of_log)).fetchone()
    if row is None:
        raise NotKnownNowError(f"expected the log {log_id}, found none that this role sees")
    return End(projection, *row)


async def _read_tails(
    connection: Connection, log_id: int, end: End, about: Collection[str], *, named: bytes
) -> dict[str, FindingsFold]:
    """
    Return what the entries behind the live generation say of some tables, by uuid as rows have it.

    Raises:
        NotKnownNowError: if there are too many.
    """
    end.check_not_behind()
    tails: dict[str, FindingsFold] = {}
    if end.next_index == end.size:
        return tails
    behind = {"log_id": log_id, "next_index": end.next_index, "types": list(TYPES), "named": named}
    for (entry,) in await (await connection.execute(QUERIES["told_since"], behind)).fetchall():
        told = told_by(read_log_entry(bytes(entry), {}))
        if told is not None and told.table_uuid in about:
            tails.setdefault(told.table_uuid, FindingsFold()).apply(told)
    return tails


async def _read_table(
    connection: Connection, log_id: int, end: End, table_uuid: str, tails: Mapping[str, FindingsFold]
) -> TableFindings:
    """Return what is known of a table, by its uuid as rows have it."""
    tail = tails.get(table_uuid, FindingsFold())
    of_table = {
        "log_id": log_id,
        "generation": end.generation,
        "table_uuid": table_uuid,
        "snapshots": [snapshot for snapshot, _, _ in tail.replaced],
        "rulesets": [ruleset for _, ruleset, _ in tail.replaced],
        "groups": [group_id for _, _, group_id in tail.replaced],
    }
    async with connection.pipeline():
        found = await connection.execute(QUERIES["current_findings"], {**of_table, "limit": FINDINGS_MAX + 1})
        scans = await connection.execute(QUERIES["last_complete_scan"], of_table)
        reviews = await connection.execute(QUERIES["reviews_of_table"], of_table)
    earlier = [_finding_of(row) for row in await found.fetchall()]
    scan = await scans.fetchone()
    scanned = None if scan is None else (_text(scan[0]), scan[1])
    reviewed = {
        (field_id, kind): Reviewed(verdict, percent) for field_id, kind, verdict, percent in await reviews.fetchall()
    }
    return tail.value(earlier, scanned, reviewed, as_of=end.size)


def _with_state(finding: CurrentFinding, review: Reviewed | None) -> CurrentFinding:
    if review is None:
        return finding
    state = state_of(
        review.verdict, reviewed_percent=review.confidence_percent, confidence_percent=finding.confidence_percent
    )
    return replace(finding, state=state)


def _finding(entry: Entry, event: DetectionFound) -> CurrentFinding:
    return CurrentFinding(
        index=entry.index,
        group_id=entry.group_id,
        column=storable(event.column),
        field_id=event.field_id,
        kind=event.kind.value,
        confidence_percent=event.confidence_percent,
        matches=event.matches,
        values=event.values,
        snapshot=stored(event.snapshot),
        found_at=_time(entry),
    )


def _finding_of(row: Sequence[Any]) -> CurrentFinding:
    members = dict(zip(_COLUMNS, row, strict=True))
    return CurrentFinding(**{**members, "found_at": _text(members["found_at"])})


def _time(entry: Entry) -> str:
    return canonical.format_time(entry.recorded_at)


def _text(at: datetime) -> str:
    return time_text(at) or ""
