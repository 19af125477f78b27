# SPDX-License-Identifier: Apache-2.0
"""The newest part of a tree in memory: its proofs are those of the whole tree, wherever it began, however it grew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import LedgerError
from ledger.format.merkle import Frontier, check_inclusion, leaf_hash, prove_inclusion, root_of
from ledger.proving.receipts import TreeWindow

LEAVES = [leaf_hash(b"%d" % number) for number in range(600)]


def whole_proof(index: int, size: int) -> list[bytes]:
    return prove_inclusion(
        index=index, size=size, read=lambda level, at: root_of(LEAVES[at << level : (at + 1) << level])
    )


def test_every_entry_from_the_start_on_is_proven_at_every_size_up_to_forty() -> None:
    for start in range(41):
        window = TreeWindow(Frontier.empty().extended(LEAVES[:start]))
        for size in range(start + 1, 41):
            window.extend(LEAVES[size - 1 : size])
            assert window.frontier() == Frontier.empty().extended(LEAVES[:size])
            for index in range(start, size):
                assert window.prove(index) == whole_proof(index, size)


@given(st.integers(0, 500), st.lists(st.integers(0, 60), max_size=5), st.integers(0, 4))
def test_a_window_may_grow_in_any_steps_and_begin_anew(start: int, steps: list[int], anew: int) -> None:
    window = TreeWindow(Frontier.empty().extended(LEAVES[:start]))
    for number, step in enumerate(steps):
        if number == anew:
            window = window.restarted()
        end = min(window.size + step, len(LEAVES))
        window.extend(LEAVES[window.size : end])
    root = root_of(LEAVES[: window.size])
    assert window.frontier().root() == root
    for index in range(window.start, window.size):
        assert window.leaf(index) == LEAVES[index]
        check_inclusion(index=index, size=window.size, leaf=LEAVES[index], proof=window.prove(index), root=root)


def test_what_is_before_or_behind_the_window_is_not_proven() -> None:
    window = TreeWindow(Frontier.empty().extended(LEAVES[:5]))
    window.extend(LEAVES[5:9])
    with pytest.raises(LedgerError):
        window.prove(9)
    with pytest.raises(KeyError):
        window.leaf(3)
    assert len(window.restarted()) == 2
