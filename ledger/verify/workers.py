# SPDX-License-Identifier: Apache-2.0
"""
How verification shares its work: with the compiled kernel, and among processes. The result depends on neither.

The caller checks segments of the log and starts at once; workers are started meanwhile and check other segments, each
from the state that the entry before it claims. The caller believes a worker only if that claimed state is the one that
the segment before has led to. If it is not, or if a worker stopped for any reason, the caller checks that segment
itself: so every fault is found and named by the same code as without workers.
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
from ledger.verify.tree import LeafPage

if TYPE_CHECKING:  # at run time only large logs load it
    from ledger.verify.fast import FastPath


_HEAD_START: Final = {True: 6, False: 1}
"""Segments that the caller checks while workers start, with the kernel and without."""
_AHEAD: Final = 3
"""Segments per worker that are being checked or wait: it has work while the caller checks its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """
    How many `processes` to use, and from how many entries on the kernel and the processes are worth their start.

    Loading the kernel takes half a second, starting processes about one. A segment has 256 entries per page.
    """

    processes: int = 1
    kernel_entries_min: int = 32_768
    processes_entries_min: int = 1_000_000
    segment_pages: int = 256


class Segment(NamedTuple):
    """The entries from `first` up to `end`, not included; `first` is a multiple of 256."""

    first: int
    end: int


class SegmentResult(NamedTuple):
    """
    What a worker found in a segment, from the claimed state `before` to the state `after`; no pages if it was broken.

    `groups` are the ids of the groups that begin there (`GroupIds.pack`), `control_index` is that of the last control
    entry.
    """

    before: ChainState
    after: ChainState
    pages: list[LeafPage]
    groups: tuple[bytes, bytes]
    control_index: int = NO_CONTROL


Check: TypeAlias = Callable[[Segment], SegmentResult]
"""Checks a segment in a worker: it must be picklable, and returns no pages where it finds a fault."""


def load_fast_path(entries: int, effort: Effort) -> FastPath | None:
    """
    Return the fast path; None if there are too few entries for it, or numba is not installed.
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
) -> Iterator[Iterator[tuple[Segment, Future[SegmentResult] | None]]]:
    """
    Yield the segments of the entries from `first` up to `end` in order, each with the result of a worker, or None.

    The caller checks those with None: the first few, while workers start, then one of every `effort.processes`.
    `is_fast` says whether it checks them with the kernel. Without workers nothing is yielded.
    """
    if effort.processes < 2 or end - first < effort.processes_entries_min:
        yield iter(())
        return
    length = effort.segment_pages * TILE_WIDTH
    segments = iter([Segment(at, min(at + length, end)) for at in range(first, end, length)])
    workers, head_start = effort.processes - 1, _HEAD_START[is_fast]
    context = multiprocessing.get_context("spawn")  # a fork would share the caller's connections
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_leave_interrupts_to_the_caller)

    def submitted() -> Iterator[tuple[Segment, Future[SegmentResult] | None]]:
        for number, segment in enumerate(segments, start=1):
            is_own = number <= head_start or (number - head_start) % effort.processes == 0
            yield segment, None if is_own else pool.submit(check, segment)

    try:
        yield _in_order(submitted(), at_once=_AHEAD * workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(
    submitted: Iterator[tuple[Segment, Future[SegmentResult] | None]], *, at_once: int
) -> Iterator[tuple[Segment, Future[SegmentResult] | None]]:
    """Keep at most `at_once` segments with workers, so that few results wait in memory."""
    waiting: deque[tuple[Segment, Future[SegmentResult] | None]] = deque()
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
