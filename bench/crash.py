# SPDX-License-Identifier: Apache-2.0
"""
Kills at random and at named points, while twelve client processes commit through a built-in and two foreign aliases.

Claim: gateway processes, the foreign catalogs (Apache Iceberg's own REST server, and Nessie), PostgreSQL, single
backends of it, and `lakeproof up` itself are killed by SIGKILL: at random, right after a request was sent, right after
its decision is in the log, right before its answer. Whatever is killed, every commit in a table has an accepted outcome
in the log, at most 5 s after the restart and its deadline, and every accepted outcome has its commit in the table. No
client is told that a commit was made which was not, or not made which was; a request that is repeated under its
Idempotency-Key is made once; the log verifies (`verify --deep`); and no process is left behind.

Run: `python -m bench.crash --kills 150`. It ends by itself; `--minutes` is a limit after which no phase is begun. The
last line is JSON with all figures; the exit code is 1 if something did not hold.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from bench.measuring import circumstances_on, options, publish
from bench.servers import directory_on_disk
from lakeproof.postgres.age import fetch_age
from lakeproof.settings import load_settings
from testkit.crashes.campaign import DECK, Campaign, deal, format_table
from testkit.crashes.installation import processes_of, running_installation
from testkit.environment import PROJECT


def play(directory: Path, *, kills: int, seed: int, until_s: float) -> dict[str, object]:
    """Play the campaign; return what was found."""
    began_s = time.monotonic()
    age = fetch_age(load_settings(os.environ, directory=PROJECT).cache, print)
    with running_installation(directory, age) as installation:
        on = circumstances_on(installation.server.admin_dsn)
        campaign = Campaign(installation, seed=seed, say=lambda text: print(text, flush=True))
        dealt = deal(kills, random.Random(seed))  # noqa: S311 - to be repeatable
        campaign.run(dealt, phase_size=2 * len(DECK), until_s=until_s)
        campaign.found.violations += installation.end_up()
        figures = campaign.figures()
    figures["violations"] += [f"a process was left behind: {each}" for each in processes_of(directory)]
    return {"bench": "crash", **figures, "seconds": round(time.monotonic() - began_s), "seed": seed, **on}


def main() -> None:
    """Run the campaign and write what was found."""
    parser = options("crash", __doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=24 * 60, help="begin no phase of kills after so long")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # whatever runs is ended then, too
    print(f"seed {arguments.seed}")
    until_s = time.monotonic() + 60 * arguments.minutes
    with directory_on_disk() as directory:
        found = play(directory, kills=arguments.kills, seed=arguments.seed, until_s=until_s)
    print(format_table(found))
    publish(found, arguments.results)
    sys.exit(1 if found["violations"] else 0)


if __name__ == "__main__":
    main()
