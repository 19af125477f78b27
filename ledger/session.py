"""
The Appender's database session: how it is opened, and what its errors say.

Guarantee: no wait in it is for ever. A process that is stopped, or whose machine has vanished, loses its session, and
with it the heads it had locked, within about ten seconds; over a long transaction, thirty.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import AsyncConnection

from ledger.appending.contention import LOCK_WAIT_MS
from ledger.errors import UnsafeServerError

CONNECTION: Final[dict[str, Any]] = {
    "connect_timeout": 5,
    # `appending/wire.py` prepares by itself: the driver would forget its own, and ours with them, after a ROLLBACK.
    "prepare_threshold": None,
    # How this side notices a server that is gone without a word …
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
SESSION: Final = {
    "application_name": "lakeproof appender",
    "synchronous_commit": "on",
    "TimeZone": "UTC",
    "lock_timeout": f"{LOCK_WAIT_MS}ms",
    "idle_in_transaction_session_timeout": "5s",
    "transaction_timeout": "30s",
    # Each statement is planned once, for the index made for it. Left to the statistics, which know nothing of a log
    # that is new or has grown since they were made, a look-up of 256 ids reads the whole log: 14 ms instead of 0.2.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",  # the look-up asks for the order of its index, which no other has
    "jit": "off",
    # … and how the server notices that we are (over a unix socket these have no effect, and are not needed).
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10s",
}


async def connect(dsn: str) -> AsyncConnection[Any]:
    """
    Open a session: autocommit, durable commits, bounded waits.

    A server without `full_page_writes` is taken: on storage that writes whole pages (ZFS) that is safe, and the server
    cannot tell; elsewhere its torn pages are found by checksums and by verifying. `fsync = off` is safe nowhere.

    Raises:
        UnsafeServerError: if the server does not wait for its disk (`fsync = off`), so that no COMMIT is durable.
        psycopg.Error: if the server cannot be reached, or refuses.
    """
    connection = await AsyncConnection.connect(dsn, autocommit=True, **CONNECTION)
    try:
        query = "SELECT set_config(name, setting, false) FROM unnest(%s::text[], %s::text[]) AS s (name, setting)"
        await connection.execute(query, (list(SESSION), list(SESSION.values())))
        (fsync,) = await (await connection.execute("SELECT current_setting('fsync')")).fetchone() or ("unknown",)
        check_fsync(fsync)
    except BaseException:
        await connection.close()
        raise
    return connection


def check_fsync(setting: str) -> None:
    """
    Check what the server says of its `fsync`; asked for each batch, since a server that runs can be told otherwise.

    Raises:
        UnsafeServerError: if it does not wait for its disk.
    """
    if setting != "on":
        raise UnsafeServerError(
            f"the server would lose what it has acknowledged (expected fsync = on, found {setting}): nothing was "
            "appended; set fsync = on and restart the server"
        )


def is_refusal(error: Exception) -> bool:
    """
    Tell whether `error` is a refusal of one statement, by the server or by psycopg: the session goes on, and if the
    statement was a COMMIT or stood before one, nothing was committed.

    A FATAL error is none: it may come behind a COMMIT that was carried out, in place of its answer.
    """
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is None:
        return not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.diag.severity_nonlocalized == "ERROR"


_TRANSIENT: Final = frozenset({"08", "25", "40", "53", "55", "57", "58"})


def is_lasting(error: Exception) -> bool:
    """
    Tell whether `error` is a refusal for what the statement asked, so that asking again would not help.

    Others speak of the server's state: connection, read-only, deadlock, disk full, locks, shutdown, input and output.
    """
    return isinstance(error, psycopg.Error) and is_refusal(error) and (error.sqlstate or "")[:2] not in _TRANSIENT


def in_brief(error: Exception) -> str:
    """
    Return what went wrong, without the details that a server adds: they may hold what the callers wrote.
    """
    return (isinstance(error, psycopg.Error) and error.diag.message_primary) or str(error)
