# SPDX-License-Identifier: Apache-2.0
"""A sink that keeps what it is sent, and messages for the outbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ledger.store.read import Log
from streams.connections import connect_storing
from streams.handler import OutboxMessage
from streams.state import outbox
from streams.state.outbox import Delivered, QueuedMessage, RetryLater, SinkResult
from testkit.streams.world import World


class Box:
    """A sink that keeps what it takes; `judge` says what it answers."""

    def __init__(
        self, judge: Callable[[QueuedMessage], SinkResult] = lambda _: Delivered(), name: str = "test"
    ) -> None:
        self.name = name
        self.batch_max = 4
        self.judge = judge
        self.taken: list[str] = []

    async def send(self, messages: Sequence[QueuedMessage]) -> Sequence[SinkResult]:
        """Take what `judge` lets through; nothing behind what it postpones of the same key."""
        answers: list[SinkResult] = []
        waiting: set[str] = set()
        for each in messages:
            answer = RetryLater("behind another") if each.message.key in waiting else self.judge(each)
            if isinstance(answer, RetryLater):
                waiting.add(each.message.key)
            elif isinstance(answer, Delivered):
                self.taken.append(each.message.id)
            answers.append(answer)
        return answers


async def put(world: World, log: Log, *ids: str, sink: str = "test") -> None:
    """Put messages into the outbox; the key is what stands before the dash."""
    messages = [OutboxMessage(sink=sink, id=id_, key=id_.partition("-")[0], payload=b"{}") for id_ in ids]
    async with connect_storing(world.dsn) as connection, connection.transaction():
        await outbox.put(connection, log.log_id, messages)
