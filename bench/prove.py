# SPDX-License-Identifier: Apache-2.0
"""
How long a proof takes from the tiles of a log of a million entries, compared with reading and hashing all leaf hashes.

Claim: an inclusion proof and a consistency proof of a log of 10^6 entries take at most 3 ms from the database, with
nothing cached between two of them. "Cold" is the cost for a process that has only just connected: its first proof is
counted separately, alone and together with looking up the log. Checking a proof, by whoever receives it, is counted
separately, too. The baseline is what a log without tiles has to do: read all leaf hashes, and hash.

Run: `.venv/bin/python -m bench.prove`. The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from bench.latencies import latencies
from bench.long_log import write_long_log
from bench.measuring import circumstances_on, options, publish
from bench.servers import embedded_server
from lakeproof.provision import create_tenant_log, provision
from ledger.format.checkpoint import Checkpoint
from ledger.format.merkle import root_of
from ledger.format.note import Ed25519Signer
from ledger.format.proof import check_proof
from ledger.proving.prove import prove, prove_growth
from ledger.store.read import Log, find_log, read_leaves
from ledger.store.session import Connection
from ledger.store.stored_tree import read_frontier

PROOFS = 500
COLD = 100
BASELINES = 3


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Return how long `work` takes, in milliseconds."""
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1_000


async def measure(dsn: str, log: Log, signer: Ed25519Signer, checkpoint: Checkpoint) -> dict[str, Any]:
    """Prove entries and growth at random places, on a new connection for each cold proof and on one for the others."""
    chosen = random.Random(1)  # noqa: S311 - places, not secrets
    size, key = checkpoint.size, signer.verifier_key

    proofs = []

    async def once(connection: Connection) -> None:
        proofs.append(await prove(connection, log, chosen.randrange(size), keys=[key], policy=None))

    async def check() -> None:
        check_proof(proofs.pop(), [key])

    async def from_the_start(connection: Connection) -> None:
        await find_log(connection, log.origin)
        await once(connection)

    cold: dict[Callable[[Connection], Awaitable[None]], list[float]] = {once: [], from_the_start: []}
    for _ in range(COLD):
        for work, took in cold.items():
            async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
                await connection.execute("SELECT 1")
                took.append(await timed(partial(work, connection)))
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        inclusion = [await timed(partial(once, connection)) for _ in range(PROOFS)]
        checking = [await timed(check) for _ in range(len(proofs))]
        growth = []
        for _ in range(PROOFS):
            older_size = chosen.randrange(1, size)
            older = Checkpoint(
                origin=log.origin,
                size=older_size,
                root=(await read_frontier(connection, log.log_id, older_size)).root(),
            )
            growth.append(await timed(partial(prove_growth, connection, log, older, checkpoint)))

        async def without_tiles() -> None:
            leaves = await read_leaves(connection, log.log_id, from_index=0, to_index=size)
            assert root_of(leaves) == checkpoint.root

        baseline = [await timed(without_tiles) for _ in range(BASELINES)]
    return {
        "inclusion": latencies(inclusion),
        "inclusion_first_on_a_connection": latencies(cold[once]),
        "finding_the_log_and_first_inclusion": latencies(cold[from_the_start]),
        "checking": latencies(checking),
        "consistency": latencies(growth),
        "baseline_all_leaves_ms": round(statistics.median(baseline), 1),
        "ratio_to_baseline": round(statistics.median(baseline) / statistics.median(inclusion)),
    }


def main() -> None:
    """Write the log, measure, and write the result."""
    parser = options("prove", __doc__)
    parser.add_argument("--entries", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with embedded_server() as owner_dsn:
        installation = provision(owner_dsn, login_password=secrets.token_hex(16))
        tenant = UUID(int=1)
        create_tenant_log(owner_dsn, installation, tenant)
        dsn = installation.as_role(installation.roles.auditor)
        signer = Ed25519Signer.from_seed(name=installation.origin(tenant), seed=secrets.token_bytes(32))

        async def run() -> dict[str, Any]:
            async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
                log = await find_log(connection, installation.origin(tenant))
            began = time.perf_counter()
            checkpoint = await asyncio.to_thread(write_long_log, owner_dsn, log, arguments.entries, signer=signer)
            print(f"a log of {arguments.entries:,} entries written in {time.perf_counter() - began:.0f} s")
            return await measure(dsn, log, signer, checkpoint)

        measured = asyncio.run(run())
        found = {"bench": "prove", "entries": arguments.entries, **measured, **circumstances_on(owner_dsn)}
    publish(found, arguments.results)


if __name__ == "__main__":
    main()
