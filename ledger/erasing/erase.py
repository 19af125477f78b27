"""
Erases people and single payload parts without breaking one proof: the log says that it was done, and then it is done.

The order, each step durable before the next, each one harmless when repeated:

1. `payload.erased` is appended. A person's erasure holds only if nobody erased them before, and its guard writes
   `erased_subjects` in the same transaction: from here on no reader is shown a part of theirs, not even one that a slow
   process appends later. The keys they came with are revoked in the same group, so they are refused from here on, too;
2. the person's data key is destroyed: with it every copy of their sealed parts, wherever it is;
3. their parts are deleted, page by page (parts stored before there were keys lie there in the clear, and this is what
   erases them), then what names them beside the log (`Copies`), and last the row that says who they were;
4. read models that nobody is sent to any more, and that the entry will not reach, are dropped;
5. `erasures_done` remembers that this entry is carried out.

What comes after the entry is `execution.py`. Whatever stops in between is gone on with by `rerun_erasures`. After
restoring an older backup the same finds what the log, or the folder of keys, knows to be erased. A person who comes
back is somebody new: the row that led from them to the old subject is gone, so they get other 128 random bits; the old
subject stays erased.

Nothing is appended to a log that is closed: what is erased of it, the log that goes on from it says, with its origin.

Retention: payload parts are kept as long as they may be, and then erased as everything else is: said in the log first.
Only parts go; entries, and with them every proof, stay. What is erased is "all parts below this index", so that anyone
can tell from the log alone which ones those were. Messages that never became entries lie elsewhere (`KeptMessages`),
are in no proof, and are just deleted at that age.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias
from uuid import UUID

from ledger.erasing.execution import Copies, ErasureTargets, NoCopies, RecordedErasure, execute_erasure
from ledger.errors import BrokenError, Fault, LedgerError, NoSuchLogError
from ledger.format.continuation import successor_origin
from ledger.format.entry import Branch, parse_entry
from ledger.format.event import SYSTEM_ACTOR, Event, PreparedEvent, derived_group_id, format_key, prepare
from ledger.format.events import (
    ErasureReason,
    PayloadErased,
    PayloadErasedElsewhere,
    check_erased,
    erased_elsewhere,
    to_data,
)
from ledger.format.guards import GuardCall
from ledger.format.sealing import SubjectKeys
from ledger.format.sequence import Group, Stale
from ledger.store.log_store import Appends
from ledger.store.queries import load_queries
from ledger.store.read import Log, find_log, read_entries, read_head
from ledger.store.session import Connection

ATTEMPTS: Final = 5
_QUERIES: Final = load_queries("ledger.store", "erasure.sql")


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
    """
    What was erased: by which entry of the log of `origin`; how many parts, and copies of a login beside the log, were
    deleted just now.
    """

    index: int
    origin: str
    repeated: bool
    """True if the log knew of it already."""
    parts: int
    copies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRequest:
    """Who has asked for an erasure, why, and when; `actor` is 32 hex digits, or `system` for an operator."""

    reason: ErasureReason
    at: datetime
    actor: str = SYSTEM_ACTOR


class Eraser:
    """
    Erases parts of any log.

    `connection` works as the eraser's role, in autocommit mode. `appender` knows the guard `subject.erase` and those of
    what `revoke` returns. `copies` are what this installation has of it beside the log.
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

    async def erase_subject(self, log: Log, subject: str, asked: ErasureRequest) -> Erasure:
        """
        Erase one subject from a log: its parts, its key, who that was, and what they log in with.

        Of a closed log credentials stay as they are: nothing that revokes them can be appended to it.

        Raises:
            NoSuchSubjectError: if the log has never known that subject.
            ErasureConflictError: if their credentials changed at every attempt.
            LedgerError: whatever the Appender raises; nothing is erased then.
        """
        erased = PayloadErased(subject=subject, reason=asked.reason, index=None, name=None, type=None, before=None)
        successors = await self._successors(log)
        if (known := await self._known(log, successors, erased)) is not None:
            return await self._repeat(known)
        if successors:
            self._check_known(log, subject, await self._marks(log, subject))
            return await self._append_and_erase(log, successors, erased, asked)
        return await self._erase_person(log, erased, asked)

    async def erase_person(self, log: Log, subject: str, asked: ErasureRequest) -> tuple[Erasure, ...]:
        """
        Erase the person behind a subject whole: their other actors, under which keys that others issued to them have
        acted, and then this one.

        In this order, so that whatever stops in between is gone on with by doing it again: the row of the subject that
        was named leads to the others, and goes last.

        Raises as `erase_subject`.
        """
        erased: list[Erasure] = []
        for _ in range(ATTEMPTS):  # others may be given to them meanwhile
            others = await self._one("actors_beside", log_id=log.log_id, subject=subject) or ([],)
            if not others[0]:
                break
            erased += [await self.erase_subject(log, each, asked) for each in others[0]]
        return (*erased, await self.erase_subject(log, subject, asked))

    async def erase_part(self, log: Log, index: int, name: str, asked: ErasureRequest) -> Erasure:
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

    async def erase_before(
        self,
        log: Log,
        before: int,
        asked: ErasureRequest,
        *,
        name: str | None,
        type: str | None,  # noqa: A002  (an entry's word)
    ) -> Erasure:
        """
        Erase the parts of all entries below index `before`: of one `name` or of every, of entries of one `type` or all.

        Raises:
            LedgerError: whatever the Appender raises; nothing is erased then.
        """
        erased = PayloadErased(before=before, name=name, type=type, reason=asked.reason, subject=None, index=None)
        return await self._erase(log, erased, asked)

    async def recording_log(self, log: Log) -> Log:
        """
        Return the log that says what is erased of `log`: itself, or, once it is closed, the last that goes on from it.
        """
        return (log, *await self._successors(log))[-1]

    async def _erase(self, log: Log, erased: PayloadErased, asked: ErasureRequest) -> Erasure:
        successors = await self._successors(log)
        if (known := await self._known(log, successors, erased)) is not None:
            return await self._repeat(known)
        return await self._append_and_erase(log, successors, erased, asked)

    async def _append_and_erase(
        self, log: Log, successors: Sequence[Log], erased: PayloadErased, asked: ErasureRequest
    ) -> Erasure:
        said = erased_elsewhere(log.origin, erased) if successors else erased
        saying = (log, *successors)[-1]
        event = _prepared(said, asked)
        group = Group(id=derived_group_id(said.TYPE, [saying.origin, event.key]), then=(event,))
        outcome = await self._appender.append(saying.log_id, group)
        if isinstance(outcome, Stale):
            raise LedgerError(f"log {saying.origin}: an erasure depends on no control entry, but was called stale")
        recorded = RecordedErasure(log_id=saying.log_id, index=outcome.indices.start, event=said)
        return await self._carry_out(recorded, saying, repeated=outcome.repeated)

    async def _erase_person(self, log: Log, erased: PayloadErased, asked: ErasureRequest) -> Erasure:
        event, subject = _prepared(erased, asked), erased.subject or ""
        for _ in range(ATTEMPTS):
            marks = await self._marks(log, subject)  # before looking for the entry, which comes with its mark
            if (known := await self._known(log, (), erased)) is not None:
                return await self._repeat(known)
            self._check_known(log, subject, marks)
            # One that is marked though no log says so was erased here after restoring a backup (`rerun_erasures`).
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
        """Tell whether something is there of a subject, and whether it is marked as erased."""
        is_known, is_marked = await self._one("is_known", log_id=log.log_id, subject=subject) or (False, False)
        return bool(is_known), bool(is_marked)

    def _check_known(self, log: Log, subject: str, marks: tuple[bool, bool]) -> None:
        if not any(marks):
            raise NoSuchSubjectError(f"log {log.origin}: nothing is known of the subject {subject!r:.80}")

    async def _successors(self, log: Log) -> tuple[Log, ...]:
        """Return the logs that go on from `log`, one from the other; none if it is open."""
        successors: list[Log] = []
        with suppress(NoSuchLogError):
            while True:
                last = successors[-1] if successors else log
                successors.append(await find_log(self._connection, successor_origin(last.origin)))
        return tuple(successors)

    async def _known(
        self, log: Log, successors: Sequence[Log], erased: PayloadErased
    ) -> tuple[RecordedErasure, Log] | None:
        """Return the entry that says so already, with the log it stands in, if there is one."""
        row = await self._one("erasure_of_key", log_id=log.log_id, key=_key(erased))
        if row is not None:
            return RecordedErasure(log_id=log.log_id, index=int(row[0]), event=erased), log
        logs, elsewhere = {each.log_id: each for each in successors}, erased_elsewhere(log.origin, erased)
        row = await self._one("erasure_elsewhere", log_ids=list(logs), key=_key(elsewhere)) if logs else None
        if row is None:
            return None
        return RecordedErasure(log_id=row[0], index=int(row[1]), event=elsewhere), logs[row[0]]

    async def _repeat(self, known: tuple[RecordedErasure, Log]) -> Erasure:
        return await self._carry_out(*known, repeated=True)

    async def _carry_out(self, recorded: RecordedErasure, saying: Log, *, repeated: bool) -> Erasure:
        deleted = await execute_erasure(self._erasing, recorded)
        return Erasure(
            index=recorded.index,
            origin=saying.origin,
            repeated=repeated,
            parts=deleted.parts,
            copies=deleted.copies,
        )

    async def _one(self, query: str, **parameters: object) -> Sequence[Any] | None:
        return await (await self._connection.execute(_QUERIES[query], parameters)).fetchone()


