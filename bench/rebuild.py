# SPDX-License-Identifier: Apache-2.0
"""
How fast a graph is rebuilt from its log, compared with reading the log alone: the same entries, read and parsed.

Claim: the speed of a rebuild hardly depends on how much is in the graph already (entries per second, tenth by tenth),
and a rebuild costs a known multiple of reading the log. The history is invented (`bench/history.py`).

Everything is one process with one event loop, as in `lakeproof projections rebuild`. The profile is of a second,
shorter rebuild, because profiling slows what it measures; waiting for PostgreSQL appears there as `poll`.

Run: `python -m bench.rebuild --entries 1000000`. The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import secrets
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.history import load
from bench.measuring import circumstances_on, options, publish
from bench.servers import embedded_server
from lakeproof.provision import create_tenant_log, provision
from ledger.store.read import Log, find_log
from projections.graph.projection import GraphProjection
from projections.processing.generations import replace
from projections.processing.projection import BATCH_ENTRIES_MAX, Transaction, read_log_entries
from projections.processing.runner import connect, ensure

PROFILED_ENTRIES_MAX = 20_000
PROFILE_LINES = 25


async def read_alone(dsn: str, log: Log, size: int) -> float:
    """Return how long the baseline takes, in seconds: every entry and part read and parsed, batch by batch."""
    began = time.perf_counter()
    async with connect(dsn) as connection:
        for at in range(0, size, BATCH_ENTRIES_MAX):
            to_index = min(size, at + BATCH_ENTRIES_MAX)
            await read_log_entries(connection, log.log_id, from_index=at, to_index=to_index)
    return time.perf_counter() - began


async def rebuild_graph(dsn: str, log: Log, size: int) -> dict[str, Any]:
    """Build the graph from entry 0; returns seconds to fill and to digest, and entries a second tenth by tenth."""
    passed: list[tuple[int, float]] = [(0, time.perf_counter())]

    def report(done: int, _of: int) -> None:
        if done >= size * len(passed) / 10:
            passed.append((done, time.perf_counter()))

    async def append(_log: Log, _attested: object) -> None:
        pass  # nothing is attested here: the log stays as it was loaded

    projection = GraphProjection()
    async with connect(dsn) as connection:
        await ensure(connection, projection, log)
    began = time.perf_counter()
    await replace(dsn, projection, log, append=append, report=report)
    end = time.perf_counter()
    return {
        "fill_s": round(passed[-1][1] - began, 2),
        "digest_s": round(end - passed[-1][1], 2),
        "entries_per_s": round(size / (passed[-1][1] - began)),
        "entries_per_s_by_tenth": [
            round((done - before) / (at - since)) for (before, since), (done, at) in pairwise(passed)
        ],
    }


async def profile(dsn: str, log: Log, size: int) -> dict[str, Any]:
    """Return where the time of the process goes while a graph is filled, by function; waiting is for PostgreSQL."""
    projection, profiler = GraphProjection(), cProfile.Profile()
    async with connect(dsn) as connection:
        generation = 1_000_000  # a number that nobody has: this graph is dropped with its transaction
        async with connection.transaction(force_rollback=True):
            transaction = Transaction(connection=connection, log=log, generation=generation)
            await projection.prepare(transaction)
            profiler.enable()
            for at in range(0, size, BATCH_ENTRIES_MAX):
                to_index = min(size, at + BATCH_ENTRIES_MAX)
                entries = await read_log_entries(connection, log.log_id, from_index=at, to_index=to_index)
                await projection.apply(entries, transaction)
            profiler.disable()
    stats = pstats.Stats(profiler).stats  # type: ignore[attr-defined]  # typeshed leaves it out
    total = sum(own for _, _, own, _, _ in stats.values())
    lines = sorted(stats.items(), key=lambda item: -item[1][2])[:PROFILE_LINES]
    return {
        "entries": size,
        "seconds": round(total, 2),
        "by_own_time": [
            {
                "function": f"{Path(file).name}:{line}:{name}",
                "calls": calls,
                "own_percent": round(100 * own / total, 1),
                "with_callees_percent": round(100 * cumulated / total, 1),
            }
            for (file, line, name), (_, calls, own, cumulated, _) in lines
        ],
    }


def measure(admin_dsn: str, entries: int) -> dict[str, Any]:
    """Load the history, read it, rebuild from it; return the figures and the machine they hold for."""
    installation = provision(admin_dsn, login_password=secrets.token_urlsafe())
    tenant = UUID(int=secrets.randbits(128), version=4)
    create_tenant_log(admin_dsn, installation, tenant)
    dsn = installation.as_role(installation.roles.projector)

    async def find() -> Log:
        async with connect(dsn) as connection:
            return await find_log(connection, installation.origin(tenant))

    log = asyncio.run(find())
    began = time.perf_counter()
    size = load(admin_dsn, log, entries)
    print(f"loaded {size:,} entries in {time.perf_counter() - began:.1f} s")
    read_s = asyncio.run(read_alone(dsn, log, size))
    print(f"read and parsed: {size / read_s:,.0f} entries/s")
    rebuilt = asyncio.run(rebuild_graph(dsn, log, size))
    print(f"rebuilt: {rebuilt['entries_per_s']:,} entries/s; digest {rebuilt['digest_s']} s")
    return {
        "bench": "rebuild",
        "entries": size,
        "baseline": "the same entries and parts, read and parsed in the same batches, not written",
        "baseline_entries_per_s": round(size / read_s),
        "rebuild": rebuilt,
        "rebuild_to_baseline": round((rebuilt["fill_s"]) / read_s, 2),
        "profile": asyncio.run(profile(dsn, log, min(size, PROFILED_ENTRIES_MAX))),
        **circumstances_on(admin_dsn),
    }


def main() -> None:
    """Run the measurement and print it."""
    parser = options("rebuild", __doc__)
    parser.add_argument("--entries", type=int, default=1_000_000, help="in the log that is rebuilt from")
    arguments = parser.parse_args()
    with embedded_server() as admin_dsn:
        found = measure(admin_dsn, arguments.entries)
    for line in found["profile"]["by_own_time"][:10]:
        print(f"{line['own_percent']:>6} %  {line['function']}")
    publish(found, arguments.results)


if __name__ == "__main__":
    main()
