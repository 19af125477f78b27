# SPDX-License-Identifier: Apache-2.0
"""
Recorded decisions in the order of a tenant's log, each with the metadata that it was judged on, as the log names it.

Pages are read by this process, and by another one beside it if there is one (`page_process.py`): each takes the next
page when it has time. Who has read which does not show in what is yielded. Where the outcomes before the first page
are, the read model of commits tells as far as it is; what they say is read from the log.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from gateway.mutations import RENAMES_FROM, RENAMES_TO
from gateway.replaying.page_process import PageProcess
from gateway.replaying.pages import PAGE_ENTRIES, Bounds, Page, PageReader, Rows, Settled, Wanted, rows_of
from gateway.replaying.recorded import Decision, File, Lend, file_of, parse_stored
from ledger.format.events import CommitSettled
from ledger.format.sealing import Opener

SEARCH_ENTRIES: Final = 50_000
"""Indices searched at a time for the outcomes before the first page."""
OUTCOMES_KEPT: Final = 8
"""Of each target, the newest: a decision may have been judged on a state that had just been changed."""
PAGES_AHEAD: Final = 5
"""Pages in memory, read or under way, from the one that is worked on."""
ASKED_AHEAD: Final = 2
"""Pages that the other process is asked for: it has the next one when it is done with one."""

_log = logging.getLogger(__name__)


class Files:
    """Which metadata files the outcomes in a log name, the newest of each target. Belongs to one replay."""

    def __init__(self) -> None:
        self._newest: dict[str, dict[str, File]] = {}
        """By target and location, the newest last."""

    def add(self, key: str, file: File) -> None:
        """Add the file of a newer outcome."""
        files = self._newest.setdefault(key, {})
        files.pop(file.location, None)
        files[file.location] = file
        if len(files) > OUTCOMES_KEPT:
            del files[next(iter(files))]

    def add_older(self, key: str, file: File) -> None:
        """Add the file of an outcome that is older than all that are known of its target."""
        files = self._newest.setdefault(key, {})
        if len(files) < OUTCOMES_KEPT and file.location not in files:
            self._newest[key] = {file.location: file, **files}

    def takes_older(self, key: str) -> bool:
        """Return whether fewer files of a target are known than are kept."""
        return len(self._newest.get(key, {})) < OUTCOMES_KEPT

    def find(self, key: str, location: str) -> File | None:
        """Return the file at a location, if an outcome of the target names it."""
        return self._newest.get(key, {}).get(location)


class DecisionReader:
    """
    Reads the decisions of one log from entry `first` on. `with_files` says whether their metadata files are looked up,
    too; `parts` names the payload parts that are read of all. Of those that were not approved the verdicts are read,
    and with files also the inputs of those that were not made. One task uses it at a time.
    """

    def __init__(
        self,
        lend: Lend,
        log_id: int,
        *,
        opener: Opener,
        parts: Collection[str],
        with_files: bool,
        first: int,
        page_entries: int = PAGE_ENTRIES,
        beside: PageProcess | None = None,
    ) -> None:
        self._lend = lend
        self._page_entries = page_entries
        self._log_id = log_id
        self._wanted = Wanted(log_id, tuple(parts), with_files)
        self._reader = PageReader(lend, self._wanted, opener)
        self._beside = beside
        self._with_files = with_files
        self._first = first
        self._files = Files()
        self._searched: set[str] = set()
        """The targets whose outcomes before the first page were searched."""

    async def pages(self, first: int, end: int) -> AsyncIterator[tuple[list[Decision], int]]:
        """
        Yield the decisions of entries `first` … `end` - 1 in order, and the index up to which they are all there.

        The next pages are fetched while one is worked on.

        Raises:
            BrokenError: if an entry or a payload part is corrupt.
        """
        if self._beside is not None:
            self._beside.want(self._wanted)
        reading = _Reading(self._reader, self._beside, first, end, self._page_entries)
        try:
            for number in range(reading.count):
                page = await reading.page(number)
                yield await self._linked(page), page.end
        finally:
            await reading.stop()

    async def _linked(self, page: Page) -> list[Decision]:
        """Return the decisions of the next page, with the files that were known when each was recorded."""
        if not self._with_files:
            return [item for item in page.items if isinstance(item, Decision)]
        decisions: list[Decision] = []
        for item in page.items:
            if isinstance(item, Settled):
                self._files.add(item.key, item.file)
            else:
                decisions.append(item)
                if item.base is None and item.base_location is not None:
                    item.base = self._files.find(item.key, item.base_location)
        wanted = [
            (decision, location)
            for decision in decisions
            if decision.base is None and (location := decision.base_location) is not None
        ]
        if wanted:
            await self._find_older(wanted)
        for before, decision in itertools.pairwise(decisions):
            # Both ends of a rename are judged on the table under its old name, which is recorded first.
            is_rename = decision.operation in RENAMES_TO and before.operation in RENAMES_FROM
            if is_rename and decision.group_id == before.group_id:
                decision.base = before.base
        return decisions

    async def _find_older(self, wanted: Sequence[tuple[Decision, str]]) -> None:
        """Search the outcomes before the replay's first entry for the files that decisions were judged on."""
        unsearched = {decision.key for decision, _ in wanted} - self._searched
        self._searched |= unsearched
        older = Files()  # apart: the outcomes of the page itself may be all that is kept of a target
        if unsearched and self._first > 0:
            async with self._lend() as connection:
                of_keys = {"log_id": self._log_id, "to_index": self._first, "keys": sorted(unsearched)}
                rows = await rows_of(connection, "last_outcomes_of_keys", each_max=OUTCOMES_KEPT, **of_keys)
                # What the read model has not come to is searched entry by entry: mostly nothing, or a few of them.
                projected, end = min(rows[0][0] or 0, self._first), self._first
                while end > projected and (missing := self._missing(wanted, unsearched, older)):
                    start = max(projected, end - SEARCH_ENTRIES)
                    bounds = {"log_id": self._log_id, "from_index": start, "to_index": end, "keys": missing}
                    self._add_older(await rows_of(connection, "outcomes_before", **bounds), older)
                    end = start
            self._add_older((row for _, *row in rows if row[0] is not None and row[0] < projected), older)
        for decision, location in wanted:
            decision.base = older.find(decision.key, location) or self._files.find(decision.key, location)

    def _missing(self, wanted: Sequence[tuple[Decision, str]], keys: Collection[str], older: Files) -> list[str]:
        """Return those keys of which a file is wanted that is not known, though older ones may be."""
        return sorted(
            {
                decision.key
                for decision, at in wanted
                if decision.key in keys and older.find(decision.key, at) is None and older.takes_older(decision.key)
            }
        )

    def _add_older(self, rows: Iterable[Any], older: Files) -> None:
        """Add the files of outcomes, the newest first, to those that are `older` than the first page, and to all."""
        for index, entry, leaf in rows:
            event = (members := parse_stored(index, entry, leaf))["event"]
            if event["type"] == CommitSettled.TYPE and (file := file_of(members)) is not None:
                older.add_older(event["key"], file)
                self._files.add_older(event["key"], file)


