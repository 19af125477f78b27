"""The room of the commands `lakeproof ledger …`: one test's database and a home of its own, as an operator has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from psycopg import AsyncConnection
from typer.testing import CliRunner, Result

from lakeproof.commands.ledger import ledger_app
from lakeproof.commands.room import LogRoom
from lakeproof.installation import Installation
from lakeproof.log_room import InstalledLogs
from lakeproof.provision import Provisioned
from lakeproof.settings import load_settings
from ledger.signing.key_directory import KeyDirectory, create_key_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """The way into the room of an installation, and its commands."""

    installation: Installation

    def open(self) -> AbstractAsyncContextManager[LogRoom]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[LogRoom]:
        installation = self.installation
        dsn = installation.as_role(installation.roles.auditor)
        async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
            yield InstalledLogs(installation=self.installation, connection=connection)

    def run(self, *arguments: object) -> Result:
        """Run `lakeproof ledger` with these arguments."""
        return CliRunner().invoke(ledger_app(self.open), [str(argument) for argument in arguments])

    @property
    def keys(self) -> KeyDirectory:
        """The signer's directory."""
        return self.installation.open_keys()


def make_rooms(database: str, installation: Provisioned, directory: Path) -> Rooms:
    """Return the way into the installation on `database` with a new home, and a new signer's key in it."""
    settings = load_settings({"LAKEPROOF_HOME": str(directory / "home")}, directory=directory)
    settings.home.mkdir()
    installation = Installation.on(installation, settings=settings, admin_dsn=database)
    create_key_directory(installation.keys)
    return Rooms(installation=installation)
