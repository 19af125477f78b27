# SPDX-License-Identifier: Apache-2.0
"""
Metrics: what is counted, once, and how it is exposed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ledger.format.events import (
    AccessRefused,
    CallerRefused,
    CommitDecision,
    CommitOutcome,
    DetectionKind,
    LineageCycleFound,
    Reason,
    ScanFault,
    TriggerSource,
)
from projections.exposition import CONTENT_TYPE, Metric, MetricKind, Sample, format_metrics
from projections.processing.generations import rebuild
from projections.relational.counting import count_entries, groups_settled
from projections.relational.metrics import read_history, read_hours, read_metrics
from testkit.projections.story import dataset

if TYPE_CHECKING:
    from testkit.projections.story import Story, World

NAMES = ("graph", "commits", "metrics")


def counted(story: Story) -> dict[tuple[str, str, str], int]:
    result = count_entries(story.entries(), [])
    found: dict[tuple[str, str, str], int] = {}
    for of, count in result.counts.items():
        key = (of.decision, of.outcome, of.reason)
        found[key] = found.get(key, 0) + count
    return found


def test_a_commit_is_counted_when_it_is_at_its_end(story: Story) -> None:
    story.decided()
    assert counted(story) == {}
    story.committed()
    story.decided(decision=CommitDecision.REJECTED, reason=Reason(id="p1", version=2))
    story.decided(decision=CommitDecision.CONFLICTED)
    story.settled(story.decided(), outcome=CommitOutcome.REFUSED)
    assert counted(story) == {
        ("approved", "accepted", ""): 1,
        ("rejected", "", "p1/2"): 1,
        ("conflicted", "", ""): 1,
        ("approved", "refused", ""): 1,
    }


def test_unknown_is_no_end_and_a_second_outcome_counts_nothing(story: Story) -> None:
    group = story.decided()
    story.settled(group, outcome=CommitOutcome.UNKNOWN)
    assert counted(story) == {}
    assert [commit.is_unknown for commit in count_entries(story.entries(), []).opened.values()] == [True]
    story.settled(group)
    story.settled(group)
    story.settled(UUID(int=1))
    assert counted(story) == {("approved", "accepted", ""): 1}
    result = count_entries(story.entries(), [])
    assert (result.opened, result.closed) == ({}, set()), "what one batch opens and closes was never stored"
    before, after = story.entries()[:1], story.entries()[1:]
    assert count_entries(after, count_entries(before, []).opened.values()).closed == {0}


def test_a_transaction_counts_each_of_its_tables(story: Story) -> None:
    other = "table:lake/sales/items"
    group = story.add(story.decision(), story.decision(other))
    story.add(story.outcome(group), story.outcome(group, other, CommitOutcome.FAILED))
    assert counted(story) == {("approved", "accepted", ""): 1, ("approved", "failed", ""): 1}
    entries = story.entries()
    assert groups_settled(entries) == [], "the whole decision is here"
    assert [groups_settled(entries[begun:]) for begun in (1, 2, 3)] == [[group]] * 3


def test_a_batch_needs_only_the_open_commits_that_it_settles(new_story: Callable[[], Story]) -> None:
    story = new_story()
    group = story.decided()
    story.settled(group, outcome=CommitOutcome.UNKNOWN)
    story.settled(group)
    entries = story.entries()
    opened: dict[int, object] = {}
    for item in entries:
        stored = [commit for commit in opened.values() if commit.group_id in groups_settled([item])]  # type: ignore[attr-defined]  # OpenCommits
        result = count_entries([item], stored)  # type: ignore[arg-type]  # OpenCommits
        opened.update(result.opened)
        opened = {index: commit for index, commit in opened.items() if index not in result.closed}
    assert result.counts == count_entries(entries, []).counts
    assert opened == {}


async def test_the_metrics_of_all_tenants_are_scraped_and_parse(world: World, new_story: Callable[[], Story]) -> None:
    tenants = []
    for commits in (1, 2):
        story = new_story()
        for _ in range(commits):
            story.committed()
        story.decided(decision=CommitDecision.REJECTED, reason=Reason(id='say "no"\\\n', version=1))
        story.settled(story.decided(), outcome=CommitOutcome.UNKNOWN)
        story.decided()
        refused = AccessRefused(operation="table.load", identifier=None, reason=None, count=2)
        caller = CallerRefused(operation="table.load", identifier=None, reason=None, count=3, key="key-1")
        story.add(*(story.event(event, key="table:lake/sales/orders") for event in (refused, caller)))
        log = await world.new_log()
        await world.project(log, story, batch_max=2)
        assert log.tenant is not None
        tenants.append(log.tenant.hex)
    async with world.as_role(world.roles.auditor) as connection:
        text = format_metrics(await read_metrics(connection, NAMES))
    samples = {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    # Labels in the order of their names: decision, operation, outcome, reason, tenant.
    for tenant, commits in zip(tenants, (1, 2), strict=True):
        total = "lakeproof_commits_total"
        assert samples[total, "approved", "table.commit", "accepted", "", tenant] == commits
        assert samples[total, "rejected", "table.commit", "", 'say "no"\\\n/1', tenant] == 1
        assert samples["lakeproof_commits_open", "table.commit", "unknown", tenant] == 1
        assert samples["lakeproof_commits_open", "table.commit", "forwarded", tenant] == 1
        assert samples["lakeproof_access_refused_total", "table.load", "", tenant] == 5
        for name in NAMES:
            assert samples["lakeproof_projection_lag_entries", name, tenant] == 0
    assert len(samples) == 2 * (2 + 2 + 1 + 3)


async def test_triggers_lineage_and_detection_are_counted_and_name_nobody(world: World, story: Story) -> None:
    story.triggered()
    story.triggered(TriggerSource.POLARIS_WEBHOOK)
    story.triggered()
    finding = story.scanned("11", ("email", DetectionKind.EMAIL, 92), ("note", DetectionKind.PHONE, 55))
    story.scan_failed("12", ScanFault.FILE_MISSING)
    story.delivered(story.alerted(finding, "11"))
    story.observed("13")
    story.lineage([dataset("a")], [dataset("b")])
    cycle = LineageCycleFound(lineage=str(finding), path=("a", "b"), source="b", target="a")
    story.add(story.event(cycle, key="dataset:a/b"))
    log = await world.new_log()
    await world.project(log, story, batch_max=3)
    async with world.as_role(world.roles.auditor) as connection:
        metrics = {metric.name: metric for metric in await read_metrics(connection, NAMES)}
    assert log.tenant is not None
    found = {
        name: {tuple(sample.labels.values()): sample.value for sample in metrics[f"lakeproof_{name}_total"].samples}
        for name in (
            *("triggers", "ungoverned_commits", "scans_completed", "scans_failed", "findings", "alerts_raised"),
            *("alerts_delivered", "lineage_events", "lineage_cycles"),
        )
    }
    tenant = log.tenant.hex
    assert found == {
        "triggers": {(tenant, "s3"): 2, (tenant, "polaris-webhook"): 1},
        "ungoverned_commits": {(tenant,): 1},
        "scans_completed": {(tenant,): 1},
        "scans_failed": {(tenant, "file_missing"): 1},
        "findings": {(tenant, "email", "92"): 1, (tenant, "phone", "55"): 1},
        "alerts_raised": {(tenant, "email"): 1},
        "alerts_delivered": {(tenant, "webhook"): 1},
        "lineage_events": {(tenant, "run"): 1},
        "lineage_cycles": {(tenant,): 1},
    }
    await rebuild(world.dsn, world.metrics, log, append=world.attest)


async def test_a_rebuild_changes_no_metric(world: World, story: Story) -> None:
    story.committed()
    story.decided(decision=CommitDecision.REJECTED)
    log = await world.new_log()
    await world.project(log, story)
    texts = set()
    for _ in range(3):
        async with world.as_role(world.roles.auditor) as connection:
            texts.add(format_metrics(await read_metrics(connection, NAMES)))
        await rebuild(world.dsn, world.metrics, log, append=world.attest)
    assert len(texts) == 1


async def test_history_is_by_hour_table_and_actor(world: World, story: Story) -> None:
    story.committed()
    story.committed()
    story.committed("table:lake/sales/items", actor="b" * 32)
    log = await world.new_log()
    await world.project(log, story)
    async with world.as_reader(log) as connection:
        history = await read_history(connection, since=datetime(2026, 1, 1, tzinfo=UTC))
        assert await read_history(connection, since=datetime(9000, 1, 1, tzinfo=UTC)) == []
    by_key: dict[tuple[str, str], int] = {}
    for each in history:
        key = (each.dimensions.key, each.dimensions.actor)
        by_key[key] = by_key.get(key, 0) + each.count
    assert by_key == {("table:lake/sales/orders", "a" * 32): 2, ("table:lake/sales/items", "b" * 32): 1}
    assert {(each.dimensions.hour.minute, each.dimensions.hour.tzinfo) for each in history} == {(0, UTC)}


async def test_hours_are_over_all_tables_and_actors_of_one_log(world: World, story: Story) -> None:
    story.committed()
    story.committed("table:lake/sales/items", actor="b" * 32)
    story.decided(decision=CommitDecision.REJECTED)
    log, other = await world.new_log(), await world.new_log()
    await world.project(log, story)
    since = datetime(2026, 1, 1, tzinfo=UTC)
    async with world.as_reader(log) as connection:
        hours = await read_hours(connection, log.log_id, since=since)
        history = await read_history(connection, since=since)
        assert await read_hours(connection, log.log_id, since=datetime(9000, 1, 1, tzinfo=UTC)) == []
        assert await read_hours(connection, other.log_id, since=since) == []
    assert {(each.dimensions.decision, each.count) for each in hours} == {("approved", 2), ("rejected", 1)}
    assert {(each.dimensions.key, each.dimensions.actor) for each in hours} == {("", "")}
    assert {each.dimensions.hour for each in hours} == {each.dimensions.hour for each in history}


@pytest.mark.parametrize("value", ["", "a", '"', "\\", "\n", '\\"\n\\n', "表"])
def test_label_values_may_hold_anything(value: str) -> None:
    metric = Metric(
        name="m_total", kind=MetricKind.COUNTER, help="Things.", samples=[Sample(labels={"of": value}, value=2**53)]
    )
    (family,) = text_string_to_metric_families(format_metrics([metric]))
    (sample,) = family.samples
    assert (sample.name, sample.labels, sample.value) == ("m_total", {"of": value}, 2**53)
    assert CONTENT_TYPE.startswith("text/plain")
