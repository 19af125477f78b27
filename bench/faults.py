"""
The fault table at length: crash, error and disconnect at every statement and every step on files of append, seal, sign
and erase, over as many seeds as it takes.

Claim: at every one of at least 10,000 distinct points what the callers were told is true, every invariant of the logs
holds, and the operation done once more leaves the logs as if nothing had happened. A point is an operation, a seed
(which draws sizes, logs, groups, twins, parts), a statement or step, a fault, and what happens then: no two are alike.
Faults that cost a process or a stop of the server are a sample, at the end.

Run: `python -m bench.faults`; `--point append/4/12/40001/WELL` runs one point again, as it was printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import secrets
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from select import select

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from bench.append import PROJECT, processor
from lakeproof.age import fetch_age
from lakeproof.postgres import EmbeddedServer
from lakeproof.provision import Installation, provision
from lakeproof.server_files import SOCKET_NAME
from lakeproof.server_process import postmaster_pid
from lakeproof.settings import load_settings
from tests.ledger.appending import confirm
from tests.ledger.fault_files import file_faults
from tests.ledger.fault_site import Site, open_site
from tests.ledger.fault_table import (
    FAILURES,
    OPERATIONS,
    Course,
    Point,
    Table,
    costly_points_of,
    parse_point,
    points_of,
)
from tests.ledger.fault_worker import killed

RESULTS = PROJECT / "bench" / "results" / "faults.json"
SAMPLE = 25
"""Points of one seed and operation; another seed draws another batch."""
PASSWORD = secrets.token_urlsafe()


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
    installation: Installation


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
        with short_directory() as directory:
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
    with short_directory() as directory, file_faults():
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


def stop_at_once(server: EmbeddedServer) -> None:
    """Do what `pg_ctl stop -m immediate` does, and start again: the server recovers from its write-ahead log."""
    pid = postmaster_pid(server.files.data)
    assert pid is not None
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGQUIT)
    select([process], [], [])  # until it has ended
    os.close(process)
    server.start(lambda _: None)


@contextmanager
def short_directory() -> Iterator[Path]:
    """Yield a directory in memory, if there is such, whose path is short enough for a socket."""
    memory = Path("/dev/shm")  # noqa: S108 - a private directory is made in it
    directory = Path(tempfile.mkdtemp(prefix="lp-", dir=memory if memory.is_dir() else None))
    directory.chmod(0o711)  # the server's user may be another than ours
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@contextmanager
def embedded_server(**overrides: str) -> Iterator[EmbeddedServer]:
    """Run a server of this bench's own, in memory if there is room: what is measured is not the disk."""
    with short_directory() as directory:
        age = fetch_age(load_settings(os.environ, directory=PROJECT).cache, print)
        server = EmbeddedServer(directory / "home", age, overrides=overrides)
        try:
            server.start(print)
            yield server
        finally:
            server.stop()


def make_places(admin_dsn: str, names: list[str]) -> list[Place]:
    """Return new databases, each with an installation of its own."""
    places = []
    for name in names:
        with psycopg.connect(admin_dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        database = make_conninfo(admin_dsn, dbname=name)
        places.append(Place(database=database, installation=provision(database, login_password=PASSWORD)))
    return places


def main() -> None:
    """Run the table and write what was found; ends with 1 if a point failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--costly", type=int, default=100, help="stops of the server, killed processes")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--slots", type=int, default=12, help="points at one time in each process")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--point", type=parse_point, help="run this one alone")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    found, started = Found(), time.perf_counter()
    with embedded_server() as server:
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
        with psycopg.connect(server.admin_dsn) as connection:
            version = connection.info.parameter_status("server_version")
    result = {
        "bench": "faults",
        "points": sum(found.points.values()),
        "failures": found.failures,
        "not_reached": found.missed,
        "seeds": found.seeds,
        "by_operation_and_fault": dict(sorted(found.points.items())),
        "by_operation_and_step": dict(sorted(found.at.items())),
        "elapsed_s": round(time.perf_counter() - started),
        "machine": f"{os.cpu_count()} x {processor()}",
        "python": platform.python_version(),
        "postgresql": version,
        "psycopg": psycopg.__version__,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if arguments.point is None:
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        arguments.results.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))
    raise SystemExit(bool(found.failures))


if __name__ == "__main__":
    main()
