# SPDX-License-Identifier: Apache-2.0
"""When a head is taken to be known, and what is known of the database's clock."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from ledger.append.known_heads import HEADS_KEPT_MAX, DatabaseClock, KnownHeads
from ledger.format.sequence import LogHead
from testkit.ledger.appending import NOON

HEAD = replace(LogHead.empty(), size=1, last=b"1" * 32, recorded_at=NOON)
OTHER = replace(HEAD, size=2, last=b"2" * 32)
SECOND = timedelta(seconds=1)


def test_a_head_is_expected_once_it_was_left() -> None:
    known = KnownHeads()
    known.note_read(7, HEAD)
    assert known.expected(7) is None
    known.note_left(7, HEAD)
    assert known.expected(7) == HEAD
    known.note_left(7, OTHER)
    assert known.expected(7) == OTHER
    assert known.expected(8) is None


def test_the_head_of_an_empty_log_is_not_known() -> None:
    known = KnownHeads()
    known.note_left(7, LogHead.empty())
    assert known.expected(7) is None


class Process:
    """A process that appends to a log, and tries to in one round trip when it expects the log's head."""

    def __init__(self) -> None:
        self.known = KnownHeads()
        self.met = self.missed = self.read = 0

    def append(self, head: LogHead) -> LogHead:
        """Append to a log with this head; returns the new one."""
        expected = self.known.expected(7)
        if expected == head:
            self.known.note_met(7)
            self.met += 1
        else:
            if expected is not None:
                self.known.note_missed(7)
                self.missed += 1
            self.known.note_read(7, head)
            self.read += 1
        left = replace(head, size=head.size + 1)
        self.known.note_left(7, left)
        return left


def run(order: Iterable[Process]) -> None:
    """Let processes append to one log, in this order."""
    head = HEAD
    for process in order:
        head = process.append(head)


def test_a_process_that_writes_alone_reads_once() -> None:
    one = Process()
    run([one] * 50)
    assert (one.read, one.met, one.missed) == (1, 49, 0)


def test_processes_that_take_turns_miss_once_each() -> None:
    one, two = Process(), Process()
    run([one, two] * 50)
    assert (one.met, two.met) == (0, 0)
    assert (one.missed, two.missed) == (1, 1)


def test_one_that_is_seldom_disturbed_goes_on_in_one_round_trip() -> None:
    one, seldom = Process(), Process()
    run(([one] * 10 + [seldom]) * 50)
    assert one.missed == 49
    assert one.met == 10 * 50 - 1 - 49 - 49, "after each miss it reads once more, to see whether it is alone again"


def test_processes_in_an_order_drawn_by_lot_miss_seldom() -> None:
    draws = random.Random(3)  # noqa: S311 - a simulation
    processes = [Process(), Process()]
    run(draws.choice(processes) for _ in range(4_000))
    for process in processes:
        assert 0 < process.missed < 0.05 * 2_000


@pytest.mark.parametrize("own", range(1, 12))
def test_an_order_made_to_be_missed_is_missed_by_one_append_in_three_at_most(own: int) -> None:
    # The other process comes in whenever the first one would be met: the worst that can happen to it.
    one, other, head = Process(), Process(), HEAD
    for number in range(1_000):
        if one.known.expected(7) is not None and number % own == 0:
            head = other.append(head)
        head = one.append(head)
    assert 0 < one.missed < 1_000 / 3


def test_what_is_missed_and_then_read_is_one_append() -> None:
    once, twice = KnownHeads(), KnownHeads()
    for known in (once, twice):
        known.note_left(7, HEAD)
    once.note_read(7, OTHER)
    twice.note_missed(7)
    twice.note_read(7, OTHER)
    for known in (once, twice):
        known.note_left(7, HEAD)
        known.note_read(7, HEAD)
    assert once.expected(7) == twice.expected(7) == HEAD


def test_logs_that_were_used_least_recently_are_forgotten() -> None:
    known = KnownHeads()
    for log_id in range(HEADS_KEPT_MAX):
        known.note_left(log_id, HEAD)
    known.note_left(0, HEAD)
    known.note_left(HEADS_KEPT_MAX, HEAD)
    assert known.expected(0) == HEAD
    assert known.expected(1) is None
    known.note_missed(1)
    known.note_met(1)
    assert known.expected(1) is None


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


def test_the_database_s_clock_is_told_from_the_reading_that_came_fastest() -> None:
    here = Clock()
    clock = DatabaseClock(here)
    assert clock.now() is None
    ahead = 60 * SECOND
    for late in (3, 1, 2):
        here.now += SECOND
        clock.note(here.now + ahead - late * SECOND)
    here.now += SECOND
    assert clock.now() == here.now + ahead - SECOND


def test_what_was_known_of_the_clocks_is_forgotten_when_one_of_them_was_set() -> None:
    here = Clock()
    clock = DatabaseClock(here)
    clock.note(NOON + 60 * SECOND)
    clock.forget()
    assert clock.now() is None
    clock.note(NOON - 60 * SECOND)
    assert clock.now() == NOON - 60 * SECOND
