"""
Confirmations: which heads the signer has compared with its last notes, and since which start of the server that holds.

A database that was failed over to, or restored from a base backup, is served by another start of a server, and one that
was restored from a dump or cloned in the same server is another database, or has other files, or rows that another
transaction wrote. So none of its rows holds (the view `confirmed_logs`, migration 0007), and the Appender, which looks
at each batch, takes nothing for its logs. The signer, whose notes lie outside of the database, compares and confirms;
from a log that it refuses it takes the confirmation away. A row is written only where that changes anything: a quiet
round writes nothing.

A log that is not confirmed may hold what was erased since. That is erased again first (`BeforeConfirming`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeAlias

from ledger.errors import LedgerError
from ledger.queries import load_queries
from ledger.read import Connection

_QUERIES: Final = load_queries("ledger", "signing.sql")

BeforeConfirming: TypeAlias = Callable[[Connection, Collection[int]], Awaitable[Mapping[int, LedgerError]]]
"""
Does what must be done before logs (log_ids) are confirmed; returns which of them must not be, and why.

It is lent the signer's connection, since another might reach another server, and gives it back as it was.
"""


async def nothing_before(_connection: Connection, _log_ids: Collection[int]) -> Mapping[int, LedgerError]:
    """Do nothing: where nothing is ever erased."""
    return {}


async def confirm(connection: Connection, sizes: Mapping[int, int]) -> None:
    """
    Write that the logs of these log_ids, of these sizes, go on from what was signed, here and for this server's start.

    `connection` works as the signer, in autocommit mode, and must be the one on which the heads were read: another
    might reach another server.

    Raises:
        psycopg.Error: if the database fails; the next round writes it again.
    """
    if sizes:
        await connection.execute(_QUERIES["confirm"], {"log_ids": list(sizes), "sizes": list(sizes.values())})


async def withdraw(connection: Connection, log_ids: Collection[int]) -> None:
    """
    Take the confirmations of these logs away: no batch that begins from here on appends to them.

    Raises:
        psycopg.Error: if the database fails.
    """
    if log_ids:
        await connection.execute(_QUERIES["withdraw"], {"log_ids": list(log_ids)})
