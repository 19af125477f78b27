"""
Records the schema, roles, grants and settings of the database in the system log, and compares them with the record.

Rows can be compared with the log. But triggers, rights, policies, roles and functions decide who may write them and
what a reader sees. `read_schema` reads all of these from PostgreSQL's catalogs, without oids, as a list of objects. The
system log records them (`schema.recorded`) whenever provisioning has changed them. Each start compares before it
serves: it names each difference and serves nothing. `verify --deep` compares them, too.

A record has a *basis*: the migrations that ran, the provisioning code, the versions of PostgreSQL and AGE. With another
basis the objects may differ rightly, and are recorded again. Before migrations run on a database with the recorded
basis, everything that they do not set up is compared, so an upgrade does not record a change that somebody else made.

Whoever may change the catalogs can also change what they show. This finds changes by ordinary means: GRANT, ALTER,
DROP, CREATE.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import psycopg

from lakeproof.errors import SchemaChangedError
from ledger.errors import BrokenError, Fault, FormatError
from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.entry import parse_entry
from ledger.format.events import SchemaObject, SchemaRecorded, from_data
from ledger.store.queries import load_queries
from ledger.store.roles import Roles
from ledger.store.session import Connection

_QUERIES: Final = load_queries("lakeproof", "schema.sql")

WRITING: Final = (
    "pg_catalog.lo_creat(integer)",
    "pg_catalog.lo_create(oid)",
    "pg_catalog.lo_from_bytea(oid, bytea)",
)
"""Functions of PostgreSQL that store something for any role that may execute them."""
SETTINGS: Final = (
    "allow_system_table_mods",
    "ignore_checksum_failure",
    "ignore_system_indexes",
    "local_preload_libraries",
    "role",
    "row_security",
    "search_path",
    "session_authorization",
    "session_preload_libraries",
    "session_replication_role",
    "zero_damaged_pages",
)
"""Settings of a role or a database that change what is read, run or trusted."""
SERVER_SETTINGS: Final = (
    "allow_system_table_mods",
    "ignore_checksum_failure",
    "ignore_system_indexes",
    "row_security",
    "session_replication_role",
    "zero_damaged_pages",
)
"""The settings that are read from the server itself."""
PROVISIONED: Final = frozenset({"database", "functions", "membership", "rights", "role", "setting"})
"""Kinds of objects that each provisioning sets up, or that belong to the server."""
SOURCES: Final = (
    ("lakeproof", "provision.py"),
    ("lakeproof", "postgres/age_rights.py"),
    ("lakeproof", "schema_record.py"),
    ("lakeproof", "sql/age_rights.sql"),
    ("lakeproof", "sql/schema.sql"),
    ("ledger", "store/roles.py"),
    ("projections", "graph/age_functions.py"),
)
"""Files that decide, with the migrations, what provisioning makes and how it is read; a change makes a new record."""

DEFINITION_MAX: Final = 8_000
PAGE_BYTES_MAX: Final = 40_000
"""Of a record; an event holds 64,512 bytes."""
PAGES_MAX: Final = 256
DIFFERENCES_SHOWN: Final = 20
_OWN_SCHEMA: Final = ("lakeproof.", "lakeproof ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What the objects depend on. `migrations` and `provisioning` are SHA-256, in hex."""

    migrations: str
    provisioning: str
    postgresql: int
    age: str

    def is_like(self, other: Basis) -> bool:
        """Tell whether the objects that provisioning does not set up must be the same on both."""
        return (self.migrations, self.postgresql, self.age) == (other.migrations, other.postgresql, other.age)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The objects of a database, sorted, and their basis."""

    basis: Basis
    objects: tuple[SchemaObject, ...]

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hex, of the canonical list of the objects."""
        rows: Json = [[one.kind, one.name, one.definition] for one in self.objects]
        return hashlib.sha256(canonical.encode(rows)).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The newest record of the system log; its first page is the entry at `index`."""

    index: int
    schema: Schema


async def read_schema(connection: Connection, roles: Roles) -> Schema:
    """
    Return the present schema of the database of `connection`; any role may read it.
    """
    async with connection.transaction():
        await connection.execute(_QUERIES["path"])
        basis = await (await connection.execute(_QUERIES["basis"])).fetchall()
        objects = await (await connection.execute(_QUERIES["objects"], _parameters(roles))).fetchall()
    return _schema(basis[0], objects)


async def read_record(connection: Connection, origin: str) -> Record | None:
    """
    Return the newest record in the system log of that origin, None if there is none.

    Raises:
        BrokenError: (`Fault.DERIVED`) if it is not whole.
    """
    cursor = await connection.execute(_QUERIES["record"], {"origin": origin, "limit": PAGES_MAX})
    return _record(await cursor.fetchall())


def read_schema_and_record(connection: psycopg.Connection, roles: Roles, origin: str) -> tuple[Schema, Record | None]:
    """
    Return both over a blocking connection.

    Raises:
        BrokenError: as `read_record`.
    """
    with connection.transaction():
        connection.execute(_QUERIES["path"])
        (basis,) = connection.execute(_QUERIES["basis"]).fetchall()
        objects = connection.execute(_QUERIES["objects"], _parameters(roles)).fetchall()
        rows = connection.execute(_QUERIES["record"], {"origin": origin, "limit": PAGES_MAX}).fetchall()
    return _schema(basis, objects), _record(rows)


async def check_schema(connection: Connection, roles: Roles, origin: str) -> str:
    """
    Check that the database is as recorded in the system log, and return what was compared.

    Raises:
        BrokenError: (`Fault.DERIVED`) for the first object that is not; names it.
    """
    record = await read_record(connection, origin)
    if record is None:
        return "no schema, roles, grants and settings: the system log has no record of them before the next start"
    found = await read_schema(connection, roles)
    if found.basis != record.schema.basis:
        return (
            f"no schema, roles, grants and settings: the record at entry {record.index} of {origin} is of other "
            "migrations or versions, and the next start makes a new one"
        )
    for expected, other in differences(record.schema, found):
        one = expected or other
        where = f"{one.kind} {one.name}" if one else ""
        raise BrokenError(Fault.DERIVED, where=where, expected=_shown(expected), found=_shown(other))
    return (
        f"{len(found.objects):,} objects of schema, roles, grants and settings against the record at entry "
        f"{record.index} of {origin}"
    )


async def check_before_serving(connection: Connection, roles: Roles, origin: str, *, accepted: str | None) -> None:
    """
    Check that the database is as recorded in the system log, if it has the basis of the record.

    `accepted` is the fingerprint of a different schema that the operator accepts.

    Raises:
        SchemaChangedError: if it is not; names what differs.
        BrokenError: as `read_record`.
    """
    record = await read_record(connection, origin)
    if record is None:
        return
    found = await read_schema(connection, roles)
    is_same = found.basis.provisioning == record.schema.basis.provisioning
    check_unchanged(record, found, but=frozenset() if is_same else PROVISIONED, accepted=accepted)


def check_unchanged(record: Record, found: Schema, *, but: frozenset[str], accepted: str | None) -> None:
    """
    Check that a database with the recorded migrations and versions is as recorded, except for some kinds.

    Raises:
        SchemaChangedError: if it is not; names what differs.
    """
    if not record.schema.basis.is_like(found.basis) or found.fingerprint in {record.schema.fingerprint, accepted}:
        return
    if pairs := list(differences(record.schema, found, but=but)):
        raise SchemaChangedError(_not_as_recorded(pairs, found.fingerprint))


def differences(
    recorded: Schema, found: Schema, *, but: frozenset[str] = frozenset()
) -> Iterator[tuple[SchemaObject | None, SchemaObject | None]]:
    """
    Yield each object that differs, or is on one side only, sorted by kind and name.

    Kinds in `but` are left out; if there are any, so is the schema that provisioning makes.
    """
    before, after = _by_name(recorded), _by_name(found)
    for key in sorted({*before, *after}):
        is_out = key[0] in but or (but and key[1].startswith(_OWN_SCHEMA))
        if not is_out and before.get(key) != after.get(key):
            yield before.get(key), after.get(key)


def _not_as_recorded(pairs: Sequence[tuple[SchemaObject | None, SchemaObject | None]], fingerprint: str) -> str:
    """
    Return why nothing is served on a database with these differences, and what to do; names at most 20.
    """
    lines = []
    for expected, found in pairs[:DIFFERENCES_SHOWN]:
        one = expected or found
        name = f"{one.kind} {one.name}" if one else ""
        lines.append(f"{name}: expected {_shown(expected)}, found {_shown(found)}")
    rest = len(pairs) - len(lines)
    named = "; ".join([*lines, *([f"and {rest} more"] if rest else [])])
    return (
        f"the database is not what the system log has recorded of it: {named}. Nothing is served on it. Undo the "
        f"change, or, if it is meant, start once with LAKEPROOF_SCHEMA_ACCEPTED={fingerprint}: the system log will say "
        "so"
    )


def pages_of(schema: Schema, *, replaces: int | None, accepted: bool) -> list[SchemaRecorded]:
    """
    Return the events that record a schema, a page each; `replaces` is the first entry of the record before.
    """
    pages: list[list[SchemaObject]] = [[]]
    size_bytes = 0
    for one in schema.objects:
        length = len(canonical.encode([one.kind, one.name, one.definition])) + 48
        if size_bytes + length > PAGE_BYTES_MAX:
            pages.append([])
            size_bytes = 0
        pages[-1].append(one)
        size_bytes += length
    basis = schema.basis
    return [
        SchemaRecorded(
            accepted=accepted,
            age=basis.age,
            fingerprint=schema.fingerprint,
            migrations=basis.migrations,
            objects=tuple(page),
            page=number,
            pages=len(pages),
            postgresql=basis.postgresql,
            provisioning=basis.provisioning,
            replaces=replaces,
        )
        for number, page in enumerate(pages)
    ]


def _by_name(schema: Schema) -> Mapping[tuple[str, str], SchemaObject]:
    return {(one.kind, one.name): one for one in schema.objects}


def _shown(one: SchemaObject | None) -> str:
    return "none" if one is None else one.definition or "one"


def _parameters(roles: Roles) -> dict[str, object]:
    return {
        "prefix": roles.prefix,
        "writing": list(WRITING),
        "settings": list(SETTINGS),
        "server_settings": list(SERVER_SETTINGS),
    }


def _schema(basis: Sequence[Any], rows: Sequence[Sequence[str]]) -> Schema:
    migrations, postgresql, age = basis
    objects: dict[tuple[str, str], str] = {}
    for kind, name, definition in rows:
        known = objects.get((kind, name))
        objects[kind, name] = definition if known is None else f"{known} | {definition}"
    return Schema(
        basis=Basis(
            migrations=hashlib.sha256(migrations.encode()).hexdigest(),
            provisioning=_PROVISIONING,
            postgresql=postgresql,
            age=age,
        ),
        objects=tuple(
            SchemaObject(kind=kind, name=name, definition=_bounded(definition))
            for (kind, name), definition in sorted(objects.items())
        ),
    )


def _bounded(definition: str) -> str:
    if len(definition.encode()) <= DEFINITION_MAX:
        return definition
    return f"{len(definition)} characters of SHA-256 {hashlib.sha256(definition.encode()).hexdigest()}"


def _record(rows: Sequence[tuple[int, bytes]]) -> Record | None:
    if not rows:
        return None
    try:
        entries = [parse_entry(bytes(entry)) for _, entry in rows]
        records = [(entry.index, from_data(SchemaRecorded, entry.data)) for entry in entries]
        pages = dict(reversed([(page.page, (index, page)) for index, page in records[: records[0][1].pages]]))
        index, newest = pages[0]
        schema = Schema(
            basis=Basis(
                migrations=newest.migrations,
                provisioning=newest.provisioning,
                postgresql=newest.postgresql,
                age=newest.age,
            ),
            objects=tuple(one for number in range(newest.pages) for one in pages[number][1].objects),
        )
    except (FormatError, KeyError) as error:
        where = "schema.recorded of the system log"
        raise BrokenError(Fault.DERIVED, where=where, expected="a whole record", found=error) from error
    if schema.fingerprint != newest.fingerprint:
        where = f"schema.recorded at entry {index}"
        raise BrokenError(Fault.DERIVED, where=where, expected=newest.fingerprint, found=schema.fingerprint)
    return Record(index=index, schema=schema)


def _provisioning() -> str:
    texts = [files(package).joinpath(*path.split("/")).read_bytes() for package, path in SOURCES]
    return hashlib.sha256(b"".join(hashlib.sha256(text).digest() for text in texts)).hexdigest()


_PROVISIONING: Final = _provisioning()
