# SPDX-License-Identifier: Apache-2.0
"""
Names that are told late, wrongly, or anew: what a table is called, and that what was found in it is found under it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledger.format.events import DetectionKind, ScanFault, UnreadColumn, UnreadReason
from projections.errors import UnknownTableError
from projections.graph.answers_text import format_answers, format_propagation
from projections.graph.read import open_graph
from projections.graph.scan_coverage import ScanCoverage
from projections.graph.traversals import impact_analysis, pii_propagation
from projections.relational.findings import read_findings, read_scans, read_ungoverned
from projections.relational.table_names import TableNames
from testkit.projections.story import ORDERS, ORDERS_UUID, dataset

if TYPE_CHECKING:
    from ledger.store.read import Log
    from projections.graph.traversals import Propagation
    from projections.relational.table_names import NamedTable
    from testkit.projections.story import Story, World

CLIENTS = "table:lake/sales/clients"
OTHER_UUID = "5f0c9d1e-0000-4000-8000-0000000000ff"
EMAIL = ("email", DetectionKind.EMAIL, 92)


def folded(story: Story) -> tuple[TableNames, list[NamedTable]]:
    names = TableNames()
    bound = [names.apply(item) for item in story.entries()]
    return names, [each for each in bound if each is not None]


async def propagation(world: World, log: Log, key: str) -> Propagation:
    async with world.as_reader(log) as connection:
        return await pii_propagation(await open_graph(connection), key)


def reported_by_s3(story: Story, *snapshots: str) -> None:
    """A table that S3 has told of: it has a uuid, and no name."""
    for snapshot in snapshots:
        story.observed(snapshot, key=None)
        story.scanned(snapshot, EMAIL, of_catalog=False)


async def test_what_was_found_before_a_table_had_a_name_is_found_under_its_name(world: World, story: Story) -> None:
    reported_by_s3(story, "11", "12")
    story.catalog()
    story.lineage([dataset("sales.orders")], [dataset("mart.revenue")])
    log = await world.new_log()
    await world.project(log, story, batch_max=2)
    with pytest.raises(UnknownTableError, match="1 table is known by uuid alone"):
        await propagation(world, log, CLIENTS)

    story.identified()
    story.scanned("13", ("phone", DetectionKind.PHONE, 55), of_catalog=False)
    await world.project(log, story)
    found = await propagation(world, log, ORDERS)
    assert [(each.found.column, each.found.kind, each.found.snapshots) for each in found.found] == [
        ("email", "email", 2),
        ("phone", "phone", 1),
    ]
    assert [reached.key for reached in found.tables] == ["table:lake/mart/revenue"]
    assert (found.evidence.snapshots, found.evidence.scanned, found.evidence.pending) == (3, 3, 0)
    async with world.as_reader(log) as connection:
        assert {each.key for each in await read_scans(connection)} == {ORDERS}
        assert {each.key for each in await read_ungoverned(connection)} == {ORDERS}
        assert len(await read_findings(connection, key=ORDERS)) == 2


async def test_a_renamed_table_takes_with_it_what_was_found_and_made_from_it(world: World, story: Story) -> None:
    story.committed(snapshots=["11"])
    story.scanned("11", EMAIL)
    story.catalog()
    story.lineage([dataset("sales.orders")], [dataset("mart.revenue")], columns=[("email", "contact")])
    story.identified(CLIENTS)
    story.observed("12", key=CLIENTS, parent="11")
    log = await world.new_log()
    await world.project(log, story, batch_max=3)
    found = await propagation(world, log, CLIENTS)
    assert [each.found.column for each in found.found] == ["email"]
    assert [(reached.key, reached.hops) for reached in found.tables] == [("table:lake/mart/revenue", 1)]
    assert len(found.columns) == 1
    assert (found.evidence.scanned, found.evidence.pending) == (1, 1)
    before = await propagation(world, log, ORDERS)
    assert before.state.renamed_to == CLIENTS
    assert "  called sales.clients in lake now" in format_propagation(before)

    # The old name is given to another table, in which nothing was found.
    story.committed(snapshots=["21"], table_uuid=OTHER_UUID)
    story.scanned("21", table_uuid=OTHER_UUID)
    await world.project(log, story)
    new = await propagation(world, log, ORDERS)
    assert (new.found, new.state.renamed_to, new.evidence.snapshots) == ((), None, 1)
    assert [each.found.column for each in (await propagation(world, log, CLIENTS)).found] == ["email"]


async def test_a_table_that_the_gateway_renamed_takes_with_it_what_was_found(world: World, story: Story) -> None:
    story.committed(snapshots=["11"])
    story.scanned("11", EMAIL)
    story.renamed(ORDERS, CLIENTS)
    story.committed(CLIENTS, snapshots=["12"])
    log = await world.new_log()
    await world.project(log, story, batch_max=2)
    found = await propagation(world, log, CLIENTS)
    assert [each.found.column for each in found.found] == ["email"]
    assert (found.state.is_dropped, found.evidence.snapshots, found.evidence.pending) == (False, 2, 1)
    before = await propagation(world, log, ORDERS)
    assert before.state.renamed_to == CLIENTS
    async with world.as_reader(log) as connection:
        assert {each.key for each in await read_scans(connection)} == {CLIENTS}
    story.renamed(CLIENTS, ORDERS)
    await world.project(log, story)
    back = await propagation(world, log, ORDERS)
    assert (back.state.renamed_to, back.state.is_dropped, back.evidence.snapshots) == (None, False, 2)


async def test_a_dropped_table_is_told_apart_from_the_one_that_comes_after_it(world: World, story: Story) -> None:
    story.committed(snapshots=["11"])
    story.scanned("11", EMAIL)
    story.dropped()
    log = await world.new_log()
    await world.project(log, story)
    gone = await propagation(world, log, ORDERS)
    assert gone.state.is_dropped
    assert len(gone.found) == 1
    story.committed(snapshots=["21"], table_uuid=OTHER_UUID)
    await world.project(log, story)
    after = await propagation(world, log, ORDERS)
    assert (after.state.is_dropped, after.found) == (False, ())
    assert after.evidence.pending == 1


@pytest.mark.parametrize("ask", [impact_analysis, pii_propagation])
async def test_a_name_that_no_entry_names_is_an_error_and_never_an_all_clear(
    world: World, story: Story, ask: object
) -> None:
    story.committed(snapshots=["11"])
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        graph = await open_graph(connection)
        with pytest.raises(UnknownTableError, match="no entry names it"):
            await ask(graph, "table:lake/sales/oders")  # type: ignore[operator]  # one of two
        await ask(graph, ORDERS)  # type: ignore[operator]


async def test_nothing_found_says_how_much_was_looked_at(world: World, story: Story) -> None:
    story.committed(snapshots=["11"])
    log = await world.new_log()
    await world.project(log, story)
    said = format_propagation(await propagation(world, log, ORDERS))
    assert "  not known: it was not scanned" in said
    assert "  not known: 1 snapshot not scanned yet" in said

    story.scanned("11")
    await world.project(log, story)
    clear = await propagation(world, log, ORDERS)
    assert (clear.evidence.gaps, clear.evidence.summary) == ((), "1 of 1 snapshot scanned")
    assert "  no personal data found" in format_propagation(clear)

    story.committed(snapshots=["12"])
    story.scan_failed("12", ScanFault.FILE_ENCRYPTED)
    unread = UnreadColumn(column="scan", field_id=7, reason=UnreadReason.BINARY)
    story.committed(snapshots=["13"])
    story.scanned("13", unread=[unread])
    await world.project(log, story)
    dim = await propagation(world, log, ORDERS)
    assert dim.evidence.gaps == ("1 snapshot could not be scanned", "columns not looked at: scan (binary)")
    assert "  no personal data in what was looked at" in format_propagation(dim)
    async with world.as_reader(log) as connection:
        answers = await (await open_graph(connection)).answers(ORDERS)
        assert answers.evidence == dim.evidence
        assert "  (2 of 3 snapshots scanned)" in format_answers(answers)
        (scan, *_) = await read_scans(connection)
        assert (scan.columns_unread, scan.unread) == (1, ({"column": "scan", "field_id": 7, "reason": "binary"},))


async def test_a_table_with_more_snapshots_than_are_looked_at_is_never_cleared(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.catalog()
    unread = UnreadColumn(column="scan", field_id=7, reason=UnreadReason.BINARY)
    for snapshot in ("11", "12", "13"):
        story.committed(snapshots=[snapshot])
        story.scanned(snapshot, unread=[unread] if snapshot == "11" else [])
    # One that only lineage has named is not counted, and takes the place of another one.
    story.lineage(inputs=[], outputs=[dataset("sales.orders", version="99")])
    log = await world.new_log()
    await world.project(log, story)
    whole = (await propagation(world, log, ORDERS)).evidence
    assert (whole.is_cut, whole.summary) == (False, "3 of 3 snapshots scanned")
    assert whole.gaps == ("columns not looked at: scan (binary)",)
    for most, seen in ((4, 3), (3, 2), (2, 1)):
        monkeypatch.setattr("projections.graph.read.SNAPSHOTS_MAX", most)
        monkeypatch.setattr("projections.graph.scan_coverage.SNAPSHOTS_MAX", most)
        evidence = (await propagation(world, log, ORDERS)).evidence
        assert (evidence.is_cut, evidence.snapshots) == (most < 4, seen)
        if evidence.is_cut:
            assert evidence.gaps == (f"only its last {most} snapshots were looked at",)
            assert evidence.nothing == "no personal data in what was looked at"


def test_without_any_snapshot_nothing_was_looked_at() -> None:
    nothing = dict.fromkeys(("snapshots", "scanned", "failed", "pending", "sampled", "silent", "columns_unread"), 0)
    assert ScanCoverage(**nothing, unread=(), is_cut=False).gaps == (
        "no snapshot of it is known, so nothing was looked at",
    )


def test_what_a_callback_says_names_no_table_that_a_catalog_has_named(story: Story) -> None:
    story.identified()
    story.observed("11", key=CLIENTS)
    names, bound = folded(story)
    assert names.key_of(ORDERS_UUID) == ORDERS
    assert len(bound) == 1


def test_what_a_callback_says_takes_no_name_from_another_table(story: Story) -> None:
    story.identified()
    story.observed("21", key=ORDERS, table_uuid=OTHER_UUID)
    names, _ = folded(story)
    assert (names.key_of(ORDERS_UUID), names.key_of(OTHER_UUID)) == (ORDERS, None)


def test_what_a_callback_says_names_a_table_until_somebody_knows_better(story: Story) -> None:
    story.observed("11", key=CLIENTS)
    names, _ = folded(story)
    assert names.key_of(ORDERS_UUID) == CLIENTS
    story.identified()
    names, bound = folded(story)
    assert names.key_of(ORDERS_UUID) == ORDERS
    assert (bound[-1].before, bound[-1].is_known) == (CLIENTS, True)


def test_a_name_is_one_tables_at_a_time(story: Story) -> None:
    story.identified()
    story.identified(table_uuid=OTHER_UUID)
    names, _ = folded(story)
    current = {name.table_uuid: (name.key, name.is_current) for name in names.changes()}
    assert current == {ORDERS_UUID: (ORDERS, False), OTHER_UUID: (ORDERS, True)}


def test_a_table_of_which_nothing_was_known_has_nothing_to_be_looked_for(story: Story) -> None:
    story.committed(snapshots=["11"])
    _, bound = folded(story)
    assert [each.is_known for each in bound] == [False]
