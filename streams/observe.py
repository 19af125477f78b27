"""
The handler that finds what was committed behind the gateway's back: snapshots that no approved decision names.

Order is everything here. A decision is in the log before the upstream sees the commit, so whoever reads the metadata
file first and the log afterwards finds the decision of every snapshot that the gateway made, also of one that is just
being forwarded. Only what is still without one is called ungoverned, once: the id of its group is derived from table
and snapshot.

Only tables of catalogs elsewhere are looked at. The built-in catalog writes a metadata file before its decision, and a
file there is no commit: nobody can move its pointers but the gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection

from ledger.event import SYSTEM_ACTOR, Event, derived_group_id, prepare
from ledger.events import CommitObserved, Identifier, TriggerReceived, to_data
from ledger.keys import format_key
from ledger.sequence import Group
from projections.catalogs import BUILTIN, CATALOGS, CatalogRow, read_catalogs, storage_of
from projections.cursors import read_live
from projections.egress.rules import EgressRules
from projections.entries import LogEntry
from projections.errors import FileMissingError, ProjectionError, StorageUnavailableError
from projections.lake.storage import Secrets, Storage
from streams.decisions import read_decided, read_groups
from streams.errors import PoisonError, TransientError
from streams.handler import DeadLetter, Effects, Message
from streams.table_metadata import METADATA_SIZE_BYTES_MAX, Snapshot, TableSnapshots, parse_table_snapshots

OBSERVE: Final = "observe"
READS_MAX: Final = 4
"""Metadata files in memory at a time: each may have 64 MiB."""
READS_OF_A_LOG_MAX: Final = 2
"""Of those: a storage that never answers, which a tenant chose, holds up no other tenant's files."""
PAUSES_S: Final = (0.2, 1.0)
"""Waits before a file that is missing is looked for again; S3 shows what it has told of, so few are enough."""

