# SPDX-License-Identifier: Apache-2.0
"""The collector of a process that serves looks through what was made after the start, and frees it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from lakeproof.serving.garbage_collection import YOUNG_OBJECTS, freeze_started


class Node:
    """Something that refers to itself, so that no reference frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Other tests of this process go on with what was frozen before."""
    thresholds = gc.get_threshold()
    yield
    gc.freeze()
    gc.set_threshold(*thresholds)


def test_what_a_process_has_after_its_start_is_not_looked_through_again() -> None:
    kept: list[list[int]] = [[] for _ in range(1_000)]
    garbage = weakref.ref(Node())
    freeze_started()
    assert garbage() is None
    assert {id(each) for each in gc.get_objects()}.isdisjoint(map(id, [kept, *kept]))


def test_a_cycle_that_is_made_later_is_collected() -> None:
    freeze_started()
    later = Node()
    of_later = weakref.ref(later)
    gc.collect()
    del later
    assert of_later() is not None
    gc.collect()
    assert of_later() is None


def test_what_some_requests_hold_causes_no_collection() -> None:
    freeze_started()
    before = collections()
    held: list[list[int]] = [[] for _ in range(YOUNG_OBJECTS // 2)]
    assert collections() == before
    held += [[] for _ in range(YOUNG_OBJECTS)]
    assert collections() > before
    assert len(held) == YOUNG_OBJECTS // 2 + YOUNG_OBJECTS


def collections() -> int:
    """How often young objects were examined."""
    return int(gc.get_stats()[0]["collections"])
