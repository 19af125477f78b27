"""A room for the commands `lakeproof ledger …`: one test's database, seen as the auditor, and a key directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from psycopg import AsyncConnection
from typer.testing import CliRunner, Result

from lakeproof.provision import Installation
from ledger.commands.app import ledger_app
from ledger.commands.room import LogRoom
from ledger.note import VerifierKey
from ledger.read import Connection, Log, find_log, read_logs
from ledger.signing.key_directory import KeyDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """An installation, as the commands see it."""

    connection: Connection
    keys: KeyDirectory

    async def find_log(self, name: str) -> Log:
        named = [log for log in await read_logs(self.connection) if log.tenant and log.tenant.hex == name]
        return named[0] if named else await find_log(self.connection, name)

    def verifier_key(self, origin: str) -> VerifierKey:
        return self.keys.verifier_key(origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """The way into the room of an installation, and its commands."""

    installation: Installation
    keys: KeyDirectory

    def open(self) -> AbstractAsyncContextManager[LogRoom]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[LogRoom]:
        dsn = self.installation.as_role(self.installation.roles.auditor)
        async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
            yield Room(connection=connection, keys=self.keys)

    def run(self, *arguments: object) -> Result:
        """Run `lakeproof ledger` with these arguments."""
        return CliRunner().invoke(ledger_app(self.open), [str(argument) for argument in arguments])
