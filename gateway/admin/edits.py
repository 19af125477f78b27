# SPDX-License-Identifier: Apache-2.0
"""
Saves edits: loads the aggregate from the log, calls its command, and appends the event as one group.

Runs in worker threads, since the eventsourcing library is synchronous. Errors of the event store become the gateway's
errors here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

from gateway.control.aggregates import (
    A,
    ControlEvent,
    Created,
    Policy,
    Restriction,
    aggregate_key,
    evolve,
    expect,
    project,
)
from gateway.control.drafts import Draft, DraftWritten
from gateway.control.plane import ControlUnknownError
from gateway.errors import ConflictError, NotFoundError, UnavailableError
from gateway.log_errors import append_errors
from gateway.policy.variables import PrincipalView
from ledger.errors import GroupMismatchError
from ledger.format import canonical
from ledger.format.aggregates import ControlChange, key_of
from ledger.format.canonical import Json
from ledger.format.entry import Branch, Entry, parse_entry
from ledger.format.event import SYSTEM_ACTOR, Part
from ledger.format.events import EventData, SettingChanged, prepare_event
from ledger.format.guards import GuardCall
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.log_store import LogStore
from ledger.store.recorder import (
    LogApplication,
    NoSuchAggregateError,
    StaleSaveError,
    UnknownEventError,
    VersionConflictError,
)

EDITS_MAX: Final = 4
"""Edits at a time: each holds a worker thread while the log answers."""
EXISTS: Final = "AlreadyExistsException"
PRINCIPAL: Final = "principal"
"""The payload part that names the editor."""
CHANGED: Final = "ConcurrentChangeException"
NOT_FOUND: Final = "NotFoundException"

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Editor:
    """
    The actor who edits (32 hex digits or "system"), and the control index of the check of access (None: not checked).

    `caller` is the editor as access rules see it, `principal` its description for the record, an erasable part, and
    `key_id` the key of the request; without a key, `ends_at` is when the token of the request ends. The operator has
    none of them, and is not checked.
    """

    actor: str
    as_of: int | None
    caller: PrincipalView | None = None
    principal: Mapping[str, Json] | None = None
    key_id: str | None = None
    ends_at: datetime | None = None


OPERATOR: Final = Editor(actor=SYSTEM_ACTOR, as_of=None)
"""The operator at the machine."""


class StaleEditError(UnavailableError):
    """The rules changed since the edit was permitted: nothing was changed; judge again."""


class Edits:
    """Saves edits of all tenants' logs, at most `EDITS_MAX` at a time (`_turns`, event loop only)."""

    def __init__(self, store: LogStore, *, clock: Callable[[], datetime], random: Callable[[int], bytes]) -> None:
        self._store = store
        self._clock = clock
        self._random = random
        self._turns = asyncio.Semaphore(EDITS_MAX)

    async def create(
        self,
        log_id: int,
        by: Editor,
        *events: Created | SettingChanged | DraftWritten,
        guard: Sequence[GuardCall] = (),
        group_id: UUID | None = None,
    ) -> None:
        """
        Save the first events of one or more aggregates as one group; with `group_id`, once for ever.

        Raises:
            ConflictError: if there is or was such an aggregate, or a guard does not hold.
            StaleEditError: if a newer control entry than `by.as_of` is in the log.
            UnavailableError: if nothing could be saved.
            CommitStateUnknownError: if it may or may not have been saved.
        """
        changes = [self._change(by, event) for event in events]
        keys = ", ".join(key_of(event) for event in events)

        def save() -> None:
            with _as_answers(taken=ConflictError(f"{keys} exists already, or has been retired", kind=EXISTS)):
                application = LogApplication(self._store, log_id)
                application.record(*changes, guard=guard, as_of=by.as_of, group_id=group_id)

        await self._in_thread(save)

    async def change(
        self,
        cls: type[A],
        log_id: int,
        by: Editor,
        aggregate_id: str,
        command: Callable[[A], ControlEvent],
        *,
        guard: Sequence[GuardCall] = (),
    ) -> A:
        """
        Load an aggregate, save the event that `command` returns for it, and return the changed aggregate.

        Raises:
            NotFoundError: if there is none of that id.
            ConflictError: if it was changed meanwhile, or what `command` raises.
            And as `create`.
        """
        key = aggregate_key(cls, aggregate_id)

        def save() -> A:
            with _as_answers(taken=ConflictError(f"{key} was changed by another edit meanwhile", kind=CHANGED)):
                application = LogApplication(self._store, log_id)
                before = application.load(key, project(cls))
                event = command(before)
                application.record(self._change(by, event), guard=guard, as_of=by.as_of)
                return expect(cls, evolve(before, event))

        return await self._in_thread(save)

    async def together(
        self, log_id: int, by: Editor, one: ControlEvent, other: ControlEvent, *, guard: Sequence[GuardCall] = ()
    ) -> None:
        """
        Save an event of one aggregate and one of another, as one group: both happen, or neither.

        Raises:
            ConflictError: if either was changed or made meanwhile, or a guard does not hold.
            And as `create`.
        """
        changes = (self._change(by, one), self._change(by, other))

        def save() -> None:
            with _as_answers(
                taken=ConflictError(f"{key_of(other)} was changed by another edit meanwhile", kind=CHANGED)
            ):
                LogApplication(self._store, log_id).record(*changes, guard=guard, as_of=by.as_of)

        await self._in_thread(save)

    async def entries(self, cls: type[A], log_id: int, aggregate_id: str) -> tuple[Entry, ...]:
        """
        Return the entries of an aggregate of class `cls`, oldest first; none if there is no such aggregate.

        Raises:
            UnavailableError: if the log cannot be read.
        """
        key = aggregate_key(cls, aggregate_id)

        def read() -> tuple[Entry, ...]:
            with append_errors(not_appended="the log cannot be read: try again"):
                return tuple(parse_entry(entry) for _, entry in self._store.aggregate_entries(log_id, key))

        return await self._in_thread(read)

    async def entries_of(self, cls: type[A], log_id: int, aggregate_ids: Iterable[str]) -> tuple[Entry, ...]:
        """
        Return the entries of aggregates of class `cls`, all of them in one read, oldest first. Raises as `entries`.
        """
        keys = [aggregate_key(cls, each) for each in aggregate_ids]

        def read() -> tuple[Entry, ...]:
            with append_errors(not_appended="the log cannot be read: try again"):
                return tuple(parse_entry(entry) for _, entry in self._store.entries_of_aggregates(log_id, keys))

        return await self._in_thread(read)

    async def record(
        self,
        log_id: int,
        by: Editor,
        event: EventData,
        *,
        key: str,
        guard: Sequence[GuardCall],
        as_of: int | None = None,
    ) -> None:
        """
        Save an event without an aggregate, if `guard` holds and, with `as_of`, nothing was edited since.

        Raises:
            ConflictError: if a guard does not hold.
            And as `create`.
        """
        prepared = prepare_event(event, key=key, actor=by.actor, occurred_at=self._clock(), parts=self._parts(by))
        group = Group(id=self._store.new_group_id(), then=(prepared,), guard=tuple(guard), as_of=as_of)

        def save() -> Appended | Stale:
            with _as_answers(taken=ConflictError(f"{key} was changed by another edit meanwhile", kind=CHANGED)):
                return self._store.append(log_id, group)

        match await self._in_thread(save):
            case Stale():
                raise StaleEditError(f"nothing was changed: {key} was judged by rules that have changed since")
            case Appended(branch=Branch.ELSE):
                raise ConflictError(f"{key} was changed by another edit meanwhile", kind=CHANGED)
            case _:
                return

    def _change(self, by: Editor, event: ControlEvent) -> ControlChange:
        return ControlChange(event=event, actor=by.actor, occurred_at=self._clock(), parts=self._parts(by))

    def _parts(self, by: Editor) -> tuple[Part, ...]:
        if by.principal is None:
            return ()
        payload = canonical.encode(by.principal)
        return (Part(name=PRINCIPAL, payload=payload, salt=self._random(32), subject=by.actor),)

    async def _in_thread(self, work: Callable[[], R]) -> R:
        async with self._turns:
            return await asyncio.to_thread(work)


