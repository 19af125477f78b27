# SPDX-License-Identifier: Apache-2.0
"""
Which table a data set is: by snapshot, by location, by name; and that it follows from the log, however that is cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from ledger.format.events import DatasetName, LineageDataset, OnCycle
from projections.errors import DigestMismatchError
from projections.lineage.datasets import (
    KnownCatalog,
    KnownTables,
    location_of,
    normalise_location,
    resolve,
    table_location,
)
from projections.lineage.projection import LineageProjection
from projections.lineage.read import read_lineage
from projections.processing.generations import rebuild
from testkit.projections.lineage_stories import (
    create_catalog,
    dataset,
    find_cycle,
    key,
    retire_catalog,
    run_event,
    set_cycles,
    settle,
    tell,
    topic,
)

if TYPE_CHECKING:
    from testkit.projections.story import Story, World

ORDERS = "table:lake/sales/orders"
ORDERS_FILE = "s3://bucket/sales/orders/metadata/00001-x.metadata.json"


def known(*, names: Mapping[str, Mapping[str, str]] | None = None) -> KnownTables:
    """Two catalogs, and the table `sales.orders` of one of them."""
    return KnownTables(
        catalogs={
            "lake": KnownCatalog(uri=None, location=None),
            "pond": KnownCatalog(uri="https://up.example/cat", location="s3://pond/warehouse"),
        },
        by_location={"s3://bucket/sales/orders": ORDERS},
        by_snapshot={"17": {ORDERS}, "18": {ORDERS, "table:pond/sales/orders"}},
        by_name={name: dict(of) for name, of in (names or {"sales.orders": {ORDERS: "lake"}}).items()},
    )


def named(namespace: str, name: str, *, version: str | None = None, links: tuple[tuple[str, str], ...] = ()) -> str:
    """What a data set is in that world."""
    symlinks = tuple(DatasetName(namespace=of, name=link) for of, link in links)
    return resolve(LineageDataset(namespace=namespace, name=name, symlinks=symlinks, version=version), known())


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        ("s3://bucket", "sales/orders"),
        ("s3a://bucket", "/sales/orders/"),
        ("S3N://bucket/sales", "orders"),
        ("iceberg", "sales.orders"),
        ("lakeproof", "lake.sales.orders"),
        ("lake", "sales.orders"),
        ("http://gateway:8181", "sales.orders"),
    ],
)
def test_a_table_is_found_by_its_location_and_by_its_name(namespace: str, name: str) -> None:
    assert named(namespace, name) == ORDERS


@pytest.mark.parametrize(
    ("namespace", "name", "key"),
    [
        ("postgres://db:5432", "sales.orders", "dataset:postgres%3A%2F%2Fdb%3A5432/sales.orders"),
        ("s3://bucket", "sales/orders2", "dataset:s3%3A%2F%2Fbucket/sales%2Forders2"),
        ("iceberg", "sales.items", "dataset:iceberg/sales.items"),
        ("iceberg", "orders", "dataset:iceberg/orders"),
        ("iceberg", "lake.orders", "dataset:iceberg/lake.orders"),
        ("lake", "a..b", "dataset:lake/a..b"),
        ("https://up.example/cat", "orders", "dataset:https%3A%2F%2Fup.example%2Fcat/orders"),
    ],
)
def test_what_is_no_table_here_keeps_its_own_name(namespace: str, name: str, key: str) -> None:
    assert named(namespace, name) == key


def test_a_snapshot_of_one_table_says_which_and_of_two_says_nothing() -> None:
    assert named("kafka://prod", "x", version="17") == ORDERS
    assert named("kafka://prod", "x", version="18") == "dataset:kafka%3A%2F%2Fprod/x"
    assert named("kafka://prod", "x", version="19") == "dataset:kafka%3A%2F%2Fprod/x"


def test_a_table_has_any_of_its_names() -> None:
    assert named("file", "/elsewhere", links=(("http://gateway:8181", "sales.orders"),)) == ORDERS
    assert named("hive", "orders", links=(("s3://bucket", "sales/orders"),)) == ORDERS


def test_a_catalog_that_the_name_tells_has_only_one_place_for_it() -> None:
    assert named("https://up.example/cat/", "sales.new") == "table:pond/sales/new"
    assert named("pond", "sales.orders") == "table:pond/sales/orders"
    below = named("s3://pond", "warehouse/sales/new", links=(("http://spark", "sales.new"),))
    assert below == "table:pond/sales/new"
    beside = named("s3://pond", "warehouse2/sales/new", links=(("http://spark", "sales.new"),))
    assert beside.startswith("dataset:")


def test_a_name_that_two_catalogs_have_says_nothing_without_the_catalog() -> None:
    both = known(names={"sales.orders": {ORDERS: "lake", "table:pond/sales/orders": "pond"}})
    for namespace, expected in (("iceberg", "dataset:iceberg/sales.orders"), ("lake", ORDERS)):
        told = LineageDataset(namespace=namespace, name="sales.orders", symlinks=(), version=None)
        assert resolve(told, both) == expected


@pytest.mark.parametrize(
    ("location", "normal"),
    [
        ("s3a://b/p/", "s3://b/p"),
        ("file:/w/t", "file:///w/t"),
        ("file:///w/t", "file:///w/t"),
        ("FILE:///w", "file:///w"),
        ("/w/t/", "/w/t"),
        ("abfss://c@a/p", "abfs://c@a/p"),
    ],
)
def test_a_location_has_one_spelling(location: str, normal: str) -> None:
    assert normalise_location(location) == normal
    assert normalise_location(normal) == normal
    assert table_location(f"{location.rstrip('/')}/metadata/1.json") == normal


def test_a_location_is_what_openlineage_names_so() -> None:
    assert location_of(DatasetName(namespace="file", name="/w/t")) == "file:///w/t"
    assert location_of(DatasetName(namespace="http://x", name="/w/t")) is None
    assert location_of(DatasetName(namespace="iceberg", name="a.b")) is None
    assert table_location("s3://b/t/1.json") is None


@pytest.fixture
def world(world: World) -> World:
    """The test's database, with lineage as its only projection."""
    world.projections = (LineageProjection(),)
    return world


