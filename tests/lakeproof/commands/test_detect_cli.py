# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof detect …`, and the process that they keep running.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from gateway.errors import NotFoundError
from lakeproof import extras
from lakeproof.commands.detect import detect_app
from lakeproof.commands.opening import home_settings
from lakeproof.detecting import find_spark, request_scan
from lakeproof.provision import Provisioned
from ledger.format.entry import parse_entry
from ledger.store.read import read_entries, read_head
from projections.processing.runner import ProjectionRunner
from projections.relational.commits import CommitsProjection
from spark_detect.driver.process import LATE, reason_of
from spark_detect.driver.supervise import DetectionState, supervise
from spark_detect.errors import DetectionError, PackageMissingError
from spark_detect.job_folder import JobFolder
from spark_detect.status import read_status, status_metrics
from testkit.servers.gateways import start_services
from testkit.spark_detect.lakehouse import Lakehouse, append_file, make_people, open_lakehouse


@pytest_asyncio.fixture
async def lakehouse(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Lakehouse]:
    """A gateway on a port with one tenant, and what detection works with."""
    async with start_services(database, installation, tmp_path) as services, open_lakehouse(services) as lakehouse:
        yield lakehouse


async def status(lakehouse: Lakehouse) -> list[dict[str, object]]:
    app = detect_app(lambda: nullcontext(lakehouse.services.installation))
    ran = await asyncio.to_thread(CliRunner().invoke, app, ["status", "--json"])
    assert ran.exit_code == 0, ran.output
    rows: list[dict[str, object]] = json.loads(ran.stdout)
    return rows


@pytest.mark.parametrize("package", ["pyspark", "numba"])
def test_a_missing_package_is_named_before_anything_starts(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None if module == package else object())
    with pytest.raises(PackageMissingError, match=rf"needs the package {package}, .*: pip install 'lakeproof\["):
        find_spark(home_settings())


async def test_status_says_what_waits_and_what_was_done(lakehouse: Lakehouse) -> None:
    def act() -> None:
        table = make_people(lakehouse.connect(), count=50)
        append_file(table.refresh(), f"{table.location()}/data/lost.parquet")

    await asyncio.to_thread(act)
    (before,) = await status(lakehouse)
    assert before["state"] == "behind"
    assert (before["scans"], before["findings"]) == (0, 0)
    await lakehouse.detect()
    (after,) = await status(lakehouse)
    assert {name: after[name] for name in ("state", "waiting", "batch", "scans", "failed", "findings")} == {
        "state": "current",
        "waiting": 0,
        "batch": 1,
        "scans": 2,
        "failed": 1,
        "findings": 5,
    }
    installation = lakehouse.installation
    told = read_status(installation.as_role(installation.roles.auditor))
    values = {metric.name: metric.samples[0].value for metric in status_metrics(told)}
    assert values["lakeproof_detection_scans_failed_total"] == 1
    assert values["lakeproof_detection_waiting_entries"] == 0


async def test_a_scan_that_is_asked_for_is_done_again(lakehouse: Lakehouse) -> None:
    await lakehouse.play(lambda catalog: make_people(catalog, count=50))
    await lakehouse.detect()
    roles = lakehouse.installation.roles
    async with lakehouse.services.gateway.database.as_role(roles.auditor) as connection:
        size = (await read_head(connection, lakehouse.log_id)).size
        entries = await read_entries(connection, lakehouse.log_id, from_index=0, to_index=size)
    table = next(entry.key for entry in map(parse_entry, entries) if entry.type == "scan.completed")
    dsn, opener = lakehouse.installation.as_role(roles.projector), lakehouse.services.opener
    await ProjectionRunner(dsn, [CommitsProjection()], opener=opener).catch_up(lakehouse.log_id, size)
    installation = lakehouse.services.installation
    assert await request_scan(installation, lakehouse.tenant.hex, table, None) == size
    await lakehouse.detect()
    first, again = await lakehouse.completed()
    assert (again.findings, again.rows) == (first.findings, first.rows)
    with pytest.raises(NotFoundError, match="no entry names a table 'table:lake/crm/none'"):
        await request_scan(installation, lakehouse.tenant.hex, "table:lake/crm/none", None)
    with pytest.raises(DetectionError, match="expected the id of a snapshot"):
        await request_scan(installation, lakehouse.tenant.hex, table, "-1")


async def test_a_process_that_ends_is_started_again_after_growing_pauses(tmp_path: Path) -> None:
    said: list[str] = []
    stop, condition = asyncio.Event(), DetectionState()

    def say(line: str) -> None:
        said.append(line)
        if line.count("in 2 s"):
            stop.set()

    await supervise(
        JobFolder(tmp_path / "empty"), log=tmp_path / "log" / "detect.log", stop=stop, say=say, condition=condition
    )
    first, second = said
    assert re.fullmatch(
        r"detection has ended: .*driver\.json cannot be read .*; it is started again in 1 s, and .*", first
    )
    assert second == first.replace("in 1 s", "in 2 s")
    assert (condition.ended, condition.lines) == (2, 2)
    assert "driver.json cannot be read" in condition.reason
    assert "Traceback" in (tmp_path / "log" / "detect.log").read_text()


STORY = f"""{LATE}.
=== Streaming Query ===
Identifier: [id = 6e348ffb-d3f5-4097-9b75-78b82ee55ac2, runId = 705bdb78-ec8f-470d-a648-cc531ecc392a]
Current Committed Offsets: {{}}
Current Available Offsets: {{}}

Current State: INITIALIZING
Thread State: RUNNABLE"""
"""What Spark 4.1.4 raises if a Python process of its own was stopped while it started."""

CHAIN = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times
org.apache.spark.SparkException: Python worker exited unexpectedly
\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
Caused by: java.io.EOFException: the end of the stream"""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError(STORY), f"{LATE}."),
        (RuntimeError(CHAIN), "java.io.EOFException: the end of the stream"),
        (ConnectionResetError("reset"), "Spark's virtual machine has died"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_of_what_ends_detection_the_root_cause_is_told_in_one_line(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