Connection = AsyncConnection[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A trigger, and what its metadata file says."""

    alias: str
    trigger: TriggerReceived
    group: UUID
    location: str
    table: TableSnapshots


class Observe:
    """
    Compares metadata files with the decisions of the log (implements `streams.handler.Handler`).

    `warehouse` and `ours` are this installation's own warehouse and the properties of its storage, `egress` says where
    files of catalogs elsewhere may be.
    """

    name: str = OBSERVE
    types: frozenset[str] = frozenset({TriggerReceived.TYPE})

    def __init__(
        self,
        *,
        warehouse: str,
        ours: Mapping[str, str],
        secrets: Secrets,
        egress: EgressRules,
        clock: Callable[[], datetime],
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        self._warehouse = warehouse
        self._ours = ours
        self._secrets = secrets
        self._egress = egress
        self._clock = clock
        self._pauses_s = pauses_s
        # Not the loop's own threads: whoever else needs one of those must not wait for a storage.
        self._threads = ThreadPoolExecutor(READS_MAX, thread_name_prefix=OBSERVE)

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
        """
        Return a `commit.observed` for every snapshot that is ungoverned; files that cannot be read make dead letters.

        Raises:
            TransientError: if a storage does not answer, or a projection is behind.
        """
        catalogs = await _catalogs(batch, reading)
        turns = asyncio.Semaphore(READS_OF_A_LOG_MAX)
        seeing = [asyncio.create_task(self._see(message, catalogs, turns)) for message in batch]
        try:
            seen = await asyncio.gather(*seeing)
        finally:
            for task in seeing:
                task.cancel()  # if one storage is away, the whole batch comes again
        # The log is read from here on, behind every file.
        groups: dict[UUID, Group] = {}
        for item in seen:
            if isinstance(item, _Seen):
                for group in await self._ungoverned(item, batch[0].log.log_id, reading):
                    groups.setdefault(group.id, group)
        return Effects(groups=tuple(groups.values()), dead=tuple(item for item in seen if isinstance(item, DeadLetter)))

    async def _see(
        self, message: Message, catalogs: Mapping[str, CatalogRow], turns: asyncio.Semaphore
    ) -> _Seen | DeadLetter | None:
        """Read what one trigger points at; None if there is nothing to compare."""
        entry, trigger = _trigger(message)
        location, alias = trigger.metadata_location, trigger.alias
        if location is None or alias is None:
            return None  # new data files say nothing before a metadata file names them
        catalog = catalogs.get(alias)
        if catalog is None:
            return DeadLetter(message=message, reason=f"expected a catalog {alias!r} in force, found none")
        if catalog.kind == BUILTIN:
            return None
        try:
            # What opens it also keeps it within the catalog's own folder: the location was sent by somebody.
            storage = self._storage(catalog)
            table = await self._read(storage, location, turns)
        except StorageUnavailableError as error:
            raise TransientError(str(error)) from error
        except PoisonError as error:
            return DeadLetter(message=message, reason=f"{location}: {error}")
        except ProjectionError as error:
            return DeadLetter(message=message, reason=str(error))
        return _Seen(alias=alias, trigger=trigger, group=entry.entry.group_id, location=location, table=table)

    def _storage(self, catalog: CatalogRow) -> Storage:
        return storage_of(
            catalog, warehouse=self._warehouse, ours=self._ours, secrets=self._secrets, egress=self._egress
        )

    async def _read(self, storage: Storage, location: str, turns: asyncio.Semaphore) -> TableSnapshots:
        """
        Raises:
            FileMissingError: if it is still missing after every pause: it was expired, or belonged to an attempt.
            ProjectionError: if it cannot be read.
            PoisonError: if it is no metadata file.
        """

        def read() -> TableSnapshots:
            return parse_table_snapshots(storage.read_bytes(location, size_bytes_max=METADATA_SIZE_BYTES_MAX))

        for pause_s in (*self._pauses_s, None):
            try:
                async with turns:
                    return await asyncio.get_running_loop().run_in_executor(self._threads, read)
            except FileMissingError:
                if pause_s is None:
                    raise
            await asyncio.sleep(pause_s)
        raise AssertionError("the last attempt has returned or raised")

    async def _ungoverned(self, seen: _Seen, log_id: int, reading: Connection) -> list[Group]:
        snapshots = {snapshot.id: snapshot for snapshot in seen.table.snapshots}
        uuid = seen.table.table_uuid
        decided = await read_decided(reading, log_id, table_uuid=uuid, snapshots=list(snapshots))
        unnamed = {
            derived_group_id(CommitObserved.TYPE, [uuid, id_]): snapshot
            for id_, snapshot in snapshots.items()
            if id_ not in decided.snapshots
        }
        known = await read_groups(reading, log_id, list(unnamed))
        identifier = seen.trigger.identifier or decided.identifier
        return [self._group(id_, snapshot, seen, identifier) for id_, snapshot in unnamed.items() if id_ not in known]

    def _group(self, id_: UUID, snapshot: Snapshot, seen: _Seen, identifier: Identifier | None) -> Group:
        data = CommitObserved(
            identifier=identifier,
            metadata_location=seen.location,
            operation=snapshot.operation,
            parent=snapshot.parent,
            snapshot=snapshot.id,
            table_uuid=seen.table.table_uuid,
            trigger=str(seen.group),
        )
        event = Event(
            type=CommitObserved.TYPE,
            version=CommitObserved.VERSION,
            key=_key(seen.alias, identifier),
            actor=SYSTEM_ACTOR,
            occurred_at=self._clock(),
            data=to_data(data),
        )
        return Group(id=id_, then=(prepare(event),))


async def _catalogs(batch: Sequence[Message], reading: Connection) -> Mapping[str, CatalogRow]:
    """
    Return the catalogs of the batch's log, by alias.

    Raises:
        TransientError: if their projection has not seen the batch yet: a catalog it lacks may be one that is there.
    """
    log_id = batch[0].log.log_id
    last = max(_trigger(message)[0].entry.index for message in batch)
    live = await read_live(reading, CATALOGS, log_id)
    if live is None or live.next_index <= last:
        raise TransientError(f"projection catalogs of log {log_id}: expected it behind entry {last}")
    return {row.alias: row for row in await read_catalogs(reading, log_id=log_id)}


def _trigger(message: Message) -> tuple[LogEntry, TriggerReceived]:
    if isinstance(message.value, bytes) or not isinstance(message.value.event, TriggerReceived):
        raise PoisonError(f"message {message.id}: expected an entry with {TriggerReceived.TYPE}")
    return message.value, message.value.event


def _key(alias: str, identifier: Identifier | None) -> str:
    if identifier is None or identifier.name is None:
        return format_key("catalog", (alias,))
    return format_key("table", (identifier.alias, *identifier.namespace, identifier.name))
