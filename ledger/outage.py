"""
What a service takes for an outage of its database: it waits until that is over, and says meanwhile what is wrong.

A server that fails over, is restored from a backup or provisioned anew refuses for a while what it takes otherwise: it
is read-only, or a table or a right is not there yet. From within that cannot be told from one that somebody has to
mend, and both are the same to do: say so, loudly, and ask again, not often.

What would never pass is none: a statement that the driver does not send or the server cannot parse, values of a wrong
type, a row that must not be there. That is a fault of ours or of the data, and ends the service, with it the process.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection

from ledger.session import CONNECTION, in_brief, is_lasting
from ledger.waiting import back_off_s

_WATCHED: Final = {name: value for name, value in CONNECTION.items() if name != "prepare_threshold"}
"""As the Appender's: a server that is gone without a word is noticed within seconds."""

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
"""States (SQLSTATE, PostgreSQL's appendix A), or the classes with which they begin, that the database may get over."""


def is_misuse(error: Exception) -> bool:
    """
    Tell whether `error` is one of PostgreSQL, or its driver, that would never pass: it is to end who has met it.
    """
    if not isinstance(error, psycopg.Error) or isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return not (error.sqlstate or "").startswith(_OUTAGES)


async def connect_service(dsn: str, *, name: str) -> AsyncConnection[Any]:
    """
    Open the connection of a service, in autocommit mode, on which no wait for a server that has vanished is for ever.

    Raises:
        psycopg.Error: if the server cannot be reached, or refuses.
    """
    return await AsyncConnection.connect(dsn, autocommit=True, application_name=name, **_WATCHED)


class Outage:
    """
    What keeps one service from its work, said once as long as it stays the same. `trouble` is empty if nothing does.

    What somebody has to mend, unless a failover is under way, is said as an error, and what passes as a warning.
    """

    def __init__(self, service: str, log: logging.Logger) -> None:
        self.trouble = ""
        self._attempts = 0
        self._service = service
        self._log = log

    @property
    def pause_s(self) -> float:
        """How long to wait before the next attempt, longer after each in a row."""
        return back_off_s(max(self._attempts - 1, 0))

    def goes_on(self, error: Exception) -> None:
        """
        Say what is wrong now, after an attempt that has raised `error`; that is raised again if it is no outage.
        """
        if is_misuse(error):
            raise error
        self._attempts += 1
        trouble = " ".join(in_brief(error).split()) or type(error).__name__
        if trouble != self.trouble:
            level = logging.ERROR if is_lasting(error) else logging.WARNING
            self._log.log(level, "%s: waiting, and trying again: %s", self._service, trouble)
        self.trouble = trouble

    def is_over(self) -> None:
        """Say that it is over, if there was one."""
        if self.trouble:
            self._log.info("%s: works again", self._service)
        self.trouble = ""
        self._attempts = 0
