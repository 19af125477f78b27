# SPDX-License-Identifier: Apache-2.0
"""
The handler of lineage from Kafka: each message is one OpenLineage event or a batch, for the log of the topic's tenant.

The same event may arrive again, from the topic or over HTTP: it is in the log once, whoever sent it first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ledger.errors import GroupMismatchError
from ledger.format.entry import Branch
from ledger.format.event import SYSTEM_ACTOR
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.session import Connection
from projections.errors import InvalidLineageError
from projections.lineage.ingest import LineageGroup, to_groups
from streams.errors import PoisonError
from streams.handler import Append, DeadLetter, Effects, Message


class ReceiveLineage:
    """Turns raw OpenLineage events into entries (implements `Handler`); `random` yields that many random bytes."""

    name: str = "lineage"
    types: frozenset[str] = frozenset()

    def __init__(self, *, clock: Callable[[], datetime], random: Callable[[int], bytes]) -> None:
        self._clock = clock
        self._random = random

    async def handle(
        self,
        batch: Sequence[Message],
        reading: Connection,  # noqa: ARG002 - part of the Protocol; nothing is read here
    ) -> Effects:
        """
        Return a group for each event; nothing is read. A batch with events that are not valid is a dead letter, too: it
        is kept with its errors, and its other events are appended.

        Raises:
            PoisonError: if a message is neither a valid event nor a batch, or no message of a topic.
        """
        groups: list[Group] = []
        dead: list[DeadLetter] = []
        for message in batch:
            if not isinstance(message.value, bytes):
                raise PoisonError(f"message {message.id}: expected the bytes of an OpenLineage event, found an entry")
            try:
                arrived = to_groups(message.value, actor=SYSTEM_ACTOR, at=self._clock(), random=self._random)
            except InvalidLineageError as error:
                raise PoisonError(str(error)) from error
            groups += [event.group for event in arrived.events if isinstance(event, LineageGroup)]
            wrong = [event for event in arrived.events if isinstance(event, InvalidLineageError)]
            if wrong:
                more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
                dead.append(DeadLetter(message=message, reason=f"{wrong[0]}{more}"))
        return Effects(groups=tuple(groups), dead=tuple(dead))


def append_once(append: Append, clock: Callable[[], datetime]) -> Append:
    """
    Return `append` for lineage, to which an event that is in the log already is no error.

    The id of a lineage group is made of run, type, time and payload, so other content under it differs in who sent it,
    or in the time it was given where the event had none of its own.
    """

    async def append_or_leave(log_id: int, group: Group) -> Appended | Stale:
        try:
            return await append(log_id, group)
        except GroupMismatchError:
            return Appended(branch=Branch.THEN, indices=range(0), recorded_at=clock(), repeated=True)

    return append_or_leave