async def test_what_spark_sent_is_about_the_tables_that_were_committed(
    world: World, story: Story, shared_data: Path
) -> None:
    for name, snapshot in (("orders", "3113119075013565549"), ("cust", "8693914680646578706"), ("report", "1")):
        settle(story, f"table:lake/ol/{name}", f"file:///warehouse/wh/ol/{name}/metadata/1.json", snapshots=[snapshot])
    for name in ("join_insert_START", "join_insert_COMPLETE", "merge_COMPLETE", "ctas_COMPLETE"):
        tell(story, (shared_data / "openlineage" / "spark" / f"{name}.json").read_bytes())
    log = await world.new_log()
    await world.project(log, story, batch_max=2)
    async with world.as_reader(log) as connection:
        lineage = await read_lineage(connection, log.log_id, "table:lake/ol/report")
        customers = await read_lineage(connection, log.log_id, "table:lake/ol/cust")
    orders, cust, report = (f"table:lake/ol/{name}" for name in ("orders", "cust", "report"))
    assert {(edge.source, edge.target, edge.count, edge.engine) for edge in lineage.upstream} == {
        (orders, report, 1, "spark 4.1.4"),
        (cust, report, 1, "spark 4.1.4"),
        (orders, cust, 1, "spark 4.1.4"),
    }
    assert (cust, "email", report, "email") in {
        (column.source, column.source_column, column.target, column.target_column) for column in lineage.columns
    }
    assert {edge.target for edge in customers.downstream} == {report, "dataset:file/%2Fwarehouse%2Fwh%2Fol%2Fctas"}
    assert customers.cycles == ()


async def test_a_name_is_what_it_was_at_its_place_in_the_log(world: World, story: Story) -> None:
    by_path, by_name = dataset("s3://bucket", "sales/orders"), dataset("iceberg", "sales.orders")
    tell(story, run_event([by_path], [topic("before")]))
    settle(story, ORDERS, ORDERS_FILE)
    tell(story, run_event([by_path], [topic("known")], number=1))
    tell(story, run_event([by_name], [topic("named")], number=2))
    settle(story, ORDERS, None)
    tell(story, run_event([by_path], [topic("dropped")], number=3))
    tell(story, run_event([by_name], [topic("unnamed")], number=4))
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:

        async def sources(name: str) -> list[str]:
            return [edge.source for edge in (await read_lineage(connection, log.log_id, key(name))).upstream]

        assert await sources("before") == ["dataset:s3%3A%2F%2Fbucket/sales%2Forders"]
        assert await sources("known") == [ORDERS]
        assert await sources("named") == [ORDERS]
        assert await sources("dropped") == [ORDERS]
        assert await sources("unnamed") == ["dataset:iceberg/sales.orders"]