@contextmanager
def _as_answers(*, taken: ConflictError) -> Iterator[None]:
    """Raise errors of the event store as the gateway's; `taken` is raised if another edit was first."""
    try:
        with append_errors(
            not_appended="nothing was changed: the log does not answer, try again",
            unknown="the edit may or may not have happened: look at what is there before you repeat it",
        ):
            yield
    except (VersionConflictError, GroupMismatchError) as error:
        raise taken from error
    except StaleSaveError as error:
        raise StaleEditError(f"nothing was changed: {error}") from error
    except NoSuchAggregateError as error:
        raise NotFoundError(str(error), kind=NOT_FOUND) from error
    except UnknownEventError as error:
        raise ControlUnknownError(str(error)) from error


def check_version(found: Policy | Restriction, version: int | None) -> None:
    """
    Check that `version` is the newest one of what is edited; None asks for no check.

    Raises:
        ConflictError: if it is not.
    """
    check_newest(f"{found.KIND} {found.id}", found, version)


def check_newest(what: str, found: Policy | Restriction | Draft[Any] | None, version: int | None) -> None:
    """
    Check that `version` is the newest one of what may not exist yet, 0 if it does not; None asks for no check.

    Raises:
        ConflictError: if it is not.
    """
    newest = 0 if found is None else found.version
    if version is not None and newest != version:
        expected, has = (f"version {number}" if number else "none" for number in (version, newest))
        raise ConflictError(f"{what}: expected {expected}, found {has}", kind=CHANGED)
