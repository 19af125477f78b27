# SPDX-License-Identifier: Apache-2.0
"""
How many random entries make the round trip through PostgreSQL without a false alarm.

Claim: `--events` random entries (text of all planes, edge integers, times at which clocks change, parts of any size, in
time zones of every kind) are written by the Appender's rules, then verified in the database, in a database restored
from a dump of it, and in an export, by the rules one by one and by the compiled kernel, all without an alarm. The
Appender itself writes a sample of them, which the single-file verifier verifies, too.

Each round is a log of `--round` entries, so that memory and disk stay bounded. `--processes` rounds run at once, each
in its own database. A round has its own random generator: one that fails can be repeated by its number. Finished rounds
are kept in `--progress` with the code that ran them, so that an interrupted run can continue.

`--homes` adds homes in which the whole scene was killed at a step and played again: every log in them is verified with
`verify --deep`, without an alarm.

Run: `python -m bench.round_trips --events 10000000`. The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.measuring import circumstances_on, options, publish
from bench.servers import directory_on_disk, embedded_server, new_database
from lakeproof.provision import provision
from ledger.errors import BrokenError
from testkit.environment import PROJECT
from testkit.ledger.round_tripping import RoundTripSite, Trip, make_round_trip_site, round_trip
from testkit.system.scene import TITLES, check_all_steps, kill_at_step, play, verify_deeply

APPENDED = 1_000
"""Entries of a round that the Appender itself writes."""


@cache
def site(admin_dsn: str) -> RoundTripSite:
    """Return who travels in this process, with a database of its own."""
    dsn = new_database(admin_dsn, f"round_trips_{os.getpid()}")
    return make_round_trip_site(dsn, provision(dsn, login_password=secrets.token_urlsafe()))


def travel(admin_dsn: str, number: int, entries: int) -> Trip | str:
    """Make one round in this process; return what was done, or the fault that was reported."""
    with tempfile.TemporaryDirectory() as directory:
        trip = round_trip(
            site(admin_dsn), Path(directory), entries=entries - APPENDED, appended=APPENDED, number=number
        )
        try:
            return asyncio.run(trip)
        except BrokenError as error:
            return f"round {number}: {error}"


def live(number: int) -> str:
    """Play the scene in a home, killed at a step and played again; return the faults reported for its logs, if any."""
    with directory_on_disk() as directory:
        home = directory / "home"
        kill_at_step(home, 2 + number % (len(TITLES) - 1))
        check_all_steps(play(home))
        try:
            verify_deeply(home)
        except AssertionError as error:
            return f"home {number}: {error}"
    return ""


class Diary:
    """The rounds that were made with the log's code as it is now, in a file: one line of JSON each."""

    def __init__(self, path: Path, of_round: int) -> None:
        files = sorted((*(PROJECT / "ledger").rglob("*.py"), *(PROJECT / "ledger").rglob("*.sql")))
        code = hashlib.sha256(b"".join(file.read_bytes() for file in files))
        self._key = f"{code.hexdigest()[:16]} {of_round}"
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        records = [json.loads(line) for line in lines]
        self.trips = {one["number"]: Trip(**one["trip"]) for one in records if one["key"] == self._key}
        self.elapsed_s = sum(one["elapsed_s"] for one in records if one["key"] == self._key)

    def add(self, number: int, trip: Trip, elapsed_s: float) -> None:
        """Note a round; `elapsed_s` went by since the one before."""
        self.trips[number] = trip
        self.elapsed_s += elapsed_s
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            line = {"key": self._key, "number": number, "trip": asdict(trip), "elapsed_s": round(elapsed_s, 1)}
            file.write(json.dumps(line) + "\n")


def measure(events: int, of_round: int, processes: int, progress: Path) -> dict[str, Any]:
    """Make the rounds that were not made before; return the figures and the machine they hold for."""
    diary, alarms = Diary(progress, of_round), list[str]()
    left = [number for number in range(-(-events // of_round)) if number not in diary.trips]
    with embedded_server() as admin_dsn:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            waiting = [(number, pool.submit(travel, admin_dsn, number, of_round)) for number in left]
            before = time.perf_counter()
            for number, future in waiting:
                found = future.result()
                now = time.perf_counter()
                if isinstance(found, str):
                    alarms.append(found)
                else:
                    diary.add(number, found, now - before)
                before = now
                done = len(diary.trips) * of_round
                print(f"{done:,} of {events:,} in {diary.elapsed_s:.0f} s, {len(alarms)} alarms", flush=True)
        on = circumstances_on(admin_dsn)
    trips = list(diary.trips.values())
    return {
        "bench": "round_trips",
        "entries": sum(trip.entries + trip.appended for trip in trips),
        "of_them_by_the_appender": sum(trip.appended for trip in trips),
        "entries_with_parts": sum(trip.parts for trip in trips),
        "rounds": len(trips),
        "verified_by": dict(Counter(way for trip in trips for way in trip.ways)),
        "time_zones": dict(Counter(zone for trip in trips for zone in trip.zones)),
        "alarms": alarms,
        "elapsed_s": round(diary.elapsed_s, 1),
        "entries_per_s": round(len(trips) * of_round / diary.elapsed_s),
        **on,
    }


def main() -> None:
    """Make the rounds and print what was reported; end with 1 at a false alarm."""
    parser = options("round_trips", __doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--homes", type=int, default=0, help="in which the scene is killed, played again and verified")
    parser.add_argument("--round", type=int, default=100_000, help="entries of a round, over 1,000")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--progress", type=Path, default=PROJECT / ".cache" / "round_trips.jsonl")
    arguments = parser.parse_args()
    found = measure(arguments.events, arguments.round, arguments.processes, arguments.progress)
    verdicts = [live(number) for number in range(arguments.homes)]
    found |= {"homes_verified_deeply": len(verdicts), "alarms": [*found["alarms"], *filter(None, verdicts)]}
    publish(found, arguments.results)
    if found["alarms"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
