"""
Erases people and single payload parts without breaking one proof: the log says that it was done, and then it is done.

The order, each step durable before the next, each one harmless when repeated:

1. `payload.erased` is appended. A person's erasure holds only if nobody erased them before, and its guard writes
   `erased_subjects` in the same transaction: from here on no reader is shown a part of theirs, not even one that a slow
   process appends later. The keys they came with are revoked in the same group, so they are refused from here on, too;
2. the person's data key is destroyed: with it every copy of their sealed parts, wherever it is;
3. the row that says who they were is deleted, then their parts, page by page (parts stored before there were keys lie
   there in the clear, and this is what erases them);
4. `erasures_done` remembers that this entry is carried out.

Whatever stops in between is gone on with by `rerun_erasures`, before anything is served. After restoring an older
backup the same finds what the log, or the folder of keys, knows to be erased. A person who comes back is somebody new:
the row that led from them to the old subject is gone, so they get other 128 random bits; the old subject stays erased.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

from ledger.entry import Branch, parse_entry
from ledger.errors import LedgerError
from ledger.event import SYSTEM_ACTOR, Event, PreparedEvent, derived_group_id, prepare
from ledger.events import ErasureReason, PayloadErased, check_erased, from_data, to_data
from ledger.guards import GuardCall
from ledger.keys import format_key
from ledger.log_store import Appends
from ledger.queries import load_queries
from ledger.read import Connection, Log
from ledger.sealing import SubjectKeys
from ledger.sequence import Group, Stale

ATTEMPTS: Final = 5
PAGE_PARTS: Final = 10_000
"""Parts deleted in one transaction: well under a second, and nobody waits for the rest."""
PAGE_ENTRIES: Final = 10_000

_QUERIES: Final = load_queries("ledger", "erasure.sql")


class NoSuchSubjectError(LedgerError):
    """Nothing is known of that subject in that log, and nothing was: nothing was erased."""


class ErasureConflictError(LedgerError):
    """Keys of the person were made or revoked meanwhile, again and again: nothing was erased; try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """What ends a credential of a person, in the same group as their erasure: its events, and what they depend on."""

    event: PreparedEvent
    guards: tuple[GuardCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocations:
    """What ends every credential of a person, as of the control entry `as_of`: one made later is not overlooked."""

    as_of: int | None
    each: tuple[Revocation, ...]


Revoke: TypeAlias = Callable[[Log, str], Awaitable[Revocations]]
"""Returns what would end every credential of a subject in a log."""


async def nothing_to_revoke(_log: Log, _subject: str) -> Revocations:
    """Return that a subject has no credentials: where nobody logs in."""
    return Revocations(as_of=None, each=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """What was erased: by which entry, and how many parts were deleted just now."""

    index: int
    repeated: bool
    """True if the log knew of it already."""
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who has asked for an erasure, why, and when; `actor` is 32 hex digits, or `system` for an operator."""

    reason: ErasureReason
    at: datetime
    actor: str = SYSTEM_ACTOR


class Eraser:
    """
    Erases parts of any log.

    `connection` works as the eraser's role, in autocommit mode. `appender` knows the guard `subject.erase` and those of
    what `revoke` returns.
    """

    def __init__(
        self,
        connection: Connection,
        appender: Appends,
        keys: SubjectKeys,
        *,
        new_group_id: Callable[[], UUID],
        revoke: Revoke = nothing_to_revoke,
    ) -> None:
        self._connection = connection
        self._appender = appender
        self._keys = keys
        self._new_group_id = new_group_id
        self._revoke = revoke

    async def erase_subject(self, log: Log, subject: str, asked: Asked) -> Erasure:
        """
        Erase a person from a log: their parts, their key, who they were, and what they log in with.

        Raises:
            NoSuchSubjectError: if the log has never known that subject.
            ErasureConflictError: if their credentials changed at every attempt.
            LedgerError: whatever the Appender raises; nothing is erased then.
        """
        erased = PayloadErased(subject=subject, reason=asked.reason, index=None, name=None, type=None, before=None)
        index, repeated = await self._record_person(log, erased, asked)
        return await self._carry_out(log.log_id, index, erased, repeated=repeated)

    async def erase_part(self, log: Log, index: int, name: str, asked: Asked) -> Erasure:
        """
        Erase one part of one entry.

        Raises:
            NoSuchSubjectError: if there is no such entry, or it never had such a part.
            LedgerError: whatever the Appender raises; nothing is erased then.
        """
        row = await self._one("entry_at", log_id=log.log_id, index=index)
        if row is None or name not in parse_entry(bytes(row[0])).parts:
            raise NoSuchSubjectError(
                f"log {log.origin}: expected an entry {index} with a part {name!r:.80}, found none"
            )
        erased = PayloadErased(index=index, name=name, reason=asked.reason, subject=None, type=None, before=None)
        return await self._erase(log, erased, asked)

    async def erase_before(self, log: Log, before: int, asked: Asked, *, name: str | None, type: str | None) -> Erasure:  # noqa: A002
        """
        Erase the parts of all entries below index `before`: of one `name` or of every, of entries of one `type` or all.

        Raises:
            LedgerError: whatever the Appender raises; nothing is erased then.
        """
        erased = PayloadErased(before=before, name=name, type=type, reason=asked.reason, subject=None, index=None)
        return await self._erase(log, erased, asked)

    async def _erase(self, log: Log, erased: PayloadErased, asked: Asked) -> Erasure:
        key = _key(erased)
        known = await self._one("erasure_of_key", log_id=log.log_id, key=key)
        if known is not None:
            return await self._carry_out(log.log_id, known[0], erased, repeated=True)
        group = Group(id=derived_group_id(erased.TYPE, [log.origin, key]), then=(_prepared(erased, asked),))
        outcome = await self._appender.append(log.log_id, group)
        if isinstance(outcome, Stale):
            raise LedgerError(f"log {log.origin}: an erasure depends on no control entry, but was called stale")
        return await self._carry_out(log.log_id, outcome.indices.start, erased, repeated=outcome.repeated)

    async def _record_person(self, log: Log, erased: PayloadErased, asked: Asked) -> tuple[int, bool]:
        """Return the index of the entry that erases a person, and whether it was there before."""
        subject = {"log_id": log.log_id, "subject": erased.subject}
        event = _prepared(erased, asked)
        for _ in range(ATTEMPTS):
            known = await self._one("erasure_of_key", log_id=log.log_id, key=event.key)
            if known is not None:
                return int(known[0]), True
            if not ((row := await self._one("is_known", **subject)) and row[0]):
                raise NoSuchSubjectError(f"log {log.origin}: nothing is known of the subject {erased.subject!r:.80}")
            revocations = await self._revoke(log, erased.subject or "")
            group = Group(
                id=self._new_group_id(),
                then=(*(each.event for each in revocations.each), event),
                guard=(
                    *(guard for each in revocations.each for guard in each.guards),
                    GuardCall("subject.erase", {"subject": erased.subject}),
                ),
                as_of=revocations.as_of,
            )
            outcome = await self._appender.append(log.log_id, group)
            if not isinstance(outcome, Stale) and outcome.branch is Branch.THEN:
                return outcome.indices.stop - 1, outcome.repeated
        raise ErasureConflictError(
            f"log {log.origin}: credentials of {erased.subject} changed {ATTEMPTS} times meanwhile"
        )

    async def _carry_out(self, log_id: int, index: int, erased: PayloadErased, *, repeated: bool) -> Erasure:
        parts = await carry_out(self._connection, self._keys, log_id, index, erased)
        return Erasure(index=index, repeated=repeated, parts=parts)

    async def _one(self, query: str, **parameters: object) -> Sequence[Any] | None:
        return await (await self._connection.execute(_QUERIES[query], parameters)).fetchone()


async def carry_out(connection: Connection, keys: SubjectKeys, log_id: int, index: int, erased: PayloadErased) -> int:
    """
    Do what the `payload.erased` at `index` says, and remember that it is done; return how many parts were deleted.

    Raises:
        SubjectKeysError: if a key cannot be destroyed; nothing is deleted then.
    """
    if erased.subject is not None:
        deleted = await erase_person(connection, keys, log_id, erased.subject)
    elif erased.index is not None:
        single = {"log_id": log_id, "index": erased.index, "name": erased.name}
        deleted = (await connection.execute(_QUERIES["delete_single"], single)).rowcount
    else:
        deleted = await _delete_before(connection, log_id, erased)
    await connection.execute(_QUERIES["done"], {"log_id": log_id, "index": index})
    return deleted


async def erase_person(connection: Connection, keys: SubjectKeys, log_id: int, subject: str) -> int:
    """
    Destroy the key of a subject, then delete who it was and its parts; return how many parts those were.

    Raises:
        SubjectKeysError: if the key cannot be destroyed; nothing is deleted then.
    """
    where = {"log_id": log_id, "subject": subject}
    await connection.execute(_QUERIES["subject_erase"], where)
    await asyncio.to_thread(keys.destroy, subject)
    await connection.execute(_QUERIES["delete_identity"], where)
    deleted, page = 0, PAGE_PARTS
    while page == PAGE_PARTS:
        page = (await connection.execute(_QUERIES["delete_of_subject"], where | {"limit": PAGE_PARTS})).rowcount
        deleted += page
    return deleted


async def _delete_before(connection: Connection, log_id: int, erased: PayloadErased) -> int:
    deleted, bounds = 0, {"log_id": log_id, "from_index": 0, "to_index": erased.before}
    chosen = {"name": erased.name, "type": erased.type}
    while (row := await (await connection.execute(_QUERIES["next_part"], bounds)).fetchone()) and row[0] is not None:
        page = {"from_index": row[0], "to_index": min(row[0] + PAGE_ENTRIES, erased.before or 0)}
        # Not prepared: which of the two filters there are decides how the rows are best found.
        cursor = await connection.execute(_QUERIES["delete_between"], bounds | chosen | page, prepare=False)
        deleted += cursor.rowcount
        bounds["from_index"] = page["to_index"]
    return deleted


async def reclaim(connection: Connection) -> None:
    """
    Let the database's files forget what was deleted: the parts' space is free to be written over, and the table of
    identities is written anew (it is small, and locked for that moment).

    `connection` works as the eraser's role, in autocommit mode.
    """
    await connection.execute(_QUERIES["vacuum_parts"])
    await connection.execute(_QUERIES["rewrite_subjects"])


def parse_erasure(data: bytes) -> PayloadErased:
    """
    Return what a `payload.erased` entry says.

    Raises:
        FormatError: if it is no such entry of a version that is known here.
    """
    return check_erased(from_data(PayloadErased, parse_entry(data).data))


def _prepared(erased: PayloadErased, asked: Asked) -> PreparedEvent:
    return prepare(
        Event(
            type=erased.TYPE,
            version=erased.VERSION,
            key=_key(erased),
            actor=asked.actor,
            occurred_at=asked.at,
            data=to_data(check_erased(erased)),
        )
    )


def _key(erased: PayloadErased) -> str:
    """Name what is erased: the same thing has the same key, so that it is erased once."""
    if erased.subject is not None:
        return format_key("subject", (erased.subject,))
    if erased.index is not None:
        return format_key("part", (str(erased.index), erased.name or ""))
    return format_key("parts", (f"before-{erased.before}", f"type-{erased.type or ''}", f"name-{erased.name or ''}"))