class _Reading:
    """The pages of a range while they are read: each is read once, by this process or the one `beside` it."""

    def __init__(self, reader: PageReader, beside: PageProcess | None, first: int, end: int, page_entries: int) -> None:
        self._reader = reader
        self._beside = beside
        self._starts = range(first, end, page_entries)
        self._end = end
        self.count = len(self._starts)
        self._unread = 0
        """The first page that nobody was asked for."""
        self._returned: list[int] = []
        """Those before it that the other process has not read."""
        self._asked: dict[asyncio.Task[Page | None], int] = {}
        self._own: tuple[int, asyncio.Task[Rows]] | None = None
        self._ready: dict[int, Page] = {}

    async def page(self, number: int) -> Page:
        """
        Return a page; those before it must have been asked for.

        Raises:
            BrokenError: if an entry or a payload part is corrupt.
        """
        self._ask(number)
        await asyncio.sleep(0)  # so that the server begins
        while number not in self._ready:
            tasks: list[asyncio.Task[Any]] = [*self._asked, *([] if self._own is None else [self._own[1]])]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self._take()
            if number not in self._ready and self._own is not None and self._own[1].done():
                at, fetched = self._own
                self._own = None
                rows = fetched.result()
                self._ask(number)
                await asyncio.sleep(0)
                self._ready[at] = await self._reader.page_of(rows)
            self._ask(number)
        return self._ready.pop(number)

    async def stop(self) -> None:
        """Read no more."""
        tasks: list[asyncio.Task[Any]] = [*self._asked, *([] if self._own is None else [self._own[1]])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            with suppress(asyncio.CancelledError):
                task.exception()  # what has failed is known, or nobody needs it

    def _ask(self, number: int) -> None:
        """Ask both processes for the next pages, while page `number` is worked on."""
        ahead = min(number + PAGES_AHEAD, self.count)
        if self._own is None and (self._returned or self._unread < ahead):
            at = self._returned.pop(0) if self._returned else self._next()
            self._own = at, asyncio.create_task(self._reader.fetch(self._bounds(at)))
        while (
            self._beside is not None
            and self._beside.is_ready
            and len(self._asked) < ASKED_AHEAD
            and self._unread < ahead
        ):
            at = self._next()
            self._asked[asyncio.create_task(self._beside.read(self._bounds(at)))] = at

    def _next(self) -> int:
        self._unread += 1
        return self._unread - 1

    def _take(self) -> None:
        """Take the pages that have come from the other process; those that it did not read are read here."""
        for task in [task for task in self._asked if task.done()]:
            at = self._asked.pop(task)
            if (page := task.result()) is None:
                self._returned = sorted([*self._returned, at])
            else:
                self._ready[at] = page

    def _bounds(self, number: int) -> Bounds:
        first = self._starts[number]
        is_last = number == self.count - 1
        end = self._end if is_last else self._starts[number + 1]
        return Bounds(first, end, number == 0, is_last)
