# SPDX-License-Identifier: Apache-2.0
"""
A real DuckDB with its iceberg extension: one session runs the same statements over both catalogs.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import pytest_asyncio

from testkit.engines.served_catalogs import ALIASES, ServedCatalog
from testkit.engines.sql_engine import Rows, SqlEngine, StatementError

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.parametrize("alias", ALIASES)]


class Session:
    """DuckDB with one catalog in view: `{c}` in a statement is its alias."""

    def __init__(self, duckdb: SqlEngine, catalog: ServedCatalog) -> None:
        self._duckdb = duckdb
        self.catalog = catalog

    async def __call__(self, statement: str, **names: object) -> Rows:
        """Return the rows of a statement."""
        return await self._duckdb.run(statement.format(c=self.catalog.alias, **names))

    async def race(self, *sessions: list[str]) -> list[list[Rows | StatementError]]:
        """Run statements over connections of their own, all at once."""
        return await self._duckdb.race(*([each.format(c=self.catalog.alias) for each in one] for one in sessions))


@pytest_asyncio.fixture(loop_scope="module")
async def sql(duckdb: SqlEngine, catalogs: Mapping[str, ServedCatalog], alias: str) -> Session:
    """A session with the catalog `alias`, attached as the page says."""
    if [alias] not in await duckdb.run("SELECT database_name FROM duckdb_databases()"):
        await duckdb.run(
            catalogs[alias].configuration("DuckDB", "sql").replace("SECRET lakeproof", f"SECRET of_{alias}")
        )
        await duckdb.run(f"CREATE SCHEMA {alias}.sales")
    return Session(duckdb, catalogs[alias])


async def test_rows_are_inserted_updated_merged_and_deleted(sql: Session) -> None:
    await sql("CREATE TABLE {c}.sales.orders (id BIGINT, name VARCHAR)")
    await sql("INSERT INTO {c}.sales.orders SELECT range, 'old' FROM range(4)")
    await sql("UPDATE {c}.sales.orders SET name = 'up' WHERE id = 1")
    await sql("DELETE FROM {c}.sales.orders WHERE id = 0")
    await sql(
        "MERGE INTO {c}.sales.orders USING (SELECT 9 AS id, 'new' AS name) s ON orders.id = s.id"
        " WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.name)"
    )
    rows = await sql("SELECT * FROM {c}.sales.orders ORDER BY id")
    assert rows == [[1, "up"], [2, "old"], [3, "old"], [9, "new"]]
    ((first,), *_) = await sql("SELECT snapshot_id FROM iceberg_snapshots({c}.sales.orders) ORDER BY sequence_number")
    assert await sql("SELECT count(*) FROM {c}.sales.orders AT (VERSION => {first})", first=first) == [[4]]
    assert len(await sql("SELECT * FROM iceberg_metadata({c}.sales.orders)")) >= 2


async def test_tables_are_created_altered_renamed_and_dropped(sql: Session) -> None:
    await sql("CREATE TABLE {c}.sales.made AS SELECT range AS id, 'x' AS name FROM range(3)")
    await sql("ALTER TABLE {c}.sales.made ADD COLUMN more INTEGER")
    await sql("ALTER TABLE {c}.sales.made RENAME COLUMN name TO person")
    await sql("ALTER TABLE {c}.sales.made DROP COLUMN more")
    assert [row[:2] for row in await sql("DESCRIBE {c}.sales.made")] == [["id", "BIGINT"], ["person", "VARCHAR"]]
    await sql("CREATE TABLE {c}.sales.sharded (id BIGINT) PARTITIONED BY (bucket(4, id))")
    await sql("INSERT INTO {c}.sales.sharded VALUES (1), (2)")
    assert await sql("SELECT * FROM {c}.sales.sharded ORDER BY id") == [[1], [2]]
    await sql("ALTER TABLE {c}.sales.made RENAME TO renamed")
    assert await sql("SELECT count(*) FROM {c}.sales.renamed") == [[3]]
    for table in ("renamed", "sharded"):
        await sql("DROP TABLE {c}.sales.{table}", table=table)
    with pytest.raises(StatementError, match="Table with name made does not exist"):
        await sql("SELECT * FROM {c}.sales.made")


async def test_a_transaction_changes_two_tables_at_once_or_neither(sql: Session) -> None:
    keys = [f"table:{sql.catalog.alias}/sales/{table}" for table in ("debits", "credits")]
    for table in ("debits", "credits"):
        await sql("CREATE TABLE {c}.sales.{table} (id BIGINT)", table=table)
    before = [await sql.catalog.words(key) for key in keys]
    for end, rows in (("ROLLBACK", 0), ("COMMIT", 1)):
        await sql("BEGIN")
        for table in ("debits", "credits"):
            await sql("INSERT INTO {c}.sales.{table} VALUES (1)", table=table)
        await sql(end)
        for table in ("debits", "credits"):
            assert await sql("SELECT count(*) FROM {c}.sales.{table}", table=table) == [[rows]]
    assert [await sql.catalog.words(key) for key in keys] == [[*told, "approved", "accepted"] for told in before]


async def test_two_connections_write_one_table_at_the_same_time_and_no_row_that_was_confirmed_is_lost(
    sql: Session,
) -> None:
    """DuckDB does not retry a commit that conflicts: it tells its user."""
    key = f"table:{sql.catalog.alias}/sales/raced"
    await sql("CREATE TABLE {c}.sales.raced (id BIGINT)")
    before = (await sql.catalog.words(key)).count("accepted")
    insert = "INSERT INTO {{c}}.sales.raced VALUES ({})"
    written = [[insert.format(first + n) for n in range(4)] for first in (0, 100)]
    answers = await sql.race(*written)
    confirmed = {
        first + n
        for first, session in zip((0, 100), answers, strict=True)
        for n, answer in enumerate(session)
        if not isinstance(answer, StatementError)
    }
    assert {row[0] for row in await sql("SELECT id FROM {c}.sales.raced")} == confirmed
    assert len(confirmed) >= 4, "one of the two always gets on"
    assert (await sql.catalog.words(key)).count("accepted") == before + len(confirmed)


async def test_what_a_policy_refuses_reaches_the_user_with_its_reason(sql: Session) -> None:
    await sql("CREATE TABLE {c}.sales.guarded (id BIGINT, shop VARCHAR)")
    expression = "commit.name != 'guarded' || result.columns.exists(c, c.name == 'shop')"
    await sql.catalog.refuse("shops", expression, "guarded tables belong to a shop")
    with pytest.raises(StatementError, match=r"guarded tables belong to a shop \(policy shops, version 1\)"):
        await sql("ALTER TABLE {c}.sales.guarded DROP COLUMN shop")
    await sql("INSERT INTO {c}.sales.guarded VALUES (1, 'a')")
    assert await sql("SELECT * FROM {c}.sales.guarded") == [[1, "a"]]


async def test_a_view_cannot_be_made_because_duckdb_does_not_implement_it(sql: Session) -> None:
    with pytest.raises(StatementError, match="Not implemented Error: Create View"):
        await sql("CREATE VIEW {c}.sales.report AS SELECT 1 AS one")


async def test_log_and_state_agree_after_all_of_this(catalogs: Mapping[str, ServedCatalog], alias: str) -> None:
    await catalogs[alias].check()
