"""
Provisioning: everything a database must hold before Lakeproof runs on it. Idempotent, at each start, under one lock.

Order: installation row, roles, AGE, migrations of each package in order, the `system` log. Tenants come later, each
with a log, a head and a reader role of its own; a tenant's graph is made by its projection.

A migration that was applied is never applied again, and one whose text has changed since is refused: the log's tables
are a stored format.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Final
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege

from lakeproof.errors import ProvisionError
from lakeproof.messages import Say
from lakeproof.postgres.age_rights import make_age
from lakeproof.schema_record import PROVISIONED, WRITING, check_unchanged, read_schema_and_record
from ledger.format.entry import check_origin
from ledger.store.roles import Roles

PACKAGES: Final = ("ledger", "gateway", "projections", "streams", "spark_detect")
"""The packages with migrations, in the order in which they run."""
_SQL_IN: Final = {"ledger": "ledger.store"}
"""The folder of a package that keeps its SQL, if that is not the package itself."""
_LOCK: Final = 0x6C70_0001
"""Advisory lock: one provisioning at a time on a database."""

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
AUTHORITY_LENGTH_MAX: Final = 200
"""An origin has at most 255 characters; a tenant's id and a successor's number follow."""
_AUTHORITY_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~:-]+")
_RESERVED_SEGMENTS: Final = frozenset({".", "..", "tile", "receipt"})
"""Segments that clients remove (RFC 3986, section 5.2.4), and those that begin the path of a resource of a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioned:
    """One Lakeproof on one database. Its printed form shows no password."""

    id: str
    authority: str
    roles: Roles
    dsn: str = field(repr=False)
    """Connection string of the login role, with its password; it sees nothing until a connection takes a role."""

    def as_role(self, role: str) -> str:
        """Return the connection string of the login role working as `role`."""
        return make_conninfo(self.dsn, options=f"-c role={role}")

    @property
    def system_origin(self) -> str:
        """The origin of the system log."""
        return f"{self.authority}/system"

    def origin(self, tenant: UUID) -> str:
        """Return the origin of a tenant's log."""
        return f"{self.authority}/{tenant.hex}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One numbered SQL file of a package."""

    package: str
    number: int
    name: str
    text: str

    @property
    def sha256(self) -> str:
        """The digest of the file's text, by which a later change is noticed."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def provision(
    admin_dsn: str,
    *,
    login_password: str,
    origin: str | None = None,
    accepted: str | None = None,
    say: Say = lambda _: None,
) -> Provisioned:
    """
    Bring the database of `admin_dsn` up to date and return the installation on it.

    `admin_dsn` connects as a superuser (AGE's extension needs one), `origin` is the authority of the logs' origins;
    once stored it is fixed, since it stands in every entry. `accepted` is the fingerprint of a schema that is not what
    the system log has recorded, and is to be migrated nevertheless.

    Raises:
        ProvisionError: if a stored migration or the authority differs from the requested one, or a new authority could
            not be part of a URL.
        SchemaChangedError: if migrations are due and the schema is not what the system log has recorded.
        psycopg.Error: if the database cannot be reached or refuses.
    """
    with psycopg.connect(admin_dsn, autocommit=True) as connection, _locked(connection):
        installation_id, authority = _installation(connection, origin)
        roles = Roles(installation_id)
        pending = pending_migrations(connection)
        if pending:
            _check_unchanged(connection, roles, f"{authority}/system", accepted)
        _make_roles(connection, roles, login_password)
        make_age(connection, roles)
        _take_from_everybody(connection)
        for migration in pending:
            say(f"migration {migration.package} {migration.number:04d} {migration.name}")
            apply_migration(connection, migration, roles)
        installation = Provisioned(
            id=installation_id, authority=authority, roles=roles, dsn=_login_dsn(admin_dsn, roles, login_password)
        )
        _ensure_log(connection, origin=installation.system_origin, tenant=None, reader=None)
    return installation


def check_authority(authority: str) -> None:
    """
    Check that logs can be named after `authority`, so that each can be fetched by its name below `/log/` of any URL.

    Nothing in it has a meaning in URLs or is escaped there. This could not be corrected later: it is in every entry.

    Raises:
        ProvisionError: if they cannot.
    """
    segments = authority.split("/")
    can_name = all(_AUTHORITY_SEGMENT.fullmatch(segment) and segment not in _RESERVED_SEGMENTS for segment in segments)
    if not can_name or len(authority) > AUTHORITY_LENGTH_MAX:
        raise ProvisionError(
            f"LAKEPROOF_ORIGIN: expected an authority such as logs.example.org/eu, of at most {AUTHORITY_LENGTH_MAX} "
            "letters, digits and . _ ~ : - between single slashes, no part of which is '.', '..', 'tile' or 'receipt', "
            f"found {authority!r:.100}: every log is named after it for ever, and fetched by that name"
        )


def create_tenant_log(admin_dsn: str, installation: Provisioned, tenant: UUID, *, origin: str | None = None) -> int:
    """
    Make the log and the reader role of `tenant` if they are not there; return its log_id.

    `origin` is the log's if it goes on from another (`ledger.format.continuation`); else it is named after the tenant.
    """
    reader = installation.roles.tenant(tenant)
    with psycopg.connect(admin_dsn, autocommit=True) as connection, _locked(connection):
        _make_role(connection, reader)
        _grant(connection, installation.roles.reader, reader, inherit=True)
        _grant(connection, reader, installation.roles.login, inherit=False)
        return _ensure_log(connection, origin=origin or installation.origin(tenant), tenant=tenant, reader=reader)


def migrations() -> Iterator[Migration]:
    """
    Yield every migration of every package, in the order in which they run.
    """
    for package in PACKAGES:
        folder = files(_SQL_IN.get(package, package)).joinpath("sql", "migrations")
        if not folder.is_dir():
            continue
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            if (match := _FILE.fullmatch(file.name)) is not None:
                text = file.read_text(encoding="utf-8")
                yield Migration(package=package, number=int(match[1]), name=match[2], text=text)


def pending_migrations(connection: psycopg.Connection) -> list[Migration]:
    """
    Return the migrations that this database has not seen.

    Raises:
        ProvisionError: if one that was applied has another text now.
    """
    applied = {
        (package, number): sha256
        for package, number, sha256 in connection.execute("SELECT package, number, sha256 FROM lakeproof.migrations")
    }
    pending = []
    for migration in migrations():
        known = applied.get((migration.package, migration.number))
        if known is None:
            pending.append(migration)
        elif known != migration.sha256:
            raise ProvisionError(
                f"migration {migration.package} {migration.number:04d} was applied with other contents "
                f"(sha256 {known[:12]}…, now {migration.sha256[:12]}…): run the version of Lakeproof that made this "
                "database, or a newer one"
            )
    return pending


def apply_migration(connection: psycopg.Connection, migration: Migration, roles: Roles) -> None:
    """
    Run one migration as the owner, in one transaction with the row that remembers it.
    """
    names = {duty: sql.Identifier(role) for duty, role in roles.duties().items()}
    with connection.transaction():
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(roles.owner)))
        connection.execute(sql.SQL(migration.text).format(**names))
        connection.execute(
            "INSERT INTO lakeproof.migrations (package, number, name, sha256) VALUES (%s, %s, %s, %s)",
            (migration.package, migration.number, migration.name, migration.sha256),
        )


def _check_unchanged(connection: psycopg.Connection, roles: Roles, origin: str, accepted: str | None) -> None:
    """
    Check, before anything is changed, that the schema is what the system log has recorded; nothing if there is no log.

    What ran since and was not recorded, where a start was cut short, makes the record one of another basis.

    Raises:
        SchemaChangedError: if it is not; names what differs.
    """
    if connection.execute("SELECT to_regclass('ledger.entries')").fetchone() == (None,):
        return
    found, record = read_schema_and_record(connection, roles, origin)
    if record is not None:
        check_unchanged(record, found, but=PROVISIONED, accepted=accepted)


@contextmanager
def _locked(connection: psycopg.Connection) -> Iterator[None]:
    connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
    try:
        yield
    finally:
        if not connection.broken:
            connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def _installation(connection: psycopg.Connection, origin: str | None) -> tuple[str, str]:
    """Return the stored installation id and authority, storing them on the first start."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS lakeproof")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS lakeproof.installation "
        "(id text NOT NULL, authority text NOT NULL, only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row))"
    )
    connection.execute(
        "CREATE TABLE IF NOT EXISTS lakeproof.migrations (package text, number integer, name text NOT NULL, "
        "sha256 text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (package, number))"
    )
    row = connection.execute("SELECT id, authority FROM lakeproof.installation").fetchone()
    if row is None:
        new_id = secrets.token_hex(4)
        authority = f"lakeproof.invalid/{new_id}" if origin is None else origin
        check_authority(authority)
        connection.execute("INSERT INTO lakeproof.installation (id, authority) VALUES (%s, %s)", (new_id, authority))
        return new_id, authority
    stored_id, authority = row
    if origin is not None and origin != authority:
        raise ProvisionError(
            f"LAKEPROOF_ORIGIN is {origin!r}, but the logs of this database are named after {authority!r} for ever: "
            "remove the setting, or start a new database"
        )
    return stored_id, authority


