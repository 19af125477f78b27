# SPDX-License-Identifier: Apache-2.0
"""
What a table was made from, under whatever names, with what detection knows of each of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ledger.format.events import DetectionKind
from projections.errors import NotKnownNowError
from projections.lineage import upstream
from projections.lineage.projection import LineageProjection
from projections.lineage.upstream import Upstream, read_upstream
from projections.processing.runner import ProjectionRunner
from projections.relational import current_findings
from testkit.projections.story import ORDERS, ORDERS_UUID, Story, dataset

if TYPE_CHECKING:
    from ledger.store.read import Log
    from testkit.projections.story import World

EMAIL, PHONE = ("email", DetectionKind.EMAIL, 92), ("note", DetectionKind.PHONE, 55)
PEOPLE, PEOPLE_UUID = "table:lake/crm/people", "5f0c9d1e-0000-4000-8000-0000000000aa"
REPORT, REPORT_UUID = "table:lake/sales/report", "5f0c9d1e-0000-4000-8000-0000000000bb"


def made_tables(story: Story) -> None:
    """A catalog with three tables: people, orders that are made from them, and a report that is made from orders."""
    story.catalog()
    for key, table_uuid in ((PEOPLE, PEOPLE_UUID), (ORDERS, ORDERS_UUID), (REPORT, REPORT_UUID)):
        story.committed(key, table_uuid=table_uuid)
    story.lineage([dataset("crm.people")], [dataset("sales.orders")], run_id=None)
    story.lineage([dataset("sales.orders")], [dataset("sales.report")], run_id=None)


async def projected(world: World, story: Story) -> Log:
    log = await world.new_log()
    await world.append(log, story)
    await ProjectionRunner(world.dsn, [world.lineage, world.findings]).catch_up(log.log_id, story.size)
    return log


async def read(world: World, log: Log, key: str, table_uuid: str | None = None) -> Upstream:
    async with world.as_reader(log) as connection:
        return await read_upstream(connection, log.log_id, key, table_uuid)


def words(found: Upstream) -> list[tuple[Any, ...]]:
    return [(f"{one.catalog}.{'.'.join(one.namespace)}.{one.name}", one.hops, *one.kinds) for one in found.tables]


async def test_it_is_all_that_a_table_was_made_from_nearest_first(world: World, story: Story) -> None:
    made_tables(story)
    story.scanned("1", EMAIL, PHONE, key=PEOPLE, table_uuid=PEOPLE_UUID)
    log = await projected(world, story)
    found = await read(world, log, REPORT, REPORT_UUID)
    assert words(found) == [("lake.sales.orders", 1), ("lake.crm.people", 2, ("email", 92), ("phone", 55))]
    assert [one.table_uuid for one in found.tables] == [ORDERS_UUID, PEOPLE_UUID]
    assert found.as_of == story.size
    assert words(await read(world, log, ORDERS, ORDERS_UUID)) == [("lake.crm.people", 1, ("email", 92), ("phone", 55))]
    assert words(await read(world, log, PEOPLE, PEOPLE_UUID)) == []
    assert words(await read(world, log, "table:lake/sales/new")) == []


async def test_a_kind_has_the_highest_of_its_confidences(world: World, story: Story) -> None:
    made_tables(story)
    story.scanned(
        "1", ("a", DetectionKind.EMAIL, 55), EMAIL, ("c", DetectionKind.EMAIL, 65), key=PEOPLE, table_uuid=PEOPLE_UUID
    )
    log = await projected(world, story)
    assert words(await read(world, log, ORDERS, ORDERS_UUID)) == [("lake.crm.people", 1, ("email", 92))]


async def test_findings_are_as_of_the_log_and_lineage_as_far_as_it_is(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "BEHIND_S_MAX", 3600.0)
    made_tables(story)
    log, known = await projected(world, story), story.size
    story.scanned("1", EMAIL, key=PEOPLE, table_uuid=PEOPLE_UUID)
    story.lineage([dataset("sales.report")], [dataset("sales.late")], run_id=None)
    await world.append(log, story)
    found = await read(world, log, ORDERS, ORDERS_UUID)
    assert (words(found), found.as_of) == ([("lake.crm.people", 1, ("email", 92))], known)
    assert words(await read(world, log, "table:lake/sales/late")) == []
    await ProjectionRunner(world.dsn, [LineageProjection()]).catch_up(log.log_id, story.size)
    found = await read(world, log, "table:lake/sales/late")
    assert [one.name for one in found.tables] == ["report", "orders", "people"]
    assert found.as_of == story.size


async def test_a_renamed_table_was_made_from_the_same(world: World, story: Story) -> None:
    made_tables(story)
    story.renamed(ORDERS, "table:lake/sales/sold")
    log = await projected(world, story)
    assert words(await read(world, log, "table:lake/sales/sold", ORDERS_UUID)) == [("lake.crm.people", 1)]
    assert words(await read(world, log, REPORT, REPORT_UUID)) == [("lake.sales.sold", 1), ("lake.crm.people", 2)]


async def test_a_table_is_told_once_however_many_names_it_had(world: World, story: Story) -> None:
    made_tables(story)
    story.renamed(PEOPLE, "table:lake/crm/persons", PEOPLE_UUID)
    story.lineage([dataset("crm.persons")], [dataset("sales.orders")], run_id=None)
    story.scanned("1", EMAIL, key=PEOPLE, table_uuid=PEOPLE_UUID)
    log = await projected(world, story)
    assert words(await read(world, log, ORDERS, ORDERS_UUID)) == [("lake.crm.persons", 1, ("email", 92))]


async def test_what_was_dropped_is_told_by_its_last_name(world: World, story: Story) -> None:
    made_tables(story)
    story.dropped(PEOPLE, PEOPLE_UUID)
    log = await projected(world, story)
    assert words(await read(world, log, ORDERS, ORDERS_UUID)) == [("lake.crm.people", 1)]


async def test_data_sets_that_are_no_tables_are_passed_through(world: World, story: Story) -> None:
    made_tables(story)
    file = dataset("exports/people.csv", namespace="s3://elsewhere")
    story.lineage([dataset("crm.people")], [file], run_id=None)
    story.lineage([file], [dataset("sales.report")], run_id=None)
    log = await projected(world, story)
    assert words(await read(world, log, REPORT, REPORT_UUID)) == [("lake.sales.orders", 1), ("lake.crm.people", 2)]


async def test_what_is_too_far_away_is_left_out_and_that_is_told(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_tables(story)
    log = await projected(world, story)
    assert not (await read(world, log, REPORT, REPORT_UUID)).is_cut
    monkeypatch.setattr(upstream, "UPSTREAM_HOPS_MAX", 2)
    assert not (await read(world, log, REPORT, REPORT_UUID)).is_cut
    monkeypatch.setattr(upstream, "UPSTREAM_HOPS_MAX", 1)
    found = await read(world, log, REPORT, REPORT_UUID)
    assert (words(found), found.is_cut) == ([("lake.sales.orders", 1)], True)
    assert not (await read(world, log, ORDERS, ORDERS_UUID)).is_cut


@pytest.mark.parametrize("limit", ["UPSTREAM_TABLES_MAX", "REACHED_MAX"])
async def test_too_many_are_an_error_and_not_some_of_them(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    made_tables(story)
    log = await projected(world, story)
    monkeypatch.setattr(upstream, limit, 2)
    assert len((await read(world, log, REPORT, REPORT_UUID)).tables) == 2
    monkeypatch.setattr(upstream, limit, 1)
    with pytest.raises(NotKnownNowError, match="made from at most 1"):
        await read(world, log, REPORT, REPORT_UUID)


@pytest.mark.parametrize("behind", ["lineage", "findings"])
async def test_a_read_model_that_is_too_far_behind_is_an_error(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch, behind: str
) -> None:
    made_tables(story)
    log = await projected(world, story)
    for _ in range(3):
        story.committed()
    await world.append(log, story)
    (other,) = [one for one in (world.lineage, world.findings) if one.name != behind]
    await ProjectionRunner(world.dsn, [other]).catch_up(log.log_id, story.size)
    monkeypatch.setattr(current_findings, "BEHIND_ENTRIES_MAX", 5)
    with pytest.raises(NotKnownNowError, match=f"expected the projection {behind} at most 5 entries behind"):
        await read(world, log, ORDERS, ORDERS_UUID)


async def test_lineage_that_was_reported_a_while_ago_and_is_not_there_is_an_error(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the projection has stopped, or has never run."""
    made_tables(story)
    log, never = await projected(world, story), await world.untouched_log()
    told = Story()
    made_tables(told)
    await world.append(never, told)
    story.committed()
    await world.append(log, story)
    monkeypatch.setattr(upstream, "BEHIND_S_MAX", 0.0)
    assert len((await read(world, log, ORDERS, ORDERS_UUID)).tables) == 1, "what is missed is no lineage"
    story.lineage([dataset("sales.report")], [dataset("sales.orders")], run_id=None)
    await world.append(log, story)
    for one in (log, never):
        with pytest.raises(NotKnownNowError, match="at most 0 s behind what jobs report"):
            await read(world, one, ORDERS, ORDERS_UUID)


async def test_no_tenant_learns_what_another_one_has_made_from_what(world: World, story: Story) -> None:
    made_tables(story)
    theirs, ours = await projected(world, story), await world.untouched_log()
    mine = Story()
    mine.committed(ORDERS, table_uuid=ORDERS_UUID)
    await world.append(ours, mine)
    await ProjectionRunner(world.dsn, [world.lineage, world.findings]).catch_up(ours.log_id, mine.size)
    assert words(await read(world, ours, ORDERS, ORDERS_UUID)) == []
    assert len((await read(world, theirs, ORDERS, ORDERS_UUID)).tables) == 1
    async with world.as_reader(ours) as connection:
        with pytest.raises(NotKnownNowError, match="found none that this role sees"):
            await read_upstream(connection, theirs.log_id, ORDERS, ORDERS_UUID)
