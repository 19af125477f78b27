"""
What a failed transaction of the Appender says of the groups it held: whether they are why, and what a caller is told.

Three kinds of errors. The server or the wire is in no state to go on: the same groups are tried again. What was asked
for was refused, or is corrupt: each group goes alone, and the one that fails alone is refused. What nobody has foreseen
is treated as if a group had caused it, so that one group ends nobody else's appends.
"""

from __future__ import annotations

import logging
from typing import Final
from uuid import UUID

import psycopg

from ledger.errors import LedgerError
from ledger.session import in_brief, is_lasting

_FORESEEN: Final = (psycopg.Error, OSError, LedgerError)

_log = logging.getLogger(__name__)


def is_foreseen(error: Exception) -> bool:
    """
    Tell whether `error` is of the kinds that a transaction fails with.
    """
    return isinstance(error, _FORESEEN)


def is_of_a_group(error: Exception) -> bool:
    """
    Tell whether `error` is taken to be about what the transaction held, so that trying that again would not help.
    """
    return isinstance(error, LedgerError) or is_lasting(error) or not is_foreseen(error)


def as_ours(error: Exception, *, group_id: UUID) -> LedgerError:
    """
    Return what the caller of the group that has caused `error` is told.

    What nobody has foreseen goes to the log of this process: its text may quote the group.
    """
    if isinstance(error, LedgerError):
        return error
    if is_foreseen(error):
        return LedgerError(f"the database refused it: {in_brief(error)}")
    _log.error("appending broke on group %s", group_id, exc_info=error)
    return LedgerError(f"appending broke on it ({type(error).__name__}): the log says where")
