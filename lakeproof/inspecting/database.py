# SPDX-License-Identifier: Apache-2.0
"""
The database of an installation as it is: reached without starting a server, provisioning or writing anything.

`open_installation` is what commands use that do something: it starts the embedded server and brings the schema up to
date. What only looks must do neither. Connections here are read-only, also where their role could write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lakeproof.errors import ProvisionError, ServerError
from lakeproof.installation import Installation
from lakeproof.postgres.directories import find_server_files
from lakeproof.postgres.process import postmaster_pid
from lakeproof.postgres.server import admin_dsn_of, nobody_listens
from lakeproof.private_folders import check_own
from lakeproof.provision import Provisioned, pending_migrations
from lakeproof.settings import Settings
from ledger.store.roles import Roles

CONNECT_TIMEOUT_S: Final = 5
STATEMENT_TIMEOUT: Final = "10s"
PASSWORD: Final = Path("secrets") / "login-password"
NOT_RUNNING: Final = "the embedded server of {home} does not run: `lakeproof up` starts it"
NO_INSTALLATION: Final = (
    "there is no installation in {home}: `lakeproof up` or `lakeproof tenants create` makes one; if it is elsewhere, "
    "go to its folder, or set LAKEPROOF_HOME"
)


class NotThereError(ServerError):
    """There is no installation yet, or its embedded server does not run: nothing is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """How the owner reaches a database; `directory` is that of an embedded server."""

    dsn: str = field(repr=False)
    directory: Path | None

    @property
    def where(self) -> str:
        """Where the database is, without any secret."""
        named = conninfo_to_dict(self.dsn)
        host, database = named.get("host") or named.get("hostaddr") or "the local socket", named.get("dbname")
        return f"{host}, port {named.get('port') or 5432}, database {database or named.get('user') or 'postgres'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDatabase:
    """A database that answers: the server's version, as in 18.1; migrations that have not run, as in ledger 0007."""

    installation: Installation
    owner: Owner
    version: str
    pending: Sequence[str]


def find_owner(settings: Settings) -> Owner:
    """
    Return how the owner of the installation's database reaches it. Nothing is connected to.

    Raises:
        NotThereError: if the home has no installation.
        ServerError: if the home cannot be read or understood, or LAKEPROOF_DSN is no connection string.
    """
    if settings.dsn is not None:
        try:
            conninfo_to_dict(settings.dsn)
        except psycopg.ProgrammingError:
            # The error would repeat a piece of the text, and that may be the password.
            raise ServerError("LAKEPROOF_DSN is no connection string of PostgreSQL: correct it") from None
        return Owner(dsn=settings.dsn, directory=None)
    try:
        check_own(settings.home, setting="LAKEPROOF_HOME")
        files = find_server_files(settings.home)
        if files is None:
            raise NotThereError(NO_INSTALLATION.format(home=settings.home))
        return Owner(dsn=admin_dsn_of(files), directory=files.directory)
    except OSError as error:
        raise ServerError(
            f"{settings.home} cannot be read ({error}): repair that, or choose another LAKEPROOF_HOME"
        ) from error


@contextmanager
def connect_owner(settings: Settings, owner: Owner) -> Iterator[psycopg.Connection]:
    """
    Yield a read-only connection of the owner.

    Raises:
        NotThereError: if the embedded server does not run.
        ServerError: if the database does not answer.
    """
    try:
        connection = psycopg.connect(owner.dsn, connect_timeout=CONNECT_TIMEOUT_S, autocommit=True)
    except psycopg.Error as error:
        said = " ".join(str(error).split())
        if owner.directory is not None and postmaster_pid(owner.directory / "data") is None and nobody_listens(said):
            raise NotThereError(NOT_RUNNING.format(home=settings.home)) from error
        where = (
            "LAKEPROOF_DSN leads to no server" if owner.directory is None else f"there is no server in {owner.where}"
        )
        raise ServerError(f"{where} that answers ({said}): see that it runs and takes connections") from error
    with connection:
        connection.execute("SET default_transaction_read_only = on")
        connection.execute(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'")
        yield connection


def find_database(settings: Settings) -> FoundDatabase:
    """
    Return the installation as its home and its database have it.

    Raises:
        NotThereError: if there is none, or its embedded server does not run.
        ServerError: if the database does not answer, or the home lacks its password.
        ProvisionError: if a migration was applied with other contents.
    """
    owner = find_owner(settings)
    try:
        with connect_owner(settings, owner) as connection:
            provisioned = _provisioned(connection, settings, owner)
            pending = [f"{each.package} {each.number:04d}" for each in pending_migrations(connection)]
            version = connection.execute("SHOW server_version").fetchone()
    except psycopg.Error as error:
        said = " ".join(str(error).split())
        raise ServerError(f"the database in {owner.where} refuses to be read ({said}): check its rights") from error
    installation = Installation.on(provisioned, settings=settings, admin_dsn=owner.dsn)
    return FoundDatabase(
        installation=installation, owner=owner, version=str(version[0]) if version else "", pending=pending
    )


def _provisioned(connection: psycopg.Connection, settings: Settings, owner: Owner) -> Provisioned:
    if connection.execute("SELECT to_regclass('lakeproof.installation')").fetchone() == (None,):
        raise NotThereError(f"the database in {owner.where} holds no installation: `lakeproof up` makes one")
    row = connection.execute("SELECT id, authority FROM lakeproof.installation").fetchone()
    if row is None:
        raise ProvisionError("the first start was interrupted: start `lakeproof up` again")
    try:
        password = (settings.home / PASSWORD).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ServerError(
            f"{settings.home / PASSWORD} cannot be read ({error.strerror}): start `lakeproof up` once, which makes it, "
            "or make it readable for this user"
        ) from error
    roles = Roles(row[0])
    dsn = make_conninfo(owner.dsn, user=roles.login, password=password)
    return Provisioned(id=row[0], authority=row[1], roles=roles, dsn=dsn)
