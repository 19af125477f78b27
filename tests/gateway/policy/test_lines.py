# SPDX-License-Identifier: Apache-2.0
"""
Fair queueing and credit: pure, without processes.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.lines import Credit, LineFullError, Lines

CALM, NOISY, THIRD = 1, 2, 3


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Something that waits."""

    log_id: int
    size_bytes: int = 1
    used_s: float = 1.0


def served(lines: Lines[Call], count: int) -> list[int]:
    """Whose calls are taken next, each charged with what it uses."""
    order = []
    for _ in range(count):
        call = lines.take()
        lines.charge(call.log_id, call.used_s)
        order.append(call.log_id)
    return order


def test_a_call_waits_for_one_of_another_tenants_however_many_that_one_has() -> None:
    lines: Lines[Call] = Lines()
    for _ in range(100):
        lines.put(Call(NOISY))
    assert served(lines, 3) == [NOISY] * 3
    lines.put(Call(CALM))
    lines.put(Call(CALM))
    assert served(lines, 4) == [CALM, NOISY, CALM, NOISY]


def test_turns_are_shared_by_what_calls_use_and_not_by_their_number() -> None:
    lines: Lines[Call] = Lines()
    for _ in range(20):
        lines.put(Call(NOISY, used_s=4.0))
        lines.put(Call(CALM, used_s=1.0))
    order = served(lines, 20)
    assert order.count(CALM) == 4 * order.count(NOISY)


def test_calls_of_one_tenant_are_taken_in_the_order_of_their_arrival() -> None:
    lines: Lines[Call] = Lines()
    calls = [Call(CALM) for _ in range(5)]
    for call in calls:
        lines.put(call)
    assert [lines.take() for _ in calls] == calls
    with pytest.raises(IndexError):
        lines.take()


def test_turns_cannot_be_saved_up_by_pausing() -> None:
    lines: Lines[Call] = Lines()
    for _ in range(50):
        lines.put(Call(NOISY))
    served(lines, 30)
    for _ in range(10):
        lines.put(Call(THIRD))
    assert sorted(served(lines, 10)) == [NOISY] * 5 + [THIRD] * 5


def test_who_has_just_used_much_waits_behind_a_newcomer_although_its_line_was_empty() -> None:
    lines: Lines[Call] = Lines()
    lines.put(Call(NOISY, used_s=10.0))
    lines.put(Call(CALM, used_s=0.1))
    assert served(lines, 1) == [NOISY]
    lines.put(Call(NOISY))
    assert served(lines, 2) == [CALM, NOISY]


def test_the_line_of_one_tenant_is_bounded_in_calls_and_bytes() -> None:
    lines: Lines[Call] = Lines(line_calls_max=2, line_bytes_max=10)
    lines.put(Call(NOISY, size_bytes=6))
    with pytest.raises(LineFullError, match="6 bytes"):
        lines.put(Call(NOISY, size_bytes=5))
    lines.put(Call(NOISY, size_bytes=4))
    with pytest.raises(LineFullError, match="2 calls of this tenant already wait"):
        lines.put(Call(NOISY, size_bytes=0))
    assert lines.put(Call(CALM, size_bytes=10)) == [], "another's is its own"
    assert len(lines) == 3


def test_where_all_lines_are_full_the_longest_gives_way() -> None:
    lines: Lines[Call] = Lines(all_calls_max=4)
    flood = [Call(NOISY) for _ in range(4)]
    for call in flood:
        lines.put(call)
    with pytest.raises(LineFullError, match="this tenant's are the most"):
        lines.put(Call(NOISY))
    assert lines.put(Call(CALM)) == [flood[3]], "its newest call"
    assert lines.put(Call(CALM)) == [flood[2]]
    with pytest.raises(LineFullError):
        lines.put(Call(CALM))
    assert lines.put(Call(THIRD)) != []
    assert len(lines) == 4


def test_a_large_call_that_finds_no_room_leaves_the_lines_as_they_were() -> None:
    lines: Lines[Call] = Lines(all_bytes_max=10)
    waiting = [Call(NOISY, size_bytes=3), Call(NOISY, size_bytes=3), Call(THIRD, size_bytes=4)]
    for call in waiting:
        lines.put(call)
    with pytest.raises(LineFullError):
        lines.put(Call(CALM, size_bytes=9))
    assert [lines.take() for _ in waiting] == [waiting[0], waiting[1], waiting[2]]


def test_a_call_whose_caller_has_left_is_taken_out() -> None:
    lines: Lines[Call] = Lines()
    left, stays = Call(NOISY), Call(NOISY)
    lines.put(left)
    lines.put(stays)
    lines.remove(left)
    lines.remove(left)
    assert len(lines) == 1
    assert lines.take() is stays
    assert len(lines) == 0


@given(st.lists(st.tuples(st.sampled_from(["put", "take", "remove"]), st.integers(1, 4), st.integers(0, 5))))
def test_bounds_hold_and_nothing_is_lost_whatever_happens(steps: list[tuple[str, int, int]]) -> None:
    lines: Lines[Call] = Lines(line_calls_max=3, line_bytes_max=9, all_calls_max=5, all_bytes_max=12)
    waiting: list[Call] = []
    for step, log_id, size_bytes in steps:
        if step == "put":
            call = Call(log_id, size_bytes)
            try:
                gave_way = lines.put(call)
            except LineFullError:
                continue
            assert all(one.log_id != log_id for one in gave_way)
            waiting = [one for one in waiting if one not in gave_way] + [call]
        elif step == "take" and waiting:
            taken = lines.take()
            waiting.remove(taken)
            lines.charge(taken.log_id, float(size_bytes))
        elif step == "remove" and waiting:
            lines.remove(waiting.pop(log_id % len(waiting)))
        assert len(lines) == len(waiting) <= 5
        assert sum(one.size_bytes for one in waiting) <= 12
    assert {lines.take() for _ in waiting} == set(waiting)
    assert lines._used_s.keys() <= {1, 2, 3, 4}


def test_quick_calls_cost_no_credit_however_many_they_are() -> None:
    credit = Credit()
    before = credit.left_s(CALM, now_s=0.0)
    for _ in range(1_000):
        credit.charge(CALM, 0.009, now_s=0.0)
    assert credit.left_s(CALM, now_s=0.0) == before > 0


def test_long_calls_use_credit_up_and_time_brings_it_back() -> None:
    credit = Credit(quick_s=0.01, credit_s_max=0.5, share=0.1, debt_s_max=1.0)
    credit.charge(NOISY, 0.31, now_s=100.0)
    assert credit.left_s(NOISY, now_s=100.0) == pytest.approx(0.2)
    credit.charge(NOISY, 50.0, now_s=100.0)
    assert credit.left_s(NOISY, now_s=100.0) == -1.0, "no debt lasts for ever"
    assert credit.left_s(CALM, now_s=100.0) == 0.5, "another's is its own"
    assert credit.left_s(NOISY, now_s=109.0) < 0 < credit.left_s(NOISY, now_s=111.0)
    assert credit.left_s(NOISY, now_s=1000.0) == 0.5, "and nobody saves it up"
    credit.charge(CALM, 1.0, now_s=1000.0)
    assert credit._left.keys() == {CALM}, "who owes nothing is forgotten"
