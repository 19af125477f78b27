# SPDX-License-Identifier: Apache-2.0
"""The eventsourcing library over the log: versions are guards, entries are ours, conflicts are told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

import pytest
from eventsourcing.persistence import IntegrityError, NotSupportedError, StoredEvent
from psycopg import AsyncConnection

import ledger.store.log_store
from lakeproof.provision import Provisioned
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.errors import (
    FormatError,
    GroupMismatchError,
    LedgerError,
    LogUnavailableError,
    NoSuchLogError,
    OutcomeUnknownError,
)
from ledger.format import canonical
from ledger.format.aggregates import ControlChange
from ledger.format.canonical import Json
from ledger.format.entry import Entry, parse_entry
from ledger.format.event import Event, Part, commitment, prepare, random_group_id
from ledger.format.events import PolicyChangedV1, PolicyCreatedV1
from ledger.format.guards import GuardCall, GuardRegistry
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.log_store import LogStore
from ledger.store.read import read_entries, read_head, read_parts
from ledger.store.recorder import (
    ChangeRecorder,
    EventMapper,
    LogApplication,
    NoSuchAggregateError,
    StaleSaveError,
    UnknownEventError,
    VersionConflictError,
)
from ledger.store.session import Connection
from testkit.ledger.appending import new_log

ACTOR = "0123456789abcdef" * 2
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)

_numbers = count()
_random = Random(9162)  # noqa: S311  (ids of tests, repeatable)


def new_group_id() -> UUID:
    return random_group_id(now_ms=next(_numbers), random=_random.randbytes(10))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A test's own aggregate over the events of policies."""

    id: str
    version: int
    expression: str


def project(rule: Rule | None, changes: Iterable[ControlChange]) -> Rule | None:
    for change in changes:
        match change.event:
            case PolicyCreatedV1(id=rule_id, version=version, expression=expression):
                rule = Rule(id=rule_id, version=version, expression=expression)
            case PolicyChangedV1(version=version, expression=expression) if rule is not None:
                rule = replace(rule, version=version, expression=expression)
            case other:
                raise AssertionError(other)
    return rule


def created(rule_id: str = "r", expression: str = "true") -> ControlChange:
    event = PolicyCreatedV1(id=rule_id, version=1, expression=expression, message="no")
    return ControlChange(event=event, actor=ACTOR, occurred_at=NOON)


def changed(version: int, expression: str, rule_id: str = "r") -> ControlChange:
    event = PolicyChangedV1(id=rule_id, version=version, expression=expression, message="no")
    return ControlChange(event=event, actor=ACTOR, occurred_at=NOON)


class Place:
    """One tenant's log on a real database, and everything that writes or reads it."""

    def __init__(self, dsn: str, installation: Provisioned, appender: Appender) -> None:
        self.log_id = new_log(dsn, installation)
        self.dsn = dsn
        self.appender = appender
        self.reader_dsn = installation.as_role(installation.roles.gateway)
        self.store = LogStore(appender, self.lend, new_group_id=new_group_id)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Connection]:
        async with await AsyncConnection.connect(self.reader_dsn, autocommit=True) as connection:
            yield connection

    def application(self) -> LogApplication:
        return LogApplication(self.store, self.log_id)

    async def record(self, *changes: ControlChange, **options: Any) -> list[int]:
        return await asyncio.to_thread(self.application().record, *changes, **options)

    async def load(self, key: str = "policy:r") -> Rule:
        return await asyncio.to_thread(self.application().load, key, project)

    async def entries(self) -> list[Entry]:
        return [parse_entry(entry) for entry in await self.stored()]

    async def stored(self) -> list[bytes]:
        async with await AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            head = await read_head(connection, self.log_id)
            return await read_entries(connection, self.log_id, from_index=0, to_index=head.size)


@pytest.fixture
async def place(module_database: str, module_installation: Provisioned) -> AsyncIterator[Place]:
    installation = module_installation
    dsn = installation.as_role(installation.roles.appender)
    async with Appender(dsn, GuardRegistry(CORE_GUARDS)) as appender:
        yield Place(module_database, installation, appender)


