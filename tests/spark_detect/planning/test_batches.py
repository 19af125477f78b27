# SPDX-License-Identifier: Apache-2.0
"""
Batches: pinned before they are planned, fair to all tenants, and everything that was left open is worked on again.
"""

from __future__ import annotations

import asyncio
from contextlib import closing

import psycopg
from psycopg import sql
from pyiceberg.catalog.rest import RestCatalog

from gateway.admin.application import OPERATOR
from ledger.format.entry import Branch, Entry, parse_entry
from ledger.format.event import SYSTEM_ACTOR, Event, derived_group_id, prepare
from ledger.format.events import CommitObserved, Identifier, ScanRequested, to_data
from ledger.format.sequence import Group
from ledger.store.read import read_entries, read_head
from projections.processing.runner import ProjectionRunner
from projections.relational.findings import FindingsProjection
from spark_detect.classify import RULESET
from spark_detect.files.parquet_scan import run_task
from spark_detect.planning.batches import Batches
from spark_detect.planning.planner import Planner
from testkit.ledger.guard_replay import GuardedTable
from testkit.spark_detect.lakehouse import Lakehouse, make_people, now, open_lakehouse, some_people


def _apply_mark(rows: dict[str, int], entry: Entry) -> None:
    if entry.type in {"scan.completed", "scan.failed"} and entry.branch is Branch.THEN:
        key = "{table_uuid} {snapshot} {ruleset}".format(**entry.data)
        rows[key] = rows.get(key, 0) + 1


MARKS: GuardedTable[str, int] = GuardedTable(
    select="SELECT table_uuid || ' ' || snapshot || ' ' || ruleset, scans FROM detection.marks "
    "WHERE log_id = %(log_id)s",
    apply=_apply_mark,
)


async def log_of(lakehouse: Lakehouse) -> list[Entry]:
    dsn = lakehouse.installation.as_role(lakehouse.installation.roles.auditor)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        size = (await read_head(connection, lakehouse.log_id)).size
        return [
            parse_entry(entry)
            for entry in await read_entries(connection, lakehouse.log_id, from_index=0, to_index=size)
        ]


AWAY = Identifier(alias="away", namespace=("crm",), name="t")


def open_planner(lakehouse: Lakehouse, *, entries_max: int = 256) -> tuple[Batches, Planner]:
    batches = Batches(lakehouse.driver.detector_dsn, bytes_max=lakehouse.bytes_max, entries_max=entries_max)
    return batches, Planner(batches, lakehouse.lake, bytes_max=lakehouse.bytes_max)


async def request(lakehouse: Lakehouse, *, table: str, snapshot: str | None, number: int) -> None:
    """Append scan.requested for `crm.<table>`."""
    loaded = await asyncio.to_thread(lambda: lakehouse.connect().load_table(("crm", table)))
    wanted = ScanRequested(ruleset=RULESET, snapshot=snapshot, table_uuid=str(loaded.metadata.table_uuid))
    event = Event(
        type=wanted.TYPE,
        version=wanted.VERSION,
        key=f"table:lake/crm/{table}",
        actor=SYSTEM_ACTOR,
        occurred_at=now(),
        data=to_data(wanted),
    )
    group = Group(id=derived_group_id("request", number), then=(prepare(event),))
    await lakehouse.services.gateway.append(lakehouse.log_id, group)


async def observe(
    lakehouse: Lakehouse,
    location: str,
    *,
    identifier: Identifier | None = AWAY,
    snapshot: str = "1",
    table_uuid: str = "5f0c0b7e-4c9c-4a57-a6f0-0c5d7a1f5f0e",
) -> None:
    """Append commit.observed of a snapshot that `location` tells of."""
    observed = CommitObserved(
        identifier=identifier,
        metadata_location=location,
        operation="append",
        parent=None,
        snapshot=snapshot,
        table_uuid=table_uuid,
        trigger=None,
    )
    event = Event(
        type=observed.TYPE,
        version=observed.VERSION,
        key="catalog:away" if identifier is None else "table:away/crm/t",
        actor=SYSTEM_ACTOR,
        occurred_at=now(),
        data=to_data(observed),
    )
    group = Group(id=derived_group_id("observed", location), then=(prepare(event),))
    await lakehouse.services.gateway.append(lakehouse.log_id, group)


