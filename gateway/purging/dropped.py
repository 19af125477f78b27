# SPDX-License-Identifier: Apache-2.0
"""
Tables and views of built-in catalogs that were dropped or unregistered while their files stayed.

The log is read backwards once, range by range: no index leads to drops. It says what was dropped and where its files
are; whether the last metadata file is still there is asked of the storage. Nothing is changed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from gateway.catalogs.places import StoragePlace, parse_place
from gateway.catalogs.table_places import PLACES, expected_places, parse_places
from gateway.commit.gateway import Gateway
from gateway.errors import BadRequestError, NotFoundError
from gateway.mutations import Operation
from gateway.purging.catalog_folders import catalog_folders
from gateway.tenant_logs import TenantLogs
from ledger.errors import FormatError
from ledger.format import canonical
from ledger.format.entry import Entry, parse_entry
from ledger.format.event import GROUP_EVENTS_MAX
from ledger.format.events import CommitDecided, CommitOutcome, CommitSettled, Identifier, from_data
from ledger.format.sealing import Opener, StoredPart
from ledger.store.queries import load_queries
from ledger.store.read import Log, read_head
from projections.errors import FileUnreadableError, StorageUnavailableError
from projections.lake.storage import Storage, classify_error

DROPS_MAX: Final = 10_000
"""Drops that are looked at, the newest ones: some MB."""
RANGE_ENTRIES: Final = 10_000
"""Entries that one statement looks through: some 10 MB, at most 640."""
PLACED_AT_ONCE: Final = 100
"""Decisions with places that are read at a time."""
FILES_AT_ONCE: Final = 8
"""Requests to an object store under way."""

_DROPS: Final = (Operation.TABLE_DROP, Operation.TABLE_UNREGISTER, Operation.VIEW_DROP)
_MEMBERS: Final = [canonical.encode({"operation": operation.value})[1:-1] for operation in _DROPS]
"""What is in the text of a decision on a drop; within a string of it, the quotes would be escaped."""
_QUERIES: Final = load_queries("gateway", "purges.sql")


@dataclass(slots=True, kw_only=True)
class Dropped:
    """
    A table or view that was dropped by `actor`, with the entry at `index` on `key`.

    `metadata_location` is its last metadata file, `places` are where its files lie. `has_metadata` says whether that
    file is there; None if that is not known.
    """

    index: int
    key: str
    at: datetime
    actor: str
    operation: str
    identifier: Identifier
    table_uuid: UUID
    metadata_location: str
    is_purged: bool
    places: Sequence[StoragePlace] | None = None
    has_metadata: bool | None = None

    def row(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        identifier = self.identifier
        return {
            "dropped_at": canonical.format_time(self.at),
            "actor": self.actor,
            "operation": self.operation,
            "catalog": identifier.alias,
            "namespace": list(identifier.namespace),
            "name": identifier.name,
            "table": ".".join((identifier.alias, *identifier.namespace, str(identifier.name))),
            "table_uuid": str(self.table_uuid),
            "metadata_location": self.metadata_location,
            "metadata_exists": self.has_metadata,
            "places": sorted(place.format() for place in self.places or ()),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedTables:
    """What was dropped, newest first; `is_whole` is False if there are older drops that were not looked at."""

    tables: Sequence[Dropped]
    is_whole: bool


async def read_dropped(
    gateway: Gateway,
    log_id: int,
    *,
    storage: Mapping[str, str],
    alias: str | None = None,
    drops_max: int = DROPS_MAX,
) -> DroppedTables:
    """
    Return the tables and views of a tenant's built-in catalogs (of `alias` alone, if given) whose files stayed.

    Those of which a purge was asked for are not among them, nor those that are in use again under whatever name.
    `storage` are the properties with which the warehouse is opened.

    Raises:
        NotFoundError: if the tenant never had a built-in catalog of that alias.
        UnavailableError: if the database cannot be reached.
        FormatError: if an entry is not what was appended.
    """
    logs = TenantLogs(gateway.database, gateway.roles, work="dropped tables")
    log = await logs.find(log_id)
    folders = await catalog_folders(gateway, logs, log)
    if alias is not None and alias not in folders:
        raise NotFoundError(
            f"catalog {alias!r:.80}: expected the alias of a built-in catalog, in force or retired, found none",
            kind="NotFoundException",
        )
    search = _Search(logs=logs, log=log, opener=gateway.opener, alias=alias, drops_max=drops_max)
    await search.run()
    in_use = await search.pointers()
    tables = [each for each in search.left_over() if not _lies_in(each, in_use[each.table_uuid])]
    within = tuple(folder for of_alias in folders.values() for folder in of_alias)
    await asyncio.to_thread(_look_for_metadata, tables, Storage(properties=storage, within=within))
    return DroppedTables(tables=tables, is_whole=search.is_whole)


@dataclass(slots=True, kw_only=True)
class _Search:
    """One pass through a log, from its end; `drops` are in the order in which they are found, newest first."""

    logs: TenantLogs
    log: Log
    opener: Opener
    alias: str | None
    drops_max: int
    drops: list[Dropped] = field(default_factory=list)
    is_whole: bool = True

    async def run(self) -> None:
        """Find the drops, and the places that each had: of the last accepted decision before it that has some."""
        async with self.logs.reading(self.log) as connection:
            at = (await read_head(connection, self.log.log_id)).size
        waiting: defaultdict[str, list[Dropped]] = defaultdict(list)
        while at > 0 and (self.is_whole or waiting):
            start = max(0, at - RANGE_ENTRIES)
            if self.is_whole:
                for drop in await self._drops(start, at):
                    if self._is_wanted(drop):
                        waiting[drop.key].append(drop)
            await self._place(waiting, start, at)
            at = start
        for drop in (one for of_key in waiting.values() for one in of_key if one.places is None):
            drop.places = expected_places(drop.metadata_location)

    def _is_wanted(self, drop: Dropped) -> bool:
        return not drop.is_purged and self.alias in {None, drop.identifier.alias}

    async def _drops(self, start: int, end: int) -> list[Dropped]:
        """Return the accepted drops between two indexes, and note them; no more than the limit in all."""
        remaining = self.drops_max - len(self.drops)
        where = self._between(start, end) | {"members": _MEMBERS, "limit": remaining + 1}
        async with self.logs.reading(self.log) as connection:
            rows = await (await connection.execute(_QUERIES["drops"], where)).fetchall()
        self.is_whole = len(rows) <= remaining
        found = [
            _dropped(*accepted, is_purged=is_purged)
            for data, outcome, is_purged in rows[:remaining]
            if (accepted := _accepted(data, outcome)) is not None and accepted[1].operation in _DROPS
        ]
        self.drops += found
        return found

    async def _place(self, waiting: dict[str, list[Dropped]], start: int, end: int) -> None:
        """Give those that wait the places that decisions between two indexes say; those with places do not wait on."""
        while waiting and start < end:
            more = {"keys": list(waiting), "group_events": GROUP_EVENTS_MAX, "limit": PLACED_AT_ONCE}
            async with self.logs.reading(self.log) as connection:
                found = await connection.execute(_QUERIES["placed"], self._between(start, end) | more)
                rows = await found.fetchall()
            for index, data, outcome, subject, key_id, sealed in rows:
                if (accepted := _accepted(data, outcome)) is None:
                    continue
                entry, table_uuid = accepted[0], _uuid_of(accepted[1])
                for drop in waiting[entry.key]:
                    if drop.places is None and index < drop.index and table_uuid == drop.table_uuid:
                        part = self.opener.open(StoredPart(index, PLACES, subject, key_id, bytes(sealed)))
                        drop.places = None if part is None else parse_places(part.payload)
            for key in [key for key, drops in waiting.items() if all(drop.places is not None for drop in drops)]:
                del waiting[key]
            end = rows[-1][0] if len(rows) == PLACED_AT_ONCE else start

    async def pointers(self) -> Mapping[UUID, Sequence[str]]:
        """Return where the metadata files are of tables and views that exist now, by uuid, of what was dropped."""
        where = {"log_id": self.log.log_id, "uuids": list({drop.table_uuid for drop in self.drops})}
        found: defaultdict[UUID, list[str]] = defaultdict(list)
        async with self.logs.reading(self.log) as connection:
            for table_uuid, location in await (await connection.execute(_QUERIES["pointers_of"], where)).fetchall():
                found[table_uuid].append(location)
        return found

    def left_over(self) -> list[Dropped]:
        """Return what was not purged and not registered and dropped again since: of that the later drop counts."""
        later: defaultdict[UUID, list[str]] = defaultdict(list)
        left = []
        for drop in self.drops:
            if self._is_wanted(drop) and not _lies_in(drop, later[drop.table_uuid]):
                left.append(drop)
            later[drop.table_uuid].append(drop.metadata_location)
        return left

    def _between(self, start: int, end: int) -> dict[str, Any]:
        return {"log_id": self.log.log_id, "from_index": start, "to_index": end}


def _accepted(data: bytes, outcome: bytes) -> tuple[Entry, CommitDecided] | None:
    """Return a decision that was carried out in its own group, as the built-in catalog does; None if it was not."""
    entry, settling = parse_entry(bytes(data)), parse_entry(bytes(outcome))
    settled = from_data(CommitSettled, settling.data)
    is_of_it = settling.group_id == entry.group_id and settled.decision == str(entry.group_id)
    is_accepted = is_of_it and settled.outcome is CommitOutcome.ACCEPTED
    return (entry, from_data(CommitDecided, entry.data)) if is_accepted else None


def _dropped(entry: Entry, decided: CommitDecided, *, is_purged: bool) -> Dropped:
    if decided.base is None:
        raise FormatError(
            "commit.decided of a drop", expected="the metadata file that it was judged against", found=None
        )
    return Dropped(
        index=entry.index,
        key=entry.key,
        at=entry.recorded_at,
        actor=entry.actor,
        operation=decided.operation,
        identifier=decided.identifier,
        table_uuid=_uuid_of(decided),
        metadata_location=decided.base,
        is_purged=is_purged,
    )


def _uuid_of(decided: CommitDecided) -> UUID:
    try:
        return UUID(decided.table_uuid or "")
    except ValueError as error:
        raise FormatError("commit.decided", expected="the uuid of a table or view", found=decided.table_uuid) from error


def _lies_in(drop: Dropped, locations: Iterable[str]) -> bool:
    """
    Return whether one of some metadata files is in the places of what was dropped: then its files are those of another.

    The same table elsewhere, a copy, has files of its own.
    """
    places = drop.places or ()
    for location in locations:
        if location == drop.metadata_location:
            return True
        try:
            place = parse_place(location, field="metadata-location")
        except BadRequestError:
            continue
        if any(one.holds(place) for one in places):
            return True
    return False


def _look_for_metadata(tables: Sequence[Dropped], storage: Storage) -> None:
    """Find out of each whether its last metadata file is there, until a storage does not answer. Blocking."""
    with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="dropped") as threads:
        for first in range(0, len(tables), FILES_AT_ONCE):
            some = tables[first : first + FILES_AT_ONCE]
            try:
                for drop, found in zip(
                    some, threads.map(lambda each: is_there(storage, each.metadata_location), some), strict=True
                ):
                    drop.has_metadata = found
            except StorageUnavailableError:
                return


def is_there(storage: Storage, location: str) -> bool | None:
    """
    Return whether there is a file; None if it may not be asked for. Blocking.

    Raises:
        StorageUnavailableError: if the storage does not answer.
    """
    from pyarrow import ArrowException
    from pyarrow.fs import FileType

    try:
        filesystem, path = storage.filesystem(location)
        return bool(filesystem.get_file_info(path).type == FileType.File)
    except FileUnreadableError:
        return None
    except (OSError, ArrowException) as error:
        found = classify_error(location, error)
        if isinstance(found, StorageUnavailableError):
            raise found from error
        return None
