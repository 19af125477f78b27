# SPDX-License-Identifier: Apache-2.0
"""
How fast the stream runner brings events into the log, compared with a queue table drained message by message.

Claim: a handler that appends one group for each message brings about 10,000 groups per second into the log from two
processes on two cores, and four fifths of that from one, although each is chained, hashed and appended under an id that
absorbs repetitions. The baseline is what is usually built instead: eight workers, each with one transaction per
message: `SELECT … FOR UPDATE SKIP LOCKED`, INSERT of the effect under a unique id, DELETE, COMMIT. The upper bound is
the Appender alone, given the same groups ready-made.

Except for `processes`, all sides are one process with one event loop, on the same embedded server, in turns; everything
counted is durable (`synchronous_commit=on`). The runner reads, parses and handles entries that are in the log already.

The bench also measures how long a handler takes to skip a million entries of types that it does not handle.

Run: `python -m bench.stream`. The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from typing import Any, Final
from uuid import uuid4

import psycopg

from bench.append_sides import new_id
from bench.measuring import circumstances_on, options, publish
from bench.servers import embedded_server
from lakeproof.provision import Provisioned, create_tenant_log, provision
from ledger.append.appender import Appender
from ledger.format.event import SYSTEM_ACTOR, Event, PreparedEvent, derived_group_id, prepare
from ledger.format.events import CommitObserved, Identifier, TriggerReceived, TriggerSource, to_data
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Group
from ledger.store.session import Connection
from streams.handler import Effects, Message
from streams.processing.runner import HandlerRunner

PEER_WORKERS: Final = 8
APPEND_BATCH_MAX: Final = 1_000
"""Groups a transaction: what comes from a stream waits for nobody, so its transactions may be large."""
PROCESSES: Final = 2
ROUNDS: Final = 3
GROUP_EVENTS: Final = 500
BEGAN: Final = datetime.now(UTC)
OBSERVED: Final = {
    "identifier": None,
    "metadata_location": "s3://lake/sales/orders/metadata/00042-0f5b7c1e-6a27-4c39-9d55-0d6f3f1d2a11.metadata.json",
    "operation": "append",
    "parent": "7302847561029384756",
    "table_uuid": "0b9f0b7e-4c9c-4a57-a6f0-0c5d7a1f5f0e",
    "trigger": None,
}
FOREIGN_BYTES: Final = 900

PEER: Final = """
    CREATE TABLE queue (id bigint PRIMARY KEY, entry bytea NOT NULL);
    CREATE TABLE effects (id uuid PRIMARY KEY, entry bytea NOT NULL);
"""
FOREIGN: Final = """
    INSERT INTO ledger.entries (log_id, index, entry, leaf, type, key, is_control)
    SELECT %(log_id)s, n, decode(repeat('61', %(bytes)s), 'hex'), decode(repeat('00', 32), 'hex'), 'test.told', 'a:b',
        false
    FROM generate_series(0, %(count)s - 1) AS n
