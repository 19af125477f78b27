# SPDX-License-Identifier: Apache-2.0
"""
What a run tells: put together from its events in any order, by its columns where they say so, and never against itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations, product
from typing import TYPE_CHECKING, Any

import pytest

from ledger.format.events import OnCycle
from projections.lineage.changes import changes_of
from projections.lineage.datasets import KnownTables
from projections.lineage.runs import EDGES_MAX, Run, RunUpdate, update_run
from testkit.projections.lineage_stories import FACET, key, run_event, set_cycles, tell, topic, topics_event

if TYPE_CHECKING:
    from testkit.projections.story import Story


def tellings(story: Story) -> list[RunUpdate]:
    """What each event of the story tells."""
    runs: dict[str, Run] = {}
    return [update_run(event, runs) for event in changes_of(story.entries(), KnownTables()).events]


def pairs(telling: RunUpdate) -> set[str]:
    """The pairs of topics, as in "ab"."""
    return {f"{source[-1]}{target[-1]}" for source, target in telling.pairs}


def made(name: str, sources: str | None = None) -> dict[str, Any]:
    """A topic that was written, its column x from the columns x of `sources`; None is no column lineage."""
    if sources is None:
        return topic(name)
    fields = {"x": {"inputFields": [{**topic(source), "field": "x"} for source in sources]}}
    return {**topic(name), "facets": {"columnLineage": {**FACET, "fields": fields}}}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_events_of_a_run_are_told_together_once_it_is_complete_in_any_order(story: Story, order: Sequence[int]) -> None:
    start = run_event([topic("a")], [], eventType="START", eventTime="2026-11-20T12:00:00Z")
    running = run_event([], [made("b", "a")], eventType="RUNNING", eventTime="2026-11-20T12:00:01Z")
    complete = run_event([topic("c")], [], eventTime="2026-11-20T12:00:02Z")
    for number in order:
        tell(story, (start, running, complete)[number])
    told = tellings(story)
    assert [pair for each in told for pair in sorted(pairs(each))] in (["ab", "cb"], ["cb", "ab"])
    assert [column for each in told for column in each.columns] == [(key("a"), "x", key("b"), "x")]
    assert told[-1].state == "COMPLETE", "a START that arrives late undoes nothing"


def test_the_state_is_that_of_the_latest_event_by_its_own_time(story: Story) -> None:
    for event_type, at in (("FAIL", 5), ("COMPLETE", 3), ("RUNNING", 9), ("ABORT", 4)):
        tell(story, topics_event((["a"], ["b"]), eventType=event_type, eventTime=f"2026-11-20T12:00:0{at}+00:00"))
    told = tellings(story)
    assert [each.state for each in told] == ["FAIL"] * 4
    assert [pairs(each) for each in told] == [set(), {"ab"}, set(), set()]


@pytest.mark.parametrize(
    ("read", "written", "drawn", "ambiguous"),
    [
        ("a", [made("b")], {"ab"}, 0),
        # The same set is read and written: without columns nobody can tell, with them it is known.
        ("ab", [made("a"), made("b")], set(), 2),
        ("abc", [made("a"), made("b")], {"ca", "cb"}, 2),
        ("ab", [made("a"), made("b", "a")], {"ab"}, 1),
        ("ab", [made("a", "a"), made("b", "a")], {"ab"}, 0),
        ("ab", [made("a", "b"), made("b", "a")], set(), 2),
        # Two outputs of two inputs, each from one of them.
        ("ab", [made("c", "a"), made("d", "b")], {"ac", "bd"}, 0),
        ("ab", [made("c", "a"), made("d")], {"ac", "ad", "bc", "bd"}, 0),
        # What was only filtered by, or joined with, may have gone anywhere.
        ("ab", [made("c", "a")], {"ac", "bc"}, 0),
        # A MERGE.
        ("ab", [made("a", "a")], {"ba"}, 0),
        ("", [made("c", "a")], {"ac"}, 0),
    ],
)
def test_no_pair_is_taken_against_another_of_its_event_and_columns_decide(
    story: Story, read: str, written: list[Any], drawn: set[str], ambiguous: int
) -> None:
    tell(story, run_event([topic(name) for name in read], written))
    (told,) = tellings(story)
    assert (pairs(told), told.omitted.ambiguous) == (drawn, ambiguous)


def test_where_cycles_are_kept_both_directions_of_one_event_are_versions(story: Story) -> None:
    set_cycles(story, OnCycle.KEEP)
    tell(story, topics_event((["a", "b"], ["a", "b"])))
    (told,) = tellings(story)
    assert (pairs(told), told.omitted.counts()) == ({"ab", "ba"}, {})


def test_job_and_dataset_events_speak_for_themselves(story: Story) -> None:
    job = {"namespace": "etl", "name": "j"}
    tell(story, json.dumps({"producer": "x", "job": job, "inputs": [topic("a")], "outputs": [topic("b")]}).encode())
    tell(story, json.dumps({"producer": "x", "dataset": made("c", "ab")}).encode())
    assert [pairs(each) for each in tellings(story)] == [{"ab"}, {"ac", "bc"}]


def test_more_pairs_than_a_run_may_draw_are_counted(story: Story) -> None:
    many, few = [f"m{number}" for number in range(400)], ["x", "y", "z"]
    tell(story, topics_event((many, few)))
    tell(story, topics_event(([], few[:1])))
    first, again = tellings(story)
    assert list(first.pairs) == [(key(source), key(target)) for source, target in product(many, few)][:EDGES_MAX]
    assert first.omitted.counts() == {"edges": 3 * 400 - EDGES_MAX}
    assert first.about == {key(name) for name in (*many, *few)}
    assert (again.pairs, again.omitted.counts()) == ({}, {})
