# SPDX-License-Identifier: Apache-2.0
"""
What detection knows of a table as of now is what the log says, however far the read model is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.format.events import DetectionKind, FindingVerdict
from projections.errors import NotKnownNowError
from projections.processing.cursors import read_live
from projections.processing.generations import rebuild
from projections.processing.runner import ProjectionRunner
from projections.relational import current_findings
from projections.relational.current_findings import FindingsFold, TableFindings, read_current, told_by
from testkit.projections.story import ORDERS, ORDERS_UUID, Story

if TYPE_CHECKING:
    from ledger.store.read import Log
    from testkit.projections.story import World

EMAIL, PHONE, IBAN = (
    ("email", DetectionKind.EMAIL, 92),
    ("note", DetectionKind.PHONE, 55),
    ("x", DetectionKind.IBAN, 65),
)
OTHER_UUID = "5f0c9d1e-0000-4000-8000-000000000002"
EXAMPLES = 40


def folded(story: Story, end: int, *, table_uuid: str = ORDERS_UUID) -> TableFindings:
    """What the first entries of a story say of a table."""
    fold = FindingsFold()
    for item in story.entries()[:end]:
        if (told := told_by(item)) is not None and told.table_uuid == table_uuid:
            fold.apply(told)
    return fold.value(as_of=end)


def states(found: TableFindings) -> list[tuple[str, str]]:
    return [(one.kind, one.state.value) for one in found.columns]


def words(found: TableFindings) -> list[tuple[int, str, str, int]]:
    return [(one.field_id, one.kind, one.snapshot, one.index) for one in found.columns]


async def read(world: World, log: Log, *, table_uuid: str | None = ORDERS_UUID) -> TableFindings:
    async with world.as_reader(log) as connection:
        return await read_current(connection, log.log_id, table_uuid)


def same(found: TableFindings, expected: TableFindings) -> None:
    """Groups are appended at times of their own, so these are left out."""
    assert words(found) == words(expected)
    assert [(one.column, one.confidence_percent, one.matches, one.values) for one in found.columns] == [
        (one.column, one.confidence_percent, one.matches, one.values) for one in expected.columns
    ]
    assert (found.scanned_snapshot, found.as_of) == (expected.scanned_snapshot, expected.as_of)
    assert states(found) == states(expected)


def test_each_column_and_kind_has_its_newest_finding() -> None:
    story = Story()
    story.scanned("11", EMAIL, PHONE)
    story.scanned("12", EMAIL)
    found = folded(story, story.size)
    assert words(found) == [(1, "email", "12", 4), (2, "phone", "11", 2)]
    assert (found.scanned_snapshot, found.as_of) == ("12", story.size)
    assert found.scanned_at == "2026-11-20T12:00:01.000000Z" == found.columns[0].found_at


def test_a_scan_that_is_done_again_takes_back_what_it_does_not_find_any_more() -> None:
    story = Story()
    story.scanned("11", EMAIL)
    story.scanned("12", EMAIL, PHONE)
    story.scanned("12")
    assert words(folded(story, story.size)) == [(1, "email", "11", 1)]


def test_a_failed_scan_is_no_scan_and_takes_back_what_the_one_before_it_found() -> None:
    story = Story()
    story.scanned("11", EMAIL)
    story.scanned("12", PHONE)
    story.scan_failed("12")
    found = folded(story, story.size)
    assert (words(found), found.scanned_snapshot) == ([(1, "email", "11", 1)], "11")
    story.scan_failed("11")
    assert folded(story, story.size) == TableFindings(as_of=story.size)


def test_a_review_holds_for_what_later_scans_find_in_the_column_unless_one_is_surer_of_what_was_dismissed() -> None:
    story = Story()
    story.scanned("11", ("email", DetectionKind.EMAIL, 65), PHONE)
    story.reviewed(1)
    story.reviewed(2, FindingVerdict.CONFIRMED)
    story.scanned("12", ("email", DetectionKind.EMAIL, 65), ("note", DetectionKind.PHONE, 92), IBAN)
    assert states(folded(story, 3)) == [("email", "open"), ("phone", "open")]
    assert states(folded(story, 5)) == [("email", "dismissed"), ("phone", "confirmed")]
    assert states(folded(story, story.size)) == [("email", "dismissed"), ("phone", "confirmed"), ("iban", "open")]
    story.scanned("13", EMAIL)
    assert states(folded(story, story.size))[0] == ("email", "open"), "it is surer now"
    story.reviewed(story.size - 1, version=2)
    assert states(folded(story, story.size))[0] == ("email", "dismissed")
    story.reviewed(story.size - 2, FindingVerdict.CONFIRMED, version=3)
    assert states(folded(story, story.size))[0] == ("email", "confirmed"), "the last one holds"


def test_of_another_table_nothing_is_told() -> None:
    story = Story()
    story.scanned("11", EMAIL, table_uuid=OTHER_UUID)
    assert folded(story, story.size) == TableFindings(as_of=story.size)


def test_too_many_findings_are_an_error_and_not_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    story.scanned("11", EMAIL, PHONE)
    monkeypatch.setattr(current_findings, "FINDINGS_MAX", 2)
    assert len(folded(story, story.size).columns) == 2
    story.scanned("12", EMAIL, PHONE, IBAN)
    with pytest.raises(NotKnownNowError, match="at most 2 findings"):
        folded(story, story.size)


async def test_it_is_read_from_the_log_alone_where_nothing_was_projected(world: World, story: Story) -> None:
    story.scanned("11", EMAIL, PHONE)
    log = await world.untouched_log()
    await world.append(log, story)
    same(await read(world, log), folded(story, story.size))


async def test_it_does_not_depend_on_how_far_the_read_model_is(world: World, story: Story) -> None:
    """Every cut, also one between a scan and what it found."""
    story.scanned("11", EMAIL, PHONE)
    story.scanned("12", EMAIL, table_uuid=OTHER_UUID)
    story.committed()
    story.reviewed(1)
    story.scanned("12", PHONE, EMAIL, IBAN)
    story.reviewed(story.size - 3, FindingVerdict.CONFIRMED)
    story.reviewed(2, version=2)
    story.scanned("11", PHONE)
    story.scan_failed("12")
    story.scanned("13", IBAN)
    log = await world.new_log()
    await world.append(log, story)
    for at in range(story.size + 1):
        await ProjectionRunner(world.dsn, [world.findings], batch_max=1).catch_up(log.log_id, at)
        same(await read(world, log), folded(story, story.size))
        same(await read(world, log, table_uuid=OTHER_UUID), folded(story, story.size, table_uuid=OTHER_UUID))


SCANS = st.lists(
    st.tuples(
        st.sampled_from(["11", "12", "13"]), st.lists(st.sampled_from([EMAIL, PHONE, IBAN]), max_size=3) | st.none()
    ),
    max_size=8,
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scans=SCANS)
def test_a_fold_that_goes_on_is_the_fold_of_all(
    scans: list[tuple[str, list[tuple[str, DetectionKind, int]] | None]],
) -> None:
    story = Story()
    for snapshot, found in scans:
        if found is None:
            story.scan_failed(snapshot)
        else:
            story.scanned(snapshot, *found)
    rows: dict[tuple[str, int, str], tuple[int, str]] = {}
    group_of: dict[str, object] = {}
    fold = FindingsFold()
    for item in story.entries():
        told = told_by(item)
        assert told is not None
        fold.apply(told)
        snapshot = told.scan[0]
        if group_of.get(snapshot) != item.entry.group_id:
            rows = {at: row for at, row in rows.items() if at[0] != snapshot}
            group_of[snapshot] = item.entry.group_id
        if item.entry.type == "detection.found":
            data = item.entry.data
            rows[snapshot, int(str(data["field_id"])), str(data["kind"])] = (item.entry.index, snapshot)
        newest: dict[tuple[int, str], tuple[int, str]] = {}
        for (_, field_id, kind), row in rows.items():
            newest[field_id, kind] = max(newest.get((field_id, kind), row), row)
        expected = [(field_id, kind, snapshot, index) for (field_id, kind), (index, snapshot) in sorted(newest.items())]
        assert words(fold.value(as_of=0)) == expected


async def test_a_read_model_that_is_too_far_behind_is_an_error(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.scanned("11", EMAIL)
    log = await world.new_log()
    await world.project(log, story)
    story.committed()
    story.scanned("12", PHONE)
    await world.append(log, story)
    monkeypatch.setattr(current_findings, "BEHIND_ENTRIES_MAX", 4)
    same(await read(world, log), folded(story, story.size))
    monkeypatch.setattr(current_findings, "BEHIND_ENTRIES_MAX", 3)
    with pytest.raises(NotKnownNowError, match="at most 3 entries behind the log"):
        await read(world, log)
    assert await read(world, log, table_uuid=None) == TableFindings(as_of=story.size), "a new table needs none of it"


async def test_a_read_model_that_was_built_again_says_the_same(world: World, story: Story) -> None:
    story.scanned("11", EMAIL, PHONE)
    story.scanned("12", IBAN)
    log = await world.new_log()
    await world.project(log, story)
    before = await read(world, log)
    await rebuild(world.dsn, world.findings, log, append=world.attest)
    assert await read(world, log) == before
    async with world.as_reader(log) as connection:
        live = await read_live(connection, "findings", log.log_id)
    assert live is not None
    assert live.generation == 2


async def test_a_row_too_many_is_an_error(world: World, story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    story.scanned("11", EMAIL, PHONE, IBAN)
    log = await world.new_log()
    await world.project(log, story)
    monkeypatch.setattr(current_findings, "FINDINGS_MAX", 3)
    assert len((await read(world, log)).columns) == 3
    monkeypatch.setattr(current_findings, "FINDINGS_MAX", 2)
    with pytest.raises(NotKnownNowError, match="at most 2 findings"):
        await read(world, log)


async def test_no_tenant_learns_what_another_ones_log_says_of_the_same_table(world: World, story: Story) -> None:
    ours, theirs = await world.new_log(), await world.untouched_log()
    story.scanned("11", EMAIL)
    await world.project(theirs, story)
    story.scanned("12", PHONE)
    await world.append(theirs, story)
    mine = Story()
    mine.committed(ORDERS)
    await world.project(ours, mine)
    assert await read(world, ours) == TableFindings(as_of=mine.size)
    assert len((await read(world, theirs)).columns) == 2
    async with world.as_reader(ours) as connection:
        with pytest.raises(NotKnownNowError, match="found none that this role sees"):
            await read_current(connection, theirs.log_id, ORDERS_UUID)


async def test_names_that_are_longer_than_an_index_can_hold_are_found(world: World, story: Story) -> None:
    long = "表" * 900
    story.scanned("11", EMAIL, table_uuid=long)
    log = await world.new_log()
    await world.append(log, story)
    assert len((await read(world, log, table_uuid=long)).columns) == 1
    await world.project(log, story)
    assert len((await read(world, log, table_uuid=long)).columns) == 1
    assert (await read(world, log, table_uuid=long + "b")).columns == ()
