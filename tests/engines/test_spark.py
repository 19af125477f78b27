# SPDX-License-Identifier: Apache-2.0
"""
A real Spark: one session runs the same statements over the built-in catalog and over a foreign one.

What cannot work is in `REFUSED`, with what the user is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Final

import pytest
import pytest_asyncio

from testkit.engines.served_catalogs import ALIASES, FAR, LAKE, ServedCatalog
from testkit.engines.sql_engine import Rows, SqlEngine, StatementError
from testkit.gateway.log_contents import path_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.parametrize("alias", ALIASES)]

REFUSED: Final = {
    (LAKE, "CALL {c}.system.register_table(table => '{n}.twice', metadata_file => '{file}')"): (
        "expected places of its own, found one that overlaps another table's",
        "two tables with one location would delete each other's files",
    ),
    (FAR, "CALL {c}.system.register_table(table => '{n}.twice', metadata_file => '{file}')"): (
        "Server does not support endpoint: POST /v1/{prefix}/namespaces/{namespace}/register",
        "the upstream's own configuration does not name it, so Spark does not ask",
    ),
    (LAKE, "CREATE TABLE {c}.{n}.elsewhere (id BIGINT) USING iceberg LOCATION 'file:///elsewhere'"): (
        "expected a plain location below",
        "tables of the built-in catalog lie in its warehouse",
    ),
    (LAKE, "CREATE TABLE {c}.{n}.KEPT (id BIGINT) USING iceberg"): (
        "expected a name unlike its siblings",
        "two names that differ in case alone would be one table to some engines",
    ),
    (LAKE, "DROP NAMESPACE {c}.{n}"): ("NamespaceNotEmptyException", "there are tables in it"),
    (FAR, "DROP NAMESPACE {c}.{n}"): ("NamespaceNotEmptyException", "there are tables in it"),
}
"""By alias and statement: what the user is told, and why it is so."""


_numbers = count()


class Session:
    """Spark with one catalog in view: `{c}` in a statement is its alias, `{n}` the namespace of the test."""

    def __init__(self, spark: SqlEngine, catalog: ServedCatalog, namespace: str) -> None:
        self._spark = spark
        self.catalog = catalog
        self.namespace = namespace

    def written(self, statement: str, **names: object) -> str:
        """Return a statement with the names in their places."""
        return statement.format(c=self.catalog.alias, n=self.namespace, **names)

    async def __call__(self, statement: str, **names: object) -> Rows:
        """Return the rows of a statement."""
        return await self._spark.run(self.written(statement, **names))

    async def ids(self, table: str) -> list[int]:
        """Return the column `id` of a table, in order."""
        return [row[0] for row in await self("SELECT id FROM {c}.{n}.{table} ORDER BY id", table=table)]

    async def race(self, *sessions: list[str]) -> list[list[Rows | StatementError]]:
        """Run statements in sessions of their own, all at once."""
        return await self._spark.race(*([self.written(statement) for statement in each] for each in sessions))


@pytest_asyncio.fixture(loop_scope="module")
async def sql(spark: SqlEngine, catalogs: Mapping[str, ServedCatalog], alias: str) -> Session:
    """A session over the catalog `alias`, with a namespace of the test's own."""
    session = Session(spark, catalogs[alias], f"test_{next(_numbers)}")
    await session("CREATE NAMESPACE {c}.{n}")
    return session


async def test_namespaces_have_properties(sql: Session) -> None:
    await sql("CREATE NAMESPACE {c}.{n}.eu COMMENT 'of Europe' WITH PROPERTIES (tier = 'gold')")
    await sql("ALTER NAMESPACE {c}.{n}.eu SET PROPERTIES (team = 'ada')")
    told = dict(await sql("DESCRIBE NAMESPACE EXTENDED {c}.{n}.eu"))
    assert told["Comment"] == "of Europe"
    assert "(team,ada), (tier,gold)" in told["Properties"]
    assert await sql("SHOW NAMESPACES IN {c}.{n}") == [[sql.written("{n}.eu")]]
    await sql("DROP NAMESPACE {c}.{n}.eu")
    assert await sql("SHOW NAMESPACES IN {c}.{n}") == []


