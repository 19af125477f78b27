# SPDX-License-Identifier: Apache-2.0
"""
Whether detection loses or repeats a scan if its processes are killed at random and its checkpoint is deleted.

Claim: over at least 30 kills of Spark's driver, its virtual machine and its workers, at random moments during a steady
stream of commits of two tenants, with the checkpoint deleted at random, every snapshot is scanned once and none is
lost.

Each round commits a few times, waits for a random time, and kills one of the three, as the kernel does when memory runs
out. Only the supervisor of `lakeproof up` starts them again. At the end every snapshot must have one `scan.completed`,
with the findings of its five columns, once.

Run: `python bench/detect_kills.py`. The last line is JSON with all figures; the exit code is 1 if the claim fails.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from bench.measuring import circumstances, options, publish
from bench.servers import directory_on_disk
from bench.waiting import NotSeenError, wait_for
from lakeproof.demo.personal_data import PERSON_SCHEMA, PERSONAL, person_rows
from lakeproof.detecting import open_job_folder
from lakeproof.installation import open_installation
from lakeproof.services import open_services
from lakeproof.serving.in_process import serving
from lakeproof.settings import load_settings
from lakeproof.tenants import Founded, found_tenant
from ledger.format.entry import Entry, parse_entry
from ledger.store.session import Connection
from spark_detect.driver.supervise import supervise
from testkit.environment import PROJECT

VICTIMS = {
    "driver": "-m spark_detect.driver.process",
    "virtual machine": "bin/java",
    "workers": "-m spark_detect.driver.daemon",
}
ROWS = 20
END_TIMEOUT_S = 300.0
PAUSE_S_MAX = 1.0
"""So that most of the time there is something to kill."""
MARKER = "LP_BENCH_ROOM"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """A tenant that commits."""

    tenant: Founded
    table: Table


def make_table(url: str, key: str) -> Table:
    """Create the table of a tenant."""
    catalog = RestCatalog("bench", uri=url, warehouse="lake", token=key)
    catalog.create_namespace(("crm",))
    table: Table = catalog.create_table(("crm", "people"), schema=PERSON_SCHEMA)
    return table


def kill(word: str, job: Path) -> int:
    """Kill the processes of this bench whose command line contains `word`; return how many they were."""
    killed = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if word in line and f"{MARKER}={job}".encode() in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)
                killed += 1
    return killed


async def play(kills: int, directory: Path, seed: int) -> dict[str, Any]:
    """Commit and kill; return what was found at the end."""
    chance = random.Random(seed)  # noqa: S311 - no secret: a run can be played again
    values = {"HOME": str(directory / "home"), "PORT": "0", "DETECT": "0", "STREAMS": "0"}
    settings = load_settings({f"LAKEPROOF_{name}": value for name, value in values.items()}, directory=PROJECT)
    began = time.monotonic()
    with open_installation(settings, print) as installation, open_job_folder(installation) as job:
        os.environ[MARKER] = str(job.folder)
        async with open_services(installation) as services, serving(services) as served:
            writers = []
            for name in ("one", "two"):
                tenant = await found_tenant(services, name=name, identity=f"x@{name}.example", alias="lake")
                table = await asyncio.to_thread(make_table, served.url, tenant.key.secret)
                writers.append(Writer(tenant=tenant, table=table))
            stop = asyncio.Event()
            running = supervise(job, log=directory / "detect.log", stop=stop, say=print, pause_s_max=PAUSE_S_MAX)
            detection = asyncio.create_task(running)
            killed: Counter[str] = Counter()
            deleted = commits = 0
            try:
                while killed.total() < kills:
                    for writer in writers:
                        for _ in range(chance.randint(0, 2)):
                            await asyncio.to_thread(writer.table.append, person_rows(commits * ROWS, ROWS))
                            commits += 1
                    await asyncio.sleep(chance.uniform(0.0, 12.0))
                    victim = chance.choice(sorted(VICTIMS))
                    if await asyncio.to_thread(kill, VICTIMS[victim], job.folder):
                        killed[victim] += 1
                        print(f"{killed.total()} of {kills}: {victim} killed after {commits} commits")
                    if chance.random() < 0.3 and victim != "workers":
                        shutil.rmtree(job.checkpoint, ignore_errors=True)
                        deleted += 1
                found = await settle(writers, installation.as_role(installation.roles.auditor))
            finally:
                stop.set()
                await detection
    return {
        "bench": "detect_kills",
        "kills": dict(killed),
        "checkpoints_deleted": deleted,
        "commits": commits,
        **found,
        "seconds": round(time.monotonic() - began),
        "seed": seed,
        **circumstances(),
    }


async def settle(writers: list[Writer], dsn: str) -> dict[str, Any]:
    """Wait until every snapshot has a scan; return what is lost, repeated or wrong."""
    counts: dict[str, Any] = {}
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:

        async def poll() -> dict[str, Any] | None:
            lost = repeated = failed = findings_wrong = 0
            for writer in writers:
                table = await asyncio.to_thread(writer.table.refresh)
                entries = await read(connection, writer.tenant.log_id)
                scans = Counter(str(entry.data["snapshot"]) for entry in entries if entry.type == "scan.completed")
                found = Counter(
                    (str(entry.data["snapshot"]), str(entry.data["column"]))
                    for entry in entries
                    if entry.type == "detection.found"
                )
                snapshots = [str(snapshot.snapshot_id) for snapshot in table.snapshots()]
                lost += sum(scans[snapshot] == 0 for snapshot in snapshots)
                repeated += sum(count - 1 for count in scans.values())
                failed += sum(entry.type == "scan.failed" for entry in entries)
                findings_wrong += sum(
                    found[snapshot, column] != 1 for snapshot in snapshots for column in PERSONAL if scans[snapshot]
                )
            counts.update(lost=lost, repeated=repeated, failed=failed, findings_wrong=findings_wrong)
            return None if lost else counts

        with suppress(NotSeenError):  # then what is lost stands in the figures
            await wait_for(poll, "a scan of every snapshot", timeout_s=END_TIMEOUT_S, pause_s=0.5)
    return counts


async def read(connection: Connection, log_id: int) -> list[Entry]:
    """Return the entries of detection in a log."""
    query = (
        "SELECT entry FROM ledger.entries WHERE log_id = %s "
        "AND type IN ('scan.completed', 'scan.failed', 'detection.found') ORDER BY index"
    )
    rows = await (await connection.execute(query, (log_id,))).fetchall()
    return [parse_entry(bytes(row[0])) for row in rows]


def main() -> None:
    """Run the bench and print it."""
    parser = options("detect_kills", __doc__)
    parser.add_argument("--kills", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with directory_on_disk() as directory:
        found = asyncio.run(play(arguments.kills, directory, arguments.seed))
    publish(found, arguments.results)
    sys.exit(1 if found["lost"] or found["repeated"] or found["failed"] or found["findings_wrong"] else 0)


if __name__ == "__main__":
    main()