async def test_an_aggregate_rebuilt_from_the_log_is_the_one_that_was_saved(place: Place) -> None:
    assert await place.record(created()) == [0]
    assert await place.record(changed(2, "false"), changed(3, "1 == 1")) == [1, 2]
    assert await place.record(created("other")) == [3]
    assert await place.load() == Rule(id="r", version=3, expression="1 == 1")
    assert await place.load("policy:other") == Rule(id="other", version=1, expression="true")


async def test_an_aggregate_can_be_rebuilt_at_an_earlier_version(place: Place) -> None:
    await place.record(created(), changed(2, "false"))
    get = place.application().repository.get
    rule = await asyncio.to_thread(lambda: get("policy:r", version=1, projector_func=project))
    assert rule == Rule(id="r", version=1, expression="true")


async def test_what_the_log_does_not_hold_is_not_found(place: Place) -> None:
    with pytest.raises(NoSuchAggregateError, match="policy:r"):
        await place.load()


async def test_of_two_writers_who_loaded_the_same_version_one_is_told_a_conflict(
    place: Place, module_installation: Provisioned
) -> None:
    await place.record(created())
    dsn = module_installation.as_role(module_installation.roles.appender)
    async with Appender(dsn, GuardRegistry(CORE_GUARDS)) as elsewhere:
        other = LogApplication(LogStore(elsewhere, place.lend, new_group_id=new_group_id), place.log_id)
        results = await asyncio.gather(
            place.record(changed(2, "1 == 1")),
            asyncio.to_thread(other.record, changed(2, "2 == 2")),
            return_exceptions=True,
        )
    lost = [result for result in results if isinstance(result, VersionConflictError)]
    assert len(lost) == 1
    assert [result for result in results if result not in lost] == [[1]]
    assert isinstance(lost[0], IntegrityError)  # the library's own name for it
    winner = "1 == 1" if results[1] is lost[0] else "2 == 2"
    assert await place.load() == Rule(id="r", version=2, expression=winner)


async def test_a_save_that_skips_a_version_or_creates_twice_appends_nothing(place: Place) -> None:
    await place.record(created())
    for refused in (created(expression="false"), changed(3, "false"), changed(1, "false")):
        with pytest.raises(VersionConflictError, match="policy:r"):
            await place.record(refused)
    assert len(await place.entries()) == 1
    assert await place.record(changed(2, "false")) == [1]


async def test_one_save_is_one_group_and_all_of_it_or_nothing(place: Place) -> None:
    await place.record(created("a"), created("b"))
    first, second = await place.entries()
    assert first.group_id == second.group_id
    assert [(first.of, first.position), (second.of, second.position)] == [(2, 0), (2, 1)]
    with pytest.raises(VersionConflictError):
        await place.record(created("c"), created("a"))
    assert len(await place.entries()) == 2
    assert await place.record(created("c")) == [2]


async def test_stored_entries_hold_our_types_and_canonical_data_and_no_class_path(place: Place) -> None:
    await place.record(created(), changed(2, "false"))
    for entry in await place.stored():
        assert not re.search(rb"eventsourcing|gateway|[a-z_]+\.[a-z_]+:[A-Z]|_type_|originator|topic|__", entry)
        assert canonical.encode(canonical.decode(entry)) == entry
    first, second = await place.entries()
    assert (first.type, first.version, first.key, first.actor) == ("policy.created", 1, "policy:r", ACTOR)
    assert first.data == {"expression": "true", "id": "r", "message": "no", "version": 1}
    assert first.occurred_at == NOON
    assert (second.type, second.data["version"]) == ("policy.changed", 2)


async def test_another_guard_must_hold_too(place: Place) -> None:
    taken = GuardCall("aggregate.create", {"key": "mark:1"})
    await place.record(created("a"), guard=[taken])
    with pytest.raises(VersionConflictError):
        await place.record(created("b"), guard=[taken])
    assert len(await place.entries()) == 1
    assert await place.record(created("b")) == [1]


