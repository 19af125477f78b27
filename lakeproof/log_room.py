"""
What the commands `lakeproof ledger …` work with when they need an installation: a connection, names of logs, keys.

Kept apart from `operating.py`: reading a log needs no gateway, no appender and no policy engine. Whatever keeps the
room from being opened is raised as the ledger's own error, since `verify` must never take it for a broken log.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from lakeproof.console import say_aside
from lakeproof.errors import LakeproofError
from lakeproof.foundation import Foundation, open_foundation
from lakeproof.settings import load_settings
from ledger.errors import LogUnavailableError, NoSuchLogError
from ledger.note import VerifierKey
from ledger.read import Connection, Log, read_logs

SYSTEM = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledLogs:
    """The logs of an installation, as the auditor reads them (implements `ledger.commands.room.LogRoom`)."""

    foundation: Foundation
    connection: Connection

    async def find_log(self, name: str, /) -> Log:
        """
        Return the log that people call `name`: its origin, its tenant's name or id, or `system`.

        Of several tenants of one name, the newest is meant.

        Raises:
            NoSuchLogError: if there is none.
        """
        logs = await read_logs(self.connection)
        system = next((log for log in logs if log.tenant is None), None)
        if system is not None and name == SYSTEM:
            return system
        named = {log.origin: log for log in logs} | {log.tenant.hex: log for log in logs if log.tenant is not None}
        found = named.get(name)
        if found is None and system is not None and (tenant := await self._tenant(system, name)) is not None:
            found = named.get(tenant.hex)
        if found is None:
            raise NoSuchLogError(f"log {name!r:.100}: expected an origin, a tenant's name or id, or '{SYSTEM}'")
        return found

    def verifier_key(self, origin: str, /) -> VerifierKey:
        """
        Return the verifier key of a log, from the signer's key directory.

        Raises:
            KeyDirectoryError: if no `lakeproof up` has made one yet, or it cannot be used.
        """
        return self.foundation.verifier_key(origin)

    async def _tenant(self, system: Log, name: str) -> UUID | None:
        """Return the newest tenant of that name."""
        from gateway.control import ControlPlane  # only a name needs it: an origin and an id do not

        state = await ControlPlane(lambda: nullcontext(self.connection)).current(system.log_id)
        named = [tenant for tenant in state.tenants.values() if tenant.name == name]
        return UUID(named[-1].id) if named else None


@asynccontextmanager
async def open_log_room() -> AsyncIterator[InstalledLogs]:
    """
    Yield the logs of the installation in the home.

    Raises:
        LogUnavailableError: if the settings, the server or the database cannot be used; says what to do.
    """
    try:
        # Opening blocks the loop, on which nothing else runs yet.
        with open_foundation(load_settings(os.environ, directory=Path.cwd()), say_aside) as foundation:
            installation = foundation.installation
            dsn = installation.as_role(installation.roles.auditor)
            async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
                yield InstalledLogs(foundation=foundation, connection=connection)
    except (LakeproofError, OSError) as error:
        raise LogUnavailableError(str(error)) from error
    except psycopg.OperationalError as error:
        raise LogUnavailableError(f"the database cannot be reached ({error}): check that it runs") from error