def _make_roles(connection: psycopg.Connection, roles: Roles, login_password: str) -> None:
    for role in roles.duties().values():
        _make_role(connection, role)
    _make_role(connection, roles.login)
    connection.execute(
        sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(roles.login), sql.Literal(login_password))
    )
    for duty in roles.services():
        _grant(connection, duty, roles.login, inherit=False)
    database = connection.info.dbname
    connection.execute(
        sql.SQL("GRANT CREATE ON DATABASE {} TO {}, {}").format(
            sql.Identifier(database), *_names(roles.owner, roles.projector)
        )
    )
    names = _names(roles.owner, roles.auditor)
    connection.execute(sql.SQL("GRANT USAGE ON SCHEMA lakeproof TO {}, {}").format(*names))
    connection.execute(sql.SQL("GRANT SELECT ON lakeproof.migrations TO {}, {}").format(*names))
    connection.execute(sql.SQL("GRANT INSERT ON lakeproof.migrations TO {}").format(names[0]))


def _take_from_everybody(connection: psycopg.Connection) -> None:
    """
    Take away the ways to write that PostgreSQL leaves open to every role: temporary tables and large objects.

    Otherwise a role that may only read could fill the disk, and leave something behind on a connection.

    Raises:
        ProvisionError: if this user may not.
    """
    database = sql.Identifier(connection.info.dbname)
    try:
        connection.execute(sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(database))
        for function in WRITING:
            connection.execute(sql.SQL("REVOKE EXECUTE ON FUNCTION {} FROM PUBLIC").format(sql.SQL(function)))
    except InsufficientPrivilege as error:
        raise ProvisionError(
            f"temporary tables and large objects cannot be taken from PUBLIC ({error}): "
            "let LAKEPROOF_DSN name a superuser"
        ) from error