async def test_payload_parts_go_with_a_save(place: Place) -> None:
    part = Part(name="reason", payload=b"because", salt=bytes(32))
    await place.record(replace(created(), parts=(part,)))
    (entry,) = await place.entries()
    assert entry.parts == {"reason": commitment(salt=bytes(32), payload=b"because")}
    async with await AsyncConnection.connect(place.dsn, autocommit=True) as connection:
        assert await read_parts(connection, place.log_id, from_index=0, to_index=1) == {0: {"reason": part}}


async def test_a_save_judged_by_older_rules_is_stale(place: Place) -> None:
    await place.record(created("a"), as_of=-1)
    with pytest.raises(StaleSaveError) as stale:
        await place.record(created("b"), as_of=-1)
    assert stale.value.control_index == 0
    assert await place.record(created("b"), as_of=0) == [1]


async def test_a_save_under_an_earlier_saves_group_id_is_that_save(place: Place) -> None:
    group_id = new_group_id()
    assert await place.record(created(), group_id=group_id) == [0]
    again = replace(created(), occurred_at=datetime(2027, 1, 1, tzinfo=UTC))
    assert await place.record(again, group_id=group_id) == [0]
    with pytest.raises(GroupMismatchError):
        await place.record(created(expression="false"), group_id=group_id)
    assert len(await place.entries()) == 1


async def test_an_event_that_this_process_does_not_know_is_refused(place: Place) -> None:
    await place.record(created())
    for number, (event_type, version) in enumerate([("policy.archived", 1), ("policy.changed", 2)]):
        event = Event(
            type=event_type,
            version=version,
            key="policy:r",
            actor=ACTOR,
            occurred_at=NOON,
            data={"id": "r", "version": 2},
        )
        await place.appender.append(place.log_id, Group(id=new_group_id(), then=(prepare(event),)))
        with pytest.raises(UnknownEventError, match=f"{event_type}/{version}" if number == 0 else "policy"):
            await place.load()


async def test_corrupt_data_of_a_known_event_is_refused(place: Place) -> None:
    data: dict[str, Json] = {"id": "r", "version": 1, "expression": "true"}
    event = Event(type="policy.created", version=1, key="policy:r", actor=ACTOR, occurred_at=NOON, data=data)
    await place.appender.append(place.log_id, Group(id=new_group_id(), then=(prepare(event),)))
    with pytest.raises(FormatError, match="PolicyCreatedV1"):
        await place.load()


async def test_an_event_under_another_aggregates_key_is_refused(place: Place) -> None:
    data: dict[str, Json] = {"id": "q", "version": 1, "expression": "true", "message": "no"}
    event = Event(type="policy.created", version=1, key="policy:r", actor=ACTOR, occurred_at=NOON, data=data)
    await place.appender.append(place.log_id, Group(id=new_group_id(), then=(prepare(event),)))
    with pytest.raises(FormatError, match="policy:q"):
        await place.load()


async def test_notifications_are_the_control_entries_by_index(place: Place) -> None:
    recorder = ChangeRecorder(place.store, place.log_id)
    assert await asyncio.to_thread(recorder.max_notification_id) is None
    await place.record(created())
    applied = Event(
        type="signer.created", version=1, key="signer:s", actor="system", occurred_at=NOON, data={"vkey": "v"}
    )
    await place.appender.append(place.log_id, Group(id=new_group_id(), then=(prepare(applied),)))
    await place.record(changed(2, "false"), created("s"))

    def ids(*arguments: Any, **options: Any) -> list[int]:
        return [found.id for found in recorder.select_notifications(*arguments, **options)]

    assert await asyncio.to_thread(ids, None, 10) == [1, 3, 4]
    assert await asyncio.to_thread(ids, 1, 10) == [1, 3, 4]
    assert await asyncio.to_thread(ids, 3, 1) == [3]
    assert await asyncio.to_thread(lambda: ids(1, 10, inclusive_of_start=False)) == [3, 4]
    assert await asyncio.to_thread(lambda: ids(1, 10, stop=3)) == [1, 3]
    assert await asyncio.to_thread(lambda: ids(1, 10, topics=["policy.created/1"])) == [1, 4]
    assert await asyncio.to_thread(recorder.max_notification_id) == 4
    with pytest.raises(NotSupportedError):
        recorder.subscribe()


