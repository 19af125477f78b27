# SPDX-License-Identifier: Apache-2.0
"""
Names of tables: from uuid to catalog, namespace and name. One resolver for every read model.

The uuid in its metadata file identifies a table; its name comes from other entries, and later. A name is certain if the
gateway loaded or committed to the table under it, or if a catalog answered it for that name (`table.identified`). The
name in an observation or a scan was known when that was recorded, and the name in a callback is a claim of its sender:
such a name counts only for a table without a certain name, and only if no other table certainly has it.

Names are folded entry by entry, in log order. `TableNames` is that fold, and pure; `read_names` and `write_names` keep
it between batches, for each projection in its own generation: no projection depends on the cursor of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

from ledger.errors import FormatError
from ledger.format.canonical import Json
from ledger.format.event import format_key, parse_key
from ledger.format.events import (
    CommitDecided,
    CommitObserved,
    CommitOutcome,
    CommitSettled,
    DetectionFound,
    DetectionKind,
    Identifier,
    ScanCompleted,
    ScanCompletedV1,
    ScanFailed,
    TableIdentified,
)
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.entries import LogEntry, encode_json, storable
from projections.keys import KEYS_CACHED, bounded_name, table_key
from projections.processing.projection import Transaction
from projections.relational.as_of import as_of as as_of_entry
from projections.relational.as_of import ever

QUERIES: Final = load_queries("projections", "table_names.sql")
AS_OF: Final = {
    **{name: as_of_entry(QUERIES[name]) for name in ("tables", "owners")},
    "table_ceiling": ever(QUERIES["table_ceiling"]),
}
"""The same queries, asked as of an entry."""
TABLE: Final = "table"
_TABLES: Final = f"{TABLE}:"
TAGGED_PERCENT: Final = 92
"""Name and values together: a finding of less tags nothing (`graph/scans.py`)."""
PII: Final = "pii"
"""The tag of all personal data, of whatever kind."""
TAGS: Final = (PII, *DetectionKind)
"""All tags that a table may have."""
LEVELS_MIN: Final = 3
"""Alias, namespace and name."""
EXAMINED_MAX: Final = 20_000
"""Names that are looked through for one page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """
    The name of a table as an event key; `key` is None for a table without a name so far.

    `index` is the entry that it comes from. A table that was dropped, or whose name another table has now, keeps it as
    its last name, which is not `is_current`.
    """

    table_uuid: str
    key: str | None
    index: int
    is_certain: bool
    is_current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTable:
    """A table with a new name; `before` is its last one, `is_known` whether an earlier entry was about the table."""

    table_uuid: str
    key: str
    before: str | None
    is_known: bool


@dataclass(slots=True, kw_only=True)
class NameLookups:
    """The tables whose names are needed to apply some entries, by uuid and by key."""

    uuids: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Naming:
    """What one entry says about a table's name; without a key it only says that the table exists."""

    table_uuid: str
    key: str | None
    is_certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dropped:
    """The table of this name was dropped."""

    key: str


