# SPDX-License-Identifier: Apache-2.0
"""
Scans, findings, alerts, triggers and ungoverned snapshots as rows, on the real database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.format.events import DetectionKind, FindingVerdict, ScanFault, TriggerSource
from ledger.format.sequence import Group
from projections.errors import DigestMismatchError
from projections.processing.cursors import read_live
from projections.processing.generations import rebuild
from projections.processing.projection import Transaction
from projections.relational.finding_reviews import FindingState, read_review_history
from projections.relational.finding_rows import rows_of
from projections.relational.findings import (
    INDEX_END,
    FindingsProjection,
    read_alerts,
    read_finding_at,
    read_findings,
    read_findings_below,
    read_findings_of_snapshots,
    read_last_findings_of_table,
    read_scans,
    read_sources,
    read_ungoverned,
)
from testkit.projections.story import ADA, BOB, ORDERS, ORDERS_UUID, RULESET, Story

if TYPE_CHECKING:
    from ledger.store.read import Log
    from testkit.projections.story import World

EMAIL, PHONE = ("email", DetectionKind.EMAIL, 92), ("note", DetectionKind.PHONE, 55)
ITEMS = "table:lake/sales/items"


async def test_a_scan_and_its_findings_are_rows(world: World, story: Story) -> None:
    group = story.scanned("11", EMAIL, PHONE)
    story.scan_failed("12", ScanFault.FILE_ENCRYPTED)
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        failed, completed = await read_scans(connection)
        found = await read_findings_of_snapshots(connection, table_uuid=ORDERS_UUID, snapshots=["11"])
        assert await read_scans(connection, key=ITEMS) == []
        assert [scan.snapshot for scan in await read_scans(connection, before=failed.index)] == ["11"]
    assert (completed.table_uuid, completed.snapshot, completed.ruleset) == (ORDERS_UUID, "11", RULESET)
    assert (completed.key, completed.status, completed.fault, completed.findings) == (ORDERS, "completed", None, 2)
    assert (completed.rows, completed.rows_sampled, completed.gaps) == (100, None, ())
    assert (failed.status, failed.fault, failed.file) == ("failed", "file_encrypted", "s3://lake/1.parquet")
    assert [(one.column_path, one.kind, one.confidence_percent, one.matches, one.not_null) for one in found] == [
        ("email", "email", 92, 90, 100),
        ("note", "phone", 55, 90, 100),
    ]
    assert {(one.group_id, one.key) for one in found} == {(group, ORDERS)}


async def test_the_latest_finding_of_each_column_and_kind_is_told_first(world: World, story: Story) -> None:
    story.scanned("11", EMAIL, PHONE)
    story.scanned("12", EMAIL)
    story.scanned("7", EMAIL, key=ITEMS, table_uuid="another")
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        of_orders = await read_findings(connection, key=ORDERS)
        sure = await read_findings(connection, confidence_percent_min=92)
        assert len(await read_findings(connection, limit=1)) == 1
        assert await read_findings(connection, key="table:lake/none") == []
    assert [(one.snapshot, one.kind) for one in of_orders] == [("12", "email"), ("11", "phone")]
    assert [(one.key, one.snapshot) for one in sure] == [(ITEMS, "7"), (ORDERS, "12")]


@pytest.mark.parametrize("batch_max", [1, 250])
async def test_reviews_are_kept_and_the_last_one_of_a_column_and_kind_holds(
    world: World, story: Story, batch_max: int
) -> None:
    story.scanned("11", ("email", DetectionKind.EMAIL, 65), PHONE)
    story.reviewed(1, reason="a test account")
    story.scanned("12", ("email", DetectionKind.EMAIL, 65))
    story.reviewed(5, FindingVerdict.CONFIRMED, version=2, reason="it is not", actor=BOB)
    story.scanned("7", EMAIL, key=ITEMS, table_uuid="another")
    story.reviewed(8)
    story.scanned("8", EMAIL, key=ITEMS, table_uuid="another")
    log = await world.new_log()
    await world.project(log, story, batch_max=batch_max)
    async with world.as_reader(log) as connection:
        every, _ = await read_findings_below(connection, log.log_id, before=INDEX_END)
        by_state = {
            state: [
                one.index for one in (await read_findings_below(connection, log.log_id, before=100, state=state))[0]
            ]
            for state in FindingState
        }
        of_orders, _ = await read_findings_below(
            connection, log.log_id, before=100, key=ORDERS, state=FindingState.CONFIRMED
        )
        last = await read_last_findings_of_table(
            connection, log.log_id, table_uuid=ORDERS_UUID, state=FindingState.OPEN
        )
        history = await read_review_history(connection, table_uuid=ORDERS_UUID, field_id=1, kind="email")
        one = await read_finding_at(connection, log.log_id, 5)
        assert await read_finding_at(connection, log.log_id, 3) is None, "a review is no finding"
    assert [(each.index, each.state) for each in every] == [
        *((11, "dismissed"), (8, "dismissed"), (5, "confirmed"), (2, "open"), (1, "confirmed"))
    ]
    assert by_state == {"open": [2], "confirmed": [5, 1], "dismissed": [11, 8]}
    assert ([each.index for each in of_orders], [each.index for each in last]) == ([5, 1], [2])
    assert one is not None
    assert one.review == history[0]
    assert [(each.version, each.verdict, each.reason, each.actor, each.finding) for each in history] == [
        (2, "confirmed", "it is not", BOB, 5),
        (1, "dismissed", "a test account", ADA, 1),
    ]
    await rebuild(world.dsn, world.findings, log, append=world.attest, batch_max=3)


async def test_no_tenant_sees_reviews_of_another_one(world: World, story: Story) -> None:
    ours, theirs = await world.new_log(), await world.new_log()
    story.scanned("11", EMAIL)
    story.reviewed(1)
    await world.project(theirs, story)
    mine = Story()
    mine.scanned("11", EMAIL)
    await world.project(ours, mine)
    async with world.as_reader(ours) as connection:
        (found,) = await read_findings(connection)
        assert await read_review_history(connection, table_uuid=ORDERS_UUID, field_id=1, kind="email") == []
    assert (found.state, found.review) == ("open", None)


@pytest.mark.parametrize("batch_max", [1, 2, 250])
async def test_a_scan_that_is_done_again_replaces_what_the_one_before_it_found(
    world: World, story: Story, batch_max: int
) -> None:
    story.scan_failed("11")
    story.scanned("11", EMAIL, PHONE)
    story.scanned("12", PHONE)
    story.scanned("11", EMAIL)
    log = await world.new_log()
    await world.project(log, story, batch_max=batch_max)
    async with world.as_reader(log) as connection:
        (again,) = await read_findings_of_snapshots(connection, table_uuid=ORDERS_UUID, snapshots=["11"])
        assert len(await read_scans(connection)) == 2
        assert len(await read_findings_of_snapshots(connection, table_uuid=ORDERS_UUID, snapshots=["12"])) == 1
    assert (again.kind, again.index) == ("email", story.size - 1)
    await rebuild(world.dsn, world.findings, log, append=world.attest, batch_max=3)


async def test_an_alert_is_delivered_to_each_sink_once_however_often_it_is_told(world: World, story: Story) -> None:
    finding = story.scanned("11", EMAIL)
    told, silent = story.alerted(finding, "11"), story.alerted(finding, "11", column="other")
    story.delivered(told, sink="webhook", attempt=3)
    story.delivered(told, sink="webhook", attempt=4)
    story.delivered(told, sink="kafka")
    log = await world.new_log()
    await world.project(log, story, batch_max=5)
    async with world.as_reader(log) as connection:
        newest, oldest = await read_alerts(connection)
    assert (oldest.group_id, oldest.delivered_to, oldest.finding) == (told, ("webhook", "kafka"), str(finding))
    assert (newest.group_id, newest.delivered_to, newest.column_path) == (silent, (), "other")


async def test_triggers_are_counted_by_source_and_ungoverned_snapshots_kept(world: World, story: Story) -> None:
    story.triggered(files=3)
    story.triggered(TriggerSource.POLARIS_WEBHOOK)
    story.triggered(files=4)
    story.observed("13", parent="12")
    story.observed("13", parent="wrong")
    story.observed("14", key=None, table_uuid="5f0c9d1e-0000-4000-8000-00000000000e")
    log = await world.new_log()
    await world.project(log, story, batch_max=2)
    async with world.as_reader(log) as connection:
        sources = await read_sources(connection)
        second, first = await read_ungoverned(connection)
    assert [(each.source, each.triggers, each.files, each.last_index) for each in sources] == [
        ("polaris-webhook", 1, 1, 1),
        ("s3", 2, 7, 2),
    ]
    assert (first.snapshot, first.parent, first.key, first.operation) == ("13", "12", ORDERS, "append")
    assert (second.snapshot, second.key) == ("14", None)


async def test_names_that_are_longer_than_an_index_can_hold_are_kept_apart(world: World, story: Story) -> None:
    for last in "ab":
        story.scanned("1" * 900 + last, EMAIL, table_uuid="表" * 900 + last)
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        assert len(await read_scans(connection)) == 2
        assert len(await read_findings(connection)) == 2


async def test_one_digest_whatever_the_batches_and_another_one_after_a_change(world: World, story: Story) -> None:
    story.triggered()
    story.delivered(story.alerted(story.scanned("11", EMAIL), "11"))
    story.observed("12")
    log = await world.new_log()
    await world.project(log, story, batch_max=1)
    first = await rebuild(world.dsn, world.findings, log, append=world.attest)
    tables = ("scans", "findings", "alerts", "alert_deliveries", "trigger_counts", "ungoverned")
    async with world.as_admin() as connection:
        for table in tables:
            rows = await connection.execute(f"SELECT count(*) FROM projections.{table}")  # noqa: S608 - ours
            assert await rows.fetchone() == (2,), table
        await connection.execute("UPDATE projections.findings SET matches = matches + 1")
    assert await digest_as_it_stands(world, log) != first.attested.digest


async def test_an_alert_bears_the_current_name_of_its_table_whatever_the_batches(world: World, story: Story) -> None:
    finding = story.scanned("11", EMAIL)
    story.identified("table:lake/sales/renamed")
    alert = story.alerted(finding, "11")
    story.delivered(alert)
    log = await world.new_log()
    await world.project(log, story, batch_max=1)
    async with world.as_reader(log) as connection:
        for table in ("scans", "findings", "alerts"):
            rows = await connection.execute(f"SELECT key FROM projections.{table}")  # noqa: S608 - ours
            assert await rows.fetchall() == [("table:lake/sales/renamed",)], table
    built = await rebuild(world.dsn, world.findings, log, append=world.attest)
    assert built.compared
    async with world.as_admin() as connection:
        await connection.execute("UPDATE projections.alerts SET key = %s", (ORDERS,))
    with pytest.raises(DigestMismatchError):
        await rebuild(world.dsn, world.findings, log, append=world.attest)


async def digest_as_it_stands(world: World, log: Log) -> str:
    """The digest of the live generation."""
    async with world.as_projector() as connection, connection.transaction():
        live = await read_live(connection, "findings", log.log_id)
        assert live is not None
        transaction = Transaction(connection=connection, log=log, generation=live.generation)
        return (await FindingsProjection().digest(transaction)).hex()


def test_findings_before_their_scan_in_one_group_are_kept(story: Story) -> None:
    group = story.scanned("11", EMAIL)
    events = story.groups[-1].then
    story.groups[-1] = Group(id=group, then=tuple(reversed(events)))
    assert len(rows_of(story.entries()).findings) == 1
