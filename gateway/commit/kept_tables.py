# SPDX-License-Identifier: Apache-2.0
"""
Tables of foreign catalogs as the last commits of this process left them, for the next commits to be judged on.

Such a catalog has no guard of ours that compares the pointer. So it is asked for the table while a commit is judged on
what is kept, and its decision recorded (`as_known.py`). Guarantee: nothing is sent before the catalog has shown the
very table that was judged, location and content, to this request's caller. It is not asked before the caller is known
to be permitted.

A table that it showed otherwise, or too late, is not kept for a while: others change it, too, or the catalog shows it
otherwise than it answers a commit. What was decided then was in vain, and the log has it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Final, Self, TypeAlias

from gateway.catalogs.catalog import Forwards, Loaded
from gateway.catalogs.judged_metadata import answer_judged
from gateway.catalogs.replies import Answered
from gateway.identifiers import Target
from gateway.metadata import CorruptMetadataError
from gateway.metadata.stored import view_draft
from ledger.futures import retrieve
from ledger.values import value_class

KEPT_S: Final = 5.0
"""For so long a table is kept: where commits are rare, little is saved by it, and others have had time to change it."""
TABLES_MAX: Final = 1_024
ANSWERS_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of the answers, all tables together. As Python's objects, metadata takes some ten times as much."""
ANSWER_BYTES_MAX: Final = 256 * 1024
"""A table with a larger answer is not kept: making it out takes longer than is saved."""
REFUSED_PAUSE_S: Final = 5.0
"""For so long a table is not kept after a commit that was judged on it was not approved: it was judged twice."""
OTHERWISE_PAUSE_S: Final = 60.0
"""For so long it is not kept after the catalog showed another: a decision was recorded in vain."""
PAUSES_MAX: Final = 4_096
SHOWN_S: Final = 1.0
"""How long a recorded decision waits for the catalog to show the table: far less than its deadline."""

_Key: TypeAlias = tuple[int, Target]
"""A log and one of its tables."""


@value_class
class _Kept:
    table: Loaded
    answer_bytes: int
    until_s: float


class KeptTables:
    """The tables that one process keeps. Event loop only."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        """The one kept last is at the end."""
        self._answers_bytes = 0
        self._paused: OrderedDict[_Key, float] = OrderedDict()
        """Until when tables are not kept."""

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, log_id: int, target: Target) -> Loaded | None:
        """Return a table of a log as it was left; None if that is not kept."""
        kept = self._kept.get((log_id, target))
        return None if kept is None or kept.until_s <= self._clock() else kept.table

    def left(self, log_id: int, target: Target, left: Loaded, *, answer_bytes: int) -> None:
        """Keep a table as a commit has left it, whose answer had so many bytes."""
        key, now_s = (log_id, target), self._clock()
        self._drop(key)
        if answer_bytes > ANSWER_BYTES_MAX or self._paused.get(key, now_s) > now_s:
            return
        self._kept[key] = _Kept(table=left, answer_bytes=answer_bytes, until_s=now_s + KEPT_S)
        self._answers_bytes += answer_bytes
        while self._kept and (self._is_over() or next(iter(self._kept.values())).until_s <= now_s):
            self._drop(next(iter(self._kept)))

    def answered(self, log_id: int, target: Target, catalog: Forwards, answered: Answered) -> None:
        """Keep a table as its catalog has answered that a commit left it, ready for the next one."""
        size_bytes = len(answered.body)
        left = catalog.left(answered) if size_bytes <= ANSWER_BYTES_MAX else None
        ready = None if left is None else made_ready(left)
        if ready is None:
            self.forget(log_id, target)
        else:
            self.left(log_id, target, ready, answer_bytes=size_bytes)

    def forget(self, log_id: int, target: Target, *, pause_s: float = 0.0) -> None:
        """Keep a table no longer, nor, for so long, as commits leave it then."""
        key = log_id, target
        self._drop(key)
        if pause_s > 0:
            self._paused[key] = self._clock() + pause_s
            self._paused.move_to_end(key)
            if len(self._paused) > PAUSES_MAX:
                self._paused.popitem(last=False)

    def _is_over(self) -> bool:
        return self._answers_bytes > ANSWERS_BYTES_MAX or len(self._kept) > TABLES_MAX

    def _drop(self, key: _Key) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._answers_bytes -= kept.answer_bytes


def made_ready(left: Loaded) -> Loaded | None:
    """
    Return a table as a commit left it, with what the next commit is judged with, as far as that follows from the table
    alone: what is recorded of it, as of what a catalog has answered, and how it is opened. None if JSON cannot hold it.
    """
    metadata, location = left.metadata, left.metadata_location
    if metadata is None or location is None:
        raise AssertionError("a table that is kept has metadata")
    with suppress(CorruptMetadataError):  # whoever commits to it is told
        view_draft(metadata)
    try:
        return replace(left, judged=answer_judged(location, metadata))
    except TypeError:
        return None


class Confirming:
    """Asks a catalog whether it shows a table as a commit has `left` it; ends with the context."""

    def __init__(self, catalog: Forwards, target: Target, left: Loaded) -> None:
        self._catalog = catalog
        self._target = target
        self._left = left
        self._asking: asyncio.Task[bool] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def begin(self) -> None:
        """Ask, unless that was done; the request goes out before this returns, if the way to the catalog is known."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._catalog.shows(self._target, self._left), name="confirmation")
            self._asking.add_done_callback(retrieve)
            await asyncio.sleep(0)

    def is_refuted(self) -> bool:
        """Return whether it is known by now that the catalog does not show the table so."""
        return self._asking is not None and self._asking.done() and not _is_shown(self._asking)

    async def is_shown(self) -> bool:
        """Wait until it is known whether the catalog shows the table so; False if that takes too long."""
        if (asking := self._asking) is None:
            return False
        if not asking.done():
            await asyncio.wait([asking], timeout=SHOWN_S)
        return asking.done() and _is_shown(asking)


def _is_shown(asking: asyncio.Task[bool]) -> bool:
    try:
        return asking.result()
    except Exception:  # noqa: BLE001 - whatever it is, the next load tells; a decision may be open now
        return False
