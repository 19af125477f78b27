# SPDX-License-Identifier: Apache-2.0
"""
The handler that finds commits without the gateway: snapshots that no approved decision names, or only decisions that
were not made (`decisions.py`).

Order matters. A decision is in the log before the upstream catalog sees the commit. So whoever reads the metadata file
first and the log afterwards finds the decision of every snapshot that the gateway made, including one that is being
forwarded. Only a snapshot without a decision is ungoverned, and it is recorded once: the id of its group derives from
table and snapshot.

A snapshot may be seen while the decision that names it is open, and the decision turn out not to have been made: then
somebody else has added the snapshot. So such an outcome is handled as well: the last metadata files of the table that
were seen before it are looked at again. A file that the gateway itself wrote for the decision (kind `glue`) has its
snapshots by that decision, whether or not the table came to name it.

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

from ledger.format.event import SYSTEM_ACTOR, derived_group_id, format_key
from ledger.format.events import (
    CommitDecided,
    CommitObserved,
    CommitSettled,
    Identifier,
    TriggerReceived,
    TriggerSource,
    prepare_event,
)
from ledger.format.sequence import Group
from ledger.store.session import Connection
from projections.egress.rules import EgressRules
from projections.entries import LogEntry, decision_of
from projections.errors import FileMissingError, ProjectionError
from projections.keys import table_key
from projections.lake.metadata_names import decision_of_file
from projections.lake.storage import SecretStore, Storage
from projections.processing.cursors import read_live
from projections.relational.catalogs import BUILTIN, CATALOGS, CatalogRow, read_catalogs, storage_of
from projections.relational.commits import NOT_MADE
from projections.relational.table_names import identifier_of, read_live_names, resolve_key
from streams.errors import PoisonError, TransientError
from streams.handler import DeadLetter, Effects, Message
from streams.handlers.decisions import read_decided, read_groups, read_triggers_of
from streams.metadata.parse import Snapshot, TableSnapshots

OBSERVE: Final = "observe"
NO_ENDPOINT: Final = "s3"
"""The host of catalogs that name no endpoint: their files are at AWS."""
GLUE: Final = "glue"
"""The kind of catalogs whose metadata files the gateway writes, named after the decision."""
FILES_AGAIN_MAX: Final = 3
"""Of a table's last metadata files, how many are looked at again: a later one has what an earlier one has."""
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
    file_of: UUID | None
    """The decision that the gateway wrote the file for, if that is known."""


class ObserveCommits:
    """
    Compares metadata files with the decisions of the log (implements `streams.handler.HostHandler`).

    `warehouse` and `ours` are this installation's own warehouse and the properties of its storage, `egress` says where
    files of foreign catalogs may be.
    """

    name: str = OBSERVE
    types: frozenset[str] = frozenset({TriggerReceived.TYPE, CommitSettled.TYPE})

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
        Return where the files are kept that are compared; None if there is nothing to compare, or no such catalog.

        Raises:
            TransientError: if a projection is behind.
        """
        catalogs = await _catalogs(batch, reading)
        return [_host(message, catalogs) for message in batch]

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
        """
        Return a `commit.observed` for every snapshot that is ungoverned; files that cannot be read make dead letters.

        Raises:
            UnansweredError: if a storage does not answer.
            TransientError: if a projection is behind.
        """
        catalogs = await _catalogs(batch, reading)
        seen: list[_Seen] = []
        dead: list[DeadLetter] = []
        for message in batch:
            if isinstance(_entry(message).event, CommitSettled):
                seen += await self._see_again(message, catalogs, reading)
                continue
            match await self._see(message, catalogs):
                case _Seen() as found:
                    seen.append(found)
                case DeadLetter() as letter:
                    dead.append(letter)
        # The log is read from here on, behind every file.
        groups: dict[UUID, Group] = {}
        for item in seen:
            for group in await self._ungoverned(item, batch[0].log.log_id, reading):
                groups.setdefault(group.id, group)
        return Effects(groups=tuple(groups.values()), dead=tuple(dead))

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
        return _seen(catalog, entry, trigger, location, table)

    async def _see_again(
        self, message: Message, catalogs: Mapping[str, CatalogRow], reading: Connection
    ) -> list[_Seen]:
        """Read the table's last files that were seen before it was known that a decision on it was not made."""
        settled, decision = _entry(message), _decision_not_made(message)
        catalog = _catalog_of(message, catalogs)
        if catalog is None or decision is None:
            return []
        decided, triggers = await read_triggers_of(reading, message.log.log_id, settled, decision)
        seen: list[_Seen] = []
        for location, (entry, trigger) in _files_of(triggers, catalog, decided).items():
            with suppress(PoisonError, ProjectionError):  # whoever handles the trigger says so
                table = await self._reads.read(self._storage(catalog), location)
                seen.append(_seen(catalog, entry, trigger, location, table))
        return seen

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
        decided = await read_decided(reading, log_id, table_uuid=uuid, snapshots=list(snapshots), file_of=seen.file_of)
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
        event = prepare_event(data, key=_key(seen.alias, identifier), actor=SYSTEM_ACTOR, occurred_at=self._clock())
        return Group(id=id_, then=(event,))


