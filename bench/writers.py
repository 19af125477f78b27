# SPDX-License-Identifier: Apache-2.0
"""
Thirty-two processes write the same logs under all faults at once, and every answer that a caller gets is true.

Claim: with writers killed, stopped (SIGSTOP) and cut off during COMMIT, transactions rolled back, guards that do not
hold or fail, and immediate stops of PostgreSQL, the indices of each log are 0 … n - 1, a reader that follows it misses
no entry and sees none twice, and each answer (in, not in, unknown) agrees with the log afterwards. A real signer
confirms the logs after each stop, and what it has signed verifies.

Run: `python -m bench.writers`; `--seconds 20 --processes 8` for a quick run.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo

from bench.measuring import circumstances_on, options, publish
from bench.servers import directory_in_memory, server_in_memory, stop_at_once
from lakeproof.postgres.files import SOCKET_NAME
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.provision import create_tenant_log, provision
from ledger.format.entry import parse_entry
from ledger.signing.key_directory import create_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import read_logs
from ledger.verify.database import verify_database
from testkit.ledger.appending import read_log
from testkit.ledger.cutting_proxy import CuttingProxy
from testkit.ledger.guard_replay import AGGREGATES
from testkit.ledger.stress import Workers, check_answers, make_trouble, until_nothing_is_under_way
from testkit.ledger.tailing import Tail

LOGS = 4
CALLERS = 2
"""Callers in each process, so that 32 processes find room on few cores."""
TIMEOUT_S = 3.0


async def run(server: EmbeddedServer, seconds: float, processes: int, seed: int) -> dict[str, Any]:
    """Have the writers work under faults; return the faults and figures, after everything was checked."""
    database = server.admin_dsn
    installation = provision(database, login_password=secrets.token_urlsafe())
    logs = [create_tenant_log(database, installation, uuid4()) for _ in range(LOGS)]
    dsn = installation.as_role(installation.roles.appender)

    async def stop() -> None:
        await asyncio.to_thread(stop_at_once, server)

    with directory_in_memory() as directory, tempfile.TemporaryDirectory() as reports:
        signer = CheckpointSigner(
            installation.as_role(installation.roles.signer), create_key_directory(directory / "keys")
        )
        ended, tails = asyncio.Event(), [Tail(dsn, log_id) for log_id in logs]
        async with CuttingProxy(directory, server.files.run / SOCKET_NAME) as proxy:
            random_ = random.Random(seed)  # noqa: S311 - to be repeatable
            through = make_conninfo(dsn, host=str(directory))
            workers = Workers(through, logs, Path(reports), random_, callers=CALLERS, timeout_s=TIMEOUT_S)
            tasks = [asyncio.create_task(tail.follow(ended)) for tail in tails]
            tasks.append(asyncio.create_task(signer.run(ended, interval_s=0.5)))
            try:
                for _ in range(processes):
                    await workers.start()
                faults = await make_trouble(workers, proxy, database, seconds, {"stop of the server": stop})
                await workers.stop()
                await until_nothing_is_under_way(database)
            finally:
                await workers.kill_all()
                ended.set()
            entries = [await read_log(database, log_id) for log_id in logs]
            await asyncio.gather(*tasks)
        answers = check_answers(entries, logs, Path(reports))
        await signer.sign_once()
        reader = installation.as_role(installation.roles.auditor)
        checkpoints = 0
        async with await AsyncConnection.connect(reader, autocommit=True) as auditor:
            known = {log.log_id: log for log in await read_logs(auditor)}
            for log_id, held, tail in zip(logs, entries, tails, strict=True):
                assert [entry.index for entry in held] == list(range(len(held)))
                assert [parse_entry(entry) for entry in tail.seen] == held, "the reader has seen another log"
                assert AGGREGATES.live(database, log_id) == AGGREGATES.replayed(held)
                key = signer.keys.verifier_key(known[log_id].origin)
                report = await verify_database(auditor, known[log_id], [key])
                assert report.signed_size == len(held)
                checkpoints += report.checkpoints
    return {
        "trouble": dict(faults),
        "told": dict(sorted(Counter(answers).items())),
        "entries": sum(map(len, entries)),
        "checkpoints_verified": checkpoints,
        "reader_connections_lost": sum(tail.lost for tail in tails),
    }


def main() -> None:
    """Run the campaign and write what was found."""
    parser = options("writers", __doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    with server_in_memory() as server:
        figures = asyncio.run(run(server, arguments.seconds, arguments.processes, arguments.seed))
        on = circumstances_on(server.admin_dsn)
    found = {
        "bench": "writers",
        "processes": arguments.processes,
        "callers": CALLERS * arguments.processes,
        "logs": LOGS,
        "seconds": arguments.seconds,
        **figures,
        "seed": arguments.seed,
        **on,
    }
    publish(found, arguments.results)


if __name__ == "__main__":
    main()