def _prepared(said: PayloadErased | PayloadErasedElsewhere, asked: ErasureRequest) -> PreparedEvent:
    check_erased(said if isinstance(said, PayloadErased) else said.erased)
    return prepare(
        Event(
            type=said.TYPE,
            version=said.VERSION,
            key=_key(said),
            actor=asked.actor,
            occurred_at=asked.at,
            data=to_data(said),
        )
    )


def _key(said: PayloadErased | PayloadErasedElsewhere) -> str:
    """Name what is erased, of a closed log with its origin: the same has the same key, so that it is erased once."""
    of = () if isinstance(said, PayloadErased) else (said.origin,)
    if said.subject is not None:
        return format_key("subject", (said.subject, *of))
    if said.index is not None:
        return format_key("part", (str(said.index), said.name or "", *of))
    return format_key("parts", (f"before-{said.before}", f"type-{said.type or ''}", f"name-{said.name or ''}", *of))


class KeptMessages(Protocol):
    """Messages of tenants that could not be handled, kept as they came: what they hold, and about whom, is unknown."""

    async def delete_before(self, log: Log, before: datetime, /) -> int:
        """Delete those of a log that are kept since before then; return how many."""

    async def reclaim(self) -> None:
        """Let the database's files forget what was deleted of them."""


async def first_index_since(connection: Connection, log: Log, since: datetime) -> int:
    """
    Return the index of the first entry recorded at or after `since`; the log's size if there is none.

    Times never fall in a log, so a binary search finds it: about twenty reads in a million entries.

    Raises:
        BrokenError: if an entry is missing.
    """
    low, high = 0, (await read_head(connection, log.log_id)).size
    while low < high:
        middle = (low + high) // 2
        entries = await read_entries(connection, log.log_id, from_index=middle, to_index=middle + 1)
        if not entries:
            raise BrokenError(
                Fault.INDEX, where="ledger.entries", expected=f"entry {middle}", found="none", index=middle
            )
        if parse_entry(entries[0]).recorded_at < since:
            low = middle + 1
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasingDesk:
    """
    An installation in which payload parts are erased.

    `connection` works as the eraser, in autocommit mode. `reclaim` lets the files of the database forget what was
    erased from a log up to an index, in the read models, too.
    """

    connection: Connection
    eraser: Eraser
    reclaim: Callable[[Log, int], Awaitable[None]]
    clock: Callable[[], datetime]
