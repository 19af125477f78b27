# SPDX-License-Identifier: Apache-2.0
"""The collector looks through what is new, frees what references do not, and looks through everything once an hour."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from lakeproof.serving.garbage_collection import SWEEP_S, short_collections


class Node:
    """Something that refers to itself, so that no reference frees it."""

    def __init__(self) -> None:
        self.itself = self


class Clock:
    """A clock that is set by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Other tests of this process go on with what was frozen before."""
    yield
    gc.freeze()


def test_what_survives_a_full_collection_is_not_looked_through_again() -> None:
    with short_collections():
        kept: list[list[int]] = [[] for _ in range(1_000)]
        gc.collect()
        looked_through = {id(each) for each in gc.get_objects()}
        assert looked_through.isdisjoint(map(id, [kept, *kept]))
    assert any(each is kept for each in gc.get_objects())
    assert not gc.get_freeze_count()


def test_a_new_cycle_is_collected_and_a_frozen_one_within_the_hour() -> None:
    clock = Clock()
    with short_collections(clock):
        new, old = Node(), Node()
        of_new, of_old = weakref.ref(new), weakref.ref(old)
        gc.collect(0)
        del new
        gc.collect()
        assert of_new() is None
        del old
        clock.now_s = SWEEP_S - 1
        gc.collect()
        assert of_old() is not None
        clock.now_s = SWEEP_S
        gc.collect()
        assert of_old() is None
