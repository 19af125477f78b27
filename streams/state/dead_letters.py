# SPDX-License-Identifier: Apache-2.0
"""
Dead letters: messages that could not be handled or were rejected, with the reason, kept for a replay.

An entry stays in the log, and its dead letter refers to it; of any other message the bytes are kept. A replay gives the
message to the same handler (or its sink's outbox) once more. The transaction that stores its effects removes the dead
letter, so it is handled once, however many processes replay it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ledger.store.queries import load_queries
from ledger.store.read import Log
from ledger.store.session import Connection
from projections.entries import LogEntry, storable
from streams.handler import DeadLetter
from streams.state.outbox import QueuedMessage

READ_MAX: Final = 500
REMOVED_MAX: Final = 1_000
"""Deleted in one transaction: each may be as large as a message can be."""
REASON_LENGTH_MAX: Final = 2_000
TABLE: Final = "streams.dead_letters"

_QUERIES: Final = load_queries("streams", "dead_letters.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLetter:
    """
    A dead letter as it is stored. `source` is a duty: of a handler, or of a sink.

    Of an entry it has the `index`; of another message the `payload`, and for a sink also its `key`.
    """

    log: Log
    source: str
    id: str
    index: int | None
    key: str | None
    payload: bytes | None
    reason: str
    died_at: datetime
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterCount:
    """How many dead letters a source has in a log."""

    source: str
    log: Log
    count: int


async def put(connection: Connection, source: str, dead: Sequence[DeadLetter]) -> None:
    """
    Store messages that a handler cannot handle, within the open transaction that moves the source's position.
    """
    entries = [letter.message.value if isinstance(letter.message.value, LogEntry) else None for letter in dead]
    payloads = [letter.message.value if isinstance(letter.message.value, bytes) else None for letter in dead]
    await _put(
        connection,
        log_ids=[letter.message.log.log_id for letter in dead],
        sources=[source] * len(dead),
        ids=[storable(letter.message.id) for letter in dead],
        indices=[entry and entry.entry.index for entry in entries],
        keys=[None] * len(dead),
        payloads=payloads,
        reasons=[letter.reason for letter in dead],
        attempts=[letter.attempts for letter in dead],
    )


async def put_refused(connection: Connection, source: str, refused: Sequence[tuple[QueuedMessage, str]]) -> None:
    """
    Store messages that a sink rejected, with the reasons, in the open transaction that removes them from the outbox.
    """
    outgoing = [each for each, _ in refused]
    await _put(
        connection,
        log_ids=[each.log.log_id for each in outgoing],
        sources=[source] * len(refused),
        ids=[each.message.id for each in outgoing],
        indices=[None] * len(refused),
        keys=[each.message.key for each in outgoing],
        payloads=[each.message.payload for each in outgoing],
        reasons=[reason for _, reason in refused],
        attempts=[each.attempts + 1 for each in outgoing],
    )


async def _put(connection: Connection, *, reasons: Sequence[str], **columns: Sequence[object]) -> None:
    if reasons:
        await connection.execute(_QUERIES["put"], {"reasons": [_bounded(reason) for reason in reasons], **columns})


async def read_letters(
    connection: Connection,
    *,
    log_id: int | None = None,
    source: str | None = None,
    id: str | None = None,  # noqa: A002 - the letter's own member
    after: StoredLetter | None = None,
    limit: int = READ_MAX,
) -> list[StoredLetter]:
    """
    Return dead letters that the connection's role may see, oldest first: of a log, a source, or one message, if given.

    `after` is the last letter of the page before.
    """
    which = {
        "log_id": log_id,
        "source": source,
        "id": id,
        "after": after and after.died_at,
        "after_log_id": after and after.log.log_id,
        "after_source": after and after.source,
        "after_id": after and after.id,
        "limit": limit,
    }
    rows = await connection.execute(_QUERIES["read"], which)
    return [
        StoredLetter(
            log=Log(log_id=row[0], origin=row[1], tenant=row[2], reader=row[3]),
            source=row[4],
            id=row[5],
            index=row[6],
            key=row[7],
            payload=row[8] if row[8] is None else bytes(row[8]),
            reason=row[9],
            died_at=row[10],
            attempts=row[11],
        )
        for row in await rows.fetchall()
    ]


async def remove(connection: Connection, letter: StoredLetter) -> bool:
    """
    Remove a dead letter; return False if it was removed before. The row stays locked until the transaction ends.
    """
    return await (await connection.execute(_QUERIES["remove"], _which(letter))).fetchone() is not None


async def delete_older(connection: Connection, log: Log, before: datetime) -> int:
    """
    Delete the messages of a log that were kept before a time, page by page; return their number.

    Dead letters of entries stay, since they hold no content. `connection` is in autocommit mode.
    """
    deleted, page = 0, REMOVED_MAX
    which = {"log_id": log.log_id, "before": before, "limit": REMOVED_MAX}
    while page == REMOVED_MAX:
        page = (await connection.execute(_QUERIES["delete_older"], which)).rowcount
        deleted += page
    return deleted


async def record_retry(connection: Connection, letter: StoredLetter, reason: str) -> None:
    """
    Store that a message was tried once more, and why it failed again.
    """
    await connection.execute(_QUERIES["died_again"], {**_which(letter), "reason": _bounded(reason)})


async def count_letters(connection: Connection) -> list[LetterCount]:
    """
    Return how many dead letters there are, by log and source, as far as the connection's role may see.
    """
    rows = await connection.execute(_QUERIES["counts"])
    return [
        LetterCount(source=source, log=Log(log_id=log_id, origin=origin, tenant=tenant, reader=reader), count=count)
        for source, log_id, origin, tenant, reader, count in await rows.fetchall()
    ]


def _which(letter: StoredLetter) -> dict[str, object]:
    return {"log_id": letter.log.log_id, "source": letter.source, "id": letter.id}


def _bounded(reason: str) -> str:
    return storable(reason)[:REASON_LENGTH_MAX] or "no reason was given"
