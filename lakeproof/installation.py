# SPDX-License-Identifier: Apache-2.0
"""
An installation is what lies on disk: settings, the home with its keys and secrets, and a provisioned database.

`open_installation` is where every command begins that needs the database. It starts the embedded server (or checks the
user's own), provisions, and stops the embedded server again unless another process uses it. What runs on an
installation are its services (`services.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import psycopg

from lakeproof.errors import ServerError
from lakeproof.messages import Say
from lakeproof.postgres.age import fetch_age
from lakeproof.postgres.directories import recorded_directory
from lakeproof.postgres.server import EmbeddedServer, check_dsn
from lakeproof.private_folders import check_can_be_made, check_own, keep_private, read_or_make
from lakeproof.provision import Provisioned, provision
from lakeproof.settings import Settings
from ledger.erasing.subject_keys import KeyFolder, open_key_encryption, open_key_folder
from ledger.format.note import VerifierKey
from ledger.format.sealing import KeyOpener, Opener
from ledger.signing.key_directory import NOTES_FILE, KeyDirectory, open_key_directory
from ledger.store.session import Connection
from projections.lake.secrets import SecretDirectory

LOCAL: Final = "file://"
"""How the location of a warehouse begins that is a folder of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation(Provisioned):
    """
    One Lakeproof: its settings, its home, and the database that was provisioned for it; nothing of it runs.

    `admin_dsn` is the owner's connection string, for making tenants; never log it.
    """

    settings: Settings
    admin_dsn: str = field(repr=False)

    @classmethod
    def on(cls, provisioned: Provisioned, *, settings: Settings, admin_dsn: str) -> Self:
        """Return the installation that has these settings and this database."""
        return cls(
            id=provisioned.id,
            authority=provisioned.authority,
            roles=provisioned.roles,
            dsn=provisioned.dsn,
            settings=settings,
            admin_dsn=admin_dsn,
        )

    @property
    def keys(self) -> Path:
        """Where the signer keeps its key and its last notes: outside the database."""
        return self.settings.home / "keys"

    @property
    def secrets(self) -> SecretDirectory:
        """What the options of tenants' catalogs name: outside the database, like the signer's key."""
        return SecretDirectory((self.settings.home / "secrets" / "tenants").absolute())

    def open_keys(self) -> KeyDirectory:
        """
        Return the signer's directory.

        Raises:
            KeyDirectoryError: if no `lakeproof up` has made a key yet, or it cannot be used.
            KeyUnavailableError: if an agent holds a key, and the settings name none.
        """
        return open_key_directory(self.keys, agent=self.settings.signer_agent)

    def signed_notes(self) -> Mapping[str, bytes]:
        """
        Return the last signed note of each log, by origin, as the signer keeps them outside the database.

        There are none where nothing was ever signed: the signer may work on another machine.

        Raises:
            KeyDirectoryError: if there are some that cannot be used.
        """
        if not (self.keys / NOTES_FILE).exists():
            return {}
        return {origin: signed.note for origin, signed in self.open_keys().read_notes().items()}

    @property
    def opener(self) -> Opener:
        """What opens sealed payload parts: the keys in the home, whatever they are."""
        return KeyOpener(self.open_subject_keys())

    def open_subject_keys(self) -> KeyFolder:
        """
        Return the keys of sealed payload parts, made on the first start.

        Raises:
            SubjectKeysError: if they cannot be used.
            KeyDirectoryError: if others may read them.
        """
        self.keys.mkdir(mode=0o700, parents=True, exist_ok=True)
        return open_key_folder(self.subject_keys, open_key_encryption(self.key_encryption_key))

    @property
    def subject_keys(self) -> Path:
        """The folder with the keys of sealed payload parts."""
        return self.keys / "subjects"

    @property
    def key_encryption_key(self) -> Path:
        """The file with the key that has wrapped them."""
        return self.settings.key_encryption_key or self.keys / "key-encryption-key"

    @asynccontextmanager
    async def connect(self, role: str) -> AsyncIterator[Connection]:
        """
        Yield a connection in autocommit mode that works as `role`.

        Raises:
            psycopg.Error: if the database cannot be reached, or refuses.
        """
        async with await psycopg.AsyncConnection.connect(self.as_role(role), autocommit=True) as connection:
            yield connection

    def verifier_key(self, origin: str) -> VerifierKey:
        """
        Return the verifier key of one log, to be handed to auditors.

        Raises:
            KeyDirectoryError: if no `lakeproof up` has made a key yet, or it cannot be used.
        """
        return self.open_keys().verifier_key(origin)


@contextmanager
def open_installation(settings: Settings, say: Say) -> Iterator[Installation]:
    """
    Yield the installation of `settings.home`, with a server that answers and a database that is up to date.

    Raises:
        LakeproofError: if the server cannot be started, reached or provisioned; the message says what to do.
    """
    if settings.dsn is not None:
        check_dsn(settings.dsn)
        keep_private(settings.home, say, setting="LAKEPROOF_HOME")
        yield _provisioned(settings, settings.dsn, say)
        return
    check_can_be_made(settings.home, setting="LAKEPROOF_HOME")  # before anything is fetched or made
    server = EmbeddedServer(
        settings.home,
        fetch_age(settings.cache, say),
        account=settings.server_account,
        folder=settings.server_folder,
    )
    try:
        # Inside: whoever is interrupted while the server starts stops it again.
        server.start(say)
        yield _provisioned(settings, server.admin_dsn, say)
    finally:
        server.stop()


@contextmanager
def open_existing_installation(settings: Settings, say: Say) -> Iterator[Installation]:
    """
    Yield the installation of `settings.home` for a command that works on what is there: it makes no installation.

    Raises:
        LakeproofError: if there is none, before anything is written; and as `open_installation`.
    """
    if settings.dsn is None:
        _check_installed(settings.home)
    with open_installation(settings, say) as installation:
        yield installation


def _check_installed(home: Path) -> None:
    try:
        check_own(home, setting="LAKEPROOF_HOME")
        installed = recorded_directory(home) is not None or (home / "postgres" / "data").exists()
    except OSError as error:
        raise ServerError(f"{home} cannot be read ({error}): repair that, or choose another LAKEPROOF_HOME") from error
    if not installed:
        raise ServerError(
            f"there is no installation in {home}: `lakeproof up` or `lakeproof tenants create` makes one; if it is "
            "elsewhere, go to its folder, or set LAKEPROOF_HOME"
        )


def _provisioned(settings: Settings, admin_dsn: str, say: Say) -> Installation:
    if settings.warehouse.startswith(LOCAL):
        keep_private(Path(settings.warehouse.removeprefix(LOCAL)), say, setting="LAKEPROOF_WAREHOUSE")
    password = read_or_make(settings.home / "secrets" / "login-password", lambda: secrets.token_urlsafe(24))
    try:
        provisioned = provision(
            admin_dsn, login_password=password, origin=settings.origin, accepted=settings.schema_accepted, say=say
        )
    except psycopg.Error as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ServerError(f"the database cannot be provisioned ({reason}): check its log and its rights") from error
    return Installation.on(provisioned, settings=settings, admin_dsn=admin_dsn)
