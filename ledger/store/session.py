# SPDX-License-Identifier: Apache-2.0
"""
Sessions on PostgreSQL: how the Appender and services open theirs, and what their errors mean.

Guarantee: no wait in a session is endless. A process that is stopped, or whose machine has vanished, loses the
Appender's session, and with it the heads it had locked, within about ten seconds; during a long transaction, within
thirty.

A service waits until an outage of its database is over, and logs meanwhile what is wrong. A server that fails over, is
restored from a backup or is provisioned anew refuses for a while what it normally accepts: it is read-only, or a table
or a right is missing. A client cannot tell that from a state that an operator must repair. Both are handled alike: log
an error, and try again, not often.

Some errors never pass and are no outage: a statement that the driver does not send or the server cannot parse, values
of a wrong type, a row that must not be there. They are faults of the program or of the data, and end the service, and
with it the process.
"""

from __future__ import annotations

import logging
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import AsyncConnection

from ledger.errors import UnsafeServerError

Connection: TypeAlias = AsyncConnection[Any]
"""A connection to PostgreSQL, in every package. It belongs to one event loop, and one task uses it at a time."""

LOCK_WAIT_MS: Final = 100

BACK_OFF_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses while the database, or something else that a loop needs, is unavailable; the last one repeats."""

CONNECTION: Final[dict[str, Any]] = {
    "connect_timeout": 5,
    # `store/wire.py` prepares statements itself: after a ROLLBACK the driver would drop its own, and ours with them.
    "prepare_threshold": None,
    # How this side notices a server that has vanished …
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
    # Each statement is planned once, for the index made for it. Statistics know nothing of a log that is new or has
    # grown since they were made. With them, a lookup of 256 ids reads the whole log: 14 ms instead of 0.2.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",  # the lookup needs the order of its index, which no other index has
    "jit": "off",
    # … and how the server notices that we have (over a Unix socket these have no effect, and are not needed).
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10s",
}

_WATCHED: Final = {name: value for name, value in CONNECTION.items() if name != "prepare_threshold"}
"""As for the Appender: a server that has vanished is noticed within seconds."""
_OUTAGES: Final = (
    "08",  # connection
    "0A000",  # a plan that a migration has outdated, or a server that is too old
    "25006",  # read-only transaction, or a standby that is not promoted
    "25P03",  # idle in a transaction for too long
    "25P04",
    "28",  # logins and passwords
    "3D000",  # no such database
    "3F000",  # no such schema
    "40",  # rolled back: deadlock, serialization
    "42501",  # no such right
    "42704",  # no such role
    "42703",  # no such column
    "42883",  # no such function
    "42P01",  # no such table
    "53",  # disk, memory, connections
    "55",  # locks
    "57",  # shut down, cancelled
    "58",  # input and output
)
"""States (SQLSTATE, PostgreSQL's appendix A), or the classes with which they begin, that can pass."""


async def connect(dsn: str) -> Connection:
    """
    Open a session: autocommit, durable commits, bounded waits.

    A server without `full_page_writes` is accepted: on storage that writes whole pages (ZFS) that is safe, and the
    server cannot tell. Elsewhere checksums and verification find torn pages. `fsync = off` is safe nowhere.

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
    Check the server's `fsync` setting. It is read for each batch, because it can be changed while the server runs.

    Raises:
        UnsafeServerError: if the server does not wait for its disk.
    """
    if setting != "on":
        raise UnsafeServerError(
            f"the server would lose what it has acknowledged (expected fsync = on, found {setting}): nothing was "
            "appended; set fsync = on and restart the server"
        )


def is_refusal(error: Exception) -> bool:
    """
    Return whether `error` is a refusal of one statement, by the server or by psycopg. Then the session can be used
    further, and if the statement was a COMMIT or stood before one, nothing was committed.

    A FATAL error is not a refusal: it may arrive after a COMMIT that was done, in place of its answer.
    """
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is None:
        return not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.diag.severity_nonlocalized == "ERROR"


_TRANSIENT: Final = frozenset({"08", "25", "40", "53", "55", "57", "58"})


def is_permanent(error: Exception) -> bool:
    """
    Return whether `error` refuses what the statement contained, so that trying again would not help.

    Other errors are about the server's state: connection, read-only, deadlock, disk full, locks, shutdown, input and
    output.
    """
    return isinstance(error, psycopg.Error) and is_refusal(error) and (error.sqlstate or "")[:2] not in _TRANSIENT


def brief_message(error: Exception) -> str:
    """
    Return what went wrong, without the details that a server adds: they may quote what callers wrote.
    """
    return (isinstance(error, psycopg.Error) and error.diag.message_primary) or str(error)


def is_programming_error(error: Exception) -> bool:
    """
    Return whether `error` is one of PostgreSQL or its driver that never passes, so that it must end the service.
    """
    if not isinstance(error, psycopg.Error) or isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return not (error.sqlstate or "").startswith(_OUTAGES)


async def connect_service(dsn: str, *, name: str) -> Connection:
    """
    Open the connection of a service, in autocommit mode, on which no wait for a vanished server is endless.

    Raises:
        psycopg.Error: if the server cannot be reached, or refuses.
    """
    return await AsyncConnection.connect(dsn, autocommit=True, application_name=name, **_WATCHED)


class Outage:
    """
    What keeps one service from its work, logged once as long as it stays the same. `trouble` is its text, empty if
    there is none.

    What an operator must repair, unless a failover is under way, is logged as an error. What passes is logged as a
    warning.
    """

    def __init__(self, service: str, log: logging.Logger) -> None:
        self.trouble = ""
        # Only the service that owns it changes it; others may read `trouble`, a text that is replaced as a whole.
        self._attempts = 0
        self._service = service
        self._log = log

    @property
    def pause_s(self) -> float:
        """How long to wait before the next attempt, longer after each in a row."""
        return back_off_s(max(self._attempts - 1, 0))

    def failed(self, error: Exception) -> None:
        """
        Log what is wrong after an attempt that raised `error`; raise `error` again if it is no outage.
        """
        if is_programming_error(error):
            raise error
        self._attempts += 1
        trouble = " ".join(brief_message(error).split()) or type(error).__name__
        if trouble != self.trouble:
            level = logging.ERROR if is_permanent(error) else logging.WARNING
            self._log.log(level, "%s: waiting, and trying again: %s", self._service, trouble)
        self.trouble = trouble

    def recovered(self) -> None:
        """Log that the outage is over, if there was one."""
        if self.trouble:
            self._log.info("%s: works again", self._service)
        self.trouble = ""
        self._attempts = 0


def back_off_s(failures: int) -> float:
    """
    Return how long to wait after so many failures in a row before this one.
    """
    return BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)]
