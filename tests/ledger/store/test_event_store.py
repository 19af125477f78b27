# SPDX-License-Identifier: Apache-2.0
"""
The eventsourcing library's event store over a log: its own test cases hold, and what it stores is what the log tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from threading import Event as Signal
from threading import Thread
from typing import Any, ClassVar, Final
from uuid import UUID, uuid4

import psycopg
import pytest
from eventsourcing.application import AggregateNotFoundError, Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import (
    AggregateRecorder,
    IntegrityError,
    NotSupportedError,
    ProgrammingError,
    StoredEvent,
    Tracking,
)
from eventsourcing.utils import Environment
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from lakeproof.provision import Provisioned, create_tenant_log
from lakeproof.services import new_group_id
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.errors import (
    BrokenError,
    FormatError,
    LedgerError,
    LimitExceededError,
    LogUnavailableError,
    NotCanonicalError,
)
from ledger.format.aggregates import RecordedKind
from ledger.format.entry import Entry, parse_entry
from ledger.format.guards import GuardRegistry
from ledger.store.event_store import READ_MAX, LogAggregateRecorder, LogFactory, LogRecorder
from ledger.store.log_store import LogStore
from ledger.store.read import read_logs
from ledger.store.session import Connection
from ledger.verify.database import verify_database
from testkit.ledger.library_cases import persistence as suite

ACTOR: Final = "0123456789abcdef" * 2
ONE: Final = UUID(int=1)
MOVED: Final = "UPDATE ledger.recorded_events SET originator = replace(originator, '0002', '0001') WHERE version = 3"
SET_ENTRY: Final = "UPDATE ledger.entries SET entry = convert_to({}, 'UTF8') WHERE index = 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A tenant's log on a real database, and a store over it that runs in a thread of its own."""

    database: str
    installation: Provisioned
    log_id: int
    store: LogStore

    def recorder(self) -> LogRecorder:
        return LogRecorder(self.store, self.log_id)

    def entries(self) -> list[Entry]:
        query = "SELECT entry FROM ledger.entries WHERE log_id = %s ORDER BY index"
        with psycopg.connect(self.database) as owner:
            return [parse_entry(entry) for (entry,) in owner.execute(query, (self.log_id,))]

    def rows(self) -> list[Any]:
        with psycopg.connect(self.database) as owner:
            query = "SELECT * FROM ledger.recorded_events WHERE log_id = %s"
            return sorted(owner.execute(query, (self.log_id,)), key=repr)

    def tamper(self, statement: str) -> None:
        with psycopg.connect(self.database, autocommit=True) as owner:
            assert owner.execute(f"{statement} AND log_id = {self.log_id}".encode()).rowcount == 1

    def verify(self) -> None:
        async def verify() -> None:
            auditor = self.installation.as_role(self.installation.roles.auditor)
            async with await AsyncConnection.connect(auditor, autocommit=True) as connection:
                (log,) = [log for log in await read_logs(connection) if log.log_id == self.log_id]
                await verify_database(connection, log, [])

        asyncio.run(verify())

    def snapshots(self) -> LogAggregateRecorder:
        return LogAggregateRecorder(self.store, self.log_id, RecordedKind.SNAPSHOT)


@contextmanager
def running_store(installation: Provisioned, role: str) -> Iterator[LogStore]:
    """A store whose event loop is another thread's, and that reads as `role`."""
    ready, ended = Signal(), Signal()
    made: list[LogStore] = []

    async def serve() -> None:
        roles = installation.roles
        reader = installation.as_role(role)

        pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            reader, kwargs={"autocommit": True}, min_size=1, max_size=4, open=False
        )
        async with Appender(installation.as_role(roles.appender), GuardRegistry(CORE_GUARDS)) as appender, pool:
            made.append(LogStore(appender, pool.connection, new_group_id=new_group_id))
            ready.set()
            await asyncio.to_thread(ended.wait)

    thread = Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(30)
        yield made[0]
    finally:
        ended.set()
        thread.join()


@pytest.fixture(scope="module")
def tenants() -> Iterator[UUID]:
    return (UUID(int=number, version=4) for number in count())


@pytest.fixture
def place(module_database: str, module_installation: Provisioned, tenants: Iterator[UUID]) -> Iterator[Place]:
    tenant = next(tenants)
    log_id = create_tenant_log(module_database, module_installation, tenant)
    with running_store(module_installation, module_installation.roles.tenant(tenant)) as store:
        yield Place(database=module_database, installation=module_installation, log_id=log_id, store=store)


