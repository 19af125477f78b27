# SPDX-License-Identifier: Apache-2.0
"""
Pages of a tenant's log: its decisions with their payload parts, and the metadata files that outcomes name.

Guarantee: the bytes of every entry hash to the leaf that was stored with it, and every payload part matches the
commitment in its entry; otherwise reading stops with `BrokenError`. A page has whole groups and depends on nothing
before it: pages may be read in any order, and by other processes (`page_process.py`). Entries of other types are not
fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from gateway.catalogs.judged_metadata import JUDGED_ON, parse_judged
from gateway.replaying.recorded import (
    INPUTS,
    QUERIES,
    VERDICTS,
    Decision,
    File,
    Lend,
    file_of,
    parse_decision,
    parse_stored,
)
from ledger.errors import BrokenError, Fault
from ledger.format.event import Part, commitment
from ledger.format.events import CommitDecided, CommitDecision, CommitSettled
from ledger.format.sealing import KeyOpener, Opener, StoredPart
from ledger.store.session import Connection

PAGE_ENTRIES: Final = 4_000
"""Indices read at a time: usually some MB."""
STATEMENT_S: Final = 60
"""For one statement: its page is sent while the one before is worked on, which takes long on a busy machine."""
FEW_ENTRIES: Final = 500
READ_AT_ONCE_BYTES: Final = 256 * 1024
"""
Of an answer of the server, if it has more than a few entries. The client library reads 16 KiB at a time, and the event
loop waits for each. It reads as much as the widest row that it has seen, since it keeps the memory.
"""


class Bounds(NamedTuple):
    """
    The entries from `first` up to `end` that a page is asked for. It has the groups that begin there: only the first
    page begins within a group, if it has to, and only the last one ends with what is left of its last group.
    """

    first: int
    end: int
    is_first: bool
    is_last: bool


class Settled(NamedTuple):
    """An outcome that names the metadata file of a target."""

    key: str
    file: File


class Page(NamedTuple):
    """Decisions and outcomes in the order of the log, and the index up to which they are all there."""

    items: list[Decision | Settled]
    end: int


class Wanted(NamedTuple):
    """What is read of a log: `parts` of all decisions; `with_files` says whether their metadata files are looked up."""

    log_id: int
    parts: tuple[str, ...]
    with_files: bool

    @property
    def of_all(self) -> list[str]:
        """The payload parts that are read of every decision."""
        return sorted({*self.parts, JUDGED_ON} if self.with_files else self.parts)

    @property
    def of_late(self) -> list[str]:
        """Those that are read of a few: verdicts on what was not approved, the request of what was not made."""
        return sorted({VERDICTS, INPUTS} - {*self.parts} if self.with_files else {VERDICTS})

    @property
    def types(self) -> list[str]:
        """The types of entries that are read."""
        return [CommitDecided.TYPE, *([CommitSettled.TYPE] if self.with_files else [])]


Rows: TypeAlias = tuple[list[Any], list[Any], int]
"""Stored entries, stored payload parts, and the index behind the last entry."""


class PageReader:
    """Reads pages of one log. What it is asked for while it reads another page, it does beside that."""

    def __init__(self, lend: Lend, wanted: Wanted, opener: Opener) -> None:
        self._lend = lend
        self._opener = opener
        self._log_id = wanted.log_id
        self._with_files = wanted.with_files
        self._types, self._parts, self._late_parts = wanted.types, wanted.of_all, wanted.of_late

    async def read(self, bounds: Bounds) -> Page:
        """
        Return a page.

        Raises:
            BrokenError: if an entry or a payload part is corrupt.
        """
        return await self.page_of(await self.fetch(bounds))

    async def fetch(self, bounds: Bounds) -> Rows:
        """
        Return what is stored of a page.

        Raises:
            BrokenError: if an entry at its bounds is corrupt.
        """
        async with self._lend() as connection:
            if bounds.end - bounds.first > FEW_ENTRIES:
                await rows_of(connection, "wide_row", wide_bytes=READ_AT_ONCE_BYTES)
            first, end = await self._whole_groups(connection, bounds)
            of_page = {"log_id": self._log_id, "from_index": first, "to_index": end}
            entries = await rows_of(connection, "entries_of_types", types=self._types, **of_page)
            if bounds.is_last and entries and end < (group_end := _group_end(*entries[-1])):
                rest = {**of_page, "from_index": end, "to_index": group_end}
                entries += await rows_of(connection, "entries_of_types", types=self._types, **rest)
                end = group_end
            parts: list[Any] = []
            if self._parts and entries:
                of_page = {**of_page, "to_index": end}
                parts = await rows_of(connection, "parts_of_names", names=self._parts, **of_page)
        return entries, parts, end

    async def page_of(self, rows: Rows) -> Page:
        """
        Return the page of what is stored of it.

        Raises:
            BrokenError: if an entry or a payload part is corrupt.
        """
        entries, parts, end = rows
        items, by_index = self._parsed(entries)
        self._open(parts, by_index)
        if self._with_files:
            for decision in by_index.values():
                if (payload := decision.parts.get(JUDGED_ON)) is not None:
                    _set_judged(decision, payload)
        late = [index for index, decision in by_index.items() if self._is_late(decision)]
        if late:
            async with self._lend() as connection:
                of_late = {"log_id": self._log_id, "indices": late, "names": self._late_parts}
                self._open(await rows_of(connection, "parts_of_entries", **of_late), by_index)
        return Page(items, end)

    async def _whole_groups(self, connection: Connection, bounds: Bounds) -> tuple[int, int]:
        """Return the bounds where groups begin."""
        first, end = bounds.first, bounds.end
        inner = [*([] if bounds.is_first else [first]), *([] if bounds.is_last else [end])]
        if inner:
            begins = {
                index: index - parse_stored(index, entry, leaf)["group"]["position"]
                for index, entry, leaf in await rows_of(connection, "entries_at", log_id=self._log_id, indices=inner)
            }
            first, end = begins.get(first, first), begins.get(end, end)
        return first, max(first, end)

    def _parsed(self, entries: Iterable[Any]) -> tuple[list[Decision | Settled], dict[int, Decision]]:
        """Return what a page has, its decisions with the outcome in their own group, and these by their index."""
        items: list[Decision | Settled] = []
        by_index: dict[int, Decision] = {}
        of_group: dict[str, Decision] = {}
        group_id = ""
        for index, entry, leaf in entries:
            members = parse_stored(index, entry, leaf)
            event = members["event"]
            if event["type"] == CommitDecided.TYPE:
                decision = parse_decision(index, leaf, members)
                if decision.group_id != group_id:
                    group_id, of_group = decision.group_id, {}
                of_group[decision.key] = by_index[index] = decision
                items.append(decision)
            elif (file := file_of(members)) is not None:
                if members["group"]["id"] == group_id and (of := of_group.get(event["key"])) is not None:
                    of.made = file
                items.append(Settled(event["key"], file))
        return items, by_index

    def _open(self, parts: Iterable[Any], by_index: Mapping[int, Decision]) -> None:
        """Add stored payload parts to their decisions."""
        opener = self._opener.for_page() if isinstance(self._opener, KeyOpener) else self._opener
        for row in parts:
            if (of := by_index.get(row[0])) is not None and (part := opener.open(StoredPart(*row))) is not None:
                of.parts[part.name] = _checked(of, part)

    def _is_late(self, decision: Decision) -> bool:
        """
        Whether parts of a decision are needed that others do not need: the verdicts on what was not approved, the
        request that was not carried out.
        """
        if decision.decision is CommitDecision.APPROVED:
            return self._with_files and decision.made is None
        return decision.decision is not CommitDecision.CONFLICTED


async def rows_of(connection: Connection, query: str, /, **values: object) -> list[Any]:
    """Return the rows of a query of `decisions.sql`."""
    return await (await connection.execute(QUERIES[query], values, binary=True)).fetchall()


def _group_end(index: int, entry: bytes, leaf: bytes) -> int:
    group = parse_stored(index, entry, leaf)["group"]
    return int(index - group["position"] + group["of"])


def _set_judged(decision: Decision, payload: bytes) -> None:
    """Set what a decision of a foreign catalog was judged on: its table, or the file that was to be registered."""
    judged = parse_judged(payload)
    file = File(judged.location, judged.sha256, judged.of)
    if decision.base_location is None:
        decision.made = file
    else:
        decision.base = file


def _checked(decision: Decision, part: Part) -> bytes:
    """
    Return the payload of a part.

    Raises:
        BrokenError: (`Fault.PART`) if it does not match the commitment in the entry.
    """
    found = commitment(salt=part.salt, payload=part.payload).hex()
    expected = decision.commitments.get(part.name)
    if found != expected:
        where, says = f"ledger.parts {part.name}", expected or "no part of this name"
        raise BrokenError(Fault.PART, where=where, expected=says, found=found, index=decision.index)
    return part.payload
