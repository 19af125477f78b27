# SPDX-License-Identifier: Apache-2.0
"""
The streams' world: a database with tenants' logs, a real appender, and handlers whose effects are easy to count.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection, sql

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.append.appender import Appender
from ledger.format.entry import Entry, parse_entry
from ledger.format.event import PreparedEvent
from ledger.format.events import DetectionFound, DetectionKind
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.read import Log, find_log, iterate_entries, read_head
from ledger.store.session import Connection
from projections.processing.runner import ProjectionRunner
from streams.handler import Append, Handler
from streams.processing.runner import HandlerRunner
from streams.processing.sender import Sender
from testkit.streams.answering import ANSWERED, ASKED, OTHER, POISON, told

TIMEOUT_S = 30
PAUSE_S_MAX = 0.1


class World:
    """The test's database, its tenants, and what one does to them."""

    def __init__(self, database: str, installation: Provisioned, appender: Appender) -> None:
        self.database = database
        self.installation = installation
        self.roles = installation.roles
        self.dsn = installation.as_role(installation.roles.streams)
        self.appender = appender
        self._tenants = count(1)
        self._groups = count(1)
        self._free: dict[str, list[Connection]] = {}

    async def close(self) -> None:
        """Close the connections that are kept."""
        for connections in self._free.values():
            for connection in connections:
                await connection.close()

    async def append(self, log_id: int, group: Group) -> Appended | Stale:
        """Append a group, as the services of a process do."""
        return await self.appender.append(log_id, group)

    async def new_log(self) -> Log:
        """Make a tenant with an empty log."""
        tenant = UUID(int=next(self._tenants) << 64, version=4)
        create_tenant_log(self.database, self.installation, tenant)
        async with self.as_role(self.roles.streams) as connection:
            return await find_log(connection, self.installation.origin(tenant))

    async def tell(self, log: Log, *events: PreparedEvent) -> None:
        """Append each event in a group of its own."""
        for event in events:
            await self.append(log.log_id, Group(id=UUID(int=next(self._groups), version=4), then=(event,)))

    async def tell_as_one(self, log: Log, *events: PreparedEvent, key: int) -> None:
        """Append events as one group."""
        await self.append(log.log_id, Group(id=UUID(int=1 << 100 | key, version=4), then=events))

    async def ask(self, log: Log, questions: int) -> None:
        """Append questions, each between two entries of another type."""
        for number in range(questions):
            await self.tell(log, told(OTHER, number=number), told(ASKED, number=number))

    def runner(self, *handlers: Handler, append: Append | None = None, **options: Any) -> HandlerRunner:
        """Return a runner; by default with the real appender."""
        return HandlerRunner(self.dsn, handlers, append or self.append, **options)

    async def size(self, log: Log) -> int:
        """Return the number of entries."""
        async with self.as_role(self.roles.streams) as connection:
            return (await read_head(connection, log.log_id)).size

    async def catch_up(self, log: Log, *handlers: Handler, **options: Any) -> None:
        """Let the handlers pass all that is in the log now."""
        await self.runner(*handlers, **options).catch_up(log.log_id, await self.size(log))

    async def entries(self, log: Log, event_type: str) -> list[Entry]:
        """Return the entries of a type, in order."""
        async with self.as_role(self.roles.streams) as connection:
            size = (await read_head(connection, log.log_id)).size
            pages = iterate_entries(connection, log.log_id, from_index=0, to_index=size)
            entries = [parse_entry(entry) async for page in pages for entry in page]
        return [entry for entry in entries if entry.type == event_type]

    async def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return what the superuser sees."""
        async with self._connection(self.database) as connection:
            cursor = await connection.execute(query, parameters or None)
            return await cursor.fetchall() if cursor.description else []

    async def has_row(self, query: str) -> bool:
        """Tell whether the query has a row."""
        return (await self.rows(f"SELECT EXISTS ({query})")) == [(True,)]

    @asynccontextmanager
    async def as_role(self, role: str) -> AsyncIterator[Connection]:
        """Yield the login role's connection, working as `role`."""
        async with self._connection(self.installation.dsn) as connection, connection.transaction():
            await connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
            yield connection

    @asynccontextmanager
    async def _connection(self, dsn: str) -> AsyncIterator[Connection]:
        """
        Yield a connection that nobody else uses now; it is kept for the next one who asks.

        Tests look every few milliseconds, and a connection costs more than what they look for.
        """
        free = self._free.setdefault(dsn, [])
        connection = free.pop() if free else await AsyncConnection.connect(dsn, autocommit=True)
        try:
            yield connection
        except BaseException:
            await connection.close()
            raise
        free.append(connection)


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Return when the condition holds; what is waited for long is looked for less often."""
    pause_s = 0.01
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            held = condition()
            if held if isinstance(held, bool) else await held:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.3, PAUSE_S_MAX)


@asynccontextmanager
async def running(
    runner: HandlerRunner | Sender | ProjectionRunner, wake: asyncio.Event | None = None
) -> AsyncIterator[None]:
    """Run a runner, of the streams or of projections, or a sender while the context is open."""
    stop = asyncio.Event()
    task = asyncio.create_task(runner.run(stop, wake))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, TIMEOUT_S)


async def check_answers(world: World, log: Log, name: str = "answering") -> None:
    """
    Check the invariant: each question that is no poison has one answer in the log and one message in the outbox.

    What is poison is a dead letter; nothing else is. The outbox is in the order of the log.
    """
    await check_answers_in_any_order(world, log, name)
    rows = await world.rows("SELECT id FROM streams.outbox WHERE log_id = %s ORDER BY position", log.log_id)
    indices = [int(id_.rpartition("/")[2]) for (id_,) in rows if id_.startswith(f"{name}/")]
    assert indices == sorted(indices)


async def check_answers_in_any_order(world: World, log: Log, name: str = "answering") -> None:
    """
    Check the invariant, but for the order of the outbox: what leads to hosts is handled when they answer.
    """
    asked = await world.entries(log, ASKED)
    good = [f"{log.origin}/{entry.index}" for entry in asked if POISON not in entry.data]
    bad = [f"{log.origin}/{entry.index}" for entry in asked if POISON in entry.data]
    answers = [entry.data["question"] for entry in await world.entries(log, ANSWERED) if entry.data["by"] == name]
    assert sorted(map(str, answers)) == sorted(good)
    mine = (log.log_id, f"{name}/%")
    outbox = await world.rows("SELECT id FROM streams.outbox WHERE log_id = %s AND id LIKE %s ORDER BY position", *mine)
    assert sorted(id_ for (id_,) in outbox) == sorted(f"{name}/{question}" for question in good)
    dead = await world.rows(
        "SELECT id FROM streams.dead_letters WHERE log_id = %s AND source = %s ORDER BY index",
        log.log_id,
        f"handler:{name}",
    )
    assert [id_ for (id_,) in dead] == bad
    leases = await world.rows("SELECT duty FROM streams.leases WHERE log_id = %s AND lease IS NOT NULL", log.log_id)
    assert leases == []


def found_numbers() -> DetectionFound:
    """Return a finding: social security numbers in a column of that name."""
    return DetectionFound(
        column="ssn",
        confidence_percent=92,
        field_id=3,
        kind=DetectionKind.US_SSN,
        matches=9_990,
        ruleset="1",
        snapshot="7302847561029384756",
        table_uuid="5f0c9d1e-0000-4000-8000-000000000001",
        values=10_000,
    )
