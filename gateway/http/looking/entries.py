# SPDX-License-Identifier: Apache-2.0
"""
Entries of a log, page by page, for one caller.

A request has the database look through `SCANNED_MAX` entries at most, and examines `EXAMINED_MAX` of those that match:
a page may be short, or empty, with more behind its cursor. Without a filter, or with one on time alone, it is as full
as the caller may see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.errors import BadRequestError
from gateway.http.looking.query import INDEX_MAX, Query
from gateway.http.looking.reading import Looking
from gateway.http.looking.sight import Sight
from ledger.format import canonical
from ledger.format.entry import Entry, parse_entry
from ledger.format.event import ACTOR_FORM
from ledger.proving.search import (
    QUERIES,
    EntryFilter,
    Order,
    find_between,
    find_bounds,
)
from ledger.store.read import Log, read_head
from ledger.store.session import Connection

SCANNED_MAX: Final = 20_000
EXAMINED_MAX: Final = 500
"""So many entries that match are parsed, and judged, for one page."""
FETCHED_MAX: Final = 100
"""So many are fetched at a time: at most 6.4 MB."""
PAGE_BYTES_MAX: Final = 1024 * 1024
"""Once the entries of a page have so many bytes, it ends."""

FILTERS: Final = ("type", "key", "actor", "after", "before", "from")
"""The parameters that say which entries are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedEntries:
    """Which entries are asked for: those that match, from an index on, and with `as_of` up to that one."""

    selection: EntryFilter
    from_index: int
    as_of: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """
    Entries that the caller may see, in the order asked for.

    `at` is where the next page begins: the index behind its first entry if the newest come first, else that entry's.
    `is_last` says that nothing is left there.
    """

    entries: Sequence[Entry]
    at: int
    is_last: bool


async def asked_of(looking: Looking, query: Query) -> AskedEntries:
    """
    Return which entries the parameters of a request ask for.

    An actor is given as the log has it. One that is given by name is looked up, which takes the right to know who is
    who (`inputs.load`): without it nobody has that name.

    Raises:
        BadRequestError: if one is none; names it.
    """
    actor = query.text("actor")
    return AskedEntries(
        selection=EntryFilter(
            type=query.text("type"),
            key=query.text("key"),
            actors=None if actor is None else await _actors(looking, actor),
            after=query.time("after"),
            before=query.time("before"),
        ),
        from_index=query.number("from", least=0, most=INDEX_MAX) or 0,
    )


async def _actors(looking: Looking, name: str) -> tuple[str, ...]:
    if ACTOR_FORM.fullmatch(name):
        return (name,)
    rows: Sequence[Sequence[Any]] = ()
    if await looking.sight.reads_inputs():
        bounds = {"log_id": looking.caller.log_id, "identity": name}
        async with looking.reading() as connection:
            rows = await (await connection.execute(QUERIES["actors_of_identity"], bounds)).fetchall()
    if not rows:
        raise BadRequestError(
            "expected 32 hex digits, 'system', or an identity that the log knows and you may ask for", field="actor"
        )
    return tuple(str(row[0]) for row in rows)


async def read_page(
    connection: Connection, log: Log, sight: Sight, asked: AskedEntries, *, order: Order, limit: int, at: int | None
) -> Page:
    """
    Return one page; `at` is where the one before ended (None: there was none).

    Raises:
        UnavailableError: if access could not be judged.
        LedgerError: if what is stored is corrupt.
    """
    head = await read_head(connection, log.log_id)
    # By rules that are not older than what is shown.
    sight, size = await sight.as_new_as(head.control_index), head.size
    if asked.as_of is not None:
        size = min(size, asked.as_of + 1)
    from_index = min(asked.from_index, size)
    first, end = await find_bounds(connection, log, asked.selection, from_index=from_index, size=size)
    if order is Order.NEWEST:
        end = end if at is None else max(first, min(end, at))
        first_scanned, end_scanned = max(first, end - SCANNED_MAX), end
    else:
        first = first if at is None else min(max(first, at), end)
        first_scanned, end_scanned = first, min(end, first + SCANNED_MAX)
    page: list[Entry] = []
    examined, size_bytes = 0, 0
    low, high = first_scanned, end_scanned
    while low < high and examined < EXAMINED_MAX:
        found = await find_between(connection, log, asked.selection, low, high, order=order, limit=FETCHED_MAX)
        parsed = [parse_entry(each.entry) for each in found]
        await sight.prepare(entry.key for entry in parsed)
        for each, entry in zip(found, parsed, strict=True):
            examined += 1
            low, high = (low, each.index) if order is Order.NEWEST else (each.index + 1, high)
            if await sight.sees_entry(entry.type, entry.key):
                page.append(entry)
                size_bytes += len(each.entry)
                if len(page) == limit or size_bytes >= PAGE_BYTES_MAX:
                    return _page(page, order, low, high, first=first, end=end)
        if len(found) < FETCHED_MAX:
            low, high = (low, low) if order is Order.NEWEST else (high, high)
    return _page(page, order, low, high, first=first, end=end)


def _page(page: Sequence[Entry], order: Order, low: int, high: int, *, first: int, end: int) -> Page:
    if order is Order.NEWEST:
        return Page(entries=page, at=high, is_last=high <= first)
    return Page(entries=page, at=low, is_last=low >= end)


def entry_shown(entry: Entry) -> dict[str, Any]:
    """
    Return an entry as JSON: what it says, without what only a proof needs.
    """
    return {
        "index": entry.index,
        "type": entry.type,
        "version": entry.version,
        "key": entry.key,
        "actor": entry.actor,
        "occurred_at": canonical.format_time(entry.occurred_at),
        "recorded_at": canonical.format_time(entry.recorded_at),
        "group": {
            "id": str(entry.group_id),
            "branch": entry.branch,
            "of": entry.of,
            "position": entry.position,
        },
        "parts": sorted(entry.parts),
        "data": entry.data,
    }
