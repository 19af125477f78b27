# SPDX-License-Identifier: Apache-2.0
"""
How fast the Appender is, compared with what it replaces, and where its time goes. One run on one machine.

Claim: under load the chained, tree-hashed, idempotent log appends more groups per second than plain INSERTs of the same
bytes with a unique id, because its callers share transactions: three times as many with 64 callers, and five times with
256, on two cores. A single caller has nothing to share, and the log costs five statements in one round trip where an
INSERT costs one.
The third side is the stock recorder of the eventsourcing library.

Each side is one process with one event loop (several, if the side says so) on the same embedded server. The sides take
turns, and the result is the median of the turns. Every caller waits for its own answer, which is durable on all sides
(`synchronous_commit=on`), before its next call. Ids and events are made before the clock starts.

The server is warmed up like one that has run for a while: it has write-ahead segments to reuse. A new server creates
each segment when it needs it, 16 MiB of zeros at a time, and everyone who commits waits for that.

Run: `python -m bench.append` (`make bench`). The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any
from uuid import uuid4

import psycopg

from bench.append_profile import profile, time_of_steps
from bench.append_shared import LOGS, hundred_logs, idempotency
from bench.append_sides import bulk, example_event, in_turns, log, new_groups, plain, stock
from bench.append_worker import together
from bench.measuring import circumstances_on, options, publish
from bench.servers import embedded_server
from lakeproof.provision import Provisioned, create_tenant_log, provision

CALLERS = (1, 8, 64, 256, 1024)
LOADED = (64, 256)
STOCK_CALLERS_MAX = 256
PROCESSES = (1, 2, 4)
ROUNDS = 3
ROUNDS_LOADED = 9
"""With the callers that count, and for the price of idempotency: it is less than what a turn varies by."""
PART_BYTES = 500
BULK_GROUPS = 50_000
WARM_SEGMENTS = 48


class Site:
    """A database with logs to append to, and a plain table."""

    def __init__(self, admin_dsn: str) -> None:
        self.admin_dsn = admin_dsn
        self.installation: Provisioned = provision(admin_dsn, login_password=secrets.token_urlsafe())
        self.dsn = self.installation.as_role(self.installation.roles.appender)
        with psycopg.connect(admin_dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE plain (id uuid PRIMARY KEY, entry bytea NOT NULL)")

    def new_log(self) -> int:
        """Make a log."""
        return create_tenant_log(self.admin_dsn, self.installation, uuid4())

    def example_entry(self) -> bytes:
        """Return an entry as it is stored, for the other sides to insert."""
        log_id = self.new_log()
        asyncio.run(bulk(self.dsn, log_id, new_groups(example_event(), 2)))
        with psycopg.connect(self.admin_dsn) as connection:
            row = connection.execute("SELECT entry FROM ledger.entries WHERE log_id = %s", (log_id,)).fetchone()
        assert row is not None
        return bytes(row[0])


def warm_up(admin_dsn: str) -> None:
    """Write enough, and checkpoint, for the server to have segments of its write-ahead log to use again."""
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        for _ in range(2):
            for _ in range(WARM_SEGMENTS):
                connection.execute("SELECT pg_logical_emit_message(true, 'bench', 'warm'), pg_switch_wal()")
            connection.execute("CHECKPOINT")


def against_others(site: Site, *, callers: Sequence[int], seconds: float) -> list[dict[str, Any]]:
    """Compare the sides with each number of callers."""
    entry = site.example_entry()
    sides = {
        "plain": plain(site.admin_dsn, entry),
        "log": log(site.dsn, site.new_log(), example_event()),
        "log_with_parts": log(site.dsn, site.new_log(), example_event(part_bytes=PART_BYTES)),
        "stock": stock(site.admin_dsn, entry),
    }
    runs: list[dict[str, Any]] = []
    print(" callers  side              /s   p50 ms   p99 ms  to plain")
    for count in callers:
        compared = {name: turn for name, turn in sides.items() if name != "stock" or count <= STOCK_CALLERS_MAX}
        rounds = ROUNDS_LOADED if count in LOADED else ROUNDS
        found = in_turns(compared, callers=count, seconds=seconds, rounds=rounds)
        run: dict[str, Any] = {"callers": count, **found}
        for name, side in found.items():
            ratio = round(side["per_second"] / found["plain"]["per_second"], 2)
            run[f"{name}_to_plain"] = ratio
            print(
                f"{count:>8}  {name:<14} {side['per_second']:>7.0f} {side['p50_ms']:>8} {side['p99_ms']:>8} {ratio:>7}"
            )
        runs.append(run)
    return runs


def measure(site: Site, *, callers: Sequence[int], seconds: float) -> dict[str, Any]:
    """Measure everything; returns the figures and the machine they hold for."""
    warm_up(site.admin_dsn)
    found: dict[str, Any] = {"bench": "append", "entry_bytes": len(site.example_entry()), "seconds": seconds}
    found["runs"] = against_others(site, callers=callers, seconds=seconds)
    found["append_many_per_second"] = round(
        asyncio.run(bulk(site.dsn, site.new_log(), new_groups(example_event(), BULK_GROUPS)))
    )
    shared = site.new_log()
    found["one_log"] = [
        together(site.dsn, shared, processes=number, callers=64, seconds=2 * seconds) for number in PROCESSES
    ]
    found["many_logs"] = hundred_logs(site.admin_dsn, site.dsn, [site.new_log() for _ in range(LOGS)])
    found["idempotency"] = idempotency(site.admin_dsn, callers=LOADED, seconds=seconds, rounds=ROUNDS_LOADED)
    event = example_event()
    found["percent_of_the_process"] = {
        str(count): profile(log(site.dsn, site.new_log(), event), callers=count, seconds=seconds) for count in LOADED
    }
    found["ms_of_a_batch"] = {
        str(count): asyncio.run(time_of_steps(site.dsn, site.new_log(), event, groups=count)) for count in LOADED
    }
    for name in list(found)[4:]:
        print(name, json.dumps(found[name], indent=1))
    return found | {
        "load_before": found_load(),
        "eventsourcing": version("eventsourcing"),
        **circumstances_on(site.admin_dsn),
    }


def found_load() -> float:
    """Return the load of the machine over the last quarter of an hour."""
    return round(os.getloadavg()[2], 2)


def main() -> None:
    """Run the comparison and print it."""
    parser = options("append", __doc__)
    parser.add_argument("--seconds", type=float, default=1.5, help="for each turn of each side")
    parser.add_argument("--callers", type=int, nargs="+", default=CALLERS)
    arguments = parser.parse_args()
    with embedded_server() as admin_dsn:
        found = measure(Site(admin_dsn), callers=arguments.callers, seconds=arguments.seconds)
    publish(found, arguments.results)


if __name__ == "__main__":
    main()
