# SPDX-License-Identifier: Apache-2.0
"""
A real Trino server: one session runs the same statements over the built-in catalog and over a foreign one.

What Trino says itself that it cannot do over a REST catalog is in `UNSUPPORTED`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Final

import pytest
import pytest_asyncio

from testkit.engines.served_catalogs import ALIASES, LAKE, ServedCatalog
from testkit.engines.sql_engine import Rows, SqlEngine, StatementError
from testkit.engines.trino_program import start_trino_engine

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.parametrize("alias", ALIASES)]

STORAGE: Final = "fs.native-local.enabled=true\nlocal.location=/\n"
"""Where the files are is between Trino and its operator: here on this machine."""
UNSUPPORTED: Final = {
    "CREATE MATERIALIZED VIEW {c}.{n}.counted AS SELECT 1 AS one": "createMaterializedView is not supported",
    "ALTER SCHEMA {c}.{n} RENAME TO other": "renameNamespace is not supported",
    "CREATE BRANCH b IN TABLE {c}.{n}.orders": "does not support creating branches",
}

_numbers = count()


class Session:
    """Trino with one catalog in view: `{c}` in a statement is its alias, `{n}` the schema of the test."""

    def __init__(self, trino: SqlEngine, catalog: ServedCatalog, schema: str) -> None:
        self._trino = trino
        self.catalog = catalog
        self.schema = schema

    def written(self, statement: str, **names: object) -> str:
        """Return a statement with the names in their places."""
        return statement.format(c=self.catalog.alias, n=self.schema, **names)

    async def __call__(self, statement: str, **names: object) -> Rows:
        """Return the rows of a statement."""
        return await self._trino.run(self.written(statement, **names))

    async def race(self, *sessions: list[str]) -> list[list[Rows | StatementError]]:
        """Run statements over connections of their own, all at once."""
        return await self._trino.race(*([self.written(each) for each in one] for one in sessions))

    def key(self, name: str, kind: str = "table") -> str:
        """Return the key in the log of a table or view of the test."""
        return f"{kind}:{self.catalog.alias}/{self.schema}/{name}"


@pytest.fixture(scope="module")
def trino(catalogs: Mapping[str, ServedCatalog]) -> Iterator[SqlEngine]:
    """One Trino with both catalogs, configured as the page says."""
    properties = {alias: catalog.configuration("Trino", "ini") + STORAGE for alias, catalog in catalogs.items()}
    with start_trino_engine(properties) as engine:
        yield engine


@pytest_asyncio.fixture(loop_scope="module")
async def sql(trino: SqlEngine, catalogs: Mapping[str, ServedCatalog], alias: str) -> Session:
    """A session over the catalog `alias`, with a schema of the test's own."""
    session = Session(trino, catalogs[alias], f"test_{next(_numbers)}")
    await session("CREATE SCHEMA {c}.{n}")
    return session


