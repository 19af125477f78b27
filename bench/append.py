"""
How fast the Appender is, against what it replaces: a plain, unchained INSERT of the same bytes with a unique id.

Claim: under load the chained, tree-hashed log takes more groups a second than plain INSERTs do, about twice as many
with 64 callers and three times with 256, because its callers share transactions. With one caller there is nothing to
share, and the log costs two round trips where the INSERT costs one.

Both sides are one process on one event loop, on the same embedded server, in turns. Every caller waits for its own
answer, which is durable on both sides (`synchronous_commit=on`), before it goes on. A plain caller has a connection of
its own (at most 128 of them). Events are canonical before the clock starts: a plain INSERT is given ready bytes too.

Run: `make bench`. The last line is JSON with all figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import secrets
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from lakeproof.age import fetch_age
from lakeproof.postgres import EmbeddedServer
from lakeproof.provision import create_tenant_log, provision
from lakeproof.settings import load_settings
from ledger.append import CORE_GUARDS, Appender
from ledger.event import Event, PreparedEvent, prepare, random_group_id
from ledger.guards import GuardRegistry
from ledger.sequence import Group

PROJECT = Path(__file__).resolve().parents[1]
RESULTS = PROJECT / "bench" / "results" / "append.json"
CALLERS = (1, 8, 64, 256)
PLAIN_CONNECTIONS_MAX = 128
ROUNDS = 3
"""Times that each side has its turn: what else the machine does then falls on both."""

Once = Callable[[int], Awaitable[None]]
"""Does one append (or INSERT) as the caller of that number."""


def example_event() -> PreparedEvent:
    """Return a decision on a commit, as the gateway makes them: about 900 bytes as an entry."""
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
        )
    )


def new_id() -> UUID:
    """Return a UUIDv7: ids that grow keep the unique index of either side on few pages."""
    return random_group_id(now_ms=time.time_ns() // 1_000_000, random=os.urandom(10))


async def measure(callers: int, seconds: float, once: Once) -> list[float]:
    """Let `callers` repeat `once` for `seconds`; return how long each took, in seconds."""
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def caller(number: int) -> None:
        before = time.perf_counter()
        while before < end:
            await once(number)
            after = time.perf_counter()
            took.append(after - before)
            before = after

    await asyncio.gather(*(caller(number) for number in range(callers)))
    return took


async def plain_inserts(dsn: str, entry: bytes, callers: int, seconds: float) -> list[float]:
    """Measure the peer: one INSERT, one commit."""
    connections = [
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) for _ in range(min(callers, PLAIN_CONNECTIONS_MAX))
    ]

    async def once(number: int) -> None:
        await connections[number].execute("INSERT INTO plain (id, entry) VALUES (%b, %b)", (new_id(), entry))

    try:
        return await measure(len(connections), seconds, once)
    finally:
        for connection in connections:
            await connection.close()


async def appends(dsn: str, log_id: int, event: PreparedEvent, callers: int, seconds: float) -> list[float]:
    """Measure the Appender."""
    async with Appender(dsn, GuardRegistry(CORE_GUARDS)) as appender:

        async def once(_: int) -> None:
            await appender.append(log_id, Group(id=new_id(), then=(event,)))

        await once(0)  # connects
        return await measure(callers, seconds, once)


def figures(took: Sequence[float], seconds: float) -> dict[str, float]:
    """Return rate and latencies of one side."""
    centiles = statistics.quantiles(took, n=100)
    return {
        "per_second": round(len(took) / seconds),
        "p50_ms": round(1000 * centiles[49], 3),
        "p99_ms": round(1000 * centiles[98], 3),
    }


def compare(admin_dsn: str, callers: Sequence[int], seconds: float) -> dict[str, Any]:
    """Measure both sides with each number of callers; returns the figures and the machine they hold for."""
    installation = provision(admin_dsn, login_password=secrets.token_urlsafe())
    log_id = create_tenant_log(admin_dsn, installation, uuid4())
    dsn = installation.as_role(installation.roles.appender)
    event = example_event()
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE plain (id uuid PRIMARY KEY, entry bytea NOT NULL)")
        asyncio.run(appends(dsn, log_id, event, 1, 0.1))
        row = connection.execute("SELECT entry FROM ledger.entries WHERE log_id = %s", (log_id,)).fetchone()
        assert row is not None
        entry = bytes(row[0])
        server = connection.info.parameter_status("server_version")
    runs = []
    print(" callers   plain/s   p50 ms   p99 ms     log/s   p50 ms   p99 ms  ratio")
    for count in callers:
        plain: list[float] = []
        log: list[float] = []
        for _ in range(ROUNDS):
            plain += asyncio.run(plain_inserts(admin_dsn, entry, count, seconds / ROUNDS))
            log += asyncio.run(appends(dsn, log_id, event, count, seconds / ROUNDS))
        a, b = figures(plain, seconds), figures(log, seconds)
        ratio = round(b["per_second"] / a["per_second"], 2)
        print(
            f"{count:>8} {a['per_second']:>9} {a['p50_ms']:>8} {a['p99_ms']:>8} "
            f"{b['per_second']:>9} {b['p50_ms']:>8} {b['p99_ms']:>8} {ratio:>6}"
        )
        runs.append({"callers": count, "plain": a, "log": b, "ratio": ratio})
    return {
        "bench": "append",
        "entry_bytes": len(entry),
        "seconds": seconds,
        "runs": runs,
        "machine": f"{os.cpu_count()} x {processor()}",
        "python": platform.python_version(),
        "postgresql": server,
        "psycopg": psycopg.__version__,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


@contextmanager
def embedded_server() -> Iterator[str]:
    """Run a server of this bench's own; yields its owner's connection string."""
    directory = Path(tempfile.mkdtemp(prefix="lp-bench-", dir="/tmp"))
    directory.chmod(0o711)  # the server's user may be another than ours
    server = EmbeddedServer(directory / "home", fetch_age(load_settings(os.environ, directory=PROJECT).cache, print))
    try:
        server.start(print)
        yield server.admin_dsn
    finally:
        server.stop()
        shutil.rmtree(directory)


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="for each side and number of callers")
    parser.add_argument("--callers", type=int, nargs="+", default=CALLERS)
    parser.add_argument("--results", type=Path, default=RESULTS, help="file for the raw figures")
    arguments = parser.parse_args()
    with embedded_server() as admin_dsn:
        found = compare(admin_dsn, arguments.callers, arguments.seconds)
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    arguments.results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
