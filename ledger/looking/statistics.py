"""
What a log holds, in figures: entries and bytes by type, groups, checkpoints, how fast it grows.

All of it is counted from the rows in one snapshot, so the figures agree with each other. It reads the whole log once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from ledger.entry import parse_entry
from ledger.looking.find import QUERIES, first_index_at
from ledger.read import Connection, Log, read_entries, read_head


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeFigures:
    """Of one type of entry: how many, how many bytes, and between which indices they lie."""

    type: str
    entries: int
    size_bytes: int
    first_index: int
    last_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """
    The figures of one log at `size`.

    `first_recorded_at` and `last_recorded_at` are None while it is empty. `last_hour` and `last_day` count the entries
    recorded in the hour and the day before `at`, the database's time. `parts_held` counts the payload parts that still
    exist, None if that is not known to who asks.
    """

    origin: str
    size: int
    groups: int
    size_bytes: int
    control_index: int
    checkpoints: int
    signed_size: int
    first_recorded_at: datetime | None
    last_recorded_at: datetime | None
    at: datetime
    last_hour: int
    last_day: int
    types: tuple[TypeFigures, ...]
    parts_held: int | None = None
    parts_size_bytes: int = 0


async def read_statistics(connection: Connection, log: Log) -> Statistics:
    """
    Return the figures of a log; `connection` works as the auditor, in autocommit mode.

    Raises:
        NoSuchLogError: if this role can see no such log.
        FormatError, BrokenError: if an entry whose time is asked for is corrupt, or missing.
    """
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        head = await read_head(connection, log.log_id)
        bounds = {"log_id": log.log_id, "size": head.size}
        rows = await (await connection.execute(QUERIES["entries_by_type"], bounds)).fetchall()
        cursor = await connection.execute(QUERIES["checkpoints_signed"], bounds)
        ((checkpoints, signed_size, at),) = await cursor.fetchall()
        last_hour, last_day = [
            head.size - await first_index_at(connection, log.log_id, at - age, size=head.size)
            for age in (timedelta(hours=1), timedelta(days=1))
        ]
        first = await read_entries(connection, log.log_id, from_index=0, to_index=min(1, head.size))
    types = tuple(
        TypeFigures(type=name, entries=entries, size_bytes=size_bytes, first_index=low, last_index=high)
        for name, entries, _, size_bytes, low, high in rows
    )
    return Statistics(
        origin=log.origin,
        size=head.size,
        groups=sum(row[2] for row in rows),
        size_bytes=sum(figures.size_bytes for figures in types),
        control_index=head.control_index,
        checkpoints=checkpoints,
        signed_size=signed_size,
        first_recorded_at=parse_entry(first[0]).recorded_at if first else None,
        last_recorded_at=head.recorded_at and head.recorded_at.astimezone(UTC),
        at=at,
        last_hour=last_hour,
        last_day=last_day,
        types=types,
    )


async def with_parts(connection: Connection, log: Log, figures: Statistics) -> Statistics:
    """
    Return the figures with how many payload parts still exist; `connection` works as a role that may see parts.
    """
    cursor = await connection.execute(QUERIES["parts_held"], {"log_id": log.log_id, "size": figures.size})
    ((parts, size_bytes),) = await cursor.fetchall()
    return replace(figures, parts_held=parts, parts_size_bytes=size_bytes)
