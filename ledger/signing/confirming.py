"""
Confirmations: which heads the signer has compared with its last notes, and since which start of the server that holds.

A database that was restored, or failed over to, is served by another start of a server, so none of its rows is of this
one, and the Appender takes nothing for its logs. The signer, whose notes lie outside of the database, compares and
confirms; from a log that it refuses it takes the confirmation away. A row is written only where that changes anything:
a quiet round writes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ledger.queries import load_queries
from ledger.read import Connection

_QUERIES: Final = load_queries("ledger", "signing.sql")


async def confirm(connection: Connection, sizes: Mapping[int, int]) -> None:
    """
    Write that the logs of these log_ids, of these sizes, go on from what was signed, for this start of the server.

    `connection` works as the signer and must be the one on which the heads were read: another might reach another
    server.

    Raises:
        psycopg.Error: if the database fails; the next round writes it again.
    """
    if sizes:
        await connection.execute(_QUERIES["confirm"], {"log_ids": list(sizes), "sizes": list(sizes.values())})


async def withdraw(connection: Connection, log_ids: Collection[int]) -> None:
    """
    Take the confirmations of these logs away: nothing more is appended to them over new connections.

    Raises:
        psycopg.Error: if the database fails.
    """
    if log_ids:
        await connection.execute(_QUERIES["withdraw"], {"log_ids": list(log_ids)})