class TableNames:
    """The names of the tables that some entries are about, at one position of the log."""

    def __init__(self, stored: Iterable[TableName] = ()) -> None:
        self._of_uuid: dict[str, TableName] = {}
        self._holders: dict[str, str] = {}
        self.changed: set[str] = set()
        """The uuids of tables whose `TableName` differs from the stored one."""
        self.past: list[tuple[TableName, int]] = []
        """What tables were called before, each with the index of the entry that said otherwise."""
        for name in stored:
            self._put(name)

    def changing(self, entries: Iterable[LogEntry]) -> list[NamedTable] | None:
        """
        Return the names that `entries`, which are the next ones, give to tables; None if they change nothing here.
        """
        trial = self.copy()
        named = [bound for item in entries if (bound := trial.apply(item)) is not None]
        return named if trial.changed else None

    def copy(self) -> TableNames:
        """Return an independent copy."""
        return TableNames(self._of_uuid.values())

    def key_of(self, table_uuid: str) -> str | None:
        """Return the key of a table's current or last name; None if it has none."""
        name = self._of_uuid.get(_uuid(table_uuid))
        return None if name is None else name.key

    def resolve(self, table_uuid: str, key: str | None) -> str | None:
        """Return the key of a table's name, given the uncertain name `key` from a source."""
        before = self._of_uuid.get(_uuid(table_uuid))
        if key is not None and self._is_free(key, before, _uuid(table_uuid)):
            return key
        return None if before is None else before.key

    def changes(self) -> list[TableName]:
        """Return the names that have changed."""
        return [self._of_uuid[table_uuid] for table_uuid in sorted(self.changed)]

    def apply(self, item: LogEntry) -> NamedTable | None:
        """
        Apply the next entry; return the name that it gives to a table, if that differs from the name before.
        """
        match _naming_of(item):
            case _Naming() as naming:
                return self._bind(naming, item.entry.index)
            case _Dropped(key=key):
                self._release(key, item.entry.index)
        return None

    def _bind(self, naming: _Naming, index: int) -> NamedTable | None:
        before = self._of_uuid.get(naming.table_uuid)
        if naming.key is None or not (naming.is_certain or self._is_free(naming.key, before, naming.table_uuid)):
            if before is None:
                self._set(
                    TableName(table_uuid=naming.table_uuid, key=None, index=index, is_certain=False, is_current=False),
                    index,
                )
            return None
        is_same = before is not None and before.key == naming.key and before.is_current
        if is_same and before is not None and before.is_certain >= naming.is_certain:
            return None
        if self._holders.get(naming.key) not in {None, naming.table_uuid}:
            self._release(naming.key, index)
        if before is not None and before.key is not None and self._holders.get(before.key) == naming.table_uuid:
            del self._holders[before.key]
        self._set(
            TableName(
                table_uuid=naming.table_uuid, key=naming.key, index=index, is_certain=naming.is_certain, is_current=True
            ),
            index,
        )
        if is_same:
            return None
        return NamedTable(
            table_uuid=naming.table_uuid,
            key=naming.key,
            before=None if before is None else before.key,
            is_known=before is not None,
        )

    def _is_free(self, key: str, before: TableName | None, table_uuid: str) -> bool:
        """Return whether an uncertain source may give a table this name."""
        if before is not None and before.is_certain:
            return False
        holder = self._of_uuid.get(self._holders.get(key, ""))
        return holder is None or holder.table_uuid == table_uuid or not holder.is_certain

    def _release(self, key: str, index: int) -> None:
        if (holder := self._holders.pop(key, None)) is not None:
            self._set(replace(self._of_uuid[holder], is_current=False), index)

    def _set(self, name: TableName, index: int) -> None:
        if (before := self._of_uuid.get(name.table_uuid)) is not None:
            self.past.append((before, index))
        self._put(name)
        self.changed.add(name.table_uuid)

    def _put(self, name: TableName) -> None:
        self._of_uuid[name.table_uuid] = name
        if name.is_current and name.key is not None:
            self._holders[name.key] = name.table_uuid


def lookups_of(entries: Iterable[LogEntry]) -> NameLookups:
    """
    Return which names are needed to apply `entries`.
    """
    lookups = NameLookups()
    for item in entries:
        match _naming_of(item):
            case _Naming(table_uuid=table_uuid, key=key):
                lookups.uuids.add(table_uuid)
                lookups.keys |= set() if key is None else {key}
            case _Dropped(key=key):
                lookups.keys.add(key)
    return lookups


async def read_names(transaction: Transaction, projection: str, lookups: NameLookups) -> TableNames:
    """
    Return the names that a projection's generation stores for these lookups.
    """
    if not lookups.uuids and not lookups.keys:
        return TableNames()
    parameters = {**_where(transaction, projection), "uuids": sorted(lookups.uuids), "keys": sorted(lookups.keys)}
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
    text = encode_json(rows)
    await transaction.connection.execute(QUERIES["upsert_names"], {**_where(transaction, projection), "rows": text})


def past_row(name: TableName, until: int) -> Json:
    """
    Return the row of what a table was called up to the entry at index `until`.
    """
    return {
        "table_uuid": name.table_uuid,
        "until": until,
        "key": name.key,
        "index": name.index,
        "is_current": name.is_current,
    }


async def drop_names(transaction: Transaction, projection: str) -> None:
    """
    Delete the names of a projection's generation.
    """
    await transaction.connection.execute(QUERIES["drop_names"], _where(transaction, projection))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTable:
    """A table that has a name, by its event key; the entry at `index` gave it that name."""

    key: str
    table_uuid: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """An owner to look for: an actor, or, if the reader may know who actors are, a principal."""

    name: str
    may_be_principal: bool


async def read_owners(
    connection: Connection, log_id: int, uuids: Sequence[str], *, as_of: int | None = None
) -> dict[str, tuple[str, str | None]]:
    """
    Return, by uuid, who made or registered some tables of a log: actor and principal (None: it is not known any more).
    """
    asked = {"log_id": log_id, "uuids": list(uuids), "as_of": as_of}
    rows = await (await connection.execute(_asked("owners", as_of), asked)).fetchall()
    return {uuid: (actor, principal) for uuid, actor, principal in rows}


