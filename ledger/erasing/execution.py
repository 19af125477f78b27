# SPDX-License-Identifier: Apache-2.0
"""
Executes a `payload.erased` entry: destroys the person's key, deletes parts and identity; then records that it is done.

Copies of that data outside the log are not known here; `Copies` reaches them.

Every step is harmless when repeated, so an interrupted erasure is executed again from the beginning. One process at a
time executes an erasure, because two that delete the same parts could deadlock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from ledger.errors import NoSuchLogError
from ledger.format.entry import parse_entry
from ledger.format.events import PayloadErased, PayloadErasedElsewhere, check_erased, from_data
from ledger.format.sealing import SubjectKeys
from ledger.store.queries import load_queries
from ledger.store.read import Log, find_log
from ledger.store.session import Connection

PAGE_PARTS: Final = 10_000
"""Parts deleted in one transaction: well under a second."""
PAGE_ENTRIES: Final = 10_000

_QUERIES: Final = load_queries("ledger.store", "erasure.sql")


class Copies(Protocol):
    """Whatever else holds copies of erased data: read models, messages, files outside the database."""

    async def forget_person(self, log_id: int, subject: str, /) -> int:
        """
        Redact the login of a subject in what is kept outside the log; return how many copies that were.

        The row with the identity is deleted only after this, because without it the login would be unknown. Harmless
        when repeated.
        """

    async def forget_closed(self, log: Log, erased: PayloadErased, /) -> None:
        """Delete what came from erased parts of a closed log from its read models, which no entry of it will reach."""

    async def drop_superseded(self) -> None:
        """Drop superseded generations of read models, which no reader uses and no erasure reached."""


class NoCopies:
    """For installations that are nothing but a log."""

    async def forget_person(self, _log_id: int, _subject: str, /) -> int:
        """Return that there is no copy."""
        return 0

    async def forget_closed(self, _log: Log, _erased: PayloadErased, /) -> None:
        """Do nothing."""

    async def drop_superseded(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """What was deleted: how many payload parts, and how many copies of a login outside the log."""

    parts: int
    copies: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureTargets:
    """
    Where erasures are executed. `connection` works as the eraser's role, in autocommit mode.
    """

    connection: Connection
    keys: SubjectKeys
    copies: Copies = field(default_factory=NoCopies)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedErasure:
    """An erasure that is recorded in the log of `log_id` at `index`: of that log's own parts, or of a closed one's."""

    log_id: int
    index: int
    event: PayloadErased | PayloadErasedElsewhere


async def execute_erasure(erasing: ErasureTargets, recorded: RecordedErasure) -> Deleted:
    """
    Execute an entry once nobody else does, and record that it is done; return what was deleted.

    Raises:
        SubjectKeysError: if a key cannot be destroyed; nothing is deleted then.
        LedgerError: if a copy outside the log cannot be reached; the rest is deleted then.
    """
    where = {"log_id": recorded.log_id, "index": recorded.index}
    await erasing.connection.execute(_QUERIES["await_erasure_lock"], where)
    async with _locked(erasing.connection, where):
        return await _execute(erasing, recorded)


async def execute_erasure_if_free(erasing: ErasureTargets, recorded: RecordedErasure) -> Deleted | None:
    """
    Do the same, unless another process is doing it: then return None. Raises as `execute_erasure`.
    """
    where = {"log_id": recorded.log_id, "index": recorded.index}
    row = await (await erasing.connection.execute(_QUERIES["try_erasure_lock"], where)).fetchone()
    if row is None or not row[0]:
        return None
    async with _locked(erasing.connection, where):
        return await _execute(erasing, recorded)


async def erase_person(erasing: ErasureTargets, log_id: int, subject: str) -> Deleted:
    """
    Destroy the key of a subject, then delete its parts, every copy of its login outside the log, and its identity.

    Raises as `execute_erasure`.
    """
    connection, where = erasing.connection, {"log_id": log_id, "subject": subject}
    await connection.execute(_QUERIES["subject_erase"], where)
    await asyncio.to_thread(erasing.keys.destroy, subject)
    deleted, page = 0, PAGE_PARTS
    while page == PAGE_PARTS:
        page = (await connection.execute(_QUERIES["delete_of_subject"], where | {"limit": PAGE_PARTS})).rowcount
        deleted += page
    copies = await erasing.copies.forget_person(log_id, subject)
    await connection.execute(_QUERIES["delete_identity"], where)
    return Deleted(parts=deleted, copies=copies)


async def reclaim(connection: Connection) -> None:
    """
    Remove what was deleted from the database's files: the space of the parts can be overwritten, and the table of
    identities is rewritten (it is small, and locked for that moment).

    `connection` works as the eraser's role, in autocommit mode.
    """
    await connection.execute(_QUERIES["vacuum_parts"])
    await connection.execute(_QUERIES["rewrite_subjects"])


def parse_erasure(data: bytes) -> PayloadErased | PayloadErasedElsewhere:
    """
    Return the event of a `payload.erased` entry.

    Raises:
        FormatError: if it is no such entry of a version that is known here.
    """
    entry = parse_entry(data)
    if entry.version != PayloadErasedElsewhere.VERSION:
        return check_erased(from_data(PayloadErased, entry.data))
    elsewhere = from_data(PayloadErasedElsewhere, entry.data)
    check_erased(elsewhere.erased)
    return elsewhere


async def _execute(erasing: ErasureTargets, recorded: RecordedErasure) -> Deleted:
    log_id, statement = recorded.log_id, recorded.event
    closed = None
    if isinstance(statement, PayloadErasedElsewhere):
        try:
            closed = await find_log(erasing.connection, statement.origin)
        except NoSuchLogError:
            return Deleted(parts=0)  # not in this database: if it is restored, this is done then
        log_id, statement = closed.log_id, statement.erased
    deleted = await _delete(erasing, log_id, statement)
    if closed is not None:
        await erasing.copies.forget_closed(closed, statement)
    await erasing.copies.drop_superseded()
    await erasing.connection.execute(_QUERIES["done"], {"log_id": recorded.log_id, "index": recorded.index})
    return deleted


async def _delete(erasing: ErasureTargets, log_id: int, erased: PayloadErased) -> Deleted:
    connection = erasing.connection
    if erased.subject is not None:
        return await erase_person(erasing, log_id, erased.subject)
    if erased.index is not None:
        single = {"log_id": log_id, "index": erased.index, "name": erased.name}
        return Deleted(parts=(await connection.execute(_QUERIES["delete_single"], single)).rowcount)
    return Deleted(parts=await _delete_before(connection, log_id, erased))


async def _delete_before(connection: Connection, log_id: int, erased: PayloadErased) -> int:
    deleted, bounds = 0, {"log_id": log_id, "from_index": 0, "to_index": erased.before}
    chosen = {"name": erased.name, "type": erased.type}
    while (row := await (await connection.execute(_QUERIES["next_part"], bounds)).fetchone()) and row[0] is not None:
        page = {"from_index": row[0], "to_index": min(row[0] + PAGE_ENTRIES, erased.before or 0)}
        # Not prepared: the best plan depends on which of the two filters is used.
        cursor = await connection.execute(_QUERIES["delete_between"], bounds | chosen | page, prepare=False)
        deleted += cursor.rowcount
        bounds["from_index"] = page["to_index"]
    return deleted


@asynccontextmanager
async def _locked(connection: Connection, where: dict[str, int]) -> AsyncIterator[None]:
    """Release the advisory lock that was taken; a lost session has released it already."""
    try:
        yield
    finally:
        if not connection.closed:
            await connection.execute(_QUERIES["release_erasure_lock"], where)
