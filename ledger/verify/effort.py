"""
How verification does its work: with the compiled kernel, in several processes. What it finds depends on neither.

The caller's process is one of them and begins at once; the others, the workers, are started afresh meanwhile. Each
checks segments of the log, from the state that the entry before a segment claims. Nothing a worker says is believed
further than it was checked here: where the claimed state is not the one that the segment before has led to, or a worker
has stopped for any reason, the caller checks from there on itself, so that every fault is found, and named, by the same
code as without workers.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ledger.format.sequence import NO_CONTROL
from ledger.format.tiles import TILE_WIDTH
from ledger.format.verification import ChainState
from ledger.verify.tree import Page

if TYPE_CHECKING:  # at run time only large logs load it
    from ledger.verify.fast import FastPath


_HEAD_START: Final = {True: 6, False: 1}
"""Segments that take the caller about as long as workers take to start, with the kernel and without."""
_AHEAD: Final = 3
"""Segments for each worker that are checked or wait to be: it has work while the caller checks one of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """
    From how many entries on the kernel is worth loading, and `processes` worth starting; each takes about a second.

    `segment_pages` times 256 entries are one turn of a process.
    """

    processes: int = 1
    kernel_entries_min: int = 32_768
    processes_entries_min: int = 1_000_000
    segment_pages: int = 256


class Segment(NamedTuple):
    """The entries from `first` up to `end`, not included; `first` is a multiple of 256."""

    first: int
    end: int


class Checked(NamedTuple):
    """
    What a worker has checked of a segment, from the claimed state `before` on: all, or as far as nothing was wrong.

    `groups` are the ids of the groups that begin there (`GroupIds.pack`), `control_index` is of the last control entry.
    """

    before: ChainState
    after: ChainState
    pages: list[Page]
    groups: tuple[bytes, bytes]
    control_index: int = NO_CONTROL


Check: TypeAlias = Callable[[Segment], Checked]
"""Checks a segment in a worker, so it must be one that can be pickled; it raises nothing that is worth knowing."""


def load_fast_path(entries: int, effort: Effort) -> FastPath | None:
    """
    Return the fast path over so many entries; None if they are too few for it, or numba is not there.
    """
    if entries < effort.kernel_entries_min:
        return None
    try:
        from ledger.verify.fast import FastPath
    except ImportError:
        return None
    return FastPath()


@contextmanager
def segments_checked(
    check: Check, first: int, end: int, effort: Effort, *, is_fast: bool
) -> Iterator[Iterator[tuple[Segment, Future[Checked] | None]]]:
    """
    Yield the segments of the entries from `first` up to `end` in order, each with what a worker says, if there are any.

    None stands beside those that the caller is to check: the first few, while workers start, and one of every
    `effort.processes` behind them. `is_fast` tells whether it checks them with the kernel.
    """
    if effort.processes < 2 or end - first < effort.processes_entries_min:
        yield iter(())
        return
    length = effort.segment_pages * TILE_WIDTH
    segments = iter([Segment(at, min(at + length, end)) for at in range(first, end, length)])
    workers, head_start = effort.processes - 1, _HEAD_START[is_fast]
    context = multiprocessing.get_context("spawn")  # a fork would share the caller's connections
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_leave_interrupts_to_the_caller)

    def submitted() -> Iterator[tuple[Segment, Future[Checked] | None]]:
        for number, segment in enumerate(segments, start=1):
            is_own = number <= head_start or (number - head_start) % effort.processes == 0
            yield segment, None if is_own else pool.submit(check, segment)

    try:
        yield _in_order(submitted(), at_once=_AHEAD * workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(
    submitted: Iterator[tuple[Segment, Future[Checked] | None]], *, at_once: int
) -> Iterator[tuple[Segment, Future[Checked] | None]]:
    """Keep `at_once` segments under way, so that what waits to be joined stays small."""
    waiting: deque[tuple[Segment, Future[Checked] | None]] = deque()
    under_way = 0
    for item in submitted:
        waiting.append(item)
        under_way += item[1] is not None
        while under_way == at_once:
            under_way -= waiting[0][1] is not None
            yield waiting.popleft()
    yield from waiting


def _leave_interrupts_to_the_caller() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