@pytest.fixture(scope="module")
def auditor_store(module_installation: Provisioned) -> Iterator[LogStore]:
    """A store that reads every log, for tests in which it does not matter who reads."""
    with running_store(module_installation, module_installation.roles.auditor) as store:
        yield store


@pytest.fixture
def shared_place(
    module_database: str, module_installation: Provisioned, tenants: Iterator[UUID], auditor_store: LogStore
) -> Place:
    """A tenant's log of a test's own, in a store that others share."""
    log_id = create_tenant_log(module_database, module_installation, next(tenants))
    return Place(database=module_database, installation=module_installation, log_id=log_id, store=auditor_store)


class OnPlace:
    """Gives the library's test cases a log of their own each."""

    place: Place

    @pytest.fixture(autouse=True)
    def _take_place(self, shared_place: Place) -> None:
        self.place = shared_place


class TestAggregateRecorder(OnPlace, suite.AggregateRecorderTestCase):
    def create_recorder(self) -> AggregateRecorder:
        return self.place.snapshots()


class TestApplicationRecorder(OnPlace, suite.ApplicationRecorderTestCase[LogRecorder]):
    def create_recorder(self) -> LogRecorder:
        return self.place.recorder()

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


class TestApplicationRecorderOfTexts(TestApplicationRecorder):
    # What these two are about does not depend on what an id looks like.
    test_concurrent_no_conflicts = None  # type: ignore[assignment]  # so a case of the library is left out
    test_performance = None  # type: ignore[assignment]

    def new_originator_id(self) -> str:
        return f"note {uuid4()} / Zürich"


class TestNonInterleaving(OnPlace, suite.NonInterleavingNotificationIDsBaseCase):
    def create_recorder(self) -> LogRecorder:
        return self.place.recorder()


class Note(Aggregate):
    """An ordinary aggregate of the library."""

    @event("Written")
    def __init__(self, text: str) -> None:
        self.text = text

    @event("Amended")
    def amend(self, text: str) -> None:
        self.text = text


class Notes(Application[UUID]):
    """An ordinary application of the library, over a store that runs already."""

    snapshotting_intervals: ClassVar = {Note: 2}

    def __init__(self, place: Place) -> None:
        self._place = place
        super().__init__()

    def construct_factory(self, env: Environment) -> LogFactory:
        return LogFactory(env, self._place.store, self._place.log_id)


@pytest.fixture
def notes(place: Place) -> Notes:
    return Notes(place)


def written(notes: Notes, *texts: str) -> UUID:
    """Save a note once for each of these texts."""
    note = Note(texts[0])
    notes.save(note)
    for text in texts[1:]:
        note.amend(text)
        notes.save(note)
    return note.id


def stored(note_id: UUID | str = ONE, version: Any = 1, topic: Any = "t", state: Any = b"{}") -> StoredEvent:
    return StoredEvent(originator_id=note_id, originator_version=version, topic=topic, state=state)


def test_an_ordinary_aggregate_is_what_it_was_when_it_was_saved(notes: Notes) -> None:
    note_id = written(notes, "a", "b", "c")
    note: Note = notes.repository.get(note_id)
    assert (note.text, note.version) == ("c", 3)
    assert notes.repository.get(note_id, version=1).text == "a"
    with pytest.raises(AggregateNotFoundError):
        notes.repository.get(uuid4())


def test_the_entries_say_which_aggregate_and_hold_its_readable_state(notes: Notes, place: Place) -> None:
    note_id = written(notes, "naïve", "b")
    first, second, snapshot = place.entries()
    assert [entry.type for entry in (first, second, snapshot)] == [
        "aggregate.recorded",
        "aggregate.recorded",
        "aggregate.snapshotted",
    ]
    assert {entry.key for entry in (first, second, snapshot)} == {f"aggregate:{note_id}"}
    assert (first.actor, first.data["originator_version"], first.data["originator_kind"]) == ("system", 1, "uuid")
    assert first.data["topic"] == f"{__name__}:Note.Written"
    assert '"text":"naïve"' in str(first.data["state"])
    assert first.data["state_base64"] is None


def test_whoever_caused_a_save_is_named_by_its_entries(notes: Notes, place: Place) -> None:
    notes.save(Note("a"), actor=ACTOR)
    assert [entry.actor for entry in place.entries()] == [ACTOR]
    for actor in ("ada@example.org", 7, ""):
        with pytest.raises(FormatError, match="actor"):
            notes.save(Note("b"), actor=actor)
    assert len(place.entries()) == 1