async def test_a_selection_of_events_is_bounded_by_versions(place: Place) -> None:
    await place.record(created(), changed(2, "2 == 2"), changed(3, "3 == 3"))
    recorder = ChangeRecorder(place.store, place.log_id)

    def versions(**bounds: Any) -> list[int]:
        return [event.originator_version for event in recorder.select_events("policy:r", **bounds)]

    assert await asyncio.to_thread(versions) == [1, 2, 3]
    assert await asyncio.to_thread(lambda: versions(gt=1)) == [2, 3]
    assert await asyncio.to_thread(lambda: versions(lte=2)) == [1, 2]
    assert await asyncio.to_thread(lambda: versions(desc=True, limit=1)) == [3]


async def test_an_argument_of_save_that_nobody_reads_is_refused(place: Place) -> None:
    application = place.application()
    with pytest.raises(NotSupportedError, match="guards"):
        await asyncio.to_thread(lambda: application.save(created(), guards=[]))
    assert await place.entries() == []
    assert await asyncio.to_thread(application.save) == []


async def test_the_environment_cannot_change_how_events_are_stored(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSISTENCE_MODULE", "eventsourcing.nowhere")
    monkeypatch.setenv("IS_SNAPSHOTTING_ENABLED", "y")
    monkeypatch.setenv("COMPRESSOR_TOPIC", "zlib")
    assert await place.record(created()) == [0]
    assert await place.load() == Rule(id="r", version=1, expression="true")


async def test_the_store_cannot_be_called_on_the_loops_own_thread(place: Place) -> None:
    with pytest.raises(LedgerError, match="worker thread"):
        place.application().record(created())


async def test_a_log_that_does_not_exist_is_said_so(place: Place) -> None:
    application = LogApplication(place.store, 4711)
    with pytest.raises(NoSuchLogError):
        await asyncio.to_thread(application.record, created())


class SilentAppender:
    """An appender whose answers never arrive."""

    async def append(self, *_: object, **__: object) -> Appended | Stale:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


async def test_a_save_without_an_answer_is_unknown_and_a_reading_without_one_is_not(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger.store.log_store, "LOOP_GRACE_S", 0.0)

    @asynccontextmanager
    async def nothing_to_lend() -> AsyncIterator[Connection]:
        async with await AsyncConnection.connect("host=127.0.0.1 port=1 connect_timeout=2") as connection:
            yield connection

    silent = LogStore(SilentAppender(), nothing_to_lend, new_group_id=new_group_id, timeout_s=0.01)
    with pytest.raises(OutcomeUnknownError):
        await asyncio.to_thread(LogApplication(silent, place.log_id).record, created())
    unreachable = LogStore(place.appender, nothing_to_lend, new_group_id=new_group_id)
    with pytest.raises(LogUnavailableError):
        await asyncio.to_thread(LogApplication(unreachable, place.log_id).load, "policy:r", project)


def test_a_store_whose_loop_is_closed_says_that_nothing_was_appended() -> None:
    async def make() -> LogStore:
        def lend() -> Any:
            raise AssertionError("nothing is read")

        return LogStore(SilentAppender(), lend, new_group_id=new_group_id)

    store = asyncio.run(make())
    with pytest.raises(LogUnavailableError, match="closed"):
        LogApplication(store, 1).record(created())


def test_the_mapper_takes_changes_of_the_vocabulary_only() -> None:
    mapper = EventMapper()
    stored = mapper.to_stored_event(created())
    assert mapper.to_domain_event(stored) == created()
    assert stored.topic == "policy.created/1"
    stranger: Any = StoredEvent("policy:r", 1, "policy.created/1", b"{}")
    with pytest.raises(FormatError, match="a Change"):
        mapper.to_stored_event(stranger)
    with pytest.raises(UnknownEventError):
        mapper.to_domain_event(replace(stored, topic="ledger.format.events.control:PolicyCreatedV1"))
