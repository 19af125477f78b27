"""
What the server answers to the locking of heads: where each log ends, the time behind the lock, and whether it takes.

Answered anew for every batch, so that a connection which has been open for long learns that a log is not confirmed any
more, or that the server was told to wait for its disk no longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ledger.binary import Value, parse_int, parse_timestamptz
from ledger.errors import FormatError
from ledger.merkle import Frontier
from ledger.sequence import Head

_TRUE: Final = b"\x01"
"""The boolean in PostgreSQL's binary form; NULL, where there is no confirmation, is not true either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """A head that is locked; `fsync` is that setting of the server."""

    log_id: int
    head: Head
    clock: datetime
    is_confirmed: bool
    fsync: str


def parse_locked(row: Sequence[Value]) -> Locked:
    """
    Return what a row of `lock_heads` or `lock_head` says.

    Raises:
        FormatError: if it is not of its form; the log is corrupt.
    """
    log_id, size, last, frontier, control_index, recorded_at, clock, confirmed, fsync = row
    head = Head(
        size=parse_int(present(size)),
        last=present(last),
        frontier=Frontier.parse(parse_int(present(size)), present(frontier)),
        control_index=parse_int(present(control_index)),
        recorded_at=None if recorded_at is None else parse_timestamptz(recorded_at),
    )
    return Locked(
        log_id=parse_int(present(log_id)),
        head=head,
        clock=parse_timestamptz(present(clock)),
        is_confirmed=confirmed == _TRUE,
        fsync=present(fsync).decode(errors="replace"),
    )


def present(value: Value) -> bytes:
    """
    Return a value that is not NULL.

    Raises:
        FormatError: if it is.
    """
    if value is None:
        raise FormatError("ledger", expected="a value", found="NULL")
    return value