def test_of_two_who_loaded_the_same_version_the_second_is_refused_and_leaves_nothing(place: Place) -> None:
    one, other = Notes(place), Notes(place)
    note_id = written(one, "a")
    mine: Note = one.repository.get(note_id)
    theirs: Note = other.repository.get(note_id)
    mine.amend("mine")
    one.save(mine)
    before = (place.entries(), place.rows())
    theirs.amend("theirs")
    with pytest.raises(IntegrityError, match="found one recorded already"):
        other.save(theirs, Note("in the same save"))
    assert (place.entries(), place.rows()) == before
    assert other.repository.get(note_id).text == "mine"


def test_of_many_who_save_the_same_versions_at_once_exactly_one_succeeds(place: Place) -> None:
    with running_store(place.installation, place.installation.roles.auditor) as other, ThreadPoolExecutor(8) as threads:
        recorders = [place.recorder(), LogRecorder(other, place.log_id)]

        def save(number: int) -> int:
            events = [stored(version=number // 8), stored(UUID(int=1_000 + number), 0)]
            try:
                recorders[number % 2].insert_events(events)
            except IntegrityError:
                return 0
            return 1

        saved = sum(threads.map(save, range(80)))
    assert saved == 10
    assert [one.originator_version for one in place.recorder().select_events(ONE)] == list(range(10))
    assert len(place.entries()) == len(place.rows()) == 20
    place.verify()


def test_snapshots_are_taken_and_used(notes: Notes, place: Place) -> None:
    note_id = written(notes, "a", "b", "c", "d", "e")
    assert notes.snapshots is not None
    assert [snapshot.originator_version for snapshot in notes.snapshots.get(note_id)] == [2, 4]
    with psycopg.connect(place.database, autocommit=True) as owner:
        gone = "DELETE FROM ledger.recorded_events WHERE kind = 'event' AND version <= 4 AND log_id = %s"
        assert owner.execute(gone, (place.log_id,)).rowcount == 4
    assert notes.repository.get(note_id).text == "e", "built from the newest snapshot"
    with pytest.raises(IntegrityError):
        notes.take_snapshot(note_id, version=4)


def test_the_notification_log_holds_all_events_in_order_and_no_snapshot(notes: Notes) -> None:
    first = written(notes, "a", "b", "c")
    second = written(notes, "d")
    selected = notes.notification_log.select(start=1, limit=10)
    assert [(one.id, one.originator_id, one.originator_version) for one in selected] == [
        (1, first, 1),
        (2, first, 2),
        (4, first, 3),
        (5, second, 1),
    ]
    sections, section_id = [], "1,2"
    while section_id:
        section = notes.notification_log[section_id]
        sections.append([item.id for item in section.items])
        section_id = section.next_id or ""
    assert sections[:2] == [[1, 2], [4, 5]]
    assert notes.recorder.max_notification_id() == 5


def test_a_long_log_is_read_page_by_page(place: Place) -> None:
    recorder = place.recorder()
    versions = READ_MAX + 3
    recorder.insert_events([stored(version=version, topic=f"t{version % 2}") for version in range(versions)])
    assert [event.originator_version for event in recorder.select_events(ONE)] == list(range(versions))
    newest_first = recorder.select_events(ONE, gt=0, desc=True, limit=READ_MAX + 1)
    assert [event.originator_version for event in newest_first] == list(range(versions - 1, 1, -1))
    assert [event.id for event in recorder.select_notifications(None, versions)] == list(range(1, versions + 1))
    odd = recorder.select_notifications(None, versions, topics=["t1"])
    assert [event.id for event in odd] == list(range(2, versions + 1, 2))


def test_a_subscription_follows_what_another_application_saves(place: Place) -> None:
    reader, writer = Notes(place), Notes(place)
    written(writer, "a", "b")
    followed: list[int] = []
    with reader.recorder.subscribe(gt=1) as subscription:

        def follow() -> None:
            followed.extend(notification.id for notification in subscription)

        thread = Thread(target=follow)
        thread.start()
        written(writer, "c", "d")
        while len(followed) < 3 and thread.is_alive():
            thread.join(0.01)
        subscription.stop()
        thread.join()
    assert followed == [2, 4, 5]


def test_a_subscription_to_some_topics_passes_over_the_others(place: Place) -> None:
    recorder = place.recorder()
    for note in range(4):
        recorder.insert_events(
            [stored(UUID(int=note), n, topic=f"t{(note * READ_MAX + n) % 3}") for n in range(READ_MAX)]
        )
    with recorder.subscribe(topics=["t2"]) as subscription:
        ids = [next(subscription).id for _ in range(READ_MAX)]
        subscription.stop()
        assert list(subscription) == []
    assert ids == list(range(3, 3 * READ_MAX + 1, 3))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(states=st.lists(st.binary(max_size=60) | st.text(max_size=60).map(str.encode), min_size=1, max_size=5))
def test_every_state_comes_back_to_the_byte(place: Place, states: list[bytes]) -> None:
    recorder, note_id = place.recorder(), uuid4()
    recorder.insert_events([stored(note_id, version, state=state) for version, state in enumerate(states)])
    assert [event.state for event in recorder.select_events(note_id)] == states


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"note_id": 7}, "originator_id"),
        ({"note_id": ""}, "originator_id"),
        ({"note_id": "\ud800"}, "UTF-8"),
        ({"version": -1}, "originator_version"),
        ({"version": True}, "originator_version"),
        ({"version": 1.0}, "originator_version"),
        ({"version": 2**53}, "originator_version"),
        ({"topic": ""}, "topic"),
        ({"topic": None}, "topic"),
        ({"topic": "\ud800"}, "surrogate"),
        ({"state": "{}"}, "state"),
        ({"state": bytearray(b"{}")}, "state"),
        ({"state": bytes(49_000) + b"\xff"}, "limit|at most"),
        ({"state": b"a" * 64_512}, "limit|at most"),
        ({"note_id": "a" * 2_000}, "limit|at most"),
    ],
)
def test_what_is_not_of_its_form_or_too_large_is_refused_and_leaves_nothing(
    shared_place: Place, wrong: dict[str, Any], word: str
) -> None:
    with pytest.raises((FormatError, NotCanonicalError, LimitExceededError), match=word):
        shared_place.recorder().insert_events([stored(uuid4()), stored(**wrong)])
    assert (shared_place.entries(), shared_place.rows()) == ([], [])