async def test_a_table_is_created_altered_and_described(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.orders (id BIGINT NOT NULL, shop STRING, at TIMESTAMP) USING iceberg")
    for change in (
        "ADD COLUMNS (price DECIMAL(10, 2) AFTER shop, note STRING)",
        "RENAME COLUMN shop TO store",
        "ALTER COLUMN id COMMENT 'its number'",
        "ALTER COLUMN price TYPE DECIMAL(12, 2)",
        "DROP COLUMN note",
        "SET TBLPROPERTIES ('owned-by' = 'ada', 'gone' = 'soon')",
        "UNSET TBLPROPERTIES ('gone')",
        "ADD PARTITION FIELD days(at)",
        "REPLACE PARTITION FIELD days(at) WITH months(at) AS month",
        "ADD PARTITION FIELD bucket(4, id)",
        "DROP PARTITION FIELD month",
        "WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY id DESC",
        "SET IDENTIFIER FIELDS id",
    ):
        await sql(f"ALTER TABLE {{c}}.{{n}}.orders {change}")
    assert (await sql("DESCRIBE TABLE {c}.{n}.orders"))[:4] == [
        ["id", "bigint", "its number"],
        ["store", "string", None],
        ["price", "decimal(12,2)", None],
        ["at", "timestamp", None],
    ]
    ((told,),) = await sql("SHOW CREATE TABLE {c}.{n}.orders")
    assert "PARTITIONED BY (bucket(4, id))" in told
    properties = dict(await sql("SHOW TBLPROPERTIES {c}.{n}.orders"))
    assert {"owned-by": "ada", "sort-order": "id DESC NULLS LAST", "identifier-fields": "[id]"}.items() <= (
        properties.items()
    )
    assert "gone" not in properties
    assert await sql("SHOW TABLES IN {c}.{n}") == [[sql.namespace, "orders", False]]
    assert await sql("SHOW COLUMNS IN {c}.{n}.orders") == [["id"], ["store"], ["price"], ["at"]]
    told_by_log = await sql.catalog.words(f"table:{sql.catalog.alias}/{sql.namespace}/orders")
    assert told_by_log == ["approved", "accepted"] * (len(told_by_log) // 2)


async def test_a_query_makes_a_table_and_replaces_it(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.made USING iceberg AS SELECT id FROM range(3)")
    assert await sql.ids("made") == [0, 1, 2]
    await sql("REPLACE TABLE {c}.{n}.made USING iceberg AS SELECT id + 10 AS id FROM {c}.{n}.made")
    assert await sql.ids("made") == [10, 11, 12]
    query = "PARTITIONED BY (id) AS SELECT id + 10 AS id, 'x' AS more FROM {c}.{n}.made WHERE id > 10"
    await sql("CREATE OR REPLACE TABLE {c}.{n}.made USING iceberg " + query)
    assert await sql.ids("made") == [21, 22]
    await sql("INSERT OVERWRITE {c}.{n}.made VALUES (1, 'y')")
    assert await sql.ids("made") == [1]
    assert len(await sql("SELECT * FROM {c}.{n}.made.snapshots")) == 4
    await sql("CREATE OR REPLACE TABLE {c}.{n}.files USING iceberg AS SELECT 7 AS id")
    assert await sql.ids("files") == [7], "a table may be named as a metadata table is"


@pytest.mark.parametrize(
    ("mode", "files"), [("copy-on-write", [[0, 4]]), ("merge-on-read", [[0, 3], [1, 3]])], ids=["copy", "merge"]
)
async def test_rows_are_merged_updated_and_deleted_in_both_modes(sql: Session, mode: str, files: Rows) -> None:
    modes = ", ".join(f"'write.{kind}.mode' = '{mode}'" for kind in ("merge", "update", "delete"))
    await sql(f"CREATE TABLE {{c}}.{{n}}.mixed (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ({modes})")
    await sql("INSERT INTO {c}.{n}.mixed SELECT /*+ COALESCE(1) */ id, 'old' FROM range(6)")
    await sql(
        "MERGE INTO {c}.{n}.mixed t USING (SELECT id, 'new' AS v FROM range(4, 8)) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
    )
    await sql("UPDATE {c}.{n}.mixed SET v = 'up' WHERE id = 1")
    await sql("DELETE FROM {c}.{n}.mixed WHERE id = 0")
    rows = await sql("SELECT * FROM {c}.{n}.mixed ORDER BY id")
    assert rows == [[1, "up"], [2, "old"], [3, "old"], *([number, "new"] for number in range(4, 8))]
    counted = "SELECT content, count(*) FROM {c}.{n}.mixed.all_files GROUP BY content ORDER BY content"
    assert await sql(counted) == files, "deletes are files of their own where they are merged on read"


async def test_branches_and_tags_are_written_read_and_published(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.forks (id BIGINT) USING iceberg TBLPROPERTIES ('write.wap.enabled' = 'true')")
    await sql("INSERT INTO {c}.{n}.forks VALUES (1)")
    await sql("ALTER TABLE {c}.{n}.forks CREATE TAG first RETAIN 10 DAYS")
    await sql("ALTER TABLE {c}.{n}.forks CREATE BRANCH dev")
    await sql("INSERT INTO {c}.{n}.forks.branch_dev VALUES (2)")
    assert await sql.ids("forks") == [1]
    assert await sql.ids("forks.branch_dev") == [1, 2]
    await sql("CALL {c}.system.fast_forward('{n}.forks', 'main', 'dev')")
    assert await sql.ids("forks") == [1, 2]
    await sql("SET spark.wap.id = audited")
    await sql("INSERT INTO {c}.{n}.forks VALUES (3)")
    await sql("RESET spark.wap.id")
    assert await sql.ids("forks") == [1, 2], "what is to be audited is not published"
    ((staged,),) = await sql("SELECT snapshot_id FROM {c}.{n}.forks.snapshots WHERE summary['wap.id'] = 'audited'")
    await sql("CALL {c}.system.cherrypick_snapshot('{n}.forks', {staged})", staged=staged)
    assert await sql.ids("forks") == [1, 2, 3]
    assert await sql("SELECT id FROM {c}.{n}.forks VERSION AS OF 'first'") == [[1]]
    await sql("ALTER TABLE {c}.{n}.forks REPLACE TAG first AS OF VERSION {staged}", staged=staged)
    await sql("ALTER TABLE {c}.{n}.forks DROP BRANCH dev")
    named = await sql("SELECT name, type, snapshot_id FROM {c}.{n}.forks.refs ORDER BY name")
    assert named == [["first", "TAG", staged], ["main", "BRANCH", staged]]


async def test_history_is_read_rolled_back_and_set(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.kept (id BIGINT) USING iceberg")
    for number in (1, 2):
        await sql("INSERT INTO {c}.{n}.kept VALUES ({number})", number=number)
    history = await sql("SELECT snapshot_id, made_current_at FROM {c}.{n}.kept.history ORDER BY made_current_at")
    (first, _), (second, at) = history
    assert await sql("SELECT id FROM {c}.{n}.kept VERSION AS OF {first}", first=first) == [[1]]
    assert len(await sql("SELECT id FROM {c}.{n}.kept TIMESTAMP AS OF '{at}'", at=at)) == 2
    await sql("CALL {c}.system.rollback_to_snapshot('{n}.kept', {first})", first=first)
    assert await sql.ids("kept") == [1]
    await sql("CALL {c}.system.set_current_snapshot('{n}.kept', {second})", second=second)
    assert await sql.ids("kept") == [1, 2]
    expected = {
        "history": 4,
        "snapshots": 2,
        "refs": 1,
        "files": 2,
        "entries": 2,
        "manifests": 2,
        "partitions": 1,
        "delete_files": 0,
        "all_data_files": 2,
        "metadata_log_entries": 5,
    }
    for name, rows in expected.items():
        assert await sql("SELECT count(*) FROM {c}.{n}.kept.{name}", name=name) == [[rows]], name


async def test_a_table_is_compacted_and_its_old_snapshots_expire(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.small (id BIGINT) USING iceberg")
    for number in range(3):
        await sql("INSERT INTO {c}.{n}.small VALUES ({number})", number=number)
    call = "CALL {c}.system.rewrite_data_files(table => '{n}.small', options => map('min-input-files', '2'))"
    assert (await sql(call))[0][:2] == [3, 1]
    assert (await sql("CALL {c}.system.rewrite_manifests('{n}.small')"))[0][1] == 1
    call = "CALL {c}.system.expire_snapshots('{n}.small', TIMESTAMP '2100-01-01 00:00:00')"
    assert (await sql(call))[0][0] == 3, "the files that were compacted are deleted"
    assert await sql("SELECT count(*) FROM {c}.{n}.small.snapshots") == [[1]]
    assert await sql.ids("small") == [0, 1, 2]


async def test_views_are_created_replaced_altered_renamed_and_dropped(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.seen USING iceberg AS SELECT id FROM range(3)")
    await sql("CREATE VIEW {c}.{n}.report (n COMMENT 'rows') COMMENT 'of today' AS SELECT count(*) FROM {c}.{n}.seen")
    assert await sql("SELECT n FROM {c}.{n}.report") == [[3]]
    await sql("CREATE OR REPLACE VIEW {c}.{n}.report AS SELECT max(id) AS most FROM {c}.{n}.seen")
    assert await sql("SELECT most FROM {c}.{n}.report") == [[2]]
    assert await sql("SHOW VIEWS IN {c}.{n}") == [[sql.namespace, "report", False]]
    await sql("ALTER VIEW {c}.{n}.report SET TBLPROPERTIES ('owned-by' = 'ada')")
    assert ["owned-by", "ada"] in await sql("SHOW TBLPROPERTIES {c}.{n}.report")
    await sql("ALTER VIEW {c}.{n}.report RENAME TO {c}.{n}.summary")
    with pytest.raises(StatementError, match="TABLE_OR_VIEW_NOT_FOUND"):
        await sql("SELECT * FROM {c}.{n}.report")
    assert await sql("SELECT most FROM {c}.{n}.summary") == [[2]]
    await sql("DROP VIEW {c}.{n}.summary")
    assert await sql("SHOW VIEWS IN {c}.{n}") == []


async def test_tables_are_renamed_dropped_and_registered_again(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.old USING iceberg AS SELECT 1 AS id")
    await sql("ALTER TABLE {c}.{n}.old RENAME TO {n}.new")  # the new name is without the catalog
    assert await sql.ids("new") == [1]
    latest = "SELECT file FROM {c}.{n}.new.metadata_log_entries ORDER BY timestamp DESC LIMIT 1"
    ((file,),) = await sql(latest)
    await sql("DROP TABLE {c}.{n}.new")
    assert await sql("SHOW TABLES IN {c}.{n}") == []
    if sql.catalog.alias == LAKE:  # see REFUSED for the other
        await sql("CALL {c}.system.register_table('{n}.again', '{file}')", file=file)
        assert await sql.ids("again") == [1]
        await sql("INSERT INTO {c}.{n}.again VALUES (2)")
        assert await sql.ids("again") == [1, 2]


async def test_a_purge_drops_the_table_and_its_files(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.gone USING iceberg AS SELECT 1 AS id")
    ((file,),) = await sql("SELECT file_path FROM {c}.{n}.gone.files")
    await sql("DROP TABLE {c}.{n}.gone PURGE")
    assert await sql("SHOW TABLES IN {c}.{n}") == []
    assert not path_of(file).exists()


async def test_two_sessions_write_one_table_at_the_same_time_and_no_row_is_lost(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.raced (id BIGINT) USING iceberg TBLPROPERTIES ('commit.retry.num-retries' = '20')")
    insert = "INSERT INTO {{c}}.{{n}}.raced VALUES ({})"
    written = [[insert.format(first + n) for n in range(4)] for first in (0, 100)]
    assert await sql.race(*written) == [[[]] * 4] * 2
    await sql("REFRESH TABLE {c}.{n}.raced")
    assert await sql.ids("raced") == [0, 1, 2, 3, 100, 101, 102, 103]
    told = await sql.catalog.words(f"table:{sql.catalog.alias}/{sql.namespace}/raced")
    assert told.count("accepted") == 1 + 8


async def test_what_a_policy_refuses_reaches_the_user_as_a_sentence(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.orders (id BIGINT, shop STRING) USING iceberg")
    expression = "!result.exists || commit.name != 'orders' || result.columns.exists(c, c.name == 'shop')"
    scope = f"commit.namespace[0] != '{sql.namespace}' || {expression}"
    await sql.catalog.refuse("shops", scope, "orders belong to a shop")
    said = r"ForbiddenException: Forbidden: .*orders belong to a shop \(policy shops, version 1\)"
    with pytest.raises(StatementError, match=said):
        await sql("ALTER TABLE {c}.{n}.orders DROP COLUMN shop")
    await sql("INSERT INTO {c}.{n}.orders VALUES (1, 'a')")
    assert await sql("SELECT * FROM {c}.{n}.orders") == [[1, "a"]]
    assert "rejected" in await sql.catalog.words(f"table:{sql.catalog.alias}/{sql.namespace}/orders")


async def test_what_cannot_work_fails_for_its_reason(sql: Session) -> None:
    await sql("CREATE TABLE {c}.{n}.kept (id BIGINT) USING iceberg")
    ((file,),) = await sql("SELECT file FROM {c}.{n}.kept.metadata_log_entries")
    told = {}
    for alias, statement in REFUSED:
        if alias == sql.catalog.alias:
            with pytest.raises(StatementError) as error:
                await sql(statement, file=file)
            told[alias, statement] = str(error.value)
    assert [(key, text) for key, text in told.items() if REFUSED[key][0] not in text] == []
    assert await sql("SHOW TABLES IN {c}.{n}") == [[sql.namespace, "kept", False]]


async def test_log_and_state_agree_after_all_of_this(catalogs: Mapping[str, ServedCatalog], alias: str) -> None:
    await catalogs[alias].check()
