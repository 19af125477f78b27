"""
How verification does its work: with the compiled kernel, in several processes. What it finds depends on neither.

Workers are processes that are started afresh: each checks segments of the log, from the state that the entry before a
segment claims. Nothing a worker says is believed further than it was checked here: where the claimed state is not the
one that the segment before has led to, or a worker has stopped for any reason, the caller checks from there on itself,
so that every fault is found, and named, by the same code as without workers.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ledger.sequence import NO_CONTROL
from ledger.tiles import TILE_WIDTH
from ledger.verify.rules import ChainState
from ledger.verify.tree import Page

if TYPE_CHECKING:  # at run time only large logs load it
    from ledger.verify.fast import FastPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """
    From how many entries on the kernel is worth loading, and `processes` worth starting; each takes about a second.

    `segment_pages` times 256 entries are a worker's turn.
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
    check: Check, first: int, end: int, effort: Effort
) -> Iterator[Iterator[tuple[Segment, Future[Checked]]]]:
    """
    Yield the segments of the entries from `first` up to `end` in order, each with what a worker says, if there are any.
    """
    if effort.processes < 2 or end - first < effort.processes_entries_min:
        yield iter(())
        return
    length = effort.segment_pages * TILE_WIDTH
    segments = iter([Segment(at, min(at + length, end)) for at in range(first, end, length)])
    context = multiprocessing.get_context("spawn")  # a fork would share the caller's connections
    pool = ProcessPoolExecutor(effort.processes, mp_context=context, initializer=_leave_interrupts_to_the_caller)
    try:
        yield _in_order(pool, check, segments, at_once=2 * effort.processes)
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(
    pool: ProcessPoolExecutor, check: Check, segments: Iterator[Segment], *, at_once: int
) -> Iterator[tuple[Segment, Future[Checked]]]:
    """Keep `at_once` segments under way, so that what waits to be joined stays small."""
    waiting: deque[tuple[Segment, Future[Checked]]] = deque()
    for segment in segments:
        waiting.append((segment, pool.submit(check, segment)))
        if len(waiting) == at_once:
            yield waiting.popleft()
    yield from waiting


def _leave_interrupts_to_the_caller() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