def test_a_save_of_too_many_events_or_bytes_is_refused_and_the_largest_is_not(place: Place) -> None:
    recorder = place.recorder()
    with pytest.raises(LimitExceededError, match="events"):
        recorder.insert_events([stored(version=version) for version in range(1_025)])
    with pytest.raises(LimitExceededError, match="bytes"):
        recorder.insert_events([stored(version=version, state=b"a" * 60_000) for version in range(40)])
    assert place.rows() == []
    ids = recorder.insert_events([stored(version=version) for version in range(1_024)])
    assert ids == list(range(1, 1_025))


def test_a_uuid_and_its_text_are_one_aggregate(place: Place) -> None:
    recorder, note_id = place.recorder(), uuid4()
    recorder.insert_events([stored(note_id)])
    with pytest.raises(IntegrityError):
        recorder.insert_events([stored(str(note_id))])
    recorder.insert_events([stored(str(note_id), 2)])
    assert [event.originator_id for event in recorder.select_events(note_id)] == [note_id, str(note_id)]


def test_events_and_snapshots_of_one_version_do_not_meet(place: Place) -> None:
    assert place.recorder().insert_events([stored()]) == [1]
    assert place.snapshots().insert_events([stored(state=b"snapshot")]) is None
    assert [event.state for event in place.recorder().select_events(ONE)] == [b"{}"]
    assert [event.state for event in place.snapshots().select_events(ONE)] == [b"snapshot"]
    events_alone = LogAggregateRecorder(place.store, place.log_id, RecordedKind.EVENT)
    assert events_alone.select_events(ONE) == place.recorder().select_events(ONE)


def test_what_another_log_records_is_not_seen(place: Place, tenants: Iterator[UUID]) -> None:
    other = create_tenant_log(place.database, place.installation, next(tenants))
    place.recorder().insert_events([stored()])
    assert LogRecorder(place.store, other).insert_events([stored(state=b"other")]) == [1]
    assert [event.state for event in place.recorder().select_events(ONE)] == [b"{}"]
    assert LogRecorder(place.store, other).select_notifications(None, 10) == [], "its reader is another role"


def test_an_argument_that_would_be_lost_is_refused(place: Place) -> None:
    tracking = Tracking("upstream", 1)
    for recorder in (place.recorder(), place.snapshots()):
        with pytest.raises(NotSupportedError, match="tracking"):
            recorder.insert_events([stored()], tracking=tracking)
    assert place.entries() == []


def test_a_factory_makes_no_other_recorders(place: Place) -> None:
    factory = LogFactory({}, place.store, place.log_id)
    with pytest.raises(NotSupportedError, match="projection"):
        factory.tracking_recorder()
    with pytest.raises(NotSupportedError, match="projection"):
        factory.process_recorder()
    with pytest.raises(ProgrammingError, match="purpose"):
        factory.aggregate_recorder("audit")
    with pytest.raises(NotSupportedError, match="APPLICATION_RECORDER_TOPIC"):
        LogFactory({"APPLICATION_RECORDER_TOPIC": "some:Recorder"}, place.store, place.log_id)


