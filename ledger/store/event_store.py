# SPDX-License-Identifier: Apache-2.0
"""
The eventsourcing library's event store over a log: ordinary aggregates in ordinary applications, recorded as entries.

Each event is an entry `aggregate.recorded` and each snapshot one `aggregate.snapshotted`, with the library's topic and
state unchanged. One save is one group: all of its events or none. Of two writers of one version, the second gets
`VersionConflictError`, the library's `IntegrityError`, whatever process it runs in.

An application has a log of its own. Notification ids are index + 1. They rise without gaps that fill later, but are not
contiguous where snapshots, or other entries of the log, lie between. An entry is permanent, and so is its state:
encrypt personal data with the library's cipher, or store it outside the log.

There are no tracking and process recorders: what follows a log here is a projection, or a subscription. What users edit
in this system is stored by `recorder.py`, under our own types.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Event as Signal
from typing import Any, Final, Never
from uuid import UUID

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    Notification,
    NotSupportedError,
    ProgrammingError,
    StoredEvent,
    Subscription,
    TrackingRecorder,
)
from eventsourcing.utils import Environment, EnvType

from ledger.errors import FormatError
from ledger.format.aggregates import (
    RECORDED,
    RecordedData,
    RecordedKind,
    originator_key,
    parse_recorded,
    recorded_guard,
    state_members,
    state_of,
)
from ledger.format.canonical import INTEGER_MAX
from ledger.format.entry import Branch, Entry, parse_entry
from ledger.format.event import SYSTEM_ACTOR, PreparedEvent
from ledger.format.events import OriginatorKind, prepare_event
from ledger.format.sequence import Appended, Group
from ledger.store.log_store import LogStore
from ledger.store.recorder import VersionConflictError

READ_MAX: Final = 500
"""Entries read at a time: at most 32 MiB."""
INDICES_MAX: Final = 2_000
"""Indices of a log that one query searches."""
POLL_S: Final = 0.2
"""How often a subscription that has read everything polls."""


def now() -> datetime:
    """Return the time, aware, in UTC."""
    return datetime.now(UTC)


class _Recorder:
    """What the recorders share: one kind of what is recorded, in one log."""

    def __init__(
        self, store: LogStore, log_id: int, kind: RecordedKind, *, clock: Callable[[], datetime] = now
    ) -> None:
        self._store = store
        self._log_id = log_id
        self._kind = kind
        self._clock = clock

    def _append(self, stored_events: Sequence[StoredEvent], arguments: dict[str, Any]) -> range:
        # Other arguments that the library passes, such as `tracking`, would be ignored here.
        actor = arguments.pop("actor", None)
        if unknown := sorted(name for name, value in arguments.items() if value is not None):
            raise NotSupportedError(f"saving: expected the argument actor or none, found {unknown}")
        if not stored_events:
            return range(0)
        occurred_at = self._clock()
        events = tuple(
            _prepared(event, self._kind, actor=SYSTEM_ACTOR if actor is None else actor, occurred_at=occurred_at)
            for event in stored_events
        )
        group_id = self._store.new_group_id()
        rows = (
            (prepared.key, event.originator_version, position)
            for position, (prepared, event) in enumerate(zip(events, stored_events, strict=True))
        )
        group = Group(id=group_id, then=events, guard=(recorded_guard(self._kind, group_id, rows),))
        match self._store.append(self._log_id, group):
            case Appended(branch=Branch.THEN, indices=indices):
                return indices
            case _:
                versions = ", ".join(f"{event.originator_id} {event.originator_version}" for event in stored_events)
                raise VersionConflictError(
                    f"expected to be the first to record each {self._kind} of {versions:.400}, found one recorded "
                    "already: load again and decide"
                )

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """
        Return what is recorded of one aggregate with versions in (gt, lte], by version.

        Like any event store, this trusts the database; `lakeproof ledger verify` verifies it.

        Raises:
            FormatError: if the log holds something else where an event should be; that is corruption.
            LogUnavailableError: if the log cannot be read.
        """
        key = originator_key(_text_of(originator_id)[0])
        least = 0 if gt is None else max(gt + 1, 0)
        most = INTEGER_MAX if lte is None else min(lte, INTEGER_MAX)
        events: list[StoredEvent] = []
        while least <= most and (limit is None or len(events) < limit):
            count = READ_MAX if limit is None else min(limit - len(events), READ_MAX)
            versions = range(least, most + 1)
            page = self._store.recorded_events(self._log_id, self._kind, key, versions, newest_first=desc, limit=count)
            events += [self._event(entry, key, version) for version, _, entry in page]
            if len(page) < count:
                break
            last = page[-1][0]
            least, most = (least, last - 1) if desc else (last + 1, most)
        return events

    def _event(self, data: bytes, key: str, version: int) -> StoredEvent:
        entry = parse_entry(data)
        recorded = parse_recorded(entry, self._kind)
        if (entry.key, recorded.originator_version) != (key, version):
            found = f"{entry.key} {recorded.originator_version}"
            raise FormatError(f"{self._kind} in entry {entry.index}", expected=f"{key} {version}", found=found)
        return StoredEvent(
            originator_id=_originator_id(recorded),
            originator_version=version,
            topic=recorded.topic,
            state=state_of(recorded),
        )


class LogAggregateRecorder(_Recorder, AggregateRecorder):
    """Records the snapshots of one log, or its events where no notification ids are needed."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """
        Append what is given as one group; raises as `LogRecorder.insert_events`.
        """
        self._append(stored_events, kwargs)
        return None


class LogRecorder(_Recorder, ApplicationRecorder):
    """Records the events of an application's aggregates in one log."""

    def __init__(self, store: LogStore, log_id: int, *, clock: Callable[[], datetime] = now) -> None:
        super().__init__(store, log_id, RecordedKind.EVENT, clock=clock)

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """
        Append the events of one save as one group; return their notification ids.

        `actor` (32 hex digits) says who has caused them, if not the system; `save` of an application passes it on.

        Raises:
            VersionConflictError: if a version is recorded already, or stands here twice; nothing was appended.
            FormatError, NotCanonicalError: if an event is not of its form, or `actor` is none.
            LimitExceededError: over 1,024 events, 2 MiB together, or 64,512 bytes of one as an event of the log.
            NotSupportedError: if any other argument is given.
            OutcomeUnknownError: if no answer came: load again, the version tells.
            LedgerError: whatever the Appender raises.
        """
        indices = self._append(stored_events, kwargs)
        return [index + 1 for index in indices] or None

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """
        Return up to `limit` events from notification id `start` to `stop`, of these topics if some are named.

        Raises:
            FormatError: if an entry is not of its form; that is corruption.
            LogUnavailableError: if the log cannot be read.
        """
        first = 0 if start is None else max(start - inclusive_of_start, 0)
        newest = self.max_notification_id() or 0
        end = newest if stop is None else min(stop, newest)
        found: list[Notification] = []
        while len(found) < limit and first < end:
            # A few indices at a time: however few of the entries are events, each query is short.
            indices = range(first, min(first + INDICES_MAX, end))
            count = READ_MAX if topics else min(limit - len(found), READ_MAX)
            page = self._store.entries_of_type(self._log_id, RECORDED[self._kind].TYPE, indices, limit=count)
            read = [_notification(entry, index) for index, entry in page]
            found += [notification for notification in read if not topics or notification.topic in topics]
            first = page[-1][0] + 1 if len(page) == count else indices.stop
        return found[:limit]

    def max_notification_id(self) -> int | None:
        """
        Return the notification id of the newest event, None if there is none.

        Raises:
            LogUnavailableError: if the log cannot be read.
        """
        newest = self._store.newest_of_type(self._log_id, RECORDED[self._kind].TYPE)
        return None if newest is None else newest + 1

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> LogSubscription:
        """Return an iterator of the events behind notification id `gt`, which waits for those to come."""
        return LogSubscription(self, gt=gt, topics=topics)


