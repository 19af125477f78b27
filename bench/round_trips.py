"""
How many random entries make the round trip through PostgreSQL without a word said against them.

Claim: `--events` random entries (text of all planes, edge integers, times at which clocks change, parts of any size, in
time zones of every kind) are written by the Appender's rules, then verified in the database, in a database restored
from a dump of it, and in an export, by the rules one by one and by the compiled kernel, all without an alarm. A sample
of them is written by the Appender itself, and verified by the single-file verifier too.

Each round is a log of `--round` entries, so that memory and disk stay bounded; `--processes` rounds go on at once, each
in a database of its own. A round has its own random generator: one that fails can be run again by its number.

Run: `python -m bench.round_trips --events 10000000`. The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.measuring import circumstances_on, options, publish
from bench.servers import embedded_server, new_database
from lakeproof.provision import provision
from ledger.errors import BrokenError
from tests.ledger.round_tripping import Traveller, Trip, begin_travelling, round_trip

APPENDED = 1_000
"""Entries of a round that the Appender itself writes, beside the others."""


@cache
def traveller(admin_dsn: str) -> Traveller:
    """Return who travels in this process, with a database of its own."""
    dsn = new_database(admin_dsn, f"round_trips_{os.getpid()}")
    return begin_travelling(dsn, provision(dsn, login_password=secrets.token_urlsafe()))


def travel(admin_dsn: str, number: int, entries: int) -> Trip | str:
    """Make one round in this process; return what was done, or what was said against it."""
    with tempfile.TemporaryDirectory() as directory:
        trip = round_trip(
            traveller(admin_dsn), Path(directory), entries=entries - APPENDED, appended=APPENDED, number=number
        )
        try:
            return asyncio.run(trip)
        except BrokenError as error:
            return f"round {number}: {error}"


def measure(events: int, of_round: int, processes: int) -> dict[str, Any]:
    """Make the rounds; return the figures and the machine they hold for."""
    began = time.perf_counter()
    rounds = -(-events // of_round)
    trips: list[Trip] = []
    alarms: list[str] = []
    with embedded_server() as admin_dsn:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            waiting = [pool.submit(travel, admin_dsn, number, of_round) for number in range(rounds)]
            for done, future in enumerate(waiting, start=1):
                found = future.result()
                if isinstance(found, str):
                    alarms.append(found)
                else:
                    trips.append(found)
                elapsed_s = time.perf_counter() - began
                print(f"{done * of_round:,} of {events:,} in {elapsed_s:.0f} s, {len(alarms)} alarms", flush=True)
        elapsed_s = time.perf_counter() - began
        on = circumstances_on(admin_dsn)
    return {
        "bench": "round_trips",
        "entries": sum(trip.entries + trip.appended for trip in trips),
        "of_them_by_the_appender": sum(trip.appended for trip in trips),
        "entries_with_parts": sum(trip.parts for trip in trips),
        "rounds": len(trips),
        "verified_by": dict(Counter(way for trip in trips for way in trip.ways)),
        "time_zones": dict(Counter(zone for trip in trips for zone in trip.zones)),
        "alarms": alarms,
        "elapsed_s": round(elapsed_s, 1),
        "entries_per_s": round(rounds * of_round / elapsed_s),
        **on,
    }


def main() -> None:
    """Make the rounds and print what was said; ends with 1 at a false alarm."""
    parser = options("round_trips", __doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--round", type=int, default=100_000, help="entries of a round, over 1,000")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    found = measure(arguments.events, arguments.round, arguments.processes)
    publish(found, arguments.results)
    if found["alarms"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
