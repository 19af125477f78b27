# SPDX-License-Identifier: Apache-2.0
"""
The whole way through Spark: commits become findings, whatever is killed in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from pyiceberg.catalog.rest import RestCatalog

from lakeproof.demo.personal_data import PERSONAL
from testkit.spark_detect.fixtures import lakehouse
from testkit.spark_detect.lakehouse import Lakehouse, append_file, make_people, open_lakehouse, some_people
from testkit.spark_detect.sparks import detecting, until

PEOPLE = ("crm", "people")

__all__ = ["lakehouse"]


@pytest.fixture
def scans(lakehouse: Lakehouse) -> Iterator[Callable[[Lakehouse], int]]:
    """Tells how many scans are in a tenant's log."""
    query = "SELECT count(*) FROM ledger.entries WHERE log_id = %s AND type IN ('scan.completed', 'scan.failed')"
    with psycopg.connect(lakehouse.services.installation.admin_dsn, autocommit=True) as connection:

        def count(lakehouse: Lakehouse) -> int:
            row = connection.execute(query, (lakehouse.log_id,)).fetchone()
            return 0 if row is None else int(row[0])

        yield count


async def test_commits_of_all_tenants_become_findings_and_kills_lose_and_repeat_nothing(
    lakehouse: Lakehouse, scans: Callable[[Lakehouse], int], tmp_path: Path
) -> None:
    async with open_lakehouse(lakehouse.services, name="other") as other, detecting(lakehouse, tmp_path) as sparks:
        await lakehouse.play(lambda catalog: make_people(catalog, count=200))
        await until(lambda: scans(lakehouse) == 1, sparks)
        strong = {event.column: event.kind for event in await lakehouse.found() if event.confidence_percent == 92}
        assert strong == PERSONAL

        def act(catalog: RestCatalog) -> None:
            table = catalog.load_table(PEOPLE)
            append_file(table, f"{table.location()}/data/lost.parquet")

        # A worker dies, and with it the tasks that it had: Spark tries them again.
        assert sparks.kill("-m spark_detect.driver.daemon") >= 1
        await lakehouse.play(act)
        await other.play(lambda catalog: make_people(catalog, count=30))
        await until(lambda: (scans(lakehouse), scans(other)) == (2, 1), sparks)
        # The driver dies with everything it has started; its checkpoint is what the next one finds.
        assert sparks.kill("-m spark_detect.driver.process") >= 1
        assert sparks.job.checkpoint.is_dir()
        await lakehouse.play(lambda catalog: catalog.load_table(PEOPLE).append(some_people(300, 40)))
        await until(lambda: scans(lakehouse) == 3, sparks)
        # Spark's own virtual machine dies; the driver deletes the checkpoint as it ends, and the next one begins anew.
        assert sparks.kill("bin/java") >= 1
        await lakehouse.play(lambda catalog: catalog.load_table(PEOPLE).append(some_people(400, 50)))
        await until(lambda: scans(lakehouse) == 4, sparks)
    assert [event.rows for event in await lakehouse.completed()] == [200, 40, 50]
    assert len(await lakehouse.failed()) == 1
    assert [event.rows for event in await other.completed()] == [30]
    found = Counter((event.snapshot, event.column, event.kind) for event in await lakehouse.found())
    assert set(found.values()) == {1}
    restarts = [line for line in sparks.said if "is started again" in line]
    assert len(restarts) >= 2, sparks.said
    assert sparks.said[-1].startswith("detection recorded")
    assert not any("Traceback" in line or "\tat " in line for line in sparks.said)
    # What a killed virtual machine had started notices it in its own time; it must not stay.
    await until(lambda: not sparks.pids(""), sparks)
