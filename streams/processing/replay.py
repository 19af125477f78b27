# SPDX-License-Identifier: Apache-2.0
"""
Replays dead letters: each is handled once more, alone, by its handler, or sent again to its sink.

As for any batch, groups go to the log first, under ids that derive from the message; then the outbox and the removal of
the letter are one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ledger.store.read import read_entries
from ledger.store.session import Connection
from streams.connections import connect_reading, connect_storing
from streams.errors import StreamError, TransientError
from streams.execution import handle_batch
from streams.handler import Append, Handler, Message, OutboxMessage
from streams.state import dead_letters, outbox
from streams.state.cursors import read_message
from streams.state.dead_letters import READ_MAX, StoredLetter, read_letters
from streams.state.leases import handler_duty, sink_duty

_SINK: Final = sink_duty("")


class ReplayResult(StrEnum):
    """The result of a replay."""

    HANDLED = "handled"
    SENT_AGAIN = "in the outbox again"
    DEAD = "dead again"
    POSTPONED = "not now"
    GONE = "gone"
    UNKNOWN = "no such handler here"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedLetter:
    """A dead letter and the result of its replay; `reason` is empty if it was handled."""

    letter: StoredLetter
    result: ReplayResult
    reason: str


async def replay(
    dsn: str,
    handlers: Sequence[Handler],
    append: Append,
    *,
    log_id: int | None = None,
    source: str | None = None,
    id: str | None = None,  # noqa: A002 - the letter's own member
) -> AsyncIterator[ReplayedLetter]:
    """
    Handle dead letters again, oldest first, and yield what became of each: of a log, a source, one message, if given.

    `dsn` works as the streams' role; `handlers` may be of any source. Letters that come meanwhile may be among them.

    Raises:
        psycopg.OperationalError: if a connection is lost; what was yielded is stored.
        FormatError, BrokenError: if the log is corrupt.
    """
    known = {handler_duty(handler.name): handler for handler in handlers}
    async with connect_reading(dsn) as reading, connect_storing(dsn) as storing:
        last: StoredLetter | None = None
        while letters := await read_letters(reading, log_id=log_id, source=source, id=id, after=last, limit=READ_MAX):
            for letter in letters:
                if letter.source.startswith(_SINK):
                    yield await _send_again(letter, storing)
                elif (handler := known.get(letter.source)) is not None:
                    yield await _handle_again(letter, handler, reading, storing, append)
                else:
                    yield ReplayedLetter(
                        letter=letter, result=ReplayResult.UNKNOWN, reason=f"{letter.source} does not run here"
                    )
            last = letters[-1]


async def _handle_again(
    letter: StoredLetter, handler: Handler, reading: Connection, storing: Connection, append: Append
) -> ReplayedLetter:
    try:
        outcome = await handle_batch(handler, [await _message(letter, reading)], reading, append)
    except TransientError as error:
        return ReplayedLetter(letter=letter, result=ReplayResult.POSTPONED, reason=str(error))
    if outcome.dead:
        reason = outcome.dead[0].reason
        await dead_letters.record_retry(storing, letter, reason)
        return ReplayedLetter(letter=letter, result=ReplayResult.DEAD, reason=reason)
    async with storing.transaction():
        # Whoever removes it stores what it led to; a second replay finds it gone, behind the first one's commit.
        if not await dead_letters.remove(storing, letter):
            return ReplayedLetter(letter=letter, result=ReplayResult.GONE, reason="another has handled it meanwhile")
        await outbox.put(storing, letter.log.log_id, outcome.outbox)
    return ReplayedLetter(letter=letter, result=ReplayResult.HANDLED, reason="")


async def _send_again(letter: StoredLetter, storing: Connection) -> ReplayedLetter:
    message = OutboxMessage(
        sink=letter.source.removeprefix(_SINK), id=letter.id, key=letter.key or "", payload=letter.payload or b""
    )
    async with storing.transaction():
        if not await dead_letters.remove(storing, letter):
            return ReplayedLetter(letter=letter, result=ReplayResult.GONE, reason="another has sent it again meanwhile")
        await outbox.put(storing, letter.log.log_id, [message])
    return ReplayedLetter(letter=letter, result=ReplayResult.SENT_AGAIN, reason="")


async def _message(letter: StoredLetter, reading: Connection) -> Message:
    if letter.index is None:
        return Message(id=letter.id, log=letter.log, value=letter.payload or b"")
    span = {"from_index": letter.index, "to_index": letter.index + 1}
    entries = await read_entries(reading, letter.log.log_id, **span)
    if not entries:
        raise StreamError(f"{letter.source}: expected entry {letter.index} of {letter.log.origin}, found none")
    return read_message(letter.log, letter.index, entries[0])