class LogSubscription(Subscription[LogRecorder]):
    """
    Follows the events of a log: reads what is there, then polls every 0.2 seconds until it is stopped.

    It has no thread of its own: the caller that iterates reads. Any thread may call `stop`.
    """

    def __init__(self, recorder: LogRecorder, gt: int | None = None, topics: Sequence[str] = ()) -> None:
        super().__init__(recorder, gt=gt, topics=topics)
        self._unread: deque[Notification] = deque()
        """Only the thread that iterates touches it."""
        self._stopped = Signal()
        """Any thread may set it, through `stop`."""

    def stop(self) -> None:
        """End the iteration, also one that waits."""
        super().stop()
        self._stopped.set()

    def __next__(self) -> Notification:
        """
        Return the next event; waits for it.

        Raises:
            StopIteration: once the subscription is stopped.
            FormatError, LogUnavailableError: if the log cannot be read; the next call continues where this one stopped.
        """
        while not self._stopped.is_set():
            if self._unread:
                return self._unread.popleft()
            if not self._read():
                self._stopped.wait(POLL_S)
        raise StopIteration

    def _read(self) -> bool:
        """Read further; return whether that found anything. Indices have no gaps, so nothing appears behind."""
        after, newest = self._last_notification_id or 0, self._recorder.max_notification_id() or 0
        if newest <= after:
            return False
        read = self._recorder.select_notifications(after, READ_MAX, newest, self._topics, inclusive_of_start=False)
        self._unread.extend(read)
        self._last_notification_id = read[-1].id if len(read) == READ_MAX else newest
        return bool(read)


