# SPDX-License-Identifier: Apache-2.0
"""
The waits of the scene depend on what moves, not on how long it takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lakeproof.demo import waiting
from lakeproof.demo.waiting import computed_s, until


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_S", 0)
    monkeypatch.setattr(waiting, "PROGRESS_S", 0)


async def expected() -> str:
    return "expected a scan, found none"


async def after(looks: Iterator[object]) -> str | None:
    return next(looks, "found")  # type: ignore[return-value]  # None until the looks are used up


async def test_a_wait_goes_on_for_as_long_as_something_moves() -> None:
    looks, moves = iter([None] * 100), iter(range(1_000))

    async def moved() -> int:
        return next(moves)

    assert await until(lambda: after(looks), moved, expected=expected, standstill_s=-1) == "found"


async def test_a_wait_ends_when_nothing_moves_and_says_what_was_expected() -> None:
    looks = iter([None] * 100)

    async def moved() -> int:
        return 1

    with pytest.raises(AssertionError, match="expected a scan, found none; nothing has moved"):
        await until(lambda: after(looks), moved, expected=expected, standstill_s=-1)


def test_the_processor_time_of_a_session_grows_as_its_processes_compute() -> None:
    session = os.getsid(0)
    before = computed_s(session)
    while computed_s(session) == before:
        sum(range(100_000))
    assert computed_s(2**22 + 1) == 0
