# SPDX-License-Identifier: Apache-2.0
"""
The waits of the scene: each ends when its condition holds, or when nothing makes progress any more.

On a busy machine anything may take ten times as long. So a wait has no limit while something makes progress, and a
limit on standstill that no working machine reaches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

STANDSTILL_S: Final = 180.0
"""Longer than a queue hides a message whose receipt was lost (`streams.sources.sqs.VISIBILITY_S`)."""
POLL_S: Final = 0.05
PROGRESS_S: Final = 1.0
"""How often progress is checked."""

_SESSION, _TIMES, _TICKS_PER_S = 3, slice(11, 15), 100
"""Of the fields of /proc/<pid>/stat behind the name (proc(5)): the session, and the times, those of children too."""

T = TypeVar("T")
Moved = Callable[[], Awaitable[object]]


async def until(
    poll: Callable[[], Awaitable[T | None]],
    moved: Moved,
    *,
    expected: Callable[[], Awaitable[str]],
    standstill_s: float = STANDSTILL_S,
) -> T:
    """
    Return what `poll` returns as soon as that is not None.

    `moved` returns another value whenever there was progress; `expected` describes what is awaited, and what there is.

    Raises:
        AssertionError: if nothing has moved for `standstill_s`; and what `poll` and `moved` raise.
    """
    loop = asyncio.get_running_loop()
    mark, since = await moved(), loop.time()
    checked = since
    while (found := await poll()) is None:
        await asyncio.sleep(POLL_S)
        if (now := loop.time()) - checked < PROGRESS_S:
            continue
        checked = now
        if (current := await moved()) != mark:
            mark, since = current, now
        elif now - since > standstill_s:
            raise AssertionError(f"{await expected()}; nothing has moved for {standstill_s:g} s")
    return found


def computed_s(session: int) -> int:
    """
    Return the whole seconds of processor time of the processes of a session; 0 where the system does not say.
    """
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[_SESSION]) == session:
                ticks += sum(map(int, fields[_TIMES]))
    return ticks // _TICKS_PER_S
