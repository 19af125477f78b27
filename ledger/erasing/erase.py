# SPDX-License-Identifier: Apache-2.0
"""
Erases people and single payload parts without changing a proof: the log records the erasure, then it is done.

The order, each step durable before the next, and each harmless when repeated:

1. `payload.erased` is appended. A person's erasure holds only if they were not erased before, and its guard writes
   `erased_subjects` in the same transaction. From here on no reader sees a part of theirs, not even one that a slow
   process appends later. Their API keys are revoked in the same group, so they are refused from here on, too.
2. The person's data key is destroyed, and with it every copy of their sealed parts, wherever it is.
3. Their parts are deleted, page by page. Parts stored before there were keys are in the clear; this step erases them.
   Then the copies outside the log that name them are redacted (`Copies`), and last the row that says who they were is
   deleted.
4. Read models that no reader uses any more, and that the entry will not reach, are dropped.
5. `erasures_done` records that the entry has been executed.

`execution.py` does what follows the entry. `rerun_erasures` resumes an interrupted erasure. After an older backup was
restored, it also finds what the log, or the key folder, knows to be erased. A person who returns is a new subject: the
row that led from them to the old subject is gone, so they get 128 new random bits. The old subject stays erased.

Nothing is appended to a closed log. An erasure from it is recorded by its successor, with the origin of the closed log.

Retention: payload parts are kept for the configured time, and then erased like everything else: recorded in the log
first. Only parts are erased; entries, and with them every proof, stay. What is erased is "all parts below this index",
so that the log alone says which ones. Messages that never became entries are stored elsewhere (dead letters), are in
no proof, and are deleted at that age.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

from ledger.erasing.execution import Copies, ErasureTargets, NoCopies, RecordedErasure, execute_erasure
from ledger.errors import LedgerError, NoSuchLogError
from ledger.format.continuation import successor_origin
from ledger.format.entry import Branch, parse_entry
from ledger.format.event import SYSTEM_ACTOR, PreparedEvent, derived_group_id, format_key
from ledger.format.events import (
    ErasureReason,
    PayloadErased,
    PayloadErasedElsewhere,
    check_erased,
    erased_elsewhere,
    prepare_event,
)
from ledger.format.guards import GuardCall
from ledger.format.sealing import SubjectKeys
from ledger.format.sequence import Group, Stale
from ledger.store.log_store import Appends
from ledger.store.queries import load_queries
from ledger.store.read import Log, find_log
from ledger.store.session import Connection

ATTEMPTS: Final = 5
_QUERIES: Final = load_queries("ledger.store", "erasure.sql")


class NoSuchSubjectError(LedgerError):
    """That log has never held anything about that subject: nothing was erased."""


class ErasureConflictError(LedgerError):
    """The person's keys were issued or revoked during every attempt: nothing was erased; try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """The revocation of one credential of a person, in the same group as their erasure: its event, and its guards."""

    event: PreparedEvent
    guards: tuple[GuardCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocations:
    """
    The revocations of every credential of a person, as of the control entry `as_of`, so that a later one is not missed.
    """

    as_of: int | None
    each: tuple[Revocation, ...]


Revoke: TypeAlias = Callable[[Log, str], Awaitable[Revocations]]
"""Returns the revocations of every credential of a subject in a log."""


async def nothing_to_revoke(_log: Log, _subject: str) -> Revocations:
    """Return that a subject has no credentials: for installations where nobody logs in."""
    return Revocations(as_of=None, each=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """
    What was erased: by which entry of the log of `origin`, and how many parts, and copies of a login outside the log,
    were deleted by this call.
    """

    index: int
    origin: str
    repeated: bool
    """True if the log had recorded it already."""
    parts: int
    copies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRequest:
    """Who has requested an erasure, why, and when; `actor` is 32 hex digits, or `system` for an operator."""

    reason: ErasureReason
    at: datetime
    actor: str = SYSTEM_ACTOR


class Eraser:
    """
    Erases parts of any log.

    `connection` works as the eraser's role, in autocommit mode. `appender` knows the guard `subject.erase` and those of
    what `revoke` returns. `copies` are the copies that this installation keeps outside the log.
    """

    def __init__(
        self,
        connection: Connection,
        appender: Appends,
        keys: SubjectKeys,
        *,
        new_group_id: Callable[[], UUID],
        revoke: Revoke = nothing_to_revoke,
        copies: Copies | None = None,
    ) -> None:
        self._connection = connection
        self._erasing = ErasureTargets(connection=connection, keys=keys, copies=copies or NoCopies())
        self._appender = appender
        self._new_group_id = new_group_id
        self._revoke = revoke

    async def erase_subject(self, log: Log, subject: str, request: ErasureRequest) -> Erasure:
        """
        Erase one subject from a log: its parts, its key, its identity, and its credentials.

        For a closed log, credentials stay as they are: nothing that revokes them can be appended to it.

        Raises:
            NoSuchSubjectError: if the log has never held anything about that subject.
            ErasureConflictError: if their credentials changed at every attempt.
            LedgerError: whatever the Appender raises; nothing is erased then.
        """
        erased = PayloadErased(subject=subject, reason=request.reason, index=None, name=None, type=None, before=None)
        successors = await self._successors(log)
        if (known := await self._known(log, successors, erased)) is not None:
            return await self._repeat(known)
        if successors:
            self._check_known(log, subject, await self._marks(log, subject))
            return await self._append_and_erase(log, successors, erased, request)
        return await self._erase_person(log, erased, request)

    async def erase_person(self, log: Log, subject: str, request: ErasureRequest) -> tuple[Erasure, ...]:
        """
        Erase the whole person behind a subject: their other actors, which are those of keys that others issued to them,
        and then this one.

        In this order, so that repeating the call completes an interrupted erasure: the row of the named subject leads
        to the others, and is deleted last.

        Raises as `erase_subject`.
        """
        erased: list[Erasure] = []
        for _ in range(ATTEMPTS):  # more may be issued to them meanwhile
            others = await self._one("other_actors", log_id=log.log_id, subject=subject) or ([],)
            if not others[0]:
                break
            erased += [await self.erase_subject(log, each, request) for each in others[0]]
        return (*erased, await self.erase_subject(log, subject, request))

    async def erase_part(self, log: Log, index: int, name: str, request: ErasureRequest) -> Erasure:
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
        erased = PayloadErased(index=index, name=name, reason=request.reason, subject=None, type=None, before=None)
        return await self._erase(log, erased, request)

    async def erase_before(
        self,
        log: Log,
        before: int,
        request: ErasureRequest,
        *,
        name: str | None,
        type: str | None,  # noqa: A002  (an entry's word)
    ) -> Erasure:
        """
        Erase the parts of all entries below index `before`: of one `name` or of every, of entries of one `type` or all.

        Raises:
            LedgerError: whatever the Appender raises; nothing is erased then.
        """
        erased = PayloadErased(before=before, name=name, type=type, reason=request.reason, subject=None, index=None)
        return await self._erase(log, erased, request)

    async def recording_log(self, log: Log) -> Log:
        """
        Return the log that records erasures from `log`: itself or, once it is closed, the last of its successors.
        """
        return (log, *await self._successors(log))[-1]

    async def _erase(self, log: Log, erased: PayloadErased, request: ErasureRequest) -> Erasure:
        successors = await self._successors(log)
        if (known := await self._known(log, successors, erased)) is not None:
            return await self._repeat(known)
        return await self._append_and_erase(log, successors, erased, request)

    async def _append_and_erase(
        self, log: Log, successors: Sequence[Log], erased: PayloadErased, request: ErasureRequest
    ) -> Erasure:
        statement = erased_elsewhere(log.origin, erased) if successors else erased
        target = (log, *successors)[-1]
        event = _prepared(statement, request)
        group = Group(id=derived_group_id(statement.TYPE, [target.origin, event.key]), then=(event,))
        outcome = await self._appender.append(target.log_id, group)
        if isinstance(outcome, Stale):
            raise LedgerError(f"log {target.origin}: an erasure depends on no control entry, but was reported stale")
        recorded = RecordedErasure(log_id=target.log_id, index=outcome.indices.start, event=statement)
        return await self._carry_out(recorded, target, repeated=outcome.repeated)

    async def _erase_person(self, log: Log, erased: PayloadErased, request: ErasureRequest) -> Erasure:
        event, subject = _prepared(erased, request), erased.subject or ""
        for _ in range(ATTEMPTS):
            marks = await self._marks(log, subject)  # before the lookup of the entry, which is appended with its mark
            if (known := await self._known(log, (), erased)) is not None:
                return await self._repeat(known)
            self._check_known(log, subject, marks)
            # A subject that is marked without an entry was erased here after a backup was restored (`rerun_erasures`).
            once = () if marks[1] else (GuardCall("subject.erase", {"subject": subject}),)
            revocations = await self._revoke(log, subject)
            group = Group(
                id=self._new_group_id(),
                then=(*(each.event for each in revocations.each), event),
                guard=(*(guard for each in revocations.each for guard in each.guards), *once),
                as_of=revocations.as_of,
            )
            outcome = await self._appender.append(log.log_id, group)
            if not isinstance(outcome, Stale) and outcome.branch is Branch.THEN:
                recorded = RecordedErasure(log_id=log.log_id, index=outcome.indices.stop - 1, event=erased)
                return await self._carry_out(recorded, log, repeated=outcome.repeated)
        raise ErasureConflictError(f"log {log.origin}: credentials of {subject} changed {ATTEMPTS} times meanwhile")

    async def _marks(self, log: Log, subject: str) -> tuple[bool, bool]:
        """Return whether something about a subject is stored, and whether it is marked as erased."""
        is_known, is_marked = await self._one("is_known", log_id=log.log_id, subject=subject) or (False, False)
        return bool(is_known), bool(is_marked)

    def _check_known(self, log: Log, subject: str, marks: tuple[bool, bool]) -> None:
        if not any(marks):
            raise NoSuchSubjectError(f"log {log.origin}: nothing is known of the subject {subject!r:.80}")

    async def _successors(self, log: Log) -> tuple[Log, ...]:
        """Return the logs that continue `log`, one after the other; none if it is open."""
        successors: list[Log] = []
        with suppress(NoSuchLogError):
            while True:
                last = successors[-1] if successors else log
                successors.append(await find_log(self._connection, successor_origin(last.origin)))
        return tuple(successors)

    async def _known(
        self, log: Log, successors: Sequence[Log], erased: PayloadErased
    ) -> tuple[RecordedErasure, Log] | None:
        """Return the entry that records this erasure already, with its log, if there is one."""
        row = await self._one("erasure_of_key", log_id=log.log_id, key=_key(erased))
        if row is not None:
            return RecordedErasure(log_id=log.log_id, index=int(row[0]), event=erased), log
        logs, elsewhere = {each.log_id: each for each in successors}, erased_elsewhere(log.origin, erased)
        row = await self._one("erasure_in_successors", log_ids=list(logs), key=_key(elsewhere)) if logs else None
        if row is None:
            return None
        return RecordedErasure(log_id=row[0], index=int(row[1]), event=elsewhere), logs[row[0]]

    async def _repeat(self, known: tuple[RecordedErasure, Log]) -> Erasure:
        return await self._carry_out(*known, repeated=True)

    async def _carry_out(self, recorded: RecordedErasure, target: Log, *, repeated: bool) -> Erasure:
        deleted = await execute_erasure(self._erasing, recorded)
        return Erasure(
            index=recorded.index,
            origin=target.origin,
            repeated=repeated,
            parts=deleted.parts,
            copies=deleted.copies,
        )

    async def _one(self, query: str, **parameters: object) -> Sequence[Any] | None:
        return await (await self._connection.execute(_QUERIES[query], parameters)).fetchone()


def _prepared(statement: PayloadErased | PayloadErasedElsewhere, request: ErasureRequest) -> PreparedEvent:
    check_erased(statement if isinstance(statement, PayloadErased) else statement.erased)
    return prepare_event(statement, key=_key(statement), actor=request.actor, occurred_at=request.at)


def _key(statement: PayloadErased | PayloadErasedElsewhere) -> str:
    """
    Return the key of an erasure, with the origin of a closed log: the same erasure has the same key, so it is done
    once.
    """
    of = () if isinstance(statement, PayloadErased) else (statement.origin,)
    if statement.subject is not None:
        return format_key("subject", (statement.subject, *of))
    if statement.index is not None:
        return format_key("part", (str(statement.index), statement.name or "", *of))
    filters = (f"type-{statement.type or ''}", f"name-{statement.name or ''}")
    return format_key("parts", (f"before-{statement.before}", *filters, *of))
