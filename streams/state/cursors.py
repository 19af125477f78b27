# SPDX-License-Identifier: Apache-2.0
"""
Cursors in PostgreSQL: the position of each handler in each log, and the next messages from there.

Cursor, outbox and dead letters move in one transaction, which also releases the lease; whatever is rolled back there is
done again from the same entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.entry import parse_entry
from ledger.format.events import EVENTS, from_data
from ledger.store.queries import load_queries
from ledger.store.read import Log, read_entries
from ledger.store.session import Connection
from projections.entries import LogEntry
from streams.handler import EVERY_TYPE, Handler, Message
from streams.state.leases import LEASE_S, Lease, LeaseLostError

LOOK_ENTRIES: Final = 1_000
"""Entries searched for something to handle before a lease is taken."""
WINDOW_ENTRIES: Final = 50_000
"""Entries searched at a time under a lease: a handler of rare types passes a million in twenty steps."""

_QUERIES: Final = load_queries("streams", "cursors.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerProgress:
    """How far a handler is in a log; `failures` in a row delay its next batch."""

    handler: str
    log: Log
    next_index: int
    size: int
    handled: int
    failures: int
    dead_letters: int

    @property
    def lag_entries(self) -> int:
        """Entries in the log that the handler has not passed yet."""
        return self.size - self.next_index


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The next entry of a handler in a log of `size` entries."""

    log: Log
    next_index: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryBatch:
    """The next messages from `place` on: all that the entries before `to_index` lead to."""

    place: Position
    to_index: int
    messages: Sequence[Message]

    @property
    def following(self) -> Position | None:
        """The position after this batch; None at the end of the log as of when it was read."""
        place = self.place
        return None if self.to_index >= place.size else replace(place, next_index=self.to_index)


async def read_progress(
    connection: Connection, handlers: Iterable[str], *, log_id: int | None = None
) -> list[HandlerProgress]:
    """
    Return how far each of `handlers` is in every tenant's log that the connection's role may see, or in one of them.
    """
    rows = await connection.execute(_QUERIES["progress"], {"handlers": list(handlers), "log_id": log_id})
    return [
        HandlerProgress(
            handler=handler,
            log=Log(log_id=log_id, origin=origin, tenant=tenant, reader=reader),
            size=size,
            next_index=next_index,
            handled=handled,
            failures=failures,
            dead_letters=dead,
        )
        for handler, log_id, origin, tenant, reader, size, next_index, handled, failures, dead in await rows.fetchall()
    ]


async def claim(
    connection: Connection, handlers: Sequence[Handler], *, log_id: int | None = None, lease_s: float = LEASE_S
) -> Lease | None:
    """
    Lease the handler and log (or only `log_id`) that has waited longest; return None if there is nothing to do.
    """
    parameters = {**_selection(handlers, log_id), "lease_s": lease_s}
    row = await (await connection.execute(_QUERIES["claim"], parameters)).fetchone()
    return None if row is None else Lease(duty=row[0], log_id=row[1], lease=row[2], failures=row[3])


async def refresh(connection: Connection, handlers: Sequence[Handler], *, log_id: int | None = None) -> None:
    """
    Register new handlers and logs; move cursors to the ends of their logs where nothing has to be handled.
    """
    selection = _selection(handlers, log_id)
    async with connection.transaction():
        await connection.execute(_QUERIES["ensure_leases"], selection)
        await connection.execute(_QUERIES["ensure_cursors"], selection)
        await connection.execute(_QUERIES["pass_over"], selection)


async def read_position(connection: Connection, handler: str, log_id: int) -> Position:
    """
    Return the position of a handler in a log.

    Raises:
        LeaseLostError: if the log or the handler's cursor is gone.
    """
    row = await (await connection.execute(_QUERIES["place"], {"handler": handler, "log_id": log_id})).fetchone()
    if row is None:
        raise LeaseLostError(f"handler {handler} on log {log_id}: expected a cursor, found none")
    at, size, origin, tenant, reader = row
    return Position(log=Log(log_id=log_id, origin=origin, tenant=tenant, reader=reader), next_index=at, size=size)


async def read_batch(connection: Connection, handler: Handler, place: Position, *, batch_max: int) -> EntryBatch:
    """
    Return the next messages for `handler`, at most `batch_max`; perhaps none, in a long range of other types.

    An unknown control entry stops no handler: its event is None, like that of any unknown type.

    Raises:
        BrokenError: if an entry is missing, is not an entry, or is of a known event that lacks a member.
    """
    log, at = place.log, place.next_index
    if handler.types == EVERY_TYPE:
        end = min(place.size, at + batch_max)
        entries = list(enumerate(await read_entries(connection, log.log_id, from_index=at, to_index=end), start=at))
        end = at + len(entries)
    else:
        end = min(place.size, at + WINDOW_ENTRIES)
        bounds = {"log_id": log.log_id, "from_index": at, "to_index": end, "limit": batch_max}
        query = _QUERIES["entries_of_types"]
        rows = await connection.execute(query, {**bounds, "types": sorted(handler.types)}, binary=True)
        found = await rows.fetchall()
        entries = [(index, bytes(entry)) for index, entry in found]
        if len(found) == batch_max:
            end = found[-1][0] + 1  # there may be more behind it
    messages = [read_message(log, index, entry) for index, entry in entries]
    return EntryBatch(place=place, to_index=end, messages=messages)


def read_message(log: Log, index: int, data: bytes) -> Message:
    """
    Return the entry at `index` of `log` as a message, without payload parts: the streams' role cannot see them.

    Raises:
        BrokenError: if `data` is not an entry, or a known event lacks a member.
    """
    try:
        entry = parse_entry(data)
        kind = EVENTS.get((entry.type, entry.version))
        event = None if kind is None else from_data(kind, entry.data)
    except FormatError as error:
        raise BrokenError(
            Fault.ENTRY, where=f"log {log.origin}", expected="an entry", found=error, index=index
        ) from error
    return Message(id=f"{log.origin}/{entry.index}", log=log, value=LogEntry(entry=entry, event=event, parts={}))


async def move(connection: Connection, handler: str, batch: EntryBatch) -> None:
    """
    Store that `batch` was handled, in the open transaction that stores its effects.

    Raises:
        LeaseLostError: if the cursor is not where the batch began; the transaction must be undone.
    """
    place = batch.place
    moved = {
        "handler": handler,
        "log_id": place.log.log_id,
        "from_index": place.next_index,
        "to_index": batch.to_index,
        "handled": len(batch.messages),
    }
    if await (await connection.execute(_QUERIES["move"], moved)).fetchone() is None:
        raise LeaseLostError(f"handler {handler} on {place.log.origin}: the cursor is no longer at {place.next_index}")


def _selection(handlers: Sequence[Handler], log_id: int | None) -> dict[str, Any]:
    return {
        "handlers": [handler.name for handler in handlers],
        "types": json.dumps({handler.name: sorted(handler.types) for handler in handlers}),
        "log_id": log_id,
        "look_entries": LOOK_ENTRIES,
    }
