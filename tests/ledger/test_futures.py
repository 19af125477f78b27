# SPDX-License-Identifier: Apache-2.0
"""
Work that is done while its task waits for something else: once, and never later than it is needed.
"""

from __future__ import annotations

import asyncio

import pytest

from ledger.futures import Meanwhile


async def test_work_is_done_while_its_task_waits() -> None:
    done: list[str] = []
    work = Meanwhile(lambda: done.append("work"))
    assert not done
    await asyncio.sleep(0)
    assert done == ["work"]
    work.result()
    assert done == ["work"], "it is done once"


async def test_work_is_done_behind_what_the_task_has_woken() -> None:
    done: list[str] = []
    woken = asyncio.Event()

    async def wait() -> None:
        await woken.wait()
        done.append("woken")

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    Meanwhile(lambda: done.append("behind it"), behind=1)
    Meanwhile(lambda: done.append("before it"))
    woken.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await waiting
    assert done == ["before it", "woken", "behind it"]


async def test_work_that_is_needed_at_once_is_done_at_once() -> None:
    done: list[str] = []

    def work() -> int:
        done.append("work")
        return 7

    assert [Meanwhile(work, behind=3).result(), *done] == [7, "work"]
    for _ in range(5):
        await asyncio.sleep(0)
    assert done == ["work"]


@pytest.mark.parametrize("waits", [False, True])
async def test_why_work_has_failed_is_told_to_the_one_who_needs_it(waits: bool) -> None:
    count = 0

    def fail() -> None:
        nonlocal count
        count += 1
        message = "no"
        raise ValueError(message)

    failing = Meanwhile(fail)
    if waits:
        await asyncio.sleep(0)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            failing.result()
    assert count == 1


async def test_work_whose_result_nobody_needs_disturbs_nobody() -> None:
    Meanwhile(lambda: 1 // 0)
    await asyncio.sleep(0)
