"""
What is kept of tenants beside their logs, and for no longer than payload parts: messages that could not be handled.

They are kept as they came, in the clear, since nobody knows what is in them; so nobody knows whom they are about, and
only their age can say when they are to go.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg import AsyncConnection

from lakeproof.installation import Installation
from ledger.store.read import Log
from streams.connections import connect_storing
from streams.state.dead_letters import TABLE, delete_older


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDeadLetters:
    """The dead letters of an installation (implements `ledger.erasing.erase.KeptMessages`)."""

    installation: Installation

    async def delete_before(self, log: Log, before: datetime, /) -> int:
        """
        Delete the messages of a log's tenant that could not be handled before then; return how many.

        Raises:
            psycopg.Error: if the database cannot be reached, or refuses.
        """
        installation = self.installation
        async with connect_storing(installation.as_role(installation.roles.streams)) as connection:
            return await delete_older(connection, log, before)

    async def reclaim(self) -> None:
        """
        Write their table anew, without what was deleted; it is locked for that time.

        Raises:
            psycopg.Error: if the database cannot be reached, or refuses.
        """
        # As the owner of the database: to write a table anew is more than the streams' role may do with its rows.
        async with await AsyncConnection.connect(self.installation.admin_dsn, autocommit=True) as owner:
            await owner.execute(f"VACUUM FULL {TABLE}")
