# SPDX-License-Identifier: Apache-2.0
"""
Which files are scanned for which snapshot, on real tables that PyIceberg writes through a real gateway.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from ledger.format.events import ScanCompleted
from testkit.spark_detect.lakehouse import Lakehouse, make_people, some_people

PEOPLE = ("crm", "people")


async def by_snapshot(lakehouse: Lakehouse) -> dict[int, ScanCompleted]:
    """Detect, and return the scans by snapshot; none is there twice."""
    await lakehouse.detect()
    completed = await lakehouse.completed()
    assert await lakehouse.failed() == []
    assert len({event.snapshot for event in completed}) == len(completed), "a snapshot was scanned twice"
    return {int(event.snapshot): event for event in completed}


async def test_each_append_is_scanned_once_whatever_lies_between(lakehouse: Lakehouse) -> None:
    def act(catalog: RestCatalog) -> None:
        table = make_people(catalog, count=10)
        table.append(some_people(10, 20))

    await lakehouse.play(act)
    first = await by_snapshot(lakehouse)
    assert [scan.rows for scan in first.values()] == [10, 20]
    await lakehouse.play(lambda catalog: catalog.load_table(PEOPLE).append(some_people(30, 5)))
    again = await by_snapshot(lakehouse)
    assert [scan.rows for scan in again.values()] == [10, 20, 5]
    assert await by_snapshot(lakehouse) == again


async def test_both_snapshots_of_an_overwrite_are_scanned(lakehouse: Lakehouse) -> None:
    def act(catalog: RestCatalog) -> None:
        make_people(catalog, count=10).overwrite(some_people(100, 7))

    await lakehouse.play(act)
    scans = await by_snapshot(lakehouse)
    operations = await lakehouse.operations(PEOPLE)
    assert [(operations[each], scan.files, scan.rows) for each, scan in scans.items()] == [
        ("append", 1, 10),
        ("delete", 0, 0),
        ("append", 1, 7),
    ]


async def test_an_upsert_is_scanned_in_both_its_snapshots(lakehouse: Lakehouse) -> None:
    def act(catalog: RestCatalog) -> None:
        make_people(catalog, count=10)
        changed = some_people(5, 10).set_column(6, "phone", pa.array(["(207) 223-0000"] * 10))
        catalog.load_table(PEOPLE).upsert(changed, join_cols=["customer_id"])

    await lakehouse.play(act)
    scans = await by_snapshot(lakehouse)
    operations = await lakehouse.operations(PEOPLE)
    assert scans.keys() == operations.keys()
    assert len(scans) >= 3
    # Five rows are left alone: they are written again into a new file, and so they are read again.
    assert sum(scan.rows for scan in scans.values()) == 10 + 5 + 5 + 5


async def test_a_delete_of_whole_files_is_completed_with_nothing(lakehouse: Lakehouse) -> None:
    def act(catalog: RestCatalog) -> None:
        make_people(catalog, count=10).delete()

    await lakehouse.play(act)
    scans = list((await by_snapshot(lakehouse)).values())
    assert [(scan.files, scan.rows, scan.cells, scan.findings) for scan in scans[1:]] == [(0, 0, 0, 0)]


async def test_what_compaction_writes_is_not_read_but_marked(lakehouse: Lakehouse) -> None:
    def act(catalog: RestCatalog) -> None:
        table = make_people(catalog, count=10)
        # PyIceberg has no compaction, so one is committed as an engine with compaction would tell it.
        before = table.refresh().current_snapshot()
        assert before is not None
        replaced = {
            "snapshot-id": before.snapshot_id + 1,
            "parent-snapshot-id": before.snapshot_id,
            "sequence-number": 2,
            "timestamp-ms": before.timestamp_ms + 1,
            "manifest-list": before.manifest_list,
            "summary": {"operation": "replace"},
            "schema-id": 0,
        }
        ref = {"ref-name": "main", "type": "branch", "snapshot-id": before.snapshot_id + 1}
        updates: list[dict[str, Any]] = [
            {"action": "add-snapshot", "snapshot": replaced},
            {"action": "set-snapshot-ref", **ref},
        ]
        lakehouse.commit("crm", "people", updates)

    await lakehouse.play(act)
    scans = await by_snapshot(lakehouse)
    operations = await lakehouse.operations(PEOPLE)
    assert [(operations[each], scan.files) for each, scan in scans.items()] == [("append", 1), ("replace", 0)]


async def test_the_live_files_of_an_expired_parent_are_scanned_with_its_child(lakehouse: Lakehouse) -> None:
    def act(catalog: RestCatalog) -> None:
        table = make_people(catalog, count=10)
        table.append(some_people(10, 20))
        table.append(some_people(30, 40))
        kept = table.refresh().snapshots()[-1]
        old = [each.snapshot_id for each in table.snapshots() if each is not kept]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    await lakehouse.play(act)
    await lakehouse.begin_now()
    (scan,) = (await by_snapshot(lakehouse)).values()
    assert (scan.files, scan.rows) == (3, 70)
    assert len(scan.gaps) == 2


async def test_a_parent_that_was_scanned_before_it_expired_is_no_gap(lakehouse: Lakehouse) -> None:
    await lakehouse.play(lambda catalog: make_people(catalog, count=10))
    await by_snapshot(lakehouse)

    def act(catalog: RestCatalog) -> None:
        table = catalog.load_table(PEOPLE)
        table.append(some_people(10, 20))
        table.maintenance.expire_snapshots().by_ids([table.refresh().snapshots()[0].snapshot_id]).commit()

    await lakehouse.play(act)
    *_, scan = (await by_snapshot(lakehouse)).values()
    assert (scan.files, scan.rows, scan.gaps) == (1, 20, ())


async def test_beyond_the_bytes_of_a_batch_whole_row_groups_of_all_files_are_read(lakehouse: Lakehouse) -> None:
    def act(catalog: RestCatalog) -> None:
        table = make_people(catalog, count=1)
        with table.transaction() as transaction:
            transaction.set_properties({"write.parquet.row-group-limit": "100"})
        table.append(some_people(0, 1_000))

    await lakehouse.play(act)
    lakehouse.bytes_max = 30_000
    scan = list((await by_snapshot(lakehouse)).values())[-1]
    assert scan.rows == 1_000
    assert scan.rows_sampled is not None
    assert 100 <= scan.rows_sampled < 1_000
    assert scan.rows_sampled % 100 == 0
    assert {event.column for event in await lakehouse.found() if event.confidence_percent == 92} >= {"email", "ssn"}


async def test_nested_columns_are_named_by_their_path(lakehouse: Lakehouse) -> None:
    rows = [{"e_mail": f"ada.{number}@mail.example.com", "street": "Main St"} for number in range(50)]
    nested = pa.table({"id": list(range(50)), "contact": rows, "emails": [[row["e_mail"]] for row in rows]})

    def act(catalog: RestCatalog) -> None:
        catalog.create_namespace("crm")
        catalog.create_table(("crm", "nested"), schema=nested.schema).append(nested)

    await lakehouse.play(act)
    await lakehouse.detect()
    found = {event.column: event.confidence_percent for event in await lakehouse.found()}
    assert found == {"contact.e_mail": 92, "emails.element": 92}


async def test_a_column_of_bytes_is_a_gap_of_the_scan_and_one_of_empty_texts_hides_nothing(
    lakehouse: Lakehouse,
) -> None:
    addresses = [f"ada.{number}@mail.example.com" if number % 25 == 0 else "" for number in range(500)]
    mixed = pa.table(
        {"remark": addresses, "photo": pa.array([b"x"] * 500), "blob": pa.array([None] * 500, pa.binary())}
    )

    def act(catalog: RestCatalog) -> None:
        catalog.create_namespace("crm")
        catalog.create_table(("crm", "mixed"), schema=mixed.schema).append(mixed)

    await lakehouse.play(act)
    (scan,) = (await by_snapshot(lakehouse)).values()
    assert (scan.columns, scan.columns_unread) == (1, 1)
    assert [(one.column, one.reason.value) for one in scan.unread] == [("photo", "binary")]
    assert {event.column: (event.confidence_percent, event.values) for event in await lakehouse.found()} == {
        "remark": (55, 20)
    }
