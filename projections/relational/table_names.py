"""
Which table is called what: tables by uuid, and by catalog, namespace and name. One resolver for every read model.

A table is the one of its uuid, which its metadata file says. What it is called is told by others, and later. What the
gateway has loaded by its name, or committed to, and what a catalog answered for a name (`table.identified`), is
certain. What an observation or a scan says was known when it was recorded; of a callback it is what the sender said. So
it counts only for a table that nothing certain has named, under a name that nothing certain has given to another one.

The names are folded entry by entry, in the order of the log. `TableNames` is that fold, and pure; `read_names` and
`write_names` keep it between batches, for each projection that needs it in its own generation: no projection depends on
how far another one is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ledger.errors import FormatError
from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.event import parse_key
from ledger.format.events import (
    CommitDecided,
    CommitObserved,
    CommitOutcome,
    CommitSettled,
    DetectionFound,
    Identifier,
    ScanCompleted,
    ScanCompletedV1,
    ScanFailed,
    TableIdentified,
)
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.entries import LogEntry, storable, storable_json
from projections.keys import bounded_name, table_key
from projections.processing.projection import Transaction

QUERIES: Final = load_queries("projections", "table_names.sql")
TABLE: Final = "table"
LEVELS_MIN: Final = 3
"""Alias, namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """
    What the table of a uuid is called; `key` is None for one that nobody has named yet.

    `index` is the entry that said so, `is_certain` whether it can be relied on. A table that was dropped, or whose name
    another table has now, keeps the name as its last one: it is not `is_current`.
    """

    table_uuid: str
    key: str | None
    index: int
    is_certain: bool
    is_current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTable:
    """A table has got a name; `before` is its last one, `is_known` whether an entry before this one was about it."""

    table_uuid: str
    key: str
    before: str | None
    is_known: bool


@dataclass(slots=True, kw_only=True)
class NameLookups:
    """The uuids and keys of tables that some entries name."""

    uuids: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Naming:
    """What one entry says of a table; without a key nothing but that it is there."""

    table_uuid: str
    key: str | None
    is_certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dropped:
    """The table of this name is gone."""

    key: str


class TableNames:
    """The names of the tables that some entries are about, at a place in the log."""

    def __init__(self, stored: Iterable[TableName] = ()) -> None:
        self._of_uuid: dict[str, TableName] = {}
        self._holders: dict[str, str] = {}
        self.changed: set[str] = set()
        """The uuids of tables whose `TableName` is another one than was stored."""
        for name in stored:
            self._put(name)

    def copy(self) -> TableNames:
        """Return the same names, which change apart from these."""
        return TableNames(self._of_uuid.values())

    def key_of(self, table_uuid: str) -> str | None:
        """Return the key of what a table is, or was last, called; None if nobody has named it."""
        name = self._of_uuid.get(_uuid(table_uuid))
        return None if name is None else name.key

    def resolve(self, table_uuid: str, key: str | None) -> str | None:
        """Return the key of what a table is called if somebody who is not certain calls it `key`."""
        before = self._of_uuid.get(_uuid(table_uuid))
        if key is not None and self._is_free(key, before, _uuid(table_uuid)):
            return key
        return None if before is None else before.key

    def changes(self) -> list[TableName]:
        """Return the names that have changed."""
        return [self._of_uuid[table_uuid] for table_uuid in sorted(self.changed)]

    def apply(self, item: LogEntry) -> NamedTable | None:
        """
        Take in the next entry; return the name that it gives to a table, if that is another one than before.
        """
        match _naming_of(item):
            case _Naming() as told:
                return self._bind(told, item.entry.index)
            case _Dropped(key=key):
                self._release(key)
        return None

    def _bind(self, told: _Naming, index: int) -> NamedTable | None:
        before = self._of_uuid.get(told.table_uuid)
        if told.key is None or not (told.is_certain or self._is_free(told.key, before, told.table_uuid)):
            if before is None:
                self._set(
                    TableName(table_uuid=told.table_uuid, key=None, index=index, is_certain=False, is_current=False)
                )
            return None
        is_same = before is not None and before.key == told.key and before.is_current
        if is_same and before is not None and before.is_certain >= told.is_certain:
            return None
        if self._holders.get(told.key) not in {None, told.table_uuid}:
            self._release(told.key)
        if before is not None and before.key is not None and self._holders.get(before.key) == told.table_uuid:
            del self._holders[before.key]
        self._set(
            TableName(
                table_uuid=told.table_uuid, key=told.key, index=index, is_certain=told.is_certain, is_current=True
            )
        )
        if is_same:
            return None
        return NamedTable(
            table_uuid=told.table_uuid,
            key=told.key,
            before=None if before is None else before.key,
            is_known=before is not None,
        )

    def _is_free(self, key: str, before: TableName | None, table_uuid: str) -> bool:
        """Tell whether what is not certain may name a table so."""
        if before is not None and before.is_certain:
            return False
        holder = self._of_uuid.get(self._holders.get(key, ""))
        return holder is None or holder.table_uuid == table_uuid or not holder.is_certain

    def _release(self, key: str) -> None:
        if (holder := self._holders.pop(key, None)) is not None:
            self._set(replace(self._of_uuid[holder], is_current=False))

    def _set(self, name: TableName) -> None:
        self._put(name)
        self.changed.add(name.table_uuid)

    def _put(self, name: TableName) -> None:
        self._of_uuid[name.table_uuid] = name
        if name.is_current and name.key is not None:
            self._holders[name.key] = name.table_uuid


