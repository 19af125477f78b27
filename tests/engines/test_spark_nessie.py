# SPDX-License-Identifier: Apache-2.0
"""
A real Spark over an alias that is a branch of a real Nessie, whose tables are in S3.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest
import pytest_asyncio

from lakeproof.services import Services
from testkit.engines.served_catalogs import ServedCatalog, serve_branch
from testkit.engines.spark_program import AWS, RUNTIME, start_spark
from testkit.engines.sql_engine import SqlEngine, StatementError
from testkit.servers.cloud import fresh_cloud
from testkit.servers.nessie import Nessie, start_nessie

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALIAS: Final = "etl"
BRANCH: Final = "team/etl"
KEYS_OF_STORAGE: Final = {f"spark.sql.catalog.{ALIAS}.header.X-Iceberg-Access-Delegation": "vended-credentials"}
MERGE: Final = (
    "MERGE INTO etl.sales.orders t USING (SELECT * FROM VALUES (2, 'new'), (4, 'new') AS s(id, v)) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
)


@pytest.fixture(scope="module")
def nessie(moto: str) -> Iterator[Nessie]:
    """A real server with a branch."""
    with start_nessie(fresh_cloud(moto)) as server:
        server.make_branch(BRANCH)
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def branch(module_services: Services, nessie: Nessie) -> AsyncIterator[ServedCatalog]:
    """The branch, behind an alias."""
    async with serve_branch(module_services, nessie, alias=ALIAS, branch=BRANCH) as served:
        yield served


@pytest.fixture(scope="module")
def spark(branch: ServedCatalog) -> Iterator[SqlEngine]:
    """Spark as the page says, which asks for keys of the storage."""
    settings = dict(line.split() for line in branch.configuration("Spark", "properties").splitlines())
    with start_spark({**settings, **KEYS_OF_STORAGE}, (RUNTIME, AWS)) as engine:
        yield engine


async def test_a_table_is_created_changed_merged_and_read_on_its_branch(
    spark: SqlEngine, branch: ServedCatalog, nessie: Nessie
) -> None:
    for statement in (
        "CREATE NAMESPACE etl.sales",
        "CREATE TABLE etl.sales.orders (id BIGINT, v STRING) USING iceberg PARTITIONED BY (bucket(2, id))",
        "INSERT INTO etl.sales.orders VALUES (1, 'old'), (2, 'old'), (3, 'old')",
        MERGE,
        "ALTER TABLE etl.sales.orders ADD COLUMN more INT",
        "DELETE FROM etl.sales.orders WHERE id = 1",
    ):
        await spark.run(statement)
    rows = await spark.run("SELECT id, v, more FROM etl.sales.orders ORDER BY id")
    assert rows == [[2, "new", None], [3, "old", None], [4, "new", None]]
    with pytest.raises(StatementError, match="make a branch or a tag in Nessie"):
        await spark.run("ALTER TABLE etl.sales.orders CREATE BRANCH audit")
    told = await branch.words("table:etl/sales/orders")
    assert told == ["approved", "accepted"] * 5
    # Each is one commit of the branch, and names the decision that it is the result of; main has none of them.
    commits = await asyncio.to_thread(nessie.history, "sales.orders", branch=BRANCH)
    named = [decision for commit in commits for decision in commit["commitMeta"]["allProperties"]["lakeproof-decision"]]
    assert named[::-1] == await branch.decisions("table:etl/sales/orders")
    assert await asyncio.to_thread(nessie.history, "sales.orders") == []
    await branch.check()
