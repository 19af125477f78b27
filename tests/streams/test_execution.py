# SPDX-License-Identifier: Apache-2.0
"""What is away for a while is waited for; only what the log will never take is put apart as dead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast
from uuid import UUID

import pytest

from ledger.errors import (
    BrokenError,
    Fault,
    GroupMismatchError,
    LedgerError,
    LogUnavailableError,
    OutcomeUnknownError,
    QueueFullError,
    UnconfirmedLogError,
    UnsafeServerError,
)
from ledger.format.sealing import SubjectKeysError
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.read import Log
from ledger.store.session import Connection
from streams.errors import TransientError
from streams.execution import BatchOutcome, handle_batch
from streams.handler import Append, Effects, Message
from testkit.ledger.appending import group

LOG = Log(log_id=7, origin="lakeproof.invalid/log", tenant=UUID(int=1), reader=None)
MESSAGES = [Message(id=f"topic/0/{number}", log=LOG, value=b"{}") for number in range(3)]


class Telling:
    """Leads to one group for each message."""

    name = "telling"
    types = frozenset[str]()

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:  # noqa: ARG002 - a handler's shape
        """Return the groups."""
        return Effects(groups=tuple(group() for _ in batch))


def failing(error: LedgerError) -> Append:
    async def append(log_id: int, wanted: Group) -> Appended | Stale:
        raise error

    return append


async def handled(append: Append) -> BatchOutcome:
    return await handle_batch(Telling(), MESSAGES, cast("Connection", None), append)


@pytest.mark.parametrize(
    "error",
    [
        LogUnavailableError("the server is away"),
        UnconfirmedLogError("nobody has confirmed it"),
        UnsafeServerError("fsync = off"),
        SubjectKeysError("the disk of the keys is full"),
        QueueFullError("too many wait"),
        OutcomeUnknownError("who knows"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_outage_makes_no_message_dead(error: LedgerError) -> None:
    with pytest.raises(TransientError, match=str(error)):
        await handled(failing(error))


async def test_what_the_log_will_never_take_is_put_apart() -> None:
    outcome = await handled(failing(GroupMismatchError("other content")))
    assert [letter.message for letter in outcome.dead] == MESSAGES
    assert outcome.groups == 0


async def test_corruption_stops_everything() -> None:
    with pytest.raises(BrokenError):
        await handled(failing(BrokenError(Fault.HEAD, where="ledger.heads", expected="what was", found="another")))