def lookups_of(entries: Iterable[LogEntry]) -> NameLookups:
    """
    Return whose names have to be known to apply `entries`.
    """
    asked = NameLookups()
    for item in entries:
        match _naming_of(item):
            case _Naming(table_uuid=table_uuid, key=key):
                asked.uuids.add(table_uuid)
                asked.keys |= set() if key is None else {key}
            case _Dropped(key=key):
                asked.keys.add(key)
    return asked


async def read_names(transaction: Transaction, projection: str, asked: NameLookups) -> TableNames:
    """
    Return what a projection's generation holds of the tables that are asked for.
    """
    if not asked.uuids and not asked.keys:
        return TableNames()
    parameters = {**_where(transaction, projection), "uuids": sorted(asked.uuids), "keys": sorted(asked.keys)}
    rows = await (await transaction.connection.execute(QUERIES["names"], parameters)).fetchall()
    return TableNames(map(read_name, rows))


async def write_names(transaction: Transaction, projection: str, names: TableNames) -> None:
    """
    Store the names that have changed.
    """
    if not names.changed:
        return
    rows: list[Json] = [
        {
            "table_uuid": name.table_uuid,
            "key": name.key,
            "index": name.index,
            "is_certain": name.is_certain,
            "is_current": name.is_current,
        }
        for name in names.changes()
    ]
    text = canonical.encode(storable_json(rows)).decode()
    await transaction.connection.execute(QUERIES["upsert_names"], {**_where(transaction, projection), "rows": text})


async def drop_names(transaction: Transaction, projection: str) -> None:
    """
    Delete the names of a projection's generation.
    """
    await transaction.connection.execute(QUERIES["drop_names"], _where(transaction, projection))


async def read_live_names(
    connection: Connection, log_id: int, *, uuids: Sequence[str] = (), keys: Sequence[str] = ()
) -> list[TableName]:
    """
    Return the names of some tables of a log, by uuid or current key, as far as the read models have seen it.
    """
    asked = {"log_id": log_id, "uuids": [_uuid(each) for each in uuids], "keys": list(keys)}
    rows = await (await connection.execute(QUERIES["live_names"], asked)).fetchall()
    return [read_name(row) for row in rows]


def read_name(row: Sequence[Any]) -> TableName:
    """
    Return the name that a row of `names` or `live_names` is.
    """
    table_uuid, key, index, is_certain, is_current = row
    return TableName(table_uuid=table_uuid, key=key, index=index, is_certain=is_certain, is_current=is_current)


def resolve_key(names: Iterable[TableName], *, table_uuid: str, said: str | None) -> str | None:
    """
    Return the key of what a table is called, by what is known of it and of the name that somebody says it has.

    `names` are those of the table and of the one that is called as `said` now. The rule is that of `TableNames`.
    """
    return TableNames(names).resolve(table_uuid, said)


def identifier_of(key: str) -> Identifier | None:
    """
    Return the identifier of the table that an event key names; None for any other key.
    """
    try:
        kind, segments = parse_key(key)
    except FormatError:
        return None
    if kind != TABLE or len(segments) < LEVELS_MIN:
        return None
    return Identifier(alias=segments[0], namespace=segments[1:-1], name=segments[-1])


def _naming_of(item: LogEntry) -> _Naming | _Dropped | None:
    """Return what an entry says of a table's name."""
    match item.event:
        case CommitDecided(base=str(), table_uuid=str(table_uuid)) if item.entry.key.startswith(f"{TABLE}:"):
            # Whatever was decided: the gateway has loaded the table by this name, to judge what would be done to it.
            return _Naming(table_uuid=_uuid(table_uuid), key=item.entry.key, is_certain=True)
        case CommitSettled(outcome=CommitOutcome.ACCEPTED) as settled if item.entry.key.startswith(f"{TABLE}:"):
            if settled.metadata_location is None:
                return _Dropped(key=item.entry.key)  # an accepted commit that leaves no metadata file
            if settled.table_uuid is None:
                return None
            return _Naming(table_uuid=_uuid(settled.table_uuid), key=item.entry.key, is_certain=True)
        case TableIdentified() as identified:
            key = table_key(identified.identifier)
            return _Naming(table_uuid=_uuid(identified.table_uuid), key=key, is_certain=True)
        case CommitObserved() | ScanCompleted() | ScanCompletedV1() | ScanFailed() as event:
            key = table_key(event.identifier)
            return _Naming(table_uuid=_uuid(event.table_uuid), key=key, is_certain=False)
        case DetectionFound() as found:
            key = item.entry.key if item.entry.key.startswith(f"{TABLE}:") else None
            return _Naming(table_uuid=_uuid(found.table_uuid), key=key, is_certain=False)
        case _:
            return None


def _uuid(text: str) -> str:
    """Return a uuid as a row can hold it: it comes from a file of somebody else's."""
    return bounded_name(storable(text))


def _where(transaction: Transaction, projection: str) -> dict[str, object]:
    return {"log_id": transaction.log.log_id, "projection": projection, "generation": transaction.generation}