@pytest.mark.parametrize(
    ("tampering", "expected"),
    [
        (SET_ENTRY.format("""replace(convert_from(entry, 'UTF8'), '"state":"{}"', '"state":null')"""), "exactly one"),
        (SET_ENTRY.format("""replace(convert_from(entry, 'UTF8'), '"topic":', '"title":')"""), "topic"),
        (SET_ENTRY.format("""replace(convert_from(entry, 'UTF8'), '"uuid"', '"name"')"""), "OriginatorKind|one of"),
        (SET_ENTRY.format("""replace(convert_from(entry, 'UTF8'), 'aggregate.rec', 'aggregate.wreck')"""), "recorded"),
        (SET_ENTRY.format("""replace(convert_from(entry, 'UTF8'), '"key":"a', '"key":"b')"""), "key"),
        (
            SET_ENTRY.format("""replace(convert_from(entry, 'UTF8'), 'version":1,', 'version":9,')"""),
            "found '.*0001 9'",
        ),
        (SET_ENTRY.format("'{}'"), "members|entry"),
        ("DELETE FROM ledger.entries WHERE index = 0", "its entry in the log"),
        ("UPDATE ledger.recorded_events SET group_id = gen_random_uuid() WHERE version = 1", "its entry in the log"),
        ("UPDATE ledger.recorded_events SET version = 2 WHERE version = 1", "expected .*0001 2, found"),
        ("UPDATE ledger.recorded_events SET kind = 'event' WHERE kind = 'snapshot'", "aggregate.recorded/1"),
        (MOVED, "found 'aggregate:00000000-0000-0000-0000-000000000002 3'"),
    ],
)
def test_what_is_no_event_where_one_should_be_is_told_as_corruption(
    shared_place: Place, tampering: str, expected: str
) -> None:
    shared_place.recorder().insert_events([stored()])
    shared_place.recorder().insert_events([stored(UUID(int=2), 3)])
    shared_place.snapshots().insert_events([stored(version=5)])
    shared_place.tamper(tampering)
    with pytest.raises(FormatError, match=expected):
        shared_place.recorder().select_events(ONE)


def test_a_state_that_was_changed_in_the_database_is_found_by_verifying(place: Place) -> None:
    place.recorder().insert_events([stored(state=b'{"paid":100}')])
    place.verify()
    place.tamper(SET_ENTRY.format("replace(convert_from(entry, 'UTF8'), '100', '900')"))
    assert place.recorder().select_events(ONE)[0].state == b'{"paid":900}', "any event store believes its rows"
    with pytest.raises(BrokenError):
        place.verify()


def test_a_notification_of_another_place_is_told_as_corruption(place: Place) -> None:
    place.recorder().insert_events([stored(), stored(version=2)])
    place.tamper("DELETE FROM ledger.entries WHERE index = 0")
    place.tamper("UPDATE ledger.entries SET index = 0 WHERE index = 1")
    with pytest.raises(FormatError, match="index of an entry"):
        place.recorder().select_notifications(None, 10)


def test_a_log_that_cannot_be_reached_is_told_and_nothing_is_made_up(place: Place) -> None:
    with running_store(place.installation, place.installation.roles.auditor) as store:
        recorder = LogRecorder(store, place.log_id)
    for call in (recorder.max_notification_id, lambda: recorder.insert_events([stored()])):
        with pytest.raises(LogUnavailableError):
            call()


def test_few_events_among_many_other_entries_are_found(place: Place) -> None:
    recorder = place.recorder()
    for number in range(3):
        recorder.insert_events([stored(version=number)])
        for note in range(3):
            snapshots = [stored(UUID(int=100 * number + note), version) for version in range(READ_MAX * 2)]
            place.snapshots().insert_events(snapshots)
    ids = [1, 3 * READ_MAX * 2 + 2, 6 * READ_MAX * 2 + 3]
    assert [one.id for one in recorder.select_notifications(None, 10)] == ids
    assert [one.id for one in recorder.select_notifications(2, 10, ids[2] - 1)] == ids[1:2]
    assert recorder.max_notification_id() == ids[2]


def test_a_store_that_reads_as_another_role_says_so(place: Place) -> None:
    place.recorder().insert_events([stored()])
    with running_store(place.installation, place.installation.roles.gateway) as store:
        recorder = LogRecorder(store, place.log_id)
        with pytest.raises(LedgerError, match="permission denied"):
            recorder.select_events(ONE)
        assert recorder.insert_events([stored(version=2)]) == [2]