async def test_marks_are_what_the_log_says(lakehouse: Lakehouse) -> None:
    def act(catalog: RestCatalog) -> None:
        table = make_people(catalog, count=10)
        table.append(some_people(10, 5))
        (lost,) = [task.file.file_path for task in table.refresh().scan().plan_files() if task.file.record_count == 5]
        lakehouse.path(lost).unlink()

    await lakehouse.play(act)
    await lakehouse.detect()
    await request(lakehouse, table="people", snapshot=None, number=1)
    await lakehouse.detect()
    entries = await log_of(lakehouse)
    live = MARKS.live(lakehouse.services.installation.admin_dsn, lakehouse.log_id)
    assert live == MARKS.replayed(entries)
    assert sorted(live.values()) == [1, 2]
    with psycopg.connect(lakehouse.services.installation.admin_dsn, autocommit=True) as owner:
        owner.execute("DELETE FROM detection.marks WHERE scans = 1")
    assert MARKS.live(lakehouse.services.installation.admin_dsn, lakehouse.log_id) != MARKS.replayed(entries)


async def test_a_scan_that_was_asked_for_is_done_once_for_each_request(lakehouse: Lakehouse) -> None:
    def act(catalog: RestCatalog) -> None:
        make_people(catalog, count=10).append(some_people(10, 5))

    await lakehouse.play(act)
    await lakehouse.detect()
    first, second = (event.snapshot for event in await lakehouse.completed())
    await request(lakehouse, table="people", snapshot=None, number=1)
    await request(lakehouse, table="people", snapshot=first, number=2)
    await request(lakehouse, table="people", snapshot="7", number=3)
    assert (await lakehouse.detect()).scans == 2
    assert (await lakehouse.detect()).scans == 0
    told = [(event.snapshot, event.files, event.rows) for event in await lakehouse.completed()]
    assert told == [(first, 1, 10), (second, 1, 5), (second, 2, 15), (first, 1, 10)]


async def test_a_batch_that_was_planned_and_lost_is_planned_again_the_same(lakehouse: Lakehouse) -> None:
    await lakehouse.play(lambda catalog: make_people(catalog, count=10))

    def lose() -> list[str]:
        batches, planner = open_planner(lakehouse)
        with closing(batches), closing(planner):
            batch = batches.pin(planner.weigh)
            assert batch == 1
            return [run_task(task, lakehouse.lake).scan for task in planner.plan(batch)]

    lost = await asyncio.to_thread(lose)
    await lakehouse.play(lambda catalog: catalog.load_table(("crm", "people")).append(some_people(10, 5)))

    def again() -> list[str]:
        batches, planner = open_planner(lakehouse)
        with closing(batches), closing(planner):
            return [task.scan.format() for task in planner.plan(1)]

    assert await asyncio.to_thread(again) == lost
    assert (await lakehouse.detect()).scans == 2
    assert [event.rows for event in await lakehouse.completed()] == [10, 5]


async def test_every_log_has_its_turn_in_a_batch(lakehouse: Lakehouse) -> None:
    async with open_lakehouse(lakehouse.services, name="other") as other:
        await lakehouse.play(lambda catalog: [make_people(catalog, name=f"t{n}", count=1) for n in range(6)])
        await other.play(lambda catalog: make_people(catalog, count=1))

        def pin() -> list[set[int]]:
            batches, planner = open_planner(lakehouse, entries_max=4)
            with closing(batches), closing(planner):
                pinned = []
                while (batch := batches.pin(planner.weigh)) is not None:
                    ranges = batches.open_ranges(batch)
                    pinned.append({each.range.log_id for each in ranges})
                    for each in ranges:
                        batches.finish(each.range)
                return pinned

        pinned = await asyncio.to_thread(pin)
        assert pinned[0] == {lakehouse.log_id, other.log_id}
        assert len(pinned) > 1


async def test_tenants_are_scanned_side_by_side_and_see_nothing_of_each_other(lakehouse: Lakehouse) -> None:
    async with open_lakehouse(lakehouse.services, name="other") as other:
        await lakehouse.play(lambda catalog: make_people(catalog, count=10))
        await other.play(lambda catalog: make_people(catalog, count=20))
        assert (await lakehouse.detect()).scans == 2
        assert [event.rows for event in await lakehouse.completed()] == [10]
        assert [event.rows for event in await other.completed()] == [20]
        installation = lakehouse.installation
        with psycopg.connect(installation.as_role(installation.roles.tenant(other.tenant)), autocommit=True) as reader:
            for table in ("marks", "batches", "positions"):
                name = sql.Identifier("detection", table)
                rows = reader.execute(sql.SQL("SELECT DISTINCT log_id FROM {}").format(name)).fetchall()
                assert rows == [(other.log_id,)]


