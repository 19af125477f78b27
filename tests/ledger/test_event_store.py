"""
The eventsourcing library's event store over a log: its own test cases hold, and what it stores is what the log tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event as Signal
from threading import Thread
from uuid import UUID, uuid4

import pytest
from eventsourcing.persistence import AggregateRecorder
from psycopg_pool import AsyncConnectionPool

from lakeproof.provision import Installation, create_tenant_log
from lakeproof.services import new_group_id
from ledger.append import CORE_GUARDS, Appender
from ledger.event_store import LogAggregateRecorder, LogRecorder
from ledger.guards import GuardRegistry
from ledger.log_store import LogStore
from ledger.read import Connection
from ledger.recorded_events import RecordedKind
from tests.ledger.library_cases import persistence as suite


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A tenant's log on a real database, and a store over it that runs in a thread of its own."""

    database: str
    installation: Installation
    log_id: int
    store: LogStore

    def recorder(self) -> LogRecorder:
        return LogRecorder(self.store, self.log_id)

    def snapshots(self) -> LogAggregateRecorder:
        return LogAggregateRecorder(self.store, self.log_id, RecordedKind.SNAPSHOT)


@contextmanager
def running_store(installation: Installation, tenant: UUID) -> Iterator[LogStore]:
    """A store whose event loop is another thread's."""
    ready, ended = Signal(), Signal()
    made: list[LogStore] = []

    async def serve() -> None:
        roles = installation.roles
        reader = installation.as_role(roles.tenant(tenant))

        pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(reader, kwargs={"autocommit": True}, open=False)
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


@pytest.fixture
def place(database: str, installation: Installation) -> Iterator[Place]:
    tenant = uuid4()
    log_id = create_tenant_log(database, installation, tenant)
    with running_store(installation, tenant) as store:
        yield Place(database=database, installation=installation, log_id=log_id, store=store)


class OnPlace:
    """Gives the library's test cases a log of their own each."""

    place: Place

    @pytest.fixture(autouse=True)
    def _take_place(self, place: Place) -> None:
        self.place = place


class TestAggregateRecorder(OnPlace, suite.AggregateRecorderTestCase):
    def create_recorder(self) -> AggregateRecorder:
        return self.place.snapshots()


class TestApplicationRecorder(OnPlace, suite.ApplicationRecorderTestCase[LogRecorder]):
    def create_recorder(self) -> LogRecorder:
        return self.place.recorder()

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


class TestApplicationRecorderOfTexts(TestApplicationRecorder):
    def new_originator_id(self) -> str:
        return f"note {uuid4()} / Zürich"


class TestNonInterleaving(OnPlace, suite.NonInterleavingNotificationIDsBaseCase):
    def create_recorder(self) -> LogRecorder:
        return self.place.recorder()
