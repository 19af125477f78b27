# SPDX-License-Identifier: Apache-2.0
"""
Child processes: whenever the task that starts or kills one is cancelled, none is left.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from lakeproof.serving.event_loop import new_event_loop
from ledger.child_processes import kill_child, start_child

TURNS = 12
"""More than a start takes of the event loop: it is cancelled before, in, and after each of its steps."""


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


async def start() -> Process:
    return await start_child(asyncio.create_subprocess_exec("sleep", "600", stdin=PIPE, stdout=PIPE))


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    process = await start()
    yield process
    await kill_child(process)


async def test_a_started_process_runs_until_it_is_killed(process: Process) -> None:
    assert process.returncode is None
    assert str(process.pid) in children()
    await kill_child(process)
    assert process.returncode is not None
    assert str(process.pid) not in children()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, new_event_loop], ids=["asyncio", "production"])
@pytest.mark.parametrize("turns", range(TURNS))
def test_a_start_that_is_cancelled_leaves_no_process(
    turns: int, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def cancel() -> None:
        starting = asyncio.create_task(start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        if not starting.cancelled():  # it was faster
            await kill_child(starting.result())
        assert children() == before

    before = children()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(cancel())


async def test_a_start_that_is_cancelled_again_and_again_leaves_no_process_either() -> None:
    before = children()
    starting = asyncio.create_task(start())
    while not starting.done():
        await asyncio.sleep(0)
        starting.cancel()
    assert starting.cancelled()
    assert children() == before


async def test_a_cancelled_start_of_what_cannot_be_started_is_cancelled() -> None:
    async def fail() -> Process:
        await asyncio.sleep(0)
        return await asyncio.create_subprocess_exec("/nowhere/at/all")

    starting = asyncio.create_task(start_child(fail()))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_what_cannot_be_started_is_said() -> None:
    with pytest.raises(FileNotFoundError):
        await start_child(asyncio.create_subprocess_exec("/nowhere/at/all"))


async def test_a_process_whose_killing_is_cancelled_has_ended_all_the_same(process: Process) -> None:
    killing = asyncio.create_task(kill_child(process))
    await asyncio.sleep(0)  # it waits for the end now
    assert killing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await killing
    assert str(process.pid) not in children()


async def test_a_process_that_has_ended_is_killed_without_complaint(process: Process) -> None:
    process.kill()
    await process.wait()
    await kill_child(process)
    assert process.returncode is not None
