# SPDX-License-Identifier: Apache-2.0
"""
The handler that finds commits without the gateway: snapshots that no approved decision names.

Order matters. A decision is in the log before the upstream catalog sees the commit. So whoever reads the metadata file
first and the log afterwards finds the decision of every snapshot that the gateway made, including one that is being
forwarded. Only a snapshot without a decision is ungoverned, and it is recorded once: the id of its group derives from
table and snapshot.

A storage that tenants chose may not answer, so triggers are handled host by host, and one may be handled after a later
one of its table. That only changes which trigger an observation names, and its position in the log: a later metadata
file names the snapshots of earlier ones too, unless they have expired, and each is recorded once.

Only tables of foreign catalogs are checked. The built-in catalog writes a metadata file before its decision, and such a
file is no commit: only the gateway can move its pointers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol
from urllib.parse import urlsplit
from uuid import UUID

from ledger.format.event import SYSTEM_ACTOR, Event, derived_group_id, format_key, prepare
from ledger.format.events import CommitObserved, Identifier, TriggerReceived, TriggerSource, to_data
from ledger.format.sequence import Group
from ledger.store.session import Connection
from projections.egress.rules import EgressRules
from projections.entries import LogEntry
from projections.errors import FileMissingError, ProjectionError
from projections.keys import table_key
from projections.lake.storage import SecretStore, Storage
from projections.processing.cursors import read_live
from projections.relational.catalogs import BUILTIN, CATALOGS, CatalogRow, read_catalogs, storage_of
from projections.relational.table_names import identifier_of, read_live_names, resolve_key
from streams.errors import PoisonError, TransientError
from streams.handler import DeadLetter, Effects, Message
from streams.handlers.decisions import read_decided, read_groups
from streams.metadata.parse import Snapshot, TableSnapshots

OBSERVE: Final = "observe"
NO_ENDPOINT: Final = "s3"
"""The host of catalogs that name no endpoint: their files are at AWS."""
PAUSES_S: Final = (0.2, 1.0)
"""Waits before a file that is missing is looked for again; S3 has what its events report, so few are enough."""


class MetadataReader(Protocol):
    """What reads metadata files, and gives up in time (see `streams.metadata.reader.MetadataReaderPool`)."""

    async def read(self, storage: Storage, location: str) -> TableSnapshots:
        """Return what a metadata file says of its table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A trigger, and what its metadata file says."""

    alias: str
    trigger: TriggerReceived
    group: UUID
    location: str
    table: TableSnapshots


class ObserveCommits:
    """
    Compares metadata files with the decisions of the log (implements `streams.handler.HostHandler`).

    `warehouse` and `ours` are this installation's own warehouse and the properties of its storage, `egress` says where
    files of foreign catalogs may be.
    """

    name: str = OBSERVE
    types: frozenset[str] = frozenset({TriggerReceived.TYPE})

    def __init__(
        self,
        *,
        warehouse: str,
        ours: Mapping[str, str],
        secrets: SecretStore,
        egress: EgressRules,
        clock: Callable[[], datetime],
        reads: MetadataReader,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        self._warehouse = warehouse
        self._ours = ours
        self._secrets = secrets
        self._egress = egress
        self._clock = clock
        self._reads = reads
        self._pauses_s = pauses_s

    async def hosts(self, batch: Sequence[Message], reading: Connection) -> Sequence[str | None]:
        """
        Return where the file of each trigger is kept; None if there is nothing to compare, or no such catalog.

        Raises:
            TransientError: if a projection is behind.
        """
        catalogs = await _catalogs(batch, reading)
        return [_host(_trigger(message)[1], catalogs) for message in batch]

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
        """
        Return a `commit.observed` for every snapshot that is ungoverned; files that cannot be read make dead letters.

        Raises:
            UnansweredError: if a storage does not answer.
            TransientError: if a projection is behind.
        """
        catalogs = await _catalogs(batch, reading)
        seen = [await self._see(message, catalogs) for message in batch]
        # The log is read from here on, behind every file.
        groups: dict[UUID, Group] = {}
        for item in seen:
            if isinstance(item, _Seen):
                for group in await self._ungoverned(item, batch[0].log.log_id, reading):
                    groups.setdefault(group.id, group)
        return Effects(groups=tuple(groups.values()), dead=tuple(item for item in seen if isinstance(item, DeadLetter)))

    async def _see(self, message: Message, catalogs: Mapping[str, CatalogRow]) -> _Seen | DeadLetter | None:
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
            table = await self._read(self._storage(catalog), location)
        except (PoisonError, ProjectionError) as error:
            return DeadLetter(message=message, reason=str(error))
        return _Seen(alias=alias, trigger=trigger, group=entry.entry.group_id, location=location, table=table)

    def _storage(self, catalog: CatalogRow) -> Storage:
        return storage_of(
            catalog, warehouse=self._warehouse, ours=self._ours, secrets=self._secrets, egress=self._egress
        )

    async def _read(self, storage: Storage, location: str) -> TableSnapshots:
        """
        Raises:
            FileMissingError: if it is still missing after every pause: it was expired, or belonged to an attempt.
            ProjectionError: if it cannot be read.
            PoisonError: if it is no metadata file.
            UnansweredError: if the storage does not answer.
        """
        for pause_s in self._pauses_s:
            with suppress(FileMissingError):
                return await self._reads.read(storage, location)
            await asyncio.sleep(pause_s)
        return await self._reads.read(storage, location)

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
        identifier = await self._identifier(seen, decided.identifier, log_id, reading)
        return [self._group(id_, snapshot, seen, identifier) for id_, snapshot in unnamed.items() if id_ not in known]

    async def _identifier(
        self, seen: _Seen, decided: Identifier | None, log_id: int, reading: Connection
    ) -> Identifier | None:
        """
        Return what the table is called; None if nobody knows.

        The poller has the name from the catalog. What a callback says is taken if nobody knows better: the table
        is the one of the file, and a name that another table has is not this one's.
        """
        named = seen.trigger.identifier
        if named is not None and seen.trigger.source is TriggerSource.POLLER:
            return named
        said, uuid = table_key(named), seen.table.table_uuid
        names = await read_live_names(reading, log_id, uuids=[uuid], keys=[] if said is None else [said])
        if decided is not None and not any(name.table_uuid == uuid and name.is_certain for name in names):
            return decided
        key = resolve_key(names, table_uuid=uuid, said=said)
        return None if key is None else identifier_of(key)

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


def _host(trigger: TriggerReceived, catalogs: Mapping[str, CatalogRow]) -> str | None:
    catalog = None if trigger.alias is None else catalogs.get(trigger.alias)
    if trigger.metadata_location is None or catalog is None or catalog.kind == BUILTIN:
        return None
    endpoint = catalog.options.get("s3.endpoint", NO_ENDPOINT)
    try:
        return urlsplit(endpoint).netloc.rpartition("@")[2].lower() or endpoint
    except ValueError:
        return endpoint  # of no form that leads anywhere; it is a host like any other that does not answer
