# SPDX-License-Identifier: Apache-2.0
"""
Operations that were made, read from a log: the accepted outcomes, each with its decision.

An operation has its place where its outcome is, which no later entry changes. So a reader that goes on behind an index
misses nothing, not even what a foreign catalog was asked for long ago and is known to have done only now. Of a rename,
two outcomes tell; its place is that of the new name.

The entries say which object was changed, by whom, when, and what it is since. What was asked for is a payload part of
the caller, which can be erased and is never opened here. So `updates`, of creates and commits, and `updated` and
`removed`, of properties of a namespace, are empty lists where the proposal requires them, and what it leaves to the
server (`requirements`, `properties`) is left out. `metadata-location` and `snapshot-ids` are ours: the metadata file
that holds the change, and the snapshots that it added.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from gateway.catalogs.json_text import off_loop
from gateway.errors import UnavailableError
from gateway.http.events.query import EventFilters, ObjectType
from gateway.identifiers import Target
from gateway.mutations import RENAMES_FROM, RENAMES_TO, Operation
from ledger.errors import BrokenError, Fault
from ledger.format.entry import Entry, parse_entry
from ledger.format.events import CommitDecided, CommitOutcome, CommitSettled, PurgeRequested, from_data
from ledger.store.queries import load_queries
from ledger.store.session import Connection

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SCANNED_MAX: Final = 20_000
"""Entries of the log, of whatever kind and catalog, that one request has the database look through."""
EXAMINED_MAX: Final = 500
"""Outcomes that one request reads, with their decisions: at most 64 KiB each, usually one. So many are judged, too."""
EXAMINED_MIN: Final = 50
"""Outcomes that are read for the smallest page: not all of them are events."""

TYPES: Final[Mapping[Operation, str]] = {
    Operation.TABLE_CREATE: "create-table",
    Operation.TABLE_COMMIT: "update-table",
    Operation.TABLE_DROP: "drop-table",
    Operation.TABLE_REGISTER: "register-table",
    # The proposal has no type for it: the table is not in the catalog any more, and its files stay.
    Operation.TABLE_UNREGISTER: "drop-table",
    Operation.TABLE_RENAME_TO: "rename-table",
    Operation.VIEW_CREATE: "create-view",
    Operation.VIEW_REPLACE: "update-view",
    Operation.VIEW_DROP: "drop-view",
    # Nor one for this.
    Operation.VIEW_REGISTER: "create-view",
    Operation.VIEW_RENAME_TO: "rename-view",
    Operation.NAMESPACE_CREATE: "create-namespace",
    Operation.NAMESPACE_UPDATE: "update-namespace-properties",
    Operation.NAMESPACE_DROP: "drop-namespace",
}
"""The type of the event of each operation; the old name of a rename has none."""
_WITH_UPDATES: Final = frozenset({"create-table", "update-table", "create-view", "update-view"})

_QUERIES: Final = load_queries("gateway", "events.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """
    One operation that was made: `outcome`, the entry that says so, with its data (`settled`), and `decision`.

    `targets` is its object, of a rename under its old name and under its new one. `of_request` are the targets of each
    operation of the same request. `is_purged` says that the files of a dropped table are to be deleted, too.
    """

    outcome: Entry
    decision: Entry
    settled: CommitSettled
    type: str
    targets: Sequence[Target]
    of_request: Sequence[Sequence[Target]]
    is_purged: bool

    @property
    def uuid(self) -> str | None:
        """Return the uuid of the table or view, if it is known."""
        return self.settled.table_uuid

    def is_asked_for(self, filters: EventFilters) -> bool:
        """Return whether the filters admit it."""
        return filters.admits(
            operation_type=self.type,
            paths=[target.levels for target in self.targets],
            uuid=self.uuid,
            kind=ObjectType(self.targets[0].kind),
        )

    def event(self, *, request_event_count: int) -> dict[str, Any]:
        """Return it as an event of the proposal (`Event`)."""
        return {
            "event-id": f"{self.outcome.group_id}/{self.outcome.position}",
            "request-id": str(self.decision.group_id),
            "request-event-count": request_event_count,
            "timestamp-ms": _timestamp_ms(self.outcome.recorded_at),
            "actor": {"id": self.decision.actor},
            "operation": {"operation-type": self.type, **self._subject(), **self._details()},
        }

    def _subject(self) -> dict[str, Any]:
        """Return which object it was made on."""
        target = self.targets[-1]
        if target.name is None:
            return {"namespace": target.namespace}
        uuid = {} if self.uuid is None else {f"{target.kind}-uuid": self.uuid}
        if len(self.targets) > 1:
            return {"source": _identifier(self.targets[0]), "destination": _identifier(target), **uuid}
        return {"identifier": _identifier(target), **uuid}

    def _details(self) -> dict[str, Any]:
        """Return what else the entries tell."""
        details: dict[str, Any] = {}
        if self.type in _WITH_UPDATES:
            details["updates"] = []
        elif self.type == "update-namespace-properties":
            details |= {"updated": [], "removed": []}
        if self.is_purged:
            details["purge"] = True
        if self.settled.metadata_location is not None:
            details["metadata-location"] = self.settled.metadata_location
        if self.settled.snapshots:
            details["snapshot-ids"] = [int(snapshot) for snapshot in self.settled.snapshots]
        return details


async def read_made(
    connection: Connection,
    log_id: int,
    *,
    alias: str,
    kinds: Collection[ObjectType],
    from_index: int,
    size: int,
    limit: int,
) -> tuple[list[Made], int]:
    """
    Return operations that were made on a catalog's objects of some kinds, in order, and the index behind them.

    From `from_index` on, they are all that the log has before the returned index; behind that there may be more, as
    long as it is below `size`, the log's. At most `limit` outcomes are read.

    Raises:
        UnavailableError: if one is of a kind that this process does not know: a newer one must serve.
        BrokenError, FormatError: if an entry is corrupt, or missing.
    """
    to_index = min(size, from_index + SCANNED_MAX)
    bounds = {"log_id": log_id, "from_index": from_index, "to_index": to_index, "limit": limit}
    prefixes = [f"{kind}:{alias}/" for kind in kinds]
    rows = await (await connection.execute(_QUERIES["outcomes"], bounds | {"prefixes": prefixes})).fetchall()
    outcomes = await _parsed([entry for _, entry in rows])
    settled = [(outcome, from_data(CommitSettled, outcome.data)) for outcome in outcomes]
    accepted = [(outcome, each) for outcome, each in settled if each.outcome is CommitOutcome.ACCEPTED]
    requested = await _read_requested(connection, log_id, accepted)
    made = [_made(outcome, each, requested) for outcome, each in accepted]
    end = outcomes[-1].index + 1 if len(outcomes) == limit else to_index
    return [each for each in made if each is not None], end


@dataclass(frozen=True, slots=True, kw_only=True)
class _Requested:
    """
    What one request was approved to do: the decision on each key, with operation and object, in order. `purged` are the
    keys of tables whose files are to be deleted.
    """

    decisions: Mapping[str, tuple[Entry, Operation, Target]]
    purged: Collection[str]

    @property
    def sources(self) -> list[Target]:
        """Return the object under its old name, if it is renamed."""
        return [target for _, operation, target in self.decisions.values() if operation in RENAMES_FROM]

    @property
    def operations(self) -> list[list[Target]]:
        """Return the targets of each operation."""
        sources = self.sources
        return [[*sources, target] for _, operation, target in self.decisions.values() if operation not in RENAMES_FROM]


async def _read_requested(
    connection: Connection, log_id: int, outcomes: Sequence[tuple[Entry, CommitSettled]]
) -> dict[str, _Requested]:
    """Return the requests that had some outcomes, by the id of the group that decided on each."""
    where = {"log_id": log_id, "group_ids": list({UUID(settled.decision) for _, settled in outcomes})}
    rows = await (await connection.execute(_QUERIES["first_entries"], where)).fetchall()
    groups = {entry.group_id: [entry] for entry in await _parsed([entry for (entry,) in rows])}
    # A group of two is a decision and its outcome, which is known, unless the outcome came later.
    own = {outcome.group_id for outcome, _ in outcomes}
    longer = [first for (first,) in groups.values() if first.of > (2 if first.group_id in own else 1)]
    if longer:
        ranges = {"starts": [each.index + 1 for each in longer], "ends": [each.index + each.of for each in longer]}
        rows = await (await connection.execute(_QUERIES["ranges"], {"log_id": log_id, **ranges})).fetchall()
        for entry in await _parsed([entry for (entry,) in rows]):
            groups[entry.group_id].append(entry)
    return {str(group_id): _requested(group) for group_id, group in groups.items()}


def _requested(group: Sequence[Entry]) -> _Requested:
    return _Requested(
        decisions={entry.key: _decision(entry) for entry in group if entry.type == CommitDecided.TYPE},
        purged={entry.key for entry in group if entry.type == PurgeRequested.TYPE},
    )


def _decision(entry: Entry) -> tuple[Entry, Operation, Target]:
    decided = from_data(CommitDecided, entry.data)
    try:
        operation = Operation(decided.operation)
    except ValueError as error:
        raise UnavailableError(
            f"an operation {decided.operation} was made, which this process does not know: a newer one must serve"
        ) from error
    identifier = decided.identifier
    target = Target(
        alias=identifier.alias,
        namespace=identifier.namespace,
        name=identifier.name,
        is_view=operation.is_of_view,
    )
    return entry, operation, target


async def _parsed(entries: Sequence[bytes]) -> list[Entry]:
    """Parse entries, many of them in a thread: commits must not wait for that."""
    return await off_loop(lambda: [parse_entry(bytes(entry)) for entry in entries], sum(map(len, entries)))


def _made(outcome: Entry, settled: CommitSettled, requested: Mapping[str, _Requested]) -> Made | None:
    """Return the operation that had an outcome; None for the old name of one that renames."""
    request = requested.get(settled.decision)
    if request is None or outcome.key not in request.decisions:
        raise BrokenError(
            Fault.GROUP,
            where="ledger.entries",
            expected=f"the decision {settled.decision} on {outcome.key}",
            found="none",
            index=outcome.index,
        )
    decision, operation, target = request.decisions[outcome.key]
    if operation in RENAMES_FROM:
        return None
    return Made(
        outcome=outcome,
        decision=decision,
        settled=settled,
        type=TYPES[operation],
        targets=(*request.sources, target) if operation in RENAMES_TO else (target,),
        of_request=request.operations,
        is_purged=outcome.key in request.purged,
    )


def _identifier(target: Target) -> dict[str, Any]:
    return {"namespace": target.namespace, "name": target.name}


def _timestamp_ms(time: datetime) -> int:
    """Return whole milliseconds since 1970; a float would be rounded up now and then."""
    return (time - EPOCH) // timedelta(milliseconds=1)