TABLES = ("table:lake/sales/orders", "table:pond/sales/orders", "table:lake/sales/a%00", "table:lake/sales/%EF%BF%BD")
NAMED: tuple[Any, ...] = (
    dataset("s3://bucket", "1"),
    dataset("s3://bucket", "2", version="2"),
    dataset("iceberg", "sales.orders"),
    dataset("lake", "sales.new", symlink=("http://u1", "sales.orders")),
    dataset("iceberg", "sales.a\x00", version="\x00"),
    dataset("s3://bucket", "2/\x00"),
)


STORED = (
    "catalogs",
    "tables",
    "locations",
    "snapshots",
    "events",
    "edges",
    "columns",
    "cycles",
    "jobs",
    "runs",
    "omitted",
    "settings",
)


@st.composite
def happenings(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    kinds = st.sampled_from(["commit", "drop", "observe", "catalog", "retire", "found", "told", "told", "told"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 3), st.integers(0, 5)), min_size=4, max_size=30))


def happen(story: Story, happened: list[tuple[str, int, int]]) -> None:
    """Let it happen: tables come, move and go, and events name them in every way there is."""
    events = [UUID(int=7, version=4)]
    for kind, which, how in happened:
        alias = ("lake", "pond")[which % 2]
        match kind:
            case "commit":
                settle(story, TABLES[which], f"s3a://bucket/{how}/metadata/1.json", snapshots=[str(how), "\x00"])
            case "drop":
                settle(story, TABLES[which], None)
            case "observe":
                story.observed(str(how), key=TABLES[which])
            case "catalog":
                create_catalog(story, alias, {"uri": f"http://u{how}/", "location": f"s3://bucket/{which}"})
            case "retire":
                retire_catalog(story, alias)
            case "found":
                find_cycle(story, events[how % len(events)], TABLES[which], TABLES[0])
            case _:
                tell(story, run_event([NAMED[how]], [NAMED[which], topic(str(how))], number=which))
                events.append(story.groups[-1].id)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(happened=happenings(), cuts=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_however_the_entries_are_cut_live_and_rebuilt_are_equal(
    world: World, new_story: Callable[[], Story], happened: list[tuple[str, int, int]], cuts: tuple[int, int]
) -> None:
    story = new_story()
    happen(story, happened)

    async def play() -> None:
        log = await world.new_log()
        await world.project(log, story, batch_max=cuts[0])
        done = await rebuild(world.dsn, world.projections[0], log, append=world.attest, batch_max=cuts[1])
        assert done.compared

    asyncio.run(play())


async def test_each_reader_sees_its_own_rows_and_no_others(world: World, new_story: Callable[[], Story]) -> None:
    logs = []
    for _ in range(2):
        story = new_story()
        create_catalog(story, "lake", {})
        settle(story, ORDERS, ORDERS_FILE, snapshots=["1"])
        column = {"fields": {"a": {"inputFields": [{**topic("x"), "field": "b"}]}}, "_producer": "p", "_schemaURL": "s"}
        tell(story, run_event([topic("x")], [{**topic("y"), "facets": {"columnLineage": column}}]))
        tell(story, run_event([topic("y")], [topic("x")], number=1))
        set_cycles(story, OnCycle.REFUSE)
        log = await world.new_log()
        await world.project(log, story)
        logs.append(log)
    for log in logs:
        for table in STORED:
            async with world.as_reader(log) as connection:
                of_table = sql.Identifier("projections", f"lineage_{table}")
                rows = await connection.execute(sql.SQL("SELECT DISTINCT log_id FROM {}").format(of_table))
                assert await rows.fetchall() == [(log.log_id,)], table
                with pytest.raises(InsufficientPrivilege):
                    await connection.execute(sql.SQL("DELETE FROM {}").format(of_table))


@pytest.mark.parametrize("change", ["edges SET count = 9", "events SET keys = '{}'", "runs SET state = 'FAIL'"])
async def test_a_row_that_was_changed_is_found_by_a_rebuild(world: World, story: Story, change: LiteralString) -> None:
    tell(story, run_event([topic("x")], [topic("y")]))
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_admin() as connection:
        await connection.execute(sql.SQL("UPDATE projections.lineage_" + change))
    with pytest.raises(DigestMismatchError):
        await rebuild(world.dsn, world.projections[0], log, append=world.attest)