async def _catalogs(batch: Sequence[Message], reading: Connection) -> Mapping[str, CatalogRow]:
    """
    Return the catalogs of the batch's log, by alias; none if nothing of the batch leads to one.

    Raises:
        TransientError: if their projection has not seen the batch yet: a catalog it lacks may be one that is there.
    """
    compared = [_entry(message).entry.index for message in batch if _alias_of(message) is not None]
    if not compared:
        return {}
    log_id = batch[0].log.log_id
    live = await read_live(reading, CATALOGS, log_id)
    if live is None or live.next_index <= max(compared):
        raise TransientError(f"projection catalogs of log {log_id}: expected it behind entry {max(compared)}")
    return {row.alias: row for row in await read_catalogs(reading, log_id=log_id)}


def _entry(message: Message) -> LogEntry:
    value = message.value
    if isinstance(value, bytes) or not isinstance(value.event, TriggerReceived | CommitSettled):
        raise PoisonError(
            f"message {message.id}: expected an entry with {TriggerReceived.TYPE} or {CommitSettled.TYPE}"
        )
    return value


def _decision_not_made(message: Message) -> UUID | None:
    """Return the decision that an outcome ends whose snapshots it did not add; None for anything else."""
    entry = _entry(message)
    match entry.event:
        case CommitSettled(outcome=outcome, snapshots=snapshots) as settled if outcome in NOT_MADE and snapshots:
            return decision_of(entry.entry, settled)
        case _:
            return None


def _alias_of(message: Message) -> str | None:
    """Return the alias of the catalog whose files are compared; None if there is nothing to compare."""
    entry = _entry(message)
    if isinstance(entry.event, TriggerReceived):
        return None if entry.event.metadata_location is None else entry.event.alias
    named = None if _decision_not_made(message) is None else identifier_of(entry.entry.key)
    return None if named is None else named.alias


def _catalog_of(message: Message, catalogs: Mapping[str, CatalogRow]) -> CatalogRow | None:
    """Return the catalog whose files are compared; None if there is nothing to compare, or no such catalog."""
    alias = _alias_of(message)
    catalog = None if alias is None else catalogs.get(alias)
    return None if catalog is None or catalog.kind == BUILTIN else catalog


def _files_of(
    triggers: Sequence[LogEntry], catalog: CatalogRow, decided: CommitDecided | None
) -> Mapping[str, tuple[LogEntry, TriggerReceived]]:
    """Return the first metadata files that may be of the table that was decided on, each with its trigger."""
    files: dict[str, tuple[LogEntry, TriggerReceived]] = {}
    for entry in triggers:
        match entry.event:
            case TriggerReceived(alias=catalog.alias, metadata_location=str(location)) as trigger if (
                decided is not None and len(files) < FILES_AGAIN_MAX
            ):
                is_in_folder = decided.base is None or _folder(decided.base) == _folder(location)
                if is_in_folder or trigger.identifier == decided.identifier:
                    files.setdefault(location, (entry, trigger))
            case _:
                pass
    return files


def _folder(location: str) -> str:
    return location.rpartition("://")[2].rpartition("/")[0]


def _seen(
    catalog: CatalogRow, entry: LogEntry, trigger: TriggerReceived, location: str, table: TableSnapshots
) -> _Seen:
    named = decision_of_file(location) if catalog.kind == GLUE else None
    return _Seen(
        alias=catalog.alias,
        trigger=trigger,
        group=entry.entry.group_id,
        location=location,
        table=table,
        file_of=None if named is None else UUID(named),
    )


def _trigger(message: Message) -> tuple[LogEntry, TriggerReceived]:
    entry = _entry(message)
    if not isinstance(entry.event, TriggerReceived):
        raise PoisonError(f"message {message.id}: expected an entry with {TriggerReceived.TYPE}")
    return entry, entry.event


def _key(alias: str, identifier: Identifier | None) -> str:
    if identifier is None or identifier.name is None:
        return format_key("catalog", (alias,))
    return format_key("table", (identifier.alias, *identifier.namespace, identifier.name))


def _host(message: Message, catalogs: Mapping[str, CatalogRow]) -> str | None:
    if (catalog := _catalog_of(message, catalogs)) is None:
        return None
    endpoint = catalog.options.get("s3.endpoint", NO_ENDPOINT)
    try:
        return urlsplit(endpoint).netloc.rpartition("@")[2].lower() or endpoint
    except ValueError:
        return endpoint  # of no form that leads anywhere; it is a host like any other that does not answer
