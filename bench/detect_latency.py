# SPDX-License-Identifier: Apache-2.0
"""
How long it takes from a commit to its findings through Spark Structured Streaming, compared with a bare scan of its
file.

Claim: 10,000 rows of 10 columns are committed, found by the stream, scanned, and their findings durable in the log with
p50 at most 200 ms and p95 at most 400 ms on two cores.

A client (PyIceberg over HTTP) appends to a table behind a real gateway, one commit at a time. Detection is the process
that `lakeproof up` starts. The clock is the database's: from `recorded_at` of the settled commit to that of the
finding. The baseline scans the same file in this process with the same code, warm, without stream, plan or log: the
least that a scan can cost. The bench also measures the pause until a reader of the log sees the finding.

Run: `python bench/detect_latency.py`. The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pyspark
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from bench.latencies import latencies
from bench.measuring import circumstances, options, publish
from bench.servers import directory_on_disk
from bench.waiting import wait_for
from lakeproof.demo.personal_data import PERSON_SCHEMA, person_rows
from lakeproof.detecting import open_job_folder
from lakeproof.installation import open_installation
from lakeproof.services import open_services
from lakeproof.serving.in_process import serving
from lakeproof.settings import load_settings
from lakeproof.tenants import found_tenant
from ledger.format.entry import Entry, parse_entry
from ledger.store.read import Log
from ledger.store.session import Connection
from projections.relational.catalogs import BUILTIN, CatalogRow
from spark_detect.classify.columns import warm_up
from spark_detect.driver.supervise import supervise
from spark_detect.files.parquet_scan import run_task
from spark_detect.job_folder import Lake
from spark_detect.tasks import FileSlice, Range, Scan, ScannedColumn, Task
from testkit.environment import PROJECT

ROWS = 10_000
WARM_UP = 5
FIRST_TIMEOUT_S = 120.0
FIND_TIMEOUT_S = 30.0


async def measure(commits: int, directory: Path) -> dict[str, Any]:
    """Commit, wait for the finding, again; return the figures."""
    settings = load_settings(
        {
            "LAKEPROOF_HOME": str(directory / "home"),
            "LAKEPROOF_PORT": "0",
            "LAKEPROOF_DETECT": "0",
            "LAKEPROOF_STREAMS": "0",
        },
        directory=PROJECT,
    )
    with open_installation(settings, print) as installation, open_job_folder(installation) as job:
        async with open_services(installation) as services, serving(services) as served:
            roles = installation.roles
            stop = asyncio.Event()
            detection = asyncio.create_task(supervise(job, log=directory / "detect.log", stop=stop, say=print))
            try:
                tenant = await found_tenant(services, name="bench", identity="bench@example.com", alias="lake")
                auditor = installation.as_role(roles.auditor)
                table = await asyncio.to_thread(_make_table, served.url, tenant.key.secret)
                took: list[float] = []
                seen: list[float] = []
                async with await psycopg.AsyncConnection.connect(auditor, autocommit=True) as connection:
                    for number in range(WARM_UP + commits):
                        data = person_rows(number * ROWS, ROWS)
                        before = await _size(connection, tenant.log_id)
                        await asyncio.to_thread(table.append, data)
                        timeout_s = FIRST_TIMEOUT_S if number == 0 else FIND_TIMEOUT_S
                        settled, found, pause_ms = await _found(connection, tenant.log_id, before, timeout_s)
                        if number >= WARM_UP:
                            took.append(1_000 * (found.recorded_at - settled.recorded_at).total_seconds())
                            seen.append(pause_ms)
                file = await asyncio.to_thread(lambda: next(iter(table.refresh().scan().plan_files())).file.file_path)
                bare = _bare(job.lake(), tenant.tenant, tenant.origin, file)
            finally:
                stop.set()
                await detection
    return {
        "bench": "detect_latency",
        "rows": ROWS,
        "columns": len(PERSON_SCHEMA.names),
        "commits": commits,
        "commit_to_finding": latencies(took),
        "commit_to_finding_seen_by_a_reader": latencies(seen),
        "bare_scan_in_process": latencies(bare),
        "ratio_p50": round(statistics.median(took) / statistics.median(bare), 2),
        "goal_ms": {"p50": 200, "p95": 400},
        "spark": pyspark.__version__,
        **circumstances(),
    }


def _make_table(url: str, key: str) -> Table:
    catalog = RestCatalog("bench", uri=url, warehouse="lake", token=key)
    catalog.create_namespace(("crm",))
    table: Table = catalog.create_table(("crm", "people"), schema=PERSON_SCHEMA)
    return table


async def _size(connection: Connection, log_id: int) -> int:
    row = await (await connection.execute("SELECT size FROM ledger.heads WHERE log_id = %s", (log_id,))).fetchone()
    assert row is not None
    return int(row[0])


async def _found(connection: Connection, log_id: int, before: int, timeout_s: float) -> tuple[Entry, Entry, float]:
    """Return the commit's settled entry and its first finding's, and how many milliseconds after it that was seen."""
    query = "SELECT entry FROM ledger.entries WHERE log_id = %s AND index >= %s AND type = ANY(%s) ORDER BY index"

    async def poll() -> tuple[Entry, Entry, float] | None:
        rows = await (
            await connection.execute(query, (log_id, before, ["commit.settled", "detection.found"]))
        ).fetchall()
        entries = [parse_entry(bytes(row[0])) for row in rows]
        found = [entry for entry in entries if entry.type == "detection.found"]
        if not found:
            return None
        settled = next(entry for entry in entries if entry.type == "commit.settled")
        return settled, found[0], 1_000 * (datetime.now(UTC) - settled.recorded_at).total_seconds()

    return await wait_for(poll, "a finding", timeout_s=timeout_s, pause_s=0.002)


def _bare(lake: Lake, tenant: UUID, origin: str, file: str) -> list[float]:
    """Return how long a scan of one of the files takes here, in milliseconds."""
    warm_up()
    columns = tuple(
        ScannedColumn(field_id=number, path=name) for number, name in enumerate(PERSON_SCHEMA.names, start=1)
    )
    scan = Scan(
        range=Range(log_id=0, from_index=0, to_index=1),
        key="table:lake/crm/people",
        identifier=None,
        metadata_location="",
        table_uuid="",
        snapshot="",
        ruleset="",
        request=None,
        gaps=(),
        files=1,
        rows=ROWS,
        is_sampled=False,
        columns_cut=0,
        cut=(),
        columns=columns,
        tasks=1,
    )
    log = Log(log_id=0, origin=origin, tenant=tenant, reader=None)
    task = Task(
        scan=scan,
        catalog=CatalogRow(log=log, alias="lake", kind=BUILTIN, options={}),
        slices=(FileSlice(location=file, row_groups=None),),
        columns=columns,
    )
    took = []
    for _ in range(WARM_UP + 20):
        began = time.perf_counter()
        result = run_task(task, lake)
        took.append(1_000 * (time.perf_counter() - began))
        assert result.rows == ROWS, result
    return took[WARM_UP:]


def main() -> None:
    """Run the bench and print it."""
    parser = options("detect_latency", __doc__)
    parser.add_argument("--commits", type=int, default=60)
    arguments = parser.parse_args()
    with directory_on_disk() as directory:
        found = asyncio.run(measure(arguments.commits, directory))
    publish(found, arguments.results)


if __name__ == "__main__":
    main()
