# SPDX-License-Identifier: Apache-2.0
"""When a head is taken to be known, and what is known of the database's clock."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta

from ledger.append.known_heads import DISTRUST_MAX, HEADS_KEPT_MAX, DatabaseClock, KnownHeads
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


def appends_until_expected(known: KnownHeads) -> int:
    """Return how many appends in a row find the head as it was left before it is expected again."""
    count = 0
    while known.expected(7) is None:
        known.note_read(7, HEAD)
        known.note_left(7, HEAD)
        count += 1
    return count


def test_after_each_miss_twice_as_many_appends_of_ones_own_are_asked_for() -> None:
    known = KnownHeads()
    known.note_left(7, HEAD)
    counts = []
    for _ in range(9):
        known.note_missed(7)
        counts.append(appends_until_expected(known))
    assert counts == [1, 2, 4, 8, 16, 32, DISTRUST_MAX, DISTRUST_MAX, DISTRUST_MAX]


def test_an_append_of_another_process_in_between_begins_the_count_anew() -> None:
    known = KnownHeads()
    known.note_left(7, HEAD)
    known.note_missed(7)
    known.note_missed(7)
    known.note_read(7, HEAD)
    known.note_read(7, OTHER)
    known.note_left(7, HEAD)
    assert known.expected(7) is None
    assert appends_until_expected(known) == 2


def test_heads_that_are_met_again_and_again_are_trusted_as_before() -> None:
    known = KnownHeads()
    known.note_left(7, HEAD)
    for _ in range(3):
        known.note_missed(7)
    appends_until_expected(known)
    for _ in range(4 + 1 + 2 + 1 + 1 + 1):
        known.note_met(7)
    known.note_missed(7)
    assert appends_until_expected(known) == 1


def test_a_process_that_shares_a_log_expects_its_head_in_vain_seldom() -> None:
    # Whoever appends next is drawn by lot: an expectation of each is wrong half of the time.
    draws, known, missed = random.Random(3), KnownHeads(), 0  # noqa: S311 - a simulation
    known.note_left(7, HEAD)
    last, current = True, HEAD
    for size in range(2, 2_000):
        mine, head = draws.random() < 0.5, replace(HEAD, size=size)
        if mine and known.expected(7) is not None:
            if last:
                known.note_met(7)
            else:
                known.note_missed(7)
                missed += 1
        if mine:
            known.note_read(7, current)
            known.note_left(7, head)
        last, current = mine, head
    assert 0 < missed < 25


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