async def test_rows_are_inserted_updated_merged_and_deleted(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.orders (id BIGINT, name VARCHAR)")
    await sql("INSERT INTO {c}.{n}.orders VALUES (0, 'old'), (1, 'old'), (2, 'old')")
    await sql("UPDATE {c}.{n}.orders SET name = 'up' WHERE id = 1")
    await sql("DELETE FROM {c}.{n}.orders WHERE id = 0")
    await sql(
        "MERGE INTO {c}.{n}.orders o USING (VALUES (2, 'merged'), (9, 'new')) s (id, name) ON o.id = s.id"
        " WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.name)"
    )
    rows = await sql("SELECT * FROM {c}.{n}.orders ORDER BY id")
    assert rows == [[1, "up"], [2, "merged"], [9, "new"]]
    # Trino makes a table with a first snapshot, which is empty.
    _, (first,), *_ = await sql('SELECT snapshot_id FROM {c}.{n}."orders$snapshots" ORDER BY committed_at')
    assert await sql("SELECT count(*) FROM {c}.{n}.orders FOR VERSION AS OF {first}", first=first) == [[3]]
    await sql("ALTER TABLE {c}.{n}.orders EXECUTE optimize")
    await sql("ALTER TABLE {c}.{n}.orders EXECUTE expire_snapshots(retention_threshold => '7d')")
    await sql("ANALYZE {c}.{n}.orders")
    assert await sql("SELECT * FROM {c}.{n}.orders ORDER BY id") == rows
    words = await sql.catalog.words(sql.key("orders"))
    assert words == ["approved", "accepted"] * (len(words) // 2)


async def test_tables_are_created_altered_renamed_and_dropped(sql: Session) -> None:
    await sql(
        "CREATE TABLE {c}.{n}.made WITH (partitioning = ARRAY['bucket(id, 4)'], sorted_by = ARRAY['id'])"
        " AS SELECT * FROM (VALUES (BIGINT '1', 'x'), (BIGINT '2', 'y')) AS t (id, name)"
    )
    await sql("ALTER TABLE {c}.{n}.made ADD COLUMN more INTEGER")
    await sql("ALTER TABLE {c}.{n}.made RENAME COLUMN name TO person")
    await sql("ALTER TABLE {c}.{n}.made DROP COLUMN more")
    await sql("COMMENT ON TABLE {c}.{n}.made IS 'of people'")
    await sql("ALTER TABLE {c}.{n}.made SET PROPERTIES partitioning = ARRAY['bucket(id, 8)']")
    ((told,),) = await sql("SHOW CREATE TABLE {c}.{n}.made")
    assert "COMMENT 'of people'" in told
    assert "bucket(id, 8)" in told
    await sql("ALTER TABLE {c}.{n}.made RENAME TO {c}.{n}.renamed")
    assert await sql("SELECT id, person FROM {c}.{n}.renamed ORDER BY id") == [[1, "x"], [2, "y"]]
    await sql("CREATE OR REPLACE TABLE {c}.{n}.renamed AS SELECT 7 AS one")
    assert await sql("SELECT * FROM {c}.{n}.renamed") == [[7]]
    assert await sql("SHOW TABLES FROM {c}.{n}") == [["renamed"]]
    with pytest.raises(StatementError, match="does not exist"):
        await sql("SELECT * FROM {c}.{n}.made")
    await sql("DROP TABLE {c}.{n}.renamed")
    assert await sql("SHOW TABLES FROM {c}.{n}") == []
    await sql("DROP SCHEMA {c}.{n}")
    assert [sql.schema] not in await sql("SHOW SCHEMAS FROM {c}")


async def test_a_drop_always_asks_for_a_purge(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.gone AS SELECT 1 AS one")
    await sql("DROP TABLE {c}.{n}.gone")
    assert (await sql.catalog.words(sql.key("gone")))[-2:] == ["approved", "accepted"]
    purges = [key for key in await sql.catalog.purges() if key == sql.key("gone")]
    assert purges == ([sql.key("gone")] if sql.catalog.alias == LAKE else []), "the upstream purges what is its own"


async def test_views_are_made_replaced_renamed_and_dropped(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.orders AS SELECT 1 AS id, 'a' AS name")
    await sql("CREATE VIEW {c}.{n}.report AS SELECT id FROM {c}.{n}.orders")
    assert await sql("SELECT * FROM {c}.{n}.report") == [[1]]
    await sql("CREATE OR REPLACE VIEW {c}.{n}.report AS SELECT id, name FROM {c}.{n}.orders")
    await sql("ALTER VIEW {c}.{n}.report RENAME TO {c}.{n}.summary")
    assert await sql("SELECT * FROM {c}.{n}.summary") == [[1, "a"]]
    await sql("DROP VIEW {c}.{n}.summary")
    assert (await sql.catalog.words(sql.key("summary", "view")))[-2:] == ["approved", "accepted"]
    assert await sql("SHOW TABLES FROM {c}.{n}") == [["orders"]]


async def test_two_sessions_write_one_table_at_the_same_time_and_no_row_that_was_confirmed_is_lost(
    sql: Session,
) -> None:
    await sql("CREATE TABLE {c}.{n}.raced (id BIGINT)")
    insert = "INSERT INTO {{c}}.{{n}}.raced VALUES ({})"
    answers = await sql.race(*([insert.format(first + n) for n in range(3)] for first in (0, 100)))
    confirmed = {
        first + n
        for first, session in zip((0, 100), answers, strict=True)
        for n, answer in enumerate(session)
        if not isinstance(answer, StatementError)
    }
    assert {row[0] for row in await sql("SELECT id FROM {c}.{n}.raced")} == confirmed
    assert len(confirmed) >= 3, "one of the two always gets on"


async def test_what_a_policy_refuses_reaches_the_user_with_its_reason(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.guarded (id BIGINT, shop VARCHAR)")
    expression = "commit.name != 'guarded' || result.columns.exists(c, c.name == 'shop')"
    await sql.catalog.refuse("shops", expression, "guarded tables belong to a shop")
    with pytest.raises(StatementError, match=r"guarded tables belong to a shop \(policy shops, version 1\)"):
        await sql("ALTER TABLE {c}.{n}.guarded DROP COLUMN shop")
    await sql("INSERT INTO {c}.{n}.guarded VALUES (1, 'a')")
    assert await sql("SELECT * FROM {c}.{n}.guarded") == [[1, "a"]]


@pytest.mark.parametrize(("statement", "reason"), UNSUPPORTED.items(), ids=UNSUPPORTED)
async def test_what_trino_cannot_do_over_a_rest_catalog_it_says_itself(
    sql: Session, statement: str, reason: str
) -> None:
    await sql("CREATE TABLE {c}.{n}.orders (id BIGINT)")
    with pytest.raises(StatementError, match=reason):
        await sql(statement)


async def test_log_and_state_agree_after_all_of_this(catalogs: Mapping[str, ServedCatalog], alias: str) -> None:
    await catalogs[alias].check()