def _make_role(connection: psycopg.Connection, role: str) -> None:
    known = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
    if known is None:
        connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(role)))


def _grant(connection: psycopg.Connection, role: str, member: str, *, inherit: bool) -> None:
    connection.execute(
        sql.SQL("GRANT {} TO {} WITH INHERIT {}, SET TRUE").format(
            *_names(role, member), sql.SQL("TRUE" if inherit else "FALSE")
        )
    )


def _ensure_log(connection: psycopg.Connection, *, origin: str, tenant: UUID | None, reader: str | None) -> int:
    check_origin(origin)
    with connection.transaction():
        made = connection.execute(
            "INSERT INTO ledger.logs (origin, tenant, reader) VALUES (%s, %s, %s) ON CONFLICT (origin) DO NOTHING",
            (origin, tenant, reader),
        )
        row = connection.execute("SELECT log_id FROM ledger.logs WHERE origin = %s", (origin,)).fetchone()
        if row is None:
            raise ProvisionError(f"the log {origin} could not be made: it vanished after it was inserted")
        connection.execute("INSERT INTO ledger.heads (log_id) VALUES (%s) ON CONFLICT DO NOTHING", row)
        if made.rowcount == 1:
            # A log that begins here has no history that could be an older one's: it can be appended to at once.
            connection.execute(
                "INSERT INTO ledger.confirmations (log_id, size, server_started_at, entries_file, written_in) VALUES "
                "(%s, 0, pg_postmaster_start_time(), pg_relation_filepath('ledger.entries'), pg_current_xact_id())",
                row,
            )
    return int(row[0])


def _login_dsn(admin_dsn: str, roles: Roles, password: str) -> str:
    return make_conninfo(admin_dsn, user=roles.login, password=password)


def _names(*roles: str) -> list[sql.Identifier]:
    return [sql.Identifier(role) for role in roles]
