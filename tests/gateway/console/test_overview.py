# SPDX-License-Identifier: Apache-2.0
"""
What the console's first page says of commits.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gateway.console.overview import BAR_WIDTH, CHART_HEIGHT, HOURS, KINDS, chart, kind_of, totals
from projections.relational.counting import Dimensions
from projections.relational.metrics import CommitCount

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)


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


def test_a_commit_is_done_only_if_the_catalog_took_it() -> None:
    assert kind_of(counted(1, outcome="accepted")) == "done"
    assert [kind_of(counted(1, outcome=each)) for each in ("conflicted", "refused", "failed", "")] == ["failed"] * 4
    assert kind_of(counted(1, decision="rejected")) == "rejected"
    assert kind_of(counted(1, decision="undecidable")) == "undecidable"


def test_reasons_of_refusals_are_counted_most_frequent_first() -> None:
    found = totals(
        [
            counted(2, decision="rejected", reason="tenant-column/1"),
            counted(3, decision="rejected"),
            counted(2, decision="rejected", reason="tenant-column/1"),
            counted(9, outcome="accepted", reason="never/1"),
        ]
    )
    assert found.by_kind == {"done": 9, "rejected": 7, "undecidable": 0, "failed": 0}
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
        ("done", 0.75 * CHART_HEIGHT, 0.25 * CHART_HEIGHT),
        ("rejected", 0.25 * CHART_HEIGHT, 0.0),
    ]
    (half,) = [bar for bar in drawn.bars if bar not in full]
    assert (half.kind, half.height, half.x) == ("failed", 0.5 * CHART_HEIGHT, (HOURS - 4) * BAR_WIDTH)
    assert half.words == "09:00 UTC: 20 failed"
    assert drawn.most == 40


def test_what_is_older_than_the_picture_is_not_in_it() -> None:
    assert chart([counted(5, hour=NOON - timedelta(hours=HOURS))], until=NOON).bars == []
    assert {bar.kind for bar in chart([counted(5, hour=NOON - timedelta(hours=HOURS - 1))], until=NOON).bars} <= set(
        KINDS
    )
