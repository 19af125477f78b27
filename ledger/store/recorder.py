# SPDX-License-Identifier: Apache-2.0
"""
Stores what users edit in the log, as aggregates of the eventsourcing library.

It stores changes (`ControlChange`) whose events are of our vocabulary, under its types. An ordinary aggregate of the
library is refused here (`event_store.py` accepts those), and there are no snapshots, subscriptions or tracking.

One save is one group, and its version check is the group's guard. Of two writers that loaded the same version, the
second gets `VersionConflictError`, whatever process it runs in. The library's own mapper would store a Python class
path and typed JSON with every event. The one here writes our type names and canonical data, so no class path is fixed
in the chain.

The library is synchronous. It runs in worker threads, over a `LogStore` that all tenants share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from eventsourcing.application import AggregateNotFoundError, Application
from eventsourcing.domain import DomainEventProtocol, ImmutableAggregateProtocol
from eventsourcing.persistence import (
    ApplicationRecorder,
    IntegrityError,
    JSONTranscoder,
    Mapper,
    Notification,
    NotSupportedError,
    ProgrammingError,
    StoredEvent,
    Subscription,
)
from eventsourcing.utils import Environment, EnvType

from ledger.errors import FormatError, LedgerError
from ledger.format import canonical
from ledger.format.aggregates import ControlChange, Versioned
from ledger.format.canonical import Json
from ledger.format.entry import Branch, parse_entry
from ledger.format.event import PreparedEvent
from ledger.format.events import EVENTS, from_data, prepare_event
from ledger.format.guards import GuardCall
from ledger.format.sequence import NO_CONTROL, Appended, Group, Stale
from ledger.store.log_store import LogStore

NOTIFICATIONS_PAGE: Final = 500

A = TypeVar("A", bound=ImmutableAggregateProtocol[str])


class VersionConflictError(LedgerError, IntegrityError):
    """Another writer saved first, or the aggregate exists already: nothing was appended; load again and decide."""


class StaleSaveError(LedgerError):
    """Nothing was appended: a control entry newer than `as_of` precedes this save; judge again."""

    def __init__(self, *, as_of: int, control_index: int) -> None:
        super().__init__(f"judged as of control entry {as_of}, but {control_index} is in force: judge again")
        self.control_index = control_index


class NoSuchAggregateError(LedgerError):
    """The log holds no event of that key."""


class UnknownEventError(LedgerError):
    """The log holds an event of a type or version that this process does not know; it must not guess."""


@dataclass(frozen=True)
class PreparedStoredEvent(StoredEvent):
    """A stored event before it is appended: `state` are the bytes that the entry will hold."""

    prepared: PreparedEvent


class EventMapper(Mapper[str]):
    """
    Turns changes into events as the log holds them (docs/formats.md, "Event"), and back.

    A topic is `<type>/<version>`, never a class path, and lives in memory only; the state is the event's bytes.
    """

    def __init__(self) -> None:
        # The library requires a transcoder; both methods that would use it are replaced.
        super().__init__(transcoder=JSONTranscoder())

    def to_stored_event(self, domain_event: DomainEventProtocol[str]) -> PreparedStoredEvent:
        """
        Return a change as the event that the log will hold.

        Raises:
            FormatError: if it is of no known type, or its actor or a part is not of its form.
            NotCanonicalError: if its data lies outside the canonical profile.
            LimitExceededError: if it is over 64,512 bytes.
        """
        if not isinstance(domain_event, ControlChange):
            raise FormatError("domain event", expected="a Change", found=domain_event)
        event = domain_event.event
        if EVENTS.get((event.TYPE, event.VERSION)) is not type(event):
            raise FormatError("domain event", expected="an event of the vocabulary", found=event)
        prepared = prepare_event(
            event,
            key=domain_event.originator_id,
            actor=domain_event.actor,
            occurred_at=domain_event.occurred_at,
            parts=domain_event.parts,
        )
        return PreparedStoredEvent(
            originator_id=domain_event.originator_id,
            originator_version=domain_event.originator_version,
            topic=f"{event.TYPE}/{event.VERSION}",
            state=prepared.event,
            prepared=prepared,
        )

    def to_domain_event(self, stored_event: StoredEvent) -> ControlChange:
        """
        Return the change that a stored event is.

        Raises:
            UnknownEventError: if its type or version is not known here.
            FormatError: if it is not what we write; that is corruption.
        """
        family, _, version = stored_event.topic.rpartition("/")
        cls = EVENTS.get((family, int(version))) if version.isdecimal() else None
        if cls is None:
            raise UnknownEventError(f"{stored_event.originator_id}: unknown event {stored_event.topic}")
        members = canonical.decode(stored_event.state)
        if not isinstance(members, dict):
            raise FormatError("event", expected="an object", found=members)
        change = ControlChange(
            event=cast("Versioned", from_data(cls, members.get("data"))),
            actor=str(members.get("actor")),
            occurred_at=canonical.parse_time(str(members.get("occurred_at"))),
        )
        if change.originator_id != stored_event.originator_id:
            raise FormatError("event key", expected=change.originator_id, found=stored_event.originator_id)
        return change


class ChangeRecorder(ApplicationRecorder):
    """
    Records changes, prepared by `EventMapper`, in one log; other events of the library are refused.

    Notification ids are index + 1. Its notifications are the control entries: not every id is one.
    """

    def __init__(self, store: LogStore, log_id: int) -> None:
        self._store = store
        self._log_id = log_id

    def insert_events(
        self,
        stored_events: Sequence[StoredEvent],
        *,
        guard: Sequence[GuardCall] = (),
        as_of: int | None = None,
        group_id: UUID | None = None,
        **kwargs: Any,
    ) -> Sequence[int] | None:
        """
        Append the events of one save as one group; return their notification ids.

        Each event's version is checked by a guard; `guard` adds others that must hold in the same transaction. With
        `as_of` the save counts only if no newer control entry stands before it. A save under an earlier save's
        `group_id` appends nothing and returns the ids of that one.

        Raises:
            VersionConflictError: if a version is taken, or another guard does not hold.
            StaleSaveError: if a newer control entry stands before the place of the group.
            LedgerError: whatever the Appender raises.
        """
        # The library passes `tracking`; anything it is set to, or any other argument, would be silently lost here.
        if unknown := sorted(name for name, value in kwargs.items() if value is not None):
            raise NotSupportedError(f"saving: expected guard, as_of and group_id, found {unknown}")
        if not stored_events:
            return None
        group = Group(
            id=group_id or self._store.new_group_id(),
            then=tuple(_prepared(event) for event in stored_events),
            guard=(*map(_version_guard, stored_events), *guard),
            as_of=as_of,
        )
        match self._store.append(self._log_id, group):
            case Stale(control_index=control_index):
                raise StaleSaveError(as_of=NO_CONTROL if as_of is None else as_of, control_index=control_index)
            case Appended(branch=Branch.THEN, indices=indices):
                return [index + 1 for index in indices]
            case _:
                versions = ", ".join(
                    f"{event.originator_id} version {event.originator_version}" for event in stored_events
                )
                raise VersionConflictError(f"expected to be the first to save {versions}, found it taken")

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Return the events of one aggregate whose versions lie in (gt, lte]."""
        entries = self._store.aggregate_entries(self._log_id, str(originator_id))
        events = [
            event
            for event in (_notification(entry) for _, entry in entries)
            if (gt is None or event.originator_version > gt) and (lte is None or event.originator_version <= lte)
        ]
        if desc:
            events.reverse()
        return events[:limit]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Return up to `limit` control entries from notification id `start` to `stop`; gaps belong to other entries."""
        after = NO_CONTROL if start is None else max(start - 1 - inclusive_of_start, NO_CONTROL)
        found: list[Notification] = []
        while len(found) < limit:
            page = self._store.control_entries(self._log_id, after=after, limit=NOTIFICATIONS_PAGE)
            for index, entry in page:
                if stop is not None and index + 1 > stop:
                    return found[:limit]
                notification = _notification(entry)
                if not topics or notification.topic in topics:
                    found.append(notification)
            if len(page) < NOTIFICATIONS_PAGE:
                break
            after = page[-1][0]
        return found[:limit]

    def max_notification_id(self) -> int | None:
        """Return the notification id of the newest control entry, None if there is none."""
        control_index = self._store.control_index(self._log_id)
        return None if control_index == NO_CONTROL else control_index + 1

    def subscribe(
        self,
        gt: int | None = None,  # noqa: ARG002  (the library's signature)
        topics: Sequence[str] = (),  # noqa: ARG002
    ) -> Subscription[ApplicationRecorder]:
        """Refuse: a reader that follows the log is a projection, with its cursor and its tables in one transaction."""
        raise NotSupportedError("subscriptions: follow the log with a projection instead")


class LogApplication(Application[str]):
    """
    The library's application over one log. Cheap to make: everything expensive is in the shared store.

    Aggregates are immutable values; `project` in `load` folds their changes.
    """

    def __init__(self, store: LogStore, log_id: int) -> None:
        self._recorder = ChangeRecorder(store, log_id)
        super().__init__()

    def load(self, key: str, project: Callable[[A | None, Iterable[ControlChange]], A | None]) -> A:
        """
        Return the aggregate of `key`, rebuilt from the log.

        Raises:
            NoSuchAggregateError: if the log holds none.
            UnknownEventError: if it has an event that this process does not know.
            LogUnavailableError: if the log cannot be read.
        """
        try:
            return self.repository.get(key, projector_func=project)
        except AggregateNotFoundError as error:
            raise NoSuchAggregateError(f"{key}: expected its events in the log, found none") from error

    def record(
        self,
        *changes: ControlChange,
        guard: Sequence[GuardCall] = (),
        as_of: int | None = None,
        group_id: UUID | None = None,
    ) -> list[int]:
        """
        Save `changes` as one group and return their indices; see `ChangeRecorder.insert_events`.
        """
        recordings = self.save(*changes, guard=tuple(guard), as_of=as_of, group_id=group_id)
        return [recording.notification.id - 1 for recording in recordings]

    def construct_env(self, name: str, env: EnvType | None = None) -> Environment:
        """Take nothing from the process's environment: a variable must not enable a cipher or a cache."""
        return Environment(name, env)

    def construct_mapper(self) -> Mapper[str]:
        """Use our own mapper."""
        return EventMapper()

    def construct_recorder(self) -> ApplicationRecorder:
        """Use the log."""
        return self._recorder


def _prepared(event: StoredEvent) -> PreparedEvent:
    if not isinstance(event, PreparedStoredEvent):
        raise ProgrammingError(f"recorder and mapper belong together: expected a prepared event, found {event!r:.200}")
    return event.prepared


def _version_guard(event: StoredEvent) -> GuardCall:
    if event.originator_version == 1:
        return GuardCall("aggregate.create", {"key": event.originator_id})
    return GuardCall("aggregate.change", {"key": event.originator_id, "version": event.originator_version})


def _notification(data: bytes) -> Notification:
    """Return a control entry as the library sees it."""
    entry = parse_entry(data)
    version = entry.data.get("version")
    if not isinstance(version, int):
        raise FormatError(f"{entry.type} at index {entry.index}", expected="a version in its data", found=version)
    members = cast("dict[str, Json]", canonical.decode(data))
    return Notification(
        id=entry.index + 1,
        originator_id=entry.key,
        originator_version=version,
        topic=f"{entry.type}/{entry.version}",
        state=canonical.encode(members["event"]),
    )
