# SPDX-License-Identifier: Apache-2.0
"""
The sides that `bench/append.py` compares. All are driven in the same way: a number of callers on one event loop, each
waiting for its own durable answer before its next call.

What a caller appends is made before the clock starts, on every side: ids, groups of canonical events, bytes.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Generic, TypeVar
from uuid import UUID, uuid4

import psycopg
from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore
from psycopg.conninfo import conninfo_to_dict

from bench.latencies import latencies
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.format.event import Event, Part, PreparedEvent, prepare, random_group_id
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Appended, Group

T = TypeVar("T")

PLAIN_CONNECTIONS_MAX = 128
STOCK_THREADS_MAX = 16
RATE_MAX = 100_000
"""Groups made ahead for each second of a turn; a turn that uses them up ends early."""

Took = list[float]
"""How long each append took, in seconds."""
Turn = Callable[[int, float], Awaitable[tuple[Took, float]]]
"""Runs that many callers for so many seconds; returns what each append took, and how long all of it."""


def example_event(*, part_bytes: int = 0) -> PreparedEvent:
    """Return a decision on a commit, as the gateway makes it: about 1 KB; with a payload part, if requested."""
    parts = (Part(name="inputs", payload=os.urandom(part_bytes), salt=os.urandom(32)),) if part_bytes else ()
    return prepare(
        Event(
            type="commit.decided",
            version=1,
            key="table:lake/sales/orders",
            actor="6f1d2c3b4a5968778695a4b3c2d1e0f0",
            occurred_at=datetime.now(UTC),
            data={
                "actions": ["add-snapshot", "set-snapshot-ref"],
                "as_of": 12,
                "base": "s3://warehouse/sales/orders/metadata/00041-0f5b7c1e-6a27-4c39-9d55-0d6f3f1d2a11.metadata.json",
                "decision": "approved",
                "identifier": {"alias": "lake", "name": "orders", "namespace": ["sales"]},
                "operation": "updateTable",
                "policy_set": "9b74c9897bac770ffc029102a200c5de5f4a3a3c9f3f7e2b0f1d2c3b4a596877",
                "principal_source": "api_key",
                "reason": None,
                "request": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
                "snapshots": ["7302847561029384756"],
                "table_uuid": "0b9f0b7e-4c9c-4a57-a6f0-0c5d7a1f5f0e",
            },
            parts=parts,
        )
    )


def new_id() -> UUID:
    """Return a UUIDv7: ids that grow keep the unique index of every side on few pages."""
    return random_group_id(now_ms=time.time_ns() // 1_000_000, random=os.urandom(10))


def new_groups(event: PreparedEvent, count: int) -> list[Group]:
    """Return groups of one event each."""
    return [Group(id=new_id(), then=(event,)) for _ in range(count)]


async def drive(callers: int, seconds: float, once: Callable[[int], Awaitable[object]]) -> tuple[Took, float]:
    """Let `callers` repeat `once`, which raises StopAsyncIteration when nothing is left to do."""
    took: Took = []
    gc.collect()
    gc.freeze()  # what was made ahead is no part of what is measured
    begin = time.perf_counter()
    end = begin + seconds

    async def caller(number: int) -> None:
        before = time.perf_counter()
        while before < end:
            try:
                await once(number)
            except StopAsyncIteration:
                return
            after = time.perf_counter()
            took.append(after - before)
            before = after

    await asyncio.gather(*(caller(number) for number in range(callers)))
    elapsed = time.perf_counter() - begin
    gc.unfreeze()
    return took, elapsed


def plain(dsn: str, entry: bytes) -> Turn:
    """Return the peer: one INSERT of the same bytes under a unique id, one commit, up to 128 connections."""

    async def turn(callers: int, seconds: float) -> tuple[Took, float]:
        ids = _Left([new_id() for _ in range(int(RATE_MAX * seconds / 4))])
        async with AsyncExitStack() as stack:
            connections = [
                await stack.enter_async_context(await psycopg.AsyncConnection.connect(dsn, autocommit=True))
                for _ in range(min(callers, PLAIN_CONNECTIONS_MAX))
            ]

            async def once(number: int) -> None:
                query = "INSERT INTO plain (id, entry) VALUES (%b, %b)"
                await connections[number].execute(query, (next(ids), entry))

            return await drive(len(connections), seconds, once)

    return turn


def log(dsn: str, log_id: int, event: PreparedEvent) -> Turn:
    """Return the Appender on one log."""

    async def turn(callers: int, seconds: float) -> tuple[Took, float]:
        groups = _Left(new_groups(event, int(RATE_MAX * seconds)))
        async with Appender(dsn, GuardRegistry(CORE_GUARDS)) as appender:

            async def once(_: int) -> None:
                await appender.append(log_id, next(groups))

            await once(0)  # connects
            return await drive(callers, seconds, once)

    return turn


def stock(dsn: str, entry: bytes) -> Turn:
    """Return eventsourcing's own recorder for PostgreSQL, in threads, since it is synchronous."""

    async def turn(callers: int, seconds: float) -> tuple[Took, float]:
        parts = conninfo_to_dict(dsn)
        threads = min(callers, STOCK_THREADS_MAX)
        dbname, host, port, user, password = (
            str(parts[name]) for name in ("dbname", "host", "port", "user", "password")
        )
        datastore = PostgresDatastore(dbname, host, port, user, password, pool_size=threads, max_overflow=threads)
        recorder = PostgresApplicationRecorder(datastore, events_table_name="stock_events")
        recorder.create_table()
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(threads) as executor:

            async def once(_: int) -> None:
                one = StoredEvent(originator_id=uuid4(), originator_version=1, topic="commit.decided", state=entry)
                await loop.run_in_executor(executor, recorder.insert_events, [one])

            try:
                return await drive(callers, seconds, once)
            finally:
                datastore.close()

    return turn


async def bulk(dsn: str, log_id: int, groups: Sequence[Group]) -> float:
    """Return how many groups a second one call of `append_many` appends."""
    async with Appender(dsn, GuardRegistry(CORE_GUARDS)) as appender:
        await appender.append_many(log_id, groups[:1])
        begin = time.perf_counter()
        outcomes = await appender.append_many(log_id, groups[1:])
        took = time.perf_counter() - begin
    assert all(isinstance(outcome, Appended) and not outcome.repeated for outcome in outcomes)
    return (len(groups) - 1) / took


def figures(took: Took, elapsed_s: float) -> dict[str, float]:
    """Return rate and latencies of one turn."""
    return {"per_second": round(len(took) / elapsed_s), **latencies([1000 * each for each in took])}


def median_of(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the medians of several turns' figures."""
    return {name: round(statistics.median(one[name] for one in rounds), 3) for name in rounds[0]}


def in_turns(sides: dict[str, Turn], *, callers: int, seconds: float, rounds: int) -> dict[str, dict[str, float]]:
    """Let each side have its turn, several times: what else the machine does then falls on all of them."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, turn in sides.items():
            found[name].append(figures(*asyncio.run(_awaited(turn(callers, seconds)))))
    return {name: median_of(of_side) for name, of_side in found.items()}


async def _awaited(turn: Awaitable[tuple[Took, float]]) -> tuple[Took, float]:
    return await turn


class _Left(Generic[T]):
    """What was made ahead and is not used yet."""

    def __init__(self, made: Sequence[T]) -> None:
        self._made = iter(made)

    def __next__(self) -> T:
        for one in self._made:
            return one
        raise StopAsyncIteration