"""
"""Entries that nobody parses: a handler of other types must not read them."""


class Observe:
    """Appends one group for each entry, as handlers do: with an id that derives from what it answers."""

    name: str = "observe"
    types: frozenset[str] = frozenset({TriggerReceived.TYPE})

    async def handle(
        self,
        batch: Sequence[Message],
        reading: Connection,  # noqa: ARG002 - every handler is given one
    ) -> Effects:
        """Return the groups."""
        return Effects(groups=tuple(effect(message.id) for message in batch))


def effect(name: str) -> Group:
    """Return the group that a message of that name leads to: about 800 bytes as an entry."""
    event = Event(
        type=CommitObserved.TYPE,
        version=CommitObserved.VERSION,
        key="table:lake/sales/orders",
        actor=SYSTEM_ACTOR,
        occurred_at=BEGAN,
        data={**OBSERVED, "snapshot": name[-12:]},
    )
    return Group(id=derived_group_id(CommitObserved.TYPE, name), then=(prepare(event),))


def trigger() -> PreparedEvent:
    """Return a message that reports a new metadata file."""
    received = TriggerReceived(
        alias="lake",
        file_count=1,
        files=(),
        identifier=Identifier(alias="lake", namespace=("sales",), name="orders"),
        metadata_location=OBSERVED["metadata_location"],
        source=TriggerSource.S3,
    )
    event = Event(
        type=TriggerReceived.TYPE,
        version=TriggerReceived.VERSION,
        key="table:lake/sales/orders",
        actor=SYSTEM_ACTOR,
        occurred_at=BEGAN,
        data=to_data(received),
    )
    return prepare(event)


async def fill(dsn: str, log_id: int, count: int) -> None:
    """Append `count` messages to a log."""
    event = trigger()
    async with Appender(dsn, GuardRegistry([])) as appender:
        for _ in range(count // GROUP_EVENTS):
            await appender.append(log_id, Group(id=new_id(), then=(event,) * GROUP_EVENTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """When a runner began and ended (seconds of the machine's monotonic clock), and its CPU time for each group."""

    began_s: float
    ended_s: float
    cpu_us: float


async def by_runner(installation: Provisioned, log_id: int, count: int) -> Run:
    """Handle the messages that are in the log."""
    dsn = installation.as_role(installation.roles.appender)
    async with Appender(dsn, GuardRegistry([]), batch_max=APPEND_BATCH_MAX) as appender:
        await appender.append(log_id, effect("connects"))
        runner = HandlerRunner(installation.as_role(installation.roles.streams), [Observe()], appender.append)
        began_s, busy_s = time.monotonic(), time.process_time()
        await runner.catch_up(log_id, count)
        cpu_us = (time.process_time() - busy_s) / count * 1e6
        return Run(began_s=began_s, ended_s=time.monotonic(), cpu_us=cpu_us)


def by_processes(installation: Provisioned, log_ids: Sequence[int], count: int) -> float:
    """Let a process a log handle its messages, all at once; return groups a second in all."""
    with ProcessPoolExecutor(len(log_ids), mp_context=get_context("spawn")) as pool:
        runs = list(pool.map(in_process, [installation] * len(log_ids), log_ids, [count] * len(log_ids)))
    took_s = max(run.ended_s for run in runs) - min(run.began_s for run in runs)
    return count * len(log_ids) / took_s


def in_process(installation: Provisioned, log_id: int, count: int) -> Run:
    """Run `by_runner` as a process's only work."""
    return asyncio.run(by_runner(installation, log_id, count))


async def by_appender(dsn: str, log_id: int, count: int) -> float:
    """Append as many groups that are ready; return groups a second."""
    groups = [effect(f"message {number}") for number in range(count)]
    async with Appender(dsn, GuardRegistry([]), batch_max=APPEND_BATCH_MAX) as appender:
        await appender.append(log_id, effect("connects"))
        began = time.perf_counter()
        for at in range(0, count, APPEND_BATCH_MAX):
            await asyncio.gather(*(appender.append(log_id, group) for group in groups[at : at + APPEND_BATCH_MAX]))
        return count / (time.perf_counter() - began)


async def by_queue(dsn: str, count: int) -> float:
    """Drain the baseline's queue; return messages a second."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(
            "INSERT INTO queue SELECT n, decode(repeat('61', %s), 'hex') FROM generate_series(1, %s) AS n",
            (FOREIGN_BYTES, count),
        )
        await connection.execute("VACUUM ANALYZE queue")
    connections = [await psycopg.AsyncConnection.connect(dsn, autocommit=True) for _ in range(PEER_WORKERS)]

    async def work(connection: Connection) -> None:
        while True:
            async with connection.transaction():
                cursor = await connection.execute(
                    "SELECT id, entry FROM queue ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED", binary=True
                )
                row = await cursor.fetchone()
                if row is None:
                    return
                await connection.execute("INSERT INTO effects VALUES (%b, %b)", (new_id(), row[1]))
                await connection.execute("DELETE FROM queue WHERE id = %b", (row[0],))

    began = time.perf_counter()
    await asyncio.gather(*map(work, connections))
    took_s = time.perf_counter() - began
    for connection in connections:
        await connection.close()
    return count / took_s


async def pass_foreign(installation: Provisioned, log_id: int, count: int) -> float:
    """Let a handler pass `count` entries of another type; return the seconds it took."""

    async def never(*_: object) -> Any:
        raise AssertionError("nothing is to be appended")

    runner = HandlerRunner(installation.as_role(installation.roles.streams), [Observe()], never)
    began = time.perf_counter()
    await runner.catch_up(log_id, count)
    return time.perf_counter() - began


def put_foreign(admin_dsn: str, log_id: int, count: int) -> None:
    """Make a log look as if it held `count` entries of another type."""
    with psycopg.connect(admin_dsn, autocommit=True) as owner:
        owner.execute(FOREIGN, {"log_id": log_id, "bytes": FOREIGN_BYTES, "count": count})
        frontier = bytes(32 * count.bit_count())
        size = {"size": count, "frontier": frontier, "log_id": log_id}
        owner.execute(
            "UPDATE ledger.heads SET size = %(size)s, frontier = %(frontier)s WHERE log_id = %(log_id)s", size
        )
        owner.execute("VACUUM ANALYZE ledger.entries")


def compare(admin_dsn: str, *, messages: int, foreign: int) -> dict[str, Any]:
    """Measure the three, and the passing; returns the figures and the machine they hold for."""
    installation = provision(admin_dsn, login_password=secrets.token_urlsafe())
    dsn = installation.as_role(installation.roles.appender)
    logs: Iterator[int] = (
        create_tenant_log(admin_dsn, installation, uuid4()) for _ in range((2 + PROCESSES) * ROUNDS + 1)
    )
    with psycopg.connect(admin_dsn, autocommit=True) as owner:
        owner.execute(PEER)
    busy: list[float] = []
    rates: dict[str, list[float]] = {"queue": [], "runner": [], "processes": [], "appender": []}
    for _ in range(ROUNDS):
        log_id = next(logs)
        asyncio.run(fill(dsn, log_id, messages))
        rates["queue"].append(asyncio.run(by_queue(admin_dsn, messages // 4)))
        run = asyncio.run(by_runner(installation, log_id, messages))
        rates["runner"].append(messages / (run.ended_s - run.began_s))
        busy.append(run.cpu_us)
        several = [next(logs) for _ in range(PROCESSES)]
        for each in several:
            asyncio.run(fill(dsn, each, messages))
        rates["processes"].append(by_processes(installation, several, messages))
        rates["appender"].append(asyncio.run(by_appender(dsn, next(logs), messages)))
        print(" ".join(f"{name} {rate[-1]:,.0f}/s" for name, rate in rates.items()))
    log_id = next(logs)
    put_foreign(admin_dsn, log_id, foreign)
    passed_s = asyncio.run(pass_foreign(installation, log_id, foreign))
    median = {name: round(statistics.median(rate)) for name, rate in rates.items()}
    print(f"{foreign:,} entries of other types passed in {passed_s:.2f} s")
    return {
        "bench": "stream",
        "messages": messages,
        "per_second": median,
        "rounds": {name: [round(each) for each in rate] for name, rate in rates.items()},
        "runner_cpu_us": round(statistics.median(busy), 1),
        "ratio_to_queue": round(median["runner"] / median["queue"], 2),
        "ratio_to_appender": round(median["runner"] / median["appender"], 2),
        "foreign_entries": foreign,
        "foreign_passed_s": round(passed_s, 2),
        **circumstances_on(admin_dsn),
    }


def main() -> None:
    """Run the comparison and print it."""
    parser = options("stream", __doc__)
    parser.add_argument("--messages", type=int, default=40_000, help="in each round")
    parser.add_argument("--foreign", type=int, default=1_000_000, help="entries of other types")
    arguments = parser.parse_args()
    with embedded_server() as admin_dsn:
        found = compare(admin_dsn, messages=arguments.messages, foreign=arguments.foreign)
    publish(found, arguments.results)


if __name__ == "__main__":
    main()
