# SPDX-License-Identifier: Apache-2.0
"""
The fault table in full: crash, error and disconnect at every statement and every file operation of append, seal, sign
and erase, with many seeds.

Claim: at each of at least 10,000 distinct points, the answers to callers are true, every invariant of the logs
holds, and repeating the operation leaves the logs as if nothing had happened. A point is an operation, a seed (which
draws sizes, logs, groups, twins, parts), a statement or step, a fault, and what happens then: no two are alike. Faults
that cost a process or a stop of the server are a sample, at the end.

Run: `python -m bench.faults`; `--point append/4/12/40001/WELL` repeats one point as it was printed.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from pathlib import Path

from bench.measuring import circumstances_on, options, publish
from bench.servers import directory_in_memory, new_database, server_in_memory, stop_at_once
from lakeproof.postgres.files import SOCKET_NAME
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.provision import Provisioned, provision
from testkit.ledger.appending import confirm
from testkit.ledger.faults.files import file_faults
from testkit.ledger.faults.site import Site, open_site
from testkit.ledger.faults.table import (
    FAILURES,
    OPERATIONS,
    Course,
    Point,
    Table,
    costly_points_of,
    parse_point,
    points_of,
)
from testkit.ledger.faults.worker import killed

SAMPLE = 25
"""Points of one seed and operation; another seed draws another batch."""


@dataclass(slots=True, kw_only=True)
class Found:
    """What came of points: how many by operation and fault, by statement or step, and which failed."""

    points: Counter[str] = field(default_factory=Counter)
    at: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    seeds: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Found) -> None:
        """Count what another process has found."""
        self.points.update(other.points)
        self.at.update(other.at)
        self.missed += other.missed
        self.seeds += other.seeds
        self.failures += other.failures


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A database, and the installation in it."""

    database: str
    installation: Provisioned


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one process does: points of every `step`-th seed, on databases of its own."""

    places: tuple[Place, ...]
    target: Path
    first: int
    step: int
    points: int


def work(share: Share) -> Found:
    """Do one process's share."""
    return asyncio.run(_work(share))


async def _work(share: Share) -> Found:
    found, seeds = Found(), count(share.first, share.step)

    async def slot(place: Place) -> None:
        with directory_in_memory() as directory:
            async with open_site(place.database, place.installation, share.target, directory) as site:
                while sum(found.points.values()) < share.points:
                    await run_seed(Table(), site, next(seeds), found, share.points)

    with file_faults():
        async with asyncio.TaskGroup() as slots:
            for place in share.places:
                slots.create_task(slot(place))
    return found


async def run_seed(table: Table, site: Site, seed: int, found: Found, points_max: int) -> None:
    """Run the cheap points of one seed, until there are enough."""
    for operation in OPERATIONS:
        course = await table.course(site, operation, seed)
        for point in points_of(operation, seed, course, sample=SAMPLE):
            if sum(found.points.values()) >= points_max:
                return
            await run_point(table, site, point, course, found)
    found.seeds += 1


async def run_point(table: Table, site: Site, point: Point, course: Course, found: Found) -> None:
    """Run one point, and count it if the statement was reached."""
    try:
        at = await table.run(site, point, course)
    except FAILURES as error:
        found.failures.append(f"{point}: {error!r:.500}")
        print(f"FAILED {point}", "".join(traceback.format_exception(error)), flush=True)
        await site.connect()
        await site.settle()
        await site.drop()
        return
    if at:
        found.points[f"{point.operation}, {point.fault}"] += 1
        found.at[f"{point.operation}, {at}"] += 1
    else:
        found.missed += 1


async def run_costly(server: EmbeddedServer, place: Place, points: int, point: Point | None = None) -> Found:
    """Run points one after the other whose faults are stops of the server and killed processes, or just `point`."""
    found = Found()
    database, installation = place.database, place.installation

    async def stop(site: Site, point: Point) -> None:
        await asyncio.to_thread(stop_at_once, server)
        if point.operation != "sign":  # whose signer confirms the logs itself
            await asyncio.to_thread(confirm, database, installation)
        await site.connect()

    table = Table(stop=stop, kill=killed)
    with directory_in_memory() as directory, file_faults():
        async with open_site(database, installation, server.files.run / SOCKET_NAME, directory) as site:
            if point is not None:
                course = await table.course(site, point.operation, point.seed)
                await run_point(table, site, point, course, found)
                return found
            for seed in count():
                for operation in OPERATIONS:
                    if sum(found.points.values()) + found.missed >= points:
                        return found
                    course = await table.course(site, operation, seed)
                    for each in costly_points_of(operation, seed, course, sample=3):
                        await run_point(table, site, each, course, found)
    return found


def make_places(admin_dsn: str, names: list[str]) -> list[Place]:
    """Return new databases, each with an installation of its own."""
    password = secrets.token_urlsafe()
    databases = [new_database(admin_dsn, name) for name in names]
    return [Place(database=one, installation=provision(one, login_password=password)) for one in databases]


def main() -> None:
    """Run the table and write what was found; ends with 1 if a point failed."""
    parser = options("faults", __doc__)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--costly", type=int, default=100, help="stops of the server, killed processes")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--slots", type=int, default=12, help="points at one time in each process")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--point", type=parse_point, help="run this one alone")
    arguments = parser.parse_args()
    found, started = Found(), time.perf_counter()
    with server_in_memory() as server:
        names = [f"faults_{number}" for number in range(arguments.processes * arguments.slots)]
        places = make_places(server.admin_dsn, names[:1] if arguments.point else names)
        if arguments.point is None:
            shares = [
                Share(
                    places=tuple(places[number :: arguments.processes]),
                    target=server.files.run / SOCKET_NAME,
                    first=arguments.seed + number,
                    step=arguments.processes,
                    points=-(-arguments.points // arguments.processes),
                )
                for number in range(arguments.processes)
            ]
            with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
                for each in pool.map(work, shares):
                    found.add(each)
        found.add(asyncio.run(run_costly(server, places[0], arguments.costly, arguments.point)))
        on = circumstances_on(server.admin_dsn)
    result = {
        "bench": "faults",
        "points": sum(found.points.values()),
        "failures": found.failures,
        "not_reached": found.missed,
        "seeds": found.seeds,
        "by_operation_and_fault": dict(sorted(found.points.items())),
        "by_operation_and_step": dict(sorted(found.at.items())),
        "elapsed_s": round(time.perf_counter() - started),
        **on,
    }
    if arguments.point is None:
        publish(result, arguments.results)
    else:
        print(json.dumps(result))
    raise SystemExit(bool(found.failures))


if __name__ == "__main__":
    main()