async def read_tables(
    connection: Connection,
    log_id: int,
    *,
    after: str = "",
    alias: str | None = None,
    text: str | None = None,
    kind: str | None = None,
    tag: str | None = None,
    owner: Owner | None = None,
    limit: int = 100,
    as_of: int | None = None,
) -> tuple[list[ListedTable], str | None]:
    """
    Return tables in the order of their keys, bytewise, from behind the key `after` on; and the key behind which to go
    on, None at the end.

    `alias` is their catalog, `text` a part of their name, levels joined by dots, in whatever case; `kind` is one of
    personal data that was found in them; `tag` one that was found for certain and that nobody has dismissed, or "pii"
    for any. `owner` is who made or registered them. At most `EXAMINED_MAX` names are
    looked through: what is found may be less than `limit`, and yet not all.
    """
    prefix = f"{TABLE}:" if alias is None else f"{format_key(TABLE, (alias,))}/"
    # Keys are ASCII: every one with this prefix, and no other one, is between these two.
    upto = f"{prefix}\x7f"
    where = {"log_id": log_id, "after": max(after, prefix), "upto": upto, "as_of": as_of}
    examined = {**where, "skipped": EXAMINED_MAX - 1}
    row = await (await connection.execute(_asked("table_ceiling", as_of), examined)).fetchone()
    ceiling: str | None = None if row is None else row[0]
    parameters = {
        **where,
        "upto": ceiling or upto,
        "texts": None if text is None else sorted({quote(text, safe="").lower(), _segments(text).lower()}),
        "kind": kind,
        "tag": tag,
        "tagged_percent": TAGGED_PERCENT,
        "owner": owner and owner.name,
        "by_principal": owner is not None and owner.may_be_principal,
        "limit": limit,
    }
    rows = await (await connection.execute(_asked("tables", as_of), parameters)).fetchall()
    tables = [ListedTable(key=key, table_uuid=table_uuid, index=index) for key, table_uuid, index in rows]
    return tables, tables[-1].key if len(tables) == limit else ceiling


def _asked(query: str, as_of: int | None) -> str:
    """Return a query as it is asked of now, or as of an entry."""
    return QUERIES[query] if as_of is None else AS_OF[query]


def _segments(text: str) -> str:
    """Return a dotted name as it stands in a key."""
    return "/".join(quote(level, safe="") for level in text.split("."))


async def read_live_names(
    connection: Connection, log_id: int, *, uuids: Sequence[str] = (), keys: Sequence[str] = ()
) -> list[TableName]:
    """
    Return the names of some tables of a log, by uuid or current key, as of the read models' cursor.
    """
    which = {"log_id": log_id, "uuids": [_uuid(each) for each in uuids], "keys": list(keys)}
    rows = await (await connection.execute(QUERIES["live_names"], which)).fetchall()
    return [read_name(row) for row in rows]


def read_name(row: Sequence[Any]) -> TableName:
    """
    Return the name of a row of the query `names` or `live_names`.
    """
    table_uuid, key, index, is_certain, is_current = row
    return TableName(table_uuid=table_uuid, key=key, index=index, is_certain=is_certain, is_current=is_current)


def resolve_key(names: Iterable[TableName], *, table_uuid: str, said: str | None) -> str | None:
    """
    Return the key of a table's name, given the uncertain name `said` from a source.

    `names` are the names of the table itself and of the table that has the name `said` now. The rule is that of
    `TableNames`.
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
    """Return what an entry says about a table's name."""
    match item.event:
        case CommitDecided() as decided:
            if decided.base is None or decided.table_uuid is None or not item.entry.key.startswith(_TABLES):
                return None
            # Whatever the decision: to judge the request, the gateway has loaded the table by this name.
            return _certain(decided.table_uuid, item.entry.key)
        case CommitSettled() as settled:
            if settled.outcome is not CommitOutcome.ACCEPTED or not item.entry.key.startswith(_TABLES):
                return None
            if settled.metadata_location is None:
                return _Dropped(key=item.entry.key)  # an accepted commit without a metadata file is a drop
            return None if settled.table_uuid is None else _certain(settled.table_uuid, item.entry.key)
        case TableIdentified() as identified:
            key = table_key(identified.identifier)
            return _Naming(table_uuid=_uuid(identified.table_uuid), key=key, is_certain=True)
        case CommitObserved() | ScanCompleted() | ScanCompletedV1() | ScanFailed() as event:
            key = table_key(event.identifier)
            return _Naming(table_uuid=_uuid(event.table_uuid), key=key, is_certain=False)
        case DetectionFound() as found:
            key = item.entry.key if item.entry.key.startswith(_TABLES) else None
            return _Naming(table_uuid=_uuid(found.table_uuid), key=key, is_certain=False)
        case _:
            return None


@lru_cache(maxsize=KEYS_CACHED)
def _certain(table_uuid: str, key: str) -> _Naming:
    """Return what a commit says: nearly always the same as the commit before it of that table."""
    return _Naming(table_uuid=_uuid(table_uuid), key=key, is_certain=True)


def _uuid(text: str) -> str:
    """Return a uuid as a row can hold it: it comes from a file that others wrote."""
    return bounded_name(storable(text))


def _where(transaction: Transaction, projection: str) -> dict[str, object]:
    return {"log_id": transaction.log.log_id, "projection": projection, "generation": transaction.generation}
