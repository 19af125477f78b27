# SPDX-License-Identifier: Apache-2.0
"""
What the console's first page says of commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.console.entry_words import actions_said, said
from gateway.console.overview import BAR_WIDTH, CHART_HEIGHT, HOURS, KINDS, chart, kind_of, needs, totals
from projections.relational.counting import Dimensions
from projections.relational.metrics import CommitCount

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
WELL: dict[str, Any] = {
    "takes_entries": True,
    "unsigned_entries": 1,
    "unsigned_s": 0.4,
    "projections": [{"name": "graph", "lag_entries": 3, "behind_s": 0.2, "trouble": ""}],
    "streams": [],
    "witnesses": [],
    "detection_put_off": None,
    "dead_letters": 0,
    "open_decisions": 0,
}
EMAIL = {"key": "table:lake/hr/salaries", "column_path": "mail", "kind": "email"}


def counted(
    count: int, *, hour: datetime = NOON, decision: str = "approved", outcome: str = "", reason: str = ""
) -> CommitCount:
    dimensions = Dimensions(
        hour=hour,
        key="table:lake/sales/orders",
        actor="a",
        operation="table.commit",
        decision=decision,
        outcome=outcome,
        reason=reason,
    )
    return CommitCount(dimensions=dimensions, count=count)


def test_a_commit_is_accepted_only_if_the_catalog_took_it() -> None:
    assert kind_of(counted(1, outcome="accepted")) == "accepted"
    became = {"conflicted": "conflicted", "refused": "failed", "failed": "failed", "unknown": "unknown", "": "unknown"}
    assert {each: kind_of(counted(1, outcome=each)) for each in became} == became
    assert kind_of(counted(1, decision="rejected")) == "rejected"
    assert kind_of(counted(1, decision="undecidable")) == "undecidable"
    assert kind_of(counted(1, decision="conflicted")) == "conflicted"


def test_reasons_of_refusals_are_counted_most_frequent_first() -> None:
    found = totals(
        [
            counted(2, decision="rejected", reason="tenant-column/1"),
            counted(3, decision="rejected"),
            counted(2, decision="rejected", reason="tenant-column/1"),
            counted(9, outcome="accepted", reason="never/1"),
        ]
    )
    assert found.by_kind == {"accepted": 9, "rejected": 7, "undecidable": 0, "conflicted": 0, "failed": 0, "unknown": 0}
    assert found.reasons == [("tenant-column/1", 4), ("no access rule permits it", 3)]


def test_the_bars_of_an_hour_stand_on_each_other_and_the_fullest_hour_fills_the_picture() -> None:
    counts = [
        counted(30, outcome="accepted"),
        counted(10, decision="rejected"),
        counted(20, hour=NOON - timedelta(hours=3)),
    ]
    drawn = chart(counts, until=NOON + timedelta(minutes=59))
    full = [bar for bar in drawn.bars if bar.x == (HOURS - 1) * BAR_WIDTH]
    assert [(bar.kind, bar.height, bar.y) for bar in full] == [
        ("accepted", 0.75 * CHART_HEIGHT, 0.25 * CHART_HEIGHT),
        ("rejected", 0.25 * CHART_HEIGHT, 0.0),
    ]
    (half,) = [bar for bar in drawn.bars if bar not in full]
    assert (half.kind, half.height, half.x) == ("unknown", 0.5 * CHART_HEIGHT, (HOURS - 4) * BAR_WIDTH)
    assert half.words == "09:00 UTC: 20 unknown"
    assert drawn.most == 40


def test_what_is_older_than_the_picture_is_not_in_it() -> None:
    assert chart([counted(5, hour=NOON - timedelta(hours=HOURS))], until=NOON).bars == []
    assert {bar.kind for bar in chart([counted(5, hour=NOON - timedelta(hours=HOURS - 1))], until=NOON).bars} <= set(
        KINDS
    )


def needed(
    *findings: dict[str, str], drafts: Mapping[str, Sequence[str]] | None = None, **status: Any
) -> list[tuple[str, str, bool]]:
    drafts = drafts or {"policies": (), "restrictions": ()}
    found = needs({**WELL, **status}, findings=findings, more_findings=False, drafts=drafts)
    return [(each.what, each.place, each.is_urgent) for each in found]


def test_nobody_is_needed_while_all_keeps_up() -> None:
    assert needed() == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"takes_entries": False}, "The log takes no entries"),
        ({"unsigned_s": 61.0}, "1 entry not signed for 61 s"),
        ({"projections": [{**WELL["projections"][0], "behind_s": 90.0}]}, "graph is 3 entries and 90 s behind"),
        (
            {"streams": [{"name": "alerts", "lag_entries": 0, "behind_s": 0, "trouble": "2 failures in a row"}]},
            "2 fail",
        ),
        ({"detection_put_off": 2}, "2 ranges of entries not scanned"),
    ],
)
def test_what_stands_still_is_urgent(status: dict[str, Any], words: str) -> None:
    ((what, place, is_urgent),) = needed(**status)
    assert words in what
    assert (place.partition("#")[0], is_urgent) == ("/console/operate", True)


def test_what_waits_for_an_answer_leads_to_the_page_where_it_is_given() -> None:
    drafts = {"policies": ("owned",), "restrictions": ("europe", "hashed")}
    found = needed(EMAIL, EMAIL, {**EMAIL, "column_path": "copy"}, drafts=drafts, dead_letters=1, open_decisions=2)
    assert found == [
        ("1 message could not be handled", "/console/operate#letters", False),
        ("2 approved changes of foreign catalogs without a known outcome", "/console/operate#decisions", False),
        ("2 findings that nobody has confirmed or dismissed (email)", "/console/findings?state=open", False),
        ("1 draft of policies not reviewed yet (owned)", "/console/policies", False),
        ("2 drafts of restrictions not reviewed yet (europe, hashed)", "/console/restrictions", False),
    ]


def test_a_list_says_in_a_word_what_an_entry_says() -> None:
    assert said({"operation": "table.commit", "decision": "rejected"}, "commit.decided") == "table.commit, rejected"
    assert said({"findings": 5}, "scan.completed") == "5 findings"
    assert said({"kind": "iban", "column": "iban"}, "detection.found") == "iban in column iban"
    reviewed = {"verdict": "dismissed", "kind": "email", "column": "contact.mail"}
    assert said(reviewed, "finding.reviewed") == "dismissed, email in column contact.mail"
    assert said({"event_type": None}, "lineage.received") == ""
    assert said({"verdict": "approve", "version": 2, "draft": 1}, "policy_draft.reviewed") == "approve, version 2"
    replayed = {"decisions": 40, "widened": 1, "narrowed": 3}
    assert said(replayed, "proposal.replayed") == "40 decisions, 1 widened, 3 narrowed"
    assert said({"id": "x"}, "of.no.such.type") == ""
    assert actions_said(["CATALOG_UPDATE_ENTITY", "META_SET_PROPERTIES"]) == "set properties"
    assert actions_said(["CATALOG_UPDATE_ENTITY"]) == "update entity"