class LogFactory(InfrastructureFactory[TrackingRecorder]):
    """
    Makes an application's recorders over a running store: for `construct_factory` of an application.

    Mapper, transcoder, cipher and compressor are the library's, configured as usual.
    """

    def __init__(self, env: Environment | EnvType | None, store: LogStore, log_id: int) -> None:
        super().__init__(env)
        for variable in (self.APPLICATION_RECORDER_TOPIC, self.TRACKING_RECORDER_TOPIC, self.PROCESS_RECORDER_TOPIC):
            if topic := self.env.get(variable):
                raise NotSupportedError(f"{variable}: expected it not to be set, found {topic!r:.80}")
        self._store = store
        self._log_id = log_id

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        """
        Return a recorder of snapshots, or of events without notification ids.

        Raises:
            ProgrammingError: if the purpose is another.
        """
        kinds = {"events": RecordedKind.EVENT, "snapshots": RecordedKind.SNAPSHOT}
        if (kind := kinds.get(purpose)) is None:
            raise ProgrammingError(f"aggregate recorder: expected a purpose of {sorted(kinds)}, found {purpose!r:.80}")
        return LogAggregateRecorder(self._store, self._log_id, kind)

    def application_recorder(self) -> ApplicationRecorder:
        """Return the recorder of the application's events."""
        return LogRecorder(self._store, self._log_id)

    def tracking_recorder(self, tracking_recorder_class: type[TrackingRecorder] | None = None) -> Never:  # noqa: ARG002
        """Refuse: positions belong to the tables of what follows the log, in one transaction with them."""
        raise NotSupportedError("tracking recorders: follow the log with a projection or a subscription instead")

    def process_recorder(self) -> Never:
        """Refuse, as `tracking_recorder`."""
        raise NotSupportedError("process recorders: follow the log with a projection or a subscription instead")


def _prepared(event: StoredEvent, kind: RecordedKind, *, actor: str, occurred_at: datetime) -> PreparedEvent:
    """
    Return a stored event of the library as an event of the log.

    Raises:
        FormatError, NotCanonicalError, LimitExceededError: if a member is not of its form, or it is too large.
    """
    text, originator_kind = _text_of(event.originator_id)
    # Checked at run time: callers pass other types than the library declares.
    version: object = event.originator_version
    topic: object = event.topic
    state: object = event.state
    given_actor: object = actor
    if not isinstance(given_actor, str):
        raise FormatError("event actor", expected="32 hex digits or 'system'", found=actor)
    if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version <= INTEGER_MAX:
        raise FormatError("originator_version", expected="a whole number from 0 to 2^53 - 1", found=version)
    if not isinstance(topic, str) or not topic:
        raise FormatError("topic", expected="a text", found=topic)
    if not isinstance(state, bytes):
        raise FormatError("state", expected="bytes", found=type(state).__name__)
    cls = RECORDED[kind]
    data = cls(
        originator_id=text,
        originator_kind=originator_kind,
        originator_version=version,
        topic=topic,
        **state_members(state),
    )
    return prepare_event(data, key=originator_key(text), actor=actor, occurred_at=occurred_at)


def _text_of(originator_id: object) -> tuple[str, OriginatorKind]:
    """Return what the log names an aggregate by."""
    if isinstance(originator_id, UUID):
        return str(originator_id), OriginatorKind.UUID
    if isinstance(originator_id, str) and originator_id:
        return str(originator_id), OriginatorKind.TEXT
    raise FormatError("originator_id", expected="a UUID or a text", found=originator_id)


def _originator_id(recorded: RecordedData) -> UUID | str:
    if recorded.originator_kind is OriginatorKind.TEXT:
        return recorded.originator_id
    try:
        originator_id = UUID(recorded.originator_id)
    except ValueError as error:
        raise FormatError("originator_id", expected="a UUID", found=recorded.originator_id) from error
    if str(originator_id) != recorded.originator_id:
        raise FormatError("originator_id", expected=str(originator_id), found=recorded.originator_id)
    return originator_id


def _notification(data: bytes, index: int) -> Notification:
    entry: Entry = parse_entry(data)
    if entry.index != index:
        raise FormatError("index of an entry", expected=str(index), found=entry.index)
    recorded = parse_recorded(entry, RecordedKind.EVENT)
    return Notification(
        id=index + 1,
        originator_id=_originator_id(recorded),
        originator_version=recorded.originator_version,
        topic=recorded.topic,
        state=state_of(recorded),
    )
