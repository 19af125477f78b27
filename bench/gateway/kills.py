# SPDX-License-Identifier: Apache-2.0
"""
What happens to commits while a process is killed, and how soon the installation recovers.

Writers of our own commit without pause, because wrk cannot tell which commits were acknowledged. In the middle a
process gets SIGKILL, or PostgreSQL is stopped at once as by a power failure and started again. A request may then fail
with 5xx or lose its connection; a commit that was acknowledged must be in the log, in the table and on disk, and
afterwards the whole log must verify.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import psycopg

from bench.gateway.bench import Bench, Part
from bench.gateway.installation import Up, database_of, lakeproof_up
from bench.gateway.sizes import policy
from bench.gateway.target import Target, set_properties
from bench.gateway.wrk import Figures
from bench.latencies import latencies
from bench.servers import stop_at_once
from bench.waiting import NotSeenError, wait_for
from lakeproof.postgres.server import EmbeddedServer
from ledger.format.entry import parse_entry
from testkit.gateway.acknowledged import Acknowledged, FoundTable, Settled, check_acknowledged, check_files

WRITERS: Final = 16
TABLES: Final = 8
COLUMNS: Final = 10
ANSWER_TIMEOUT_S: Final = 60.0
PAUSE_S: Final = 0.05
RECOVERY_TIMEOUT_S: Final = 60.0
POSTGRESQL: Final = "PostgreSQL"
FAULTS: Final[dict[str, tuple[str, ...]]] = {
    "a policy worker": ("policy.worker",),
    "a file writer": ("files.writing_process",),
    "a gateway process": ("lp-gateway",),
    "projections": ("lp-projections",),
    "the signer": ("lp-signer",),
    "a session of PostgreSQL": (),
    POSTGRESQL: (),
}
"""What is killed, and the words by which the duty of such a process is known."""
SETTLED: Final = "SELECT entry FROM ledger.entries WHERE type = 'commit.settled' AND key LIKE %s ORDER BY log_id, index"
PROJECTED: Final = """
SELECT coalesce(min(c.next_index), 0) FROM projections.live AS l
JOIN projections.cursors AS c USING (projection, log_id, generation) WHERE log_id = %(log_id)s
"""
SIGNED: Final = "SELECT coalesce(max(size), 0) FROM ledger.checkpoints WHERE log_id = %(log_id)s"
LARGEST: Final = "SELECT log_id, size FROM ledger.heads ORDER BY size DESC LIMIT 1"
BACKENDS: Final = """
SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
ORDER BY state_change DESC LIMIT 1
"""


@dataclass(slots=True, kw_only=True)
class Written:
    """What the writers sent, and what they were answered."""

    acknowledged: list[Acknowledged] = field(default_factory=list)
    sent: dict[tuple[str, str], int] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    at_s: list[float] = field(default_factory=list)
    took_ms: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def kills(bench: Bench) -> Part:
    """Kill one process after another, each in the middle of commits to tables of its own."""
    part = Part()
    with lakeproof_up(bench.program) as up, database_of(up.command) as server:
        target = up.new_tenant()[1]
        with target.connect() as catalog:
            catalog.ask("POST", "/v1/policies", policy(1))
            for number, (what, words) in enumerate(FAULTS.items()):
                victims = [p for p in up.processes() if any(word in p.duty for word in words)]
                if words and not victims:
                    part.figures[what] = {"skipped": "it has no process of its own"}
                    continue
                namespace = f"n{number}"
                catalog.make_namespace(namespace)
                for table in range(TABLES):
                    catalog.make_table(namespace, f"t{table}", columns=COLUMNS)
                figures, written = asyncio.run(_kill_while_writing(bench, up, server, target, namespace, what))
                up.wait_until_quiet()
                tables = {f"t{n}": _found(catalog.load(namespace, f"t{n}")) for n in range(TABLES)}
                settled = _settled(server, namespace)
                faults = check_acknowledged(written.acknowledged, written.sent, settled=settled, tables=tables)
                faults += [*check_files(settled), *written.wrong]
                part.faults += [f"{what}: {fault}" for fault in faults]
                part.figures[what] = {**figures, "accepted_in_the_log": len(settled)}
        part.faults += _verified(up)
        part.figures["complaints_of_the_server"] = up.complaints()
    return part


async def _kill_while_writing(
    bench: Bench, up: Up, server: EmbeddedServer, target: Target, namespace: str, what: str
) -> tuple[Figures, Written]:
    written, stop = Written(), asyncio.Event()
    writers = [asyncio.create_task(_write(target, namespace, f"w{number}", stop, written)) for number in range(WRITERS)]
    await asyncio.sleep(bench.scale.fault_s / 4)
    killed_s = time.monotonic()
    recovery = await asyncio.to_thread(_kill, up, server, what)
    recovered = {f"{name}_after_s": await _seen(poll, name, since_s=killed_s) for name, poll in recovery.items()}
    await asyncio.sleep(max(0.0, killed_s + 3 * bench.scale.fault_s / 4 - time.monotonic()))
    stop.set()
    await asyncio.gather(*writers)
    ended_s = time.monotonic()
    times = [killed_s, *(at_s for at_s in written.at_s if at_s > killed_s), ended_s]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return {
        "acknowledged": len(written.acknowledged),
        "answers": dict(sorted(written.answers.items())),
        "acknowledged_after_the_kill": len(times) - 2,
        "longest_pause_s": round(max(gaps), 3),
        **recovered,
        **latencies(written.took_ms),
    }, written


def _kill(up: Up, server: EmbeddedServer, what: str) -> dict[str, Callable[[], Awaitable[bool | None]]]:
    """Kill `what`; return what tells that it works again, by name."""
    with psycopg.connect(server.admin_dsn, autocommit=True) as connection:
        log_id, size = connection.execute(LARGEST).fetchone() or (0, 0)
        backend = connection.execute(BACKENDS).fetchone()
    if what == POSTGRESQL:
        stop_at_once(server)
        return {
            "projected": _reaches(server, PROJECTED, log_id, size),
            "signed": _reaches(server, SIGNED, log_id, size),
        }
    if not FAULTS[what]:
        assert backend is not None
        os.kill(backend[0], signal.SIGKILL)
        return {
            "projected": _reaches(server, PROJECTED, log_id, size),
            "signed": _reaches(server, SIGNED, log_id, size),
        }
    before = [process for process in up.processes() if any(word in process.duty for word in FAULTS[what])]
    victim = before[0]
    os.kill(victim.pid, signal.SIGKILL)
    known = {process.pid for process in before}

    async def restarted() -> bool | None:
        there = [process for process in up.processes() if process.duty == victim.duty and process.pid != victim.pid]
        return True if len(there) >= len(known) and {process.pid for process in there} - known else None

    polls: dict[str, Callable[[], Awaitable[bool | None]]] = {"restarted": restarted}
    if what == "projections":
        polls["projected"] = _reaches(server, PROJECTED, log_id, size)
    if what == "the signer":
        polls["signed"] = _reaches(server, SIGNED, log_id, size)
    return polls


def _reaches(server: EmbeddedServer, query: str, log_id: int, size: int) -> Callable[[], Awaitable[bool | None]]:
    """Return what asks whether a position in a log is beyond the size that the log had."""

    async def poll() -> bool | None:
        try:
            async with await psycopg.AsyncConnection.connect(server.admin_dsn, autocommit=True) as connection:
                row = await (await connection.execute(query, {"log_id": log_id})).fetchone()
        except psycopg.OperationalError:
            return None
        return True if row is not None and row[0] > size else None

    return poll


async def _seen(poll: Callable[[], Awaitable[bool | None]], name: str, *, since_s: float) -> float | None:
    """Return how long after the kill something was seen, or None if it was not seen in a minute."""
    try:
        await wait_for(poll, name, timeout_s=RECOVERY_TIMEOUT_S, pause_s=PAUSE_S)
    except NotSeenError:
        return None
    return round(time.monotonic() - since_s, 2)


async def _write(target: Target, namespace: str, writer: str, stop: asyncio.Event, written: Written) -> None:
    """Commit to tables chosen at random until `stop` is set, over a connection that is opened again when it breaks."""
    chance, number = random.Random(writer), 0  # noqa: S311 - repeatable, not secret
    wire = _Wire(target)
    while not stop.is_set():
        table, number = f"t{chance.randrange(TABLES)}", number + 1
        written.sent[table, writer] = number
        update = set_properties(**{writer: str(number)})
        body = {"identifier": {"namespace": [namespace], "name": table}, "requirements": [], "updates": [update]}
        began_s = time.monotonic()
        try:
            status, answer = await wire.post(target.path(namespace, table), orjson.dumps(body))
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            written.answers[type(error).__name__] += 1
            wire.close()
            await asyncio.sleep(PAUSE_S)
            continue
        written.answers[str(status)] += 1
        if status == 200:
            now_s, found = time.monotonic(), orjson.loads(answer)
            written.at_s.append(now_s)
            written.took_ms.append(1_000 * (now_s - began_s))
            if found["metadata"]["properties"].get(writer) != str(number):
                written.wrong.append(f"{table}: the answer to commit {number} of {writer} has another's metadata")
            location = found["metadata-location"]
            written.acknowledged.append(Acknowledged(table=table, writer=writer, number=number, location=location))
        elif status < 500:
            written.wrong.append(f"{table}: commit {number} of {writer} was answered with {status}: {answer[:200]!r}")
        else:
            await asyncio.sleep(PAUSE_S)
    wire.close()


class _Wire:
    """A connection that sends one request after another."""

    def __init__(self, target: Target) -> None:
        self._where = urlsplit(target.url)
        headers = {"Host": self._where.netloc, **target.headers}
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send `body`; return status and body of the answer, which has a Content-Length."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            if self._streams is None:
                self._streams = await asyncio.open_connection(self._where.hostname, self._where.port)
            reader, writer = self._streams
            head = f"POST {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
            length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))
            answer = int(lines[0].split()[1]), await reader.readexactly(length)
        if b"connection: close" in lines:
            self.close()
        return answer

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _found(answer: dict[str, Any]) -> FoundTable:
    return FoundTable(location=answer["metadata-location"], properties=answer["metadata"]["properties"])


def _settled(server: EmbeddedServer, namespace: str) -> list[Settled]:
    """Return the accepted commits to the tables of a namespace, in the log's order, without those that made them."""
    found, created = [], set()
    with psycopg.connect(server.admin_dsn, autocommit=True) as connection:
        for (data,) in connection.execute(SETTLED, (f"table:%/{namespace}/%",)):
            entry = parse_entry(bytes(data))
            outcome: dict[str, Any] = dict(entry.data)
            table = entry.key.rpartition("/")[2]
            if outcome["outcome"] == "accepted" and table in created:
                location, sha256 = outcome["metadata_location"], outcome["metadata_sha256"]
                found.append(Settled(table=table, location=location, sha256=sha256))
            created.add(table)
    return found


def _verified(up: Up) -> list[str]:
    """Return what the verifier finds wrong with the logs: a sentence, or nothing."""
    try:
        up.command.run("ledger", "verify", "--json")
    except RuntimeError as error:
        return [f"the log does not verify: {error}"]
    return []
