# SPDX-License-Identifier: Apache-2.0
"""
How many forks of a log are found at the next checkpoint, and how many honest logs are reported as forks.

Claim: of 1,000 random forks below what was signed (a restored backup that others have appended to, a rewritten suffix
with its chain and tiles recomputed, two databases with one key) all 1,000 are found. Of 1,000 logs that only grew,
through restarts of signer and server and lost checkpoints, none is reported. The trials are in
`testkit/ledger/forking.py`, on real PostgreSQL. Each has its own random generator: a missed one can be repeated by its
number.

Run: `python -m bench.forks --trials 1000`. The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bench.measuring import circumstances_on, options, publish
from bench.servers import embedded_server
from lakeproof.provision import create_tenant_log, provision
from ledger.signing.key_directory import KeyDirectory, create_key_directory
from testkit.ledger.forking import FORKS, DatabasePair, Trial, honest, seeded
from testkit.ledger.logs import TENANT
from testkit.ledger.signing_site import open_site


@asynccontextmanager
async def open_pair(admin_dsn: str, keys: KeyDirectory) -> AsyncIterator[DatabasePair]:
    """Yield two databases of one installation, one the clone of the other, and one key directory for both."""
    password = secrets.token_urlsafe()
    installation = provision(admin_dsn, login_password=password)
    log_id = create_tenant_log(admin_dsn, installation, TENANT)
    name = str(conninfo_to_dict(admin_dsn)["dbname"])
    clone = make_conninfo(admin_dsn, dbname=f"{name}_clone")
    with psycopg.connect(make_conninfo(admin_dsn, dbname="template1"), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(*map(sql.Identifier, (f"{name}_clone", name))))
    cloned = provision(clone, login_password=password)
    async with (
        open_site(admin_dsn, installation, keys, log_id=log_id) as one,
        open_site(clone, cloned, keys, log_id=log_id) as other,
    ):
        yield DatabasePair(one, other)


async def run(admin_dsn: str, keys: KeyDirectory, trials: int) -> tuple[list[Trial], list[Trial]]:
    """Return what became of so many random forks, and of as many honest logs."""
    forks: list[Trial] = []
    controls: list[Trial] = []
    async with open_pair(admin_dsn, keys) as pair:
        for number in range(trials):
            kind = FORKS[number % len(FORKS)]
            await pair.clear()
            forks.append(await kind(pair, seeded(f"{kind.__name__} {number}")))
            await pair.clear()
            controls.append(await honest(pair, seeded(f"honest {number}")))
            if (number + 1) % 100 == 0:
                print(f"{number + 1}: {sum(not t.ok for t in forks)} missed, {sum(not t.ok for t in controls)} accused")
    return forks, controls


def measure(admin_dsn: str, trials: int) -> dict[str, Any]:
    """Run the trials; return the figures and the machine they hold for."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        keys = create_key_directory(Path(directory) / "keys")
        forks, controls = asyncio.run(run(admin_dsn, keys, trials))
    return {
        "bench": "forks",
        "trials": len(forks),
        "found": sum(trial.ok for trial in forks),
        "missed": [f"{number}: {trial.kind}, {trial.detail}" for number, trial in enumerate(forks) if not trial.ok],
        "by_kind": {
            kind: {"trials": total, "found": sum(trial.ok for trial in forks if trial.kind == kind)}
            for kind, total in Counter(trial.kind for trial in forks).items()
        },
        "honest_trials": len(controls),
        "accused": [
            f"{number}: {trial.detail}, {trial.refusal}" for number, trial in enumerate(controls) if not trial.ok
        ],
        "elapsed_s": round(time.perf_counter() - began, 1),
        **circumstances_on(admin_dsn),
    }


def main() -> None:
    """Run the trials and print what they say; ends with 1 if a fork was missed or an honest log accused."""
    parser = options("forks", __doc__)
    parser.add_argument("--trials", type=int, default=1_000, help="forks, and as many honest logs")
    arguments = parser.parse_args()
    with embedded_server() as admin_dsn:
        found = measure(admin_dsn, arguments.trials)
    publish(found, arguments.results)
    if found["missed"] or found["accused"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
