# SPDX-License-Identifier: Apache-2.0
"""
Any projection, rebuilt from the log, has the same digest: over made-up histories, cut into batches of any size.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.format.events import CommitDecision, CommitOutcome, DetectionKind, PolicyScope, Reason, TriggerSource
from projections.graph.labels import EdgeLabel
from projections.graph.model import changes_of
from projections.graph.runs import ResolvedLineage
from projections.graph.write import digest_changes
from projections.lineage.changes import changes_of as lineage_changes_of
from projections.lineage.datasets import KnownTables
from projections.lineage.runs import Run, update_run
from projections.processing.digest import GenerationDigest
from projections.processing.generations import rebuild
from projections.processing.projection import read_log_entries
from testkit.projections.story import ADA, ORDERS, ORDERS_UUID, dataset

if TYPE_CHECKING:
    from projections.entries import LogEntry
    from testkit.projections.story import Story, World

ITEMS_UUID = "5f0c9d1e-0000-4000-8000-000000000002"
TABLES = ("table:lake/sales/orders", "table:lake/sales/items", "view:lake/sales/v", "namespace:lake/sales")


@st.composite
def happenings(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    kinds = st.sampled_from(
        [
            *("commit", "decide", "settle", "reject", "policy", "retire", "rule", "unknown"),
            *("observe", "scan", "scan_failed", "identify", "identify", "drop", "alert", "trigger"),
            *("lineage", "lineage", "catalog", "erase"),
        ]
    )
    return draw(st.lists(st.tuples(kinds, st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=25))


def tell(story: Story, happened: list[tuple[str, int, int]]) -> Story:
    """Let it happen, in whatever order; only the versions of policies follow one another, as their guards see to it."""
    groups: list[tuple[int, str]] = []
    versions = [0, 0, 0, 0]
    retired: set[int] = set()
    rules = 0
    alerts: list[UUID] = []
    for kind, which, how in happened:
        key = TABLES[which]
        match kind:
            case "commit":
                story.committed(key, snapshots=[str(how)])
            case "decide":
                groups.append((story.decided(key, actor="abcd"[which] * 32).int, key))
            case "settle":
                # Also of decisions that are settled already, or never were.
                group, of = groups[how % len(groups)] if groups else (how + 1, key)
                story.settled(UUID(int=group), of, list(CommitOutcome)[(which + how) % 5], snapshots=["9"])
            case "reject":
                reason = Reason(id=f"p{which}", version=how + 1)
                story.decided(
                    key,
                    [CommitDecision.REJECTED, CommitDecision.UNDECIDABLE, CommitDecision.CONFLICTED][how % 3],
                    reason=reason,
                )
            case "policy" if which not in retired:
                versions[which] += 1
                # One of retention or not, and within a scope or not.
                expression = "size(commit.removed_snapshots) == 0" if how > 2 else f"{how} == 1"
                scope = PolicyScope(catalogs=(), names=("sales.*",), kinds=(), operations=(), properties=(), uuids=())
                story.policy(f"p{which}", versions[which], expression=expression, scope=scope if which > 1 else None)
            case "retire" if versions[which] and which not in retired:
                story.policy_retired(f"p{which}", versions[which] + 1)
                retired.add(which)
            case "rule":
                rules += 1
                story.rule(f"p{rules}")
            case _ if not tell_more(story, kind, which, how, alerts):
                story.raw("dream.dreamt")
    return story


def tell_more(story: Story, kind: str, which: int, how: int, alerts: list[UUID]) -> bool:
    """Let what comes from outside happen; return False for anything else."""
    match kind:
        case "observe":
            uuid = [ORDERS_UUID, ITEMS_UUID][how % 2]
            story.observed(str(how), key=[ORDERS, None][which % 2], parent=[None, "9"][how % 2], table_uuid=uuid)
        case "scan":
            found = [("email", DetectionKind.EMAIL, 92), ("note", DetectionKind.PHONE, 55)][: which % 3]
            uuid = [ORDERS_UUID, ITEMS_UUID][how % 2]
            alerts.append(story.scanned(str(how), *found, of_catalog=which != 1, table_uuid=uuid))
        case "identify":
            # Two tables that are called by two names in turn; of the second one nothing else may ever be told.
            story.identified([ORDERS, TABLES[1]][which % 2], [ORDERS_UUID, ITEMS_UUID][how % 2])
        case "drop":
            story.dropped([ORDERS, TABLES[1]][which % 2], [ORDERS_UUID, None][how % 2])
        case "scan_failed":
            story.scan_failed(str(how))
        case "alert":
            alert = story.alerted(alerts[-1] if alerts else UUID(int=how), str(how))
            for _ in range(which):
                story.delivered(alert, sink=f"sink{how % 2}")
        case "trigger":
            story.triggered(list(TriggerSource)[which % 3], files=how)
        case "catalog":
            story.catalog()
        case "erase":
            chosen: list[dict[str, Any]] = [
                {"subject": ADA},
                {"subject": "abcd"[how % 4] * 32},
                {"index": how, "name": "principal"},
                {"before": how * 2, "name": [None, "principal", "inputs"][how % 3]},
            ]
            story.erased(**chosen[which])
        case "lineage":
            names = [dataset(f"sales.{name}", version=str(how)) for name in ("orders", "items", "c", "d")]
            source, target = names[which], names[(which + 1 + how) % 4]
            story.lineage([source], [target], columns=[("email", f"c{how}")], run_id=str(how % 3))
        case _:
            return False
    return True


def decided_without_a_database(entries: list[LogEntry]) -> dict[int, ResolvedLineage]:
    """What lineage resolves to, and which edges are drawn: told once more, by plain reachability."""
    drawn: set[tuple[str, str]] = set()

    def reaches(start: str, end: str) -> bool:
        return start == end or any(reaches(target, end) for source, target in drawn if source == start)

    runs: dict[str, Run] = {}
    refused: set[tuple[str, str]] = set()
    omitted: Counter[str] = Counter()
    resolved = {}
    for event in lineage_changes_of(entries, KnownTables()).events:
        telling = update_run(event, runs)
        incomplete: set[str] = set()
        for source, target in telling.pairs:
            if (source, target) in drawn or not reaches(target, source):
                drawn.add((source, target))
            elif (source, target) not in refused:
                refused.add((source, target))
                omitted.update((source, target))
                incomplete |= {source, target}
        if counts := telling.omitted.counts():
            omitted.update(dict.fromkeys(telling.about, sum(counts.values())))
            incomplete |= telling.about
        resolved[event.entry.index] = ResolvedLineage(
            keys=event.keys,
            drawn=[pair for pair in telling.pairs if pair in drawn],
            columns=[column for column in telling.columns if (column[0], column[2]) not in refused],
            state=telling.state,
            omitted={key: omitted[key] for key in incomplete},
        )
    return resolved


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(happened=happenings(), cuts=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_however_the_entries_are_cut_live_rebuilt_and_folded_without_a_database_are_equal(
    world: World, new_story: Callable[[], Story], happened: list[tuple[str, int, int]], cuts: tuple[int, int]
) -> None:
    story = tell(new_story(), happened)
    folded = GenerationDigest(projection="graph", version=world.graph.version)
    live_batch, rebuild_batch = cuts

    async def play() -> None:
        log = await world.new_log()
        await world.project(log, story, batch_max=live_batch)
        async with world.as_projector() as connection:
            entries = await read_log_entries(connection, log.log_id, from_index=0, to_index=story.size)
        lineage = decided_without_a_database(entries)
        digest_changes(changes_of(entries, lineage=lineage), folded)
        for projection in world.projections:
            done = await rebuild(world.dsn, projection, log, append=world.attest, batch_max=rebuild_batch)
            if projection.name == "graph":
                assert done.attested.digest == folded.digest().hex()

    asyncio.run(play())


async def test_a_policy_of_retention_ends_in_the_graph_in_whatever_batch_it_does(world: World, story: Story) -> None:
    story.policy("keep", expression="size(commit.removed_snapshots) == 0")
    story.policy("other")
    story.committed()
    story.policy("keep", 2)
    story.policy_retired("other", 2)
    log = await world.new_log()
    await world.project(log, story, batch_max=1)
    async with world.as_projector() as connection:
        entries = await read_log_entries(connection, log.log_id, from_index=0, to_index=story.size)
    changes, folded = changes_of(entries), GenerationDigest(projection="graph", version=world.graph.version)
    digest_changes(changes, folded)
    assert [edge.end.key for edge in changes.edges_in_force() if edge.label is EdgeLabel.RETAINS] == [ORDERS]
    for batch in (1, 100):
        done = await rebuild(world.dsn, world.graph, log, append=world.attest, batch_max=batch)
        assert done.attested.digest == folded.digest().hex()