async def test_only_one_process_at_a_time_pins_batches(lakehouse: Lakehouse) -> None:
    await lakehouse.play(lambda catalog: make_people(catalog, count=10))

    def two() -> None:
        first, planner = open_planner(lakehouse)
        second, other = open_planner(lakehouse)
        with closing(second), closing(planner), closing(other):
            with closing(first):
                assert first.pin(planner.weigh) == 1
                assert second.pin(other.weigh) is None
                assert other.plan(1) == []
            while not second.take_turn():  # the server notices in a moment that the first is gone
                pass
            assert second.pin(other.weigh) == 2, "what the first has left is taken over, under a new number"
            assert len(other.plan(2)) == 1

    await asyncio.to_thread(two)


async def test_a_range_whose_storage_is_away_is_put_off_and_holds_nobody_up(lakehouse: Lakehouse) -> None:
    async with open_lakehouse(lakehouse.services, name="other") as other:
        # A secret that is not there is a storage that cannot be asked.
        admin = lakehouse.services.gateway.admin
        options = {"uri": "http://127.0.0.1:9/", "location": "s3://away/", "s3.access-key-id": "a",
                   "s3.secret-access-key": "secret:gone"}  # fmt: skip
        await admin.create_catalog(lakehouse.log_id, OPERATOR, alias="away", kind="rest", options=options)
        await observe(lakehouse, "s3://away/t/metadata/1.metadata.json")
        await other.play(lambda catalog: make_people(catalog, count=20))
        recorded = await lakehouse.detect()
        assert (recorded.scans, recorded.failed) == (1, 0)
        with psycopg.connect(lakehouse.services.installation.admin_dsn, autocommit=True) as owner:
            query = "SELECT state, postponements FROM detection.batches WHERE log_id = %s"
            assert owner.execute(query, (lakehouse.log_id,)).fetchall() == [("postponed", 1)]
            owner.execute("UPDATE detection.batches SET due_at = now()")
            await lakehouse.detect()
            assert owner.execute(query, (lakehouse.log_id,)).fetchall() == [("postponed", 2)]


async def test_a_table_without_a_name_is_scanned_once_and_by_its_name_once_somebody_knows_it(
    lakehouse: Lakehouse,
) -> None:
    def act(catalog: RestCatalog) -> None:
        table = make_people(catalog, count=10)
        table.append(some_people(10, 20))
        table.append(some_people(30, 40))

    await lakehouse.play(act)
    table = await asyncio.to_thread(lambda: lakehouse.connect().load_table(("crm", "people")))
    uuid, snapshots = str(table.metadata.table_uuid), [str(each.snapshot_id) for each in table.snapshots()]
    files = [*(each.metadata_file for each in table.metadata.metadata_log), table.metadata_location]
    with psycopg.connect(lakehouse.services.installation.admin_dsn, autocommit=True) as owner:
        # As if S3 alone had told of the table: what the gateway has committed is behind detection's position.
        owner.execute(
            "INSERT INTO detection.positions (log_id, next_index) "
            "SELECT log_id, size FROM ledger.heads WHERE log_id = %s",
            (lakehouse.log_id,),
        )
    for file, snapshot in zip(files[-2:], snapshots[-2:], strict=True):
        await observe(lakehouse, file, identifier=None, snapshot=snapshot, table_uuid=uuid)
    await lakehouse.detect()
    scans = await lakehouse.completed()
    assert sorted(scan.snapshot for scan in scans) == sorted(snapshots)
    assert {scan.identifier for scan in scans} == {None}

    roles = lakehouse.installation.roles
    size = len(await log_of(lakehouse))
    runner = ProjectionRunner(
        lakehouse.installation.as_role(roles.projector), [FindingsProjection()], opener=lakehouse.services.opener
    )
    await runner.catch_up(lakehouse.log_id, size)
    await lakehouse.play(lambda catalog: catalog.load_table(("crm", "people")).append(some_people(70, 10)))
    table = await asyncio.to_thread(table.refresh)
    with psycopg.connect(lakehouse.services.installation.admin_dsn, autocommit=True) as owner:
        owner.execute(
            "UPDATE detection.positions SET next_index = (SELECT size FROM ledger.heads WHERE log_id = %(log)s) "
            "WHERE log_id = %(log)s",
            {"log": lakehouse.log_id},
        )
    newest = str(table.metadata.current_snapshot_id)
    await observe(lakehouse, table.metadata_location, identifier=None, snapshot=newest, table_uuid=uuid)
    await lakehouse.detect()
    last = (await lakehouse.completed())[-1]
    assert last.snapshot == newest
    assert last.identifier == Identifier(alias="lake", namespace=("crm",), name="people")
