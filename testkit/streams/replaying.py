# SPDX-License-Identifier: Apache-2.0
"""Replays of dead letters, and the end of waiting for hosts."""

from __future__ import annotations

from typing import Any

from streams.handler import Handler
from streams.processing.replay import ReplayedLetter, replay
from testkit.streams.world import World


async def replayed(world: World, *handlers: Handler, **which: Any) -> list[ReplayedLetter]:
    """Replay; return what became of each letter."""
    return [each async for each in replay(world.dsn, handlers, world.append, **which)]


async def wait_no_longer(world: World) -> None:
    """Make everything due that was put off, in the order in which it would be."""
    await world.rows("UPDATE streams.hosts SET free_at = free_at - interval '1 day'")
    await world.rows("UPDATE streams.deferred SET due_at = due_at - interval '1 day'")
