# SPDX-License-Identifier: Apache-2.0
"""
The logs of all tenants, for background work that is done for whichever tenant has some.

Such work is found and scheduled with the gateway's role, which sees the rows of all tenants; a log itself is read with
the reader role of its tenant alone.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from gateway.database import Database
from ledger.errors import NoSuchLogError
from ledger.store.read import Log, read_logs
from ledger.store.roles import Roles
from ledger.store.session import Connection

Lent = AbstractAsyncContextManager[Connection]


class TenantLogs:
    """Lends connections of `database` for one kind of work, which `work` names in errors."""

    def __init__(self, database: Database, roles: Roles, *, work: str) -> None:
        self._database = database
        self._roles = roles
        self._work = work
        self._known: dict[int, Log] = {}

    def working(self) -> Lent:
        """Lend a connection with the gateway's role. Entering raises as `Database.as_role`."""
        return self._database.as_role(self._roles.gateway)

    def reading(self, log: Log) -> Lent:
        """
        Lend a connection with the reader role of the tenant of `log`.

        Raises:
            NoSuchLogError: if it is not a tenant's log.
        """
        if log.reader is None:
            raise NoSuchLogError(f"log {log.origin}: expected a tenant's log with {self._work}, found none's")
        return self._database.as_role(log.reader)

    async def find(self, log_id: int) -> Log:
        """
        Return a log; one that is not known yet is read with all others.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        if log_id not in self._known:
            async with self.working() as connection:
                self._known = {log.log_id: log for log in await read_logs(connection)}
        return self._known[log_id]
