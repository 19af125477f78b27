# SPDX-License-Identifier: Apache-2.0
"""When a head that another process holds is skipped, and when it is waited for."""

from __future__ import annotations

from ledger.append.writer import SHARED_S, SKIPS_MAX, WAIT_AGAIN_S, Contention


def test_a_head_is_waited_for_after_three_skips() -> None:
    contention = Contention()
    for _ in range(SKIPS_MAX):
        assert contention.head_to_wait_for([1, 2], 0) is None
        contention.note_skipped([2], 1.0, all_were=False)
    assert contention.head_to_wait_for([1, 2], 0) == 2
    assert contention.head_to_wait_for([1], 0) is None


def test_a_round_in_which_all_heads_were_held_is_followed_by_a_wait() -> None:
    contention = Contention()
    contention.note_skipped([7], 1.0, all_were=True)
    assert contention.head_to_wait_for([7], 0) == 7


def test_a_head_that_was_had_begins_anew() -> None:
    contention = Contention()
    contention.note_skipped([1, 2], 1.0, all_were=True)
    contention.note_locked([1])
    assert contention.head_to_wait_for([1], 0) is None
    assert contention.head_to_wait_for([2], 0) == 2


def test_after_a_wait_in_vain_nobody_waits_for_a_while() -> None:
    contention = Contention()
    contention.note_skipped([1, 2], 1.0, all_were=True)
    contention.note_wait_failed(1, 100.0)
    assert not contention.may_wait(100.0 + WAIT_AGAIN_S / 2)
    assert contention.head_to_wait_for([1, 2], 100.0 + WAIT_AGAIN_S / 2) is None
    assert contention.may_wait(100.0 + WAIT_AGAIN_S)
    # The other's turn: the one that was waited for is skipped three times again.
    assert contention.head_to_wait_for([1, 2], 100.0 + WAIT_AGAIN_S) == 2


def test_others_are_taken_to_write_for_a_while_after_a_head_was_found_held() -> None:
    contention = Contention()
    assert not contention.is_shared(0.0)
    contention.note_skipped([1], 5.0, all_were=False)
    assert contention.is_shared(5.0)
    contention.note_locked([1])
    assert contention.is_shared(5.0 + SHARED_S - 0.01)
    assert not contention.is_shared(5.0 + SHARED_S)
    contention.note_wait_failed(1, 9.0)
    assert contention.is_shared(9.0 + SHARED_S - 0.01)
