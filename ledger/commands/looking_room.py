"""
What `show`, `tail` and `stats` do in the room of an installation.

The room's connection works as the auditor. Which parts of an entry still exist, and which actor a name means, is asked
as the log's tenant, since the auditor may see neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from ledger.commands.looking_text import entry_page
from ledger.commands.room import OpenRoom
from ledger.errors import LedgerError
from ledger.event import ACTOR_FORM
from ledger.export import as_reader
from ledger.looking.find import QUERIES, Found, Wanted, find_newest, follow
from ledger.looking.statistics import Statistics, read_statistics, with_parts
from ledger.read import Connection, Log, read_entry, read_head
from ledger.verify.rules import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which entries are to be shown: `Wanted`, but the actor may be called by name; the newest `number` of them."""

    type: str | None = None
    key: str | None = None
    actor: str | None = None
    after: datetime | None = None
    before: datetime | None = None
    from_index: int = 0
    number: int
    follow: bool


async def show_entries(
    open_room: OpenRoom,
    name: str,
    asked: Asked,
    *,
    say: Callable[[Found], None],
    progress: Progress = lambda _done, _of: None,
) -> None:
    """
    Say the newest entries that are asked for, oldest first; with `asked.follow`, go on as the log grows.

    Raises:
        LedgerError: if there is no such log, or nobody of that name in it.
    """
    async with open_room() as room:
        log = await room.find_log(name)
        wanted = Wanted(
            type=asked.type,
            key=asked.key,
            actors=None if asked.actor is None else await _actors(room.connection, log, asked.actor),
            after=asked.after,
            before=asked.before,
        )
        newest, size = await find_newest(
            room.connection, log, wanted, count_max=asked.number, from_index=asked.from_index, progress=progress
        )
        for found in newest:
            say(found)
        if asked.follow:
            async for found in follow(room.connection, log, wanted, from_index=max(size, asked.from_index)):
                say(found)


async def show_entry(open_room: OpenRoom, name: str, index: int) -> str:
    """
    Return everything about one entry.

    Raises:
        LedgerError: if there is no such log or entry; a BrokenError if the log should have it.
    """
    async with open_room() as room:
        log = await room.find_log(name)
        size = (await read_head(room.connection, log.log_id)).size
        if index >= size:
            raise LedgerError(f"log {log.origin}: expected an index from 0 to below its size {size}, found {index}")
        entry = await read_entry(room.connection, log.log_id, index)
        held: list[str] | None = None
        if log.reader is not None:
            async with as_reader(room.connection, log):
                place = {"log_id": log.log_id, "index": index}
                rows = await (await room.connection.execute(QUERIES["parts_at"], place)).fetchall()
                held = [row[0] for row in rows]
    return entry_page(entry, parts_held=held)


async def find_statistics(open_room: OpenRoom, name: str) -> Statistics:
    """
    Return the figures of a log.

    Raises:
        LedgerError: if there is no such log.
    """
    async with open_room() as room:
        log = await room.find_log(name)
        figures = await read_statistics(room.connection, log)
        if log.reader is None:
            return figures
        async with as_reader(room.connection, log):
            return await with_parts(room.connection, log, figures)


async def _actors(connection: Connection, log: Log, name: str) -> tuple[str, ...]:
    if ACTOR_FORM.fullmatch(name):
        return (name,)
    if log.reader is None:
        raise LedgerError(f"actor {name!r:.100}: expected 32 hex digits or 'system' in a log without a tenant")
    async with as_reader(connection, log):
        query = {"log_id": log.log_id, "identity": name}
        rows = await (await connection.execute(QUERIES["actors_of_identity"], query)).fetchall()
    if not rows:
        raise LedgerError(f"actor {name!r:.100}: expected 32 hex digits, 'system', or an identity known to the log")
    return tuple(str(row[0]) for row in rows)
