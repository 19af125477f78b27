# SPDX-License-Identifier: Apache-2.0
"""
How long a caller waits for the receipt of what it appends: the proof of its entry under a signed checkpoint.

Claim: at 5,000 events per second, each with a request for its receipt, half of the receipts arrive within 50 ms of the
append and 99 of 100 within 250 ms. The baseline, in the same run and at the same rate, is the append alone.

One process has the Appender, the signer and the receipts on one event loop, as `lakeproof up` does. Events come at even
intervals, whether those before them are answered or not. A wait counts from the time at which an event was due, or from
its start if it started up to 2 ms early together with those before it.

Run: `.venv/bin/python -m bench.receipts`. The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from bench.append_sides import example_event, new_groups
from bench.latencies import latencies
from bench.measuring import circumstances_on, options, publish
from bench.servers import embedded_server
from lakeproof.provision import Provisioned, create_tenant_log, provision
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.format.guards import GuardRegistry
from ledger.format.proof import check_proof
from ledger.format.sequence import Appended, Group
from ledger.proving.receipts import Receipts
from ledger.signing.key_directory import KeyDirectory, create_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import Log, find_log

STEP_S = 0.002
"""Events that are due within it begin together."""
TIMEOUT_S = 30.0
CHECKED = 200


async def at_rate(groups: list[Group], per_second: int, once: Callable[[Group], Awaitable[None]]) -> list[float]:
    """Begin `once` for each group when it is due, or just before; return how long each took from then, in ms."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    took: list[float] = []

    async def one(group: Group, since: float) -> None:
        await once(group)
        took.append((loop.time() - since) * 1_000)

    async with asyncio.TaskGroup() as tasks:
        for number, group in enumerate(groups):
            due = began + number / per_second
            if (wait := due - loop.time()) > STEP_S:
                await asyncio.sleep(wait)
            tasks.create_task(one(group, min(due, loop.time())))
    return took


async def measure(
    installation: Provisioned, keys: KeyDirectory, log: Log, *, per_second: int, seconds: float
) -> dict[str, Any]:
    """Measure appends alone, then appends with receipts."""
    roles = installation.roles
    event = example_event()
    count = int(per_second * seconds)
    signer = CheckpointSigner(installation.as_role(roles.signer), keys)
    stop = asyncio.Event()
    proofs: list[bytes] = []
    auditor = installation.as_role(roles.auditor)
    async with (
        Appender(installation.as_role(roles.appender), GuardRegistry(CORE_GUARDS)) as appender,
        Receipts(auditor, keys.verifier_keys) as receipts,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(signer.run(stop, interval_s=1.0))

        async def append(group: Group) -> int:
            outcome = await appender.append(log.log_id, group, timeout_s=TIMEOUT_S)
            assert isinstance(outcome, Appended)
            return outcome.indices.start

        async def alone(group: Group) -> None:
            await append(group)

        async def with_receipt(group: Group) -> None:
            index = await append(group)
            proofs.append(await receipts.receipt(log, index, timeout_s=TIMEOUT_S))

        await at_rate(new_groups(event, per_second), per_second, with_receipt)  # warm
        proofs.clear()
        baseline = await at_rate(new_groups(event, count), per_second, alone)
        waited = await at_rate(new_groups(event, count), per_second, with_receipt)
        stop.set()
    key = keys.verifier_key(log.origin)
    sizes = {check_proof(proof, [key]).checkpoint.size for proof in proofs[:: max(1, len(proofs) // CHECKED)]}
    assert len(proofs) == count
    return {
        "append_alone": latencies(baseline),
        "append_to_receipt": latencies(waited),
        "ratio_p50": round(statistics.median(waited) / statistics.median(baseline), 2),
        "receipts": len(proofs),
        "checkpoints_at_least": len(sizes),
        "receipt_bytes": round(sum(map(len, proofs)) / len(proofs)),
    }


def main() -> None:
    """Measure, and write the result."""
    parser = options("receipts", __doc__)
    parser.add_argument("--per-second", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    with embedded_server() as owner_dsn, tempfile.TemporaryDirectory() as directory:
        installation = provision(owner_dsn, login_password=secrets.token_hex(16))
        create_tenant_log(owner_dsn, installation, UUID(int=1))
        keys = create_key_directory(Path(directory) / "keys")

        async def run() -> dict[str, Any]:
            dsn = installation.as_role(installation.roles.auditor)
            async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
                log = await find_log(connection, installation.origin(UUID(int=1)))
            return await measure(installation, keys, log, per_second=arguments.per_second, seconds=arguments.seconds)

        found = {
            "bench": "receipts",
            "per_second": arguments.per_second,
            "seconds": arguments.seconds,
            **asyncio.run(run()),
            **circumstances_on(owner_dsn),
        }
    publish(found, arguments.results)


if __name__ == "__main__":
    main()
