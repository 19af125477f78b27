# SPDX-License-Identifier: Apache-2.0
"""
A million groups, each submitted three times while clients and the server are killed: each is in the log once.

Claim: exactly `--groups` groups are in the log afterwards, every id once, and the log verifies, although every group
was submitted three times, in different orders and by different processes, with clients killed without warning, sessions
ended and immediate stops of the server in between. Another body under an id already used is refused, with a message
that says what differs.

Each id is derived from its number, so a restarted process knows nothing of the answers to the one before it: it submits
its whole range again, from the point up to which that one had recorded that everything was answered. A real signer
confirms the log after each stop of the server; until then the log takes no entries.

Run: `python -m bench.idempotency`; `--groups 20000` for a quick run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from psycopg import AsyncConnection

from bench.measuring import circumstances_on, options, publish
from bench.servers import directory_in_memory, server_in_memory, stop_at_once
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.provision import Provisioned, create_tenant_log, provision
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.errors import GroupMismatchError, LogUnavailableError, OutcomeUnknownError
from ledger.format.event import Event, Part, PreparedEvent, derived_group_id, prepare
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Appended, AppendRefused, Group
from ledger.signing.key_directory import KeyDirectory, create_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import read_logs
from ledger.verify.database import verify_database
from testkit.environment import PROJECT

TIMES: Final = 3
PROCESSES: Final = 3
CHUNK: Final = 2_000
"""Groups that a process submits at once, and after which it writes down how far it is."""
TROUBLE_EVERY_S: Final = 3.0
OTHER_BODIES: Final = 5
AT: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)


def group_id(number: int) -> UUID:
    """Return the id of a group: whoever makes the group makes the same one."""
    return derived_group_id("bench.idempotency", number)


def group(number: int, *, other: str = "") -> Group:
    """Return a group; `other` is what differs in another body under the same id."""
    parts: tuple[Part, ...] = ()
    if number % 50 == 0:
        payload = b"inputs" if other != "part" else b"others"
        parts = (Part(name="inputs", payload=payload, salt=number.to_bytes(32, "big")),)
    return Group(id=group_id(number), then=(_event(number, parts, other),))


def _event(number: int, parts: tuple[Part, ...], other: str) -> PreparedEvent:
    return prepare(
        Event(
            type="commit.decided",
            version=1,
            key="table:lake/t" if other != "key" else "table:lake/u",
            actor="system" if other != "actor" else "ab" * 16,
            occurred_at=AT,
            data={"number": number if other != "data" else -1},
            parts=parts,
        )
    )


def order(groups: int, turn: int) -> list[int]:
    """Return the first numbers of the chunks, in another order each time that all are submitted."""
    firsts = list(range(0, groups, CHUNK))
    random.Random(turn).shuffle(firsts)  # noqa: S311 - every process must draw the same
    return firsts


async def client(settings: dict[str, Any]) -> None:
    """Submit every group three times, in chunks: those of this process, from where the one before it was killed."""
    groups, number = int(settings["groups"]), int(settings["number"])
    kept = Path(settings["kept"])
    done = _how_far(kept)
    # The turns go round: each group is submitted by another process every time.
    mine = [
        first
        for turn in range(TIMES)
        for at, first in enumerate(order(groups, turn))
        if (at + turn) % PROCESSES == number
    ]
    answers: Counter[str] = Counter()
    async with Appender(settings["dsn"], GuardRegistry(CORE_GUARDS)) as appender:
        for at in range(done, len(mine)):
            todo = list(range(mine[at], min(mine[at] + CHUNK, groups)))
            random.Random(at).shuffle(todo)  # noqa: S311
            while todo:
                outcomes = await appender.append_many(settings["log_id"], [group(n) for n in todo], timeout_s=20)
                again = []
                for n, outcome in zip(todo, outcomes, strict=True):
                    match outcome:
                        case Appended(repeated=True):
                            answers["repeated"] += 1
                        case Appended():
                            answers["new"] += 1
                        case AppendRefused(error=OutcomeUnknownError() | LogUnavailableError() as error):
                            answers[type(error).__name__] += 1
                            again.append(n)
                        case _:
                            raise RuntimeError(f"group {n}: {outcome}")
                todo = again
            fresh = kept.with_suffix(".new")
            fresh.write_text(str(at + 1))
            fresh.replace(kept)
            _write_down(Path(settings["told"]), answers)
            answers.clear()


def _how_far(kept: Path) -> int:
    return int(kept.read_text()) if kept.exists() else 0


def _write_down(path: Path, answers: Counter[str]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(answers) + "\n")


async def start_client(installation: Provisioned, log_id: int, number: int, groups: int, directory: Path) -> Any:
    """Start the process of that number, or the next one in its place."""
    settings = {
        "dsn": installation.as_role(installation.roles.appender),
        "log_id": log_id,
        "number": number,
        "groups": groups,
        "kept": str(directory / f"{number}.kept"),
        "told": str(directory / f"{number}.told"),
    }
    # Settings hold the password: they come on standard input, not as an argument that any user may read.
    program = (sys.executable, "-m", "bench.idempotency", "--client")
    process = await asyncio.create_subprocess_exec(*program, cwd=PROJECT, stdin=asyncio.subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(json.dumps(settings).encode())
    process.stdin.close()
    return process


async def submit(
    server: EmbeddedServer, installation: Provisioned, log_id: int, groups: int, seed: int
) -> tuple[Counter[str], Counter[str], KeyDirectory]:
    """Have the processes submit everything under faults; return the faults, the answers, and the signer's keys."""
    faults, random_ = Counter({"kill": 0, "stop": 0, "end sessions": 0}), random.Random(seed)  # noqa: S311
    with directory_in_memory() as directory:
        signer = CheckpointSigner(
            installation.as_role(installation.roles.signer), create_key_directory(directory / "keys")
        )
        stopped = asyncio.Event()
        signing = asyncio.create_task(signer.run(stopped, interval_s=1.0))
        running = {n: await start_client(installation, log_id, n, groups, directory) for n in range(PROCESSES)}
        try:
            while running:
                with suppress(TimeoutError):
                    waits = [asyncio.ensure_future(process.wait()) for process in running.values()]
                    await asyncio.wait(waits, timeout=TROUBLE_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
                for number, process in list(running.items()):
                    if process.returncode is not None:
                        assert process.returncode == 0, f"client {number} ended with {process.returncode}"
                        del running[number]
                if not running:
                    break
                match random_.choice(("kill", "kill", "stop", "end sessions")):
                    case "kill":
                        number = random_.choice(sorted(running))
                        if running[number].returncode is not None:
                            continue
                        running[number].kill()
                        if await running[number].wait() != -signal.SIGKILL:
                            continue  # it was done just before
                        running[number] = await start_client(installation, log_id, number, groups, directory)
                        faults["kill"] += 1
                    case "stop":
                        await asyncio.to_thread(stop_at_once, server)
                        faults["stop"] += 1
                    case _:
                        async with await AsyncConnection.connect(server.admin_dsn, autocommit=True) as owner:
                            await owner.execute(
                                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                                "WHERE application_name = 'lakeproof appender'"
                            )
                        faults["end sessions"] += 1
        finally:
            for process in running.values():
                with suppress(ProcessLookupError):
                    process.kill()
            stopped.set()
            await signing
        answers: Counter[str] = Counter()
        for file in directory.glob("*.told"):
            for line in file.read_text().splitlines():
                answers.update(json.loads(line))
    return faults, answers, signer.keys


async def check(
    server: EmbeddedServer, installation: Provisioned, log_id: int, groups: int, keys: KeyDirectory
) -> list[str]:
    """Check that every group is in the log once, that the log verifies, and that no other body is taken."""
    async with await AsyncConnection.connect(server.admin_dsn, autocommit=True) as owner:
        query = "SELECT group_id FROM ledger.entries WHERE log_id = %s ORDER BY group_id"
        found = [row[0] for row in await (await owner.execute(query, (log_id,))).fetchall()]
    assert found == sorted(group_id(number) for number in range(groups)), f"found {len(found)} groups of {groups}"
    dsn = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as auditor:
        log = next(log for log in await read_logs(auditor) if log.log_id == log_id)
        report = await verify_database(auditor, log, [keys.verifier_key(log.origin)])
    assert report.size == groups
    refusals = []
    dsn = installation.as_role(installation.roles.appender)
    async with Appender(dsn, GuardRegistry(CORE_GUARDS)) as appender:
        for number in range(0, 50 * OTHER_BODIES, 50):
            if number >= groups:
                break
            for other in ("data", "key", "actor", "part"):
                try:
                    await appender.append(log_id, group(number, other=other))
                except GroupMismatchError as error:
                    refusals.append(str(error))
                else:
                    raise AssertionError(f"another body was taken under the id of group {number}: its {other} differs")
                if other not in refusals[-1]:
                    raise AssertionError(f"{refusals[-1]} does not say that the {other} differs")
    return refusals


def main() -> None:
    """Run the campaign and write what was found."""
    parser = options("idempotency", __doc__)
    parser.add_argument("--groups", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        asyncio.run(client(json.load(sys.stdin)))
        return
    print(f"seed {arguments.seed}")
    with server_in_memory() as server:
        installation = provision(server.admin_dsn, login_password=secrets.token_urlsafe())
        log_id = create_tenant_log(server.admin_dsn, installation, uuid4())
        started = time.perf_counter()
        faults, answers, keys = asyncio.run(submit(server, installation, log_id, arguments.groups, arguments.seed))
        elapsed_s = time.perf_counter() - started
        refusals = asyncio.run(check(server, installation, log_id, arguments.groups, keys))
        on = circumstances_on(server.admin_dsn)
    found = {
        "bench": "idempotency",
        "groups": arguments.groups,
        "times": TIMES,
        "processes": PROCESSES,
        "in_the_log": arguments.groups,
        "trouble": dict(faults),
        "told": dict(answers),
        "other_bodies_refused": len(refusals),
        "one_of_them": refusals[0],
        "elapsed_s": round(elapsed_s, 1),
        "submitted_per_second": round(TIMES * arguments.groups / elapsed_s),
        "seed": arguments.seed,
        **on,
    }
    publish(found, arguments.results)


if __name__ == "__main__":
    main()
