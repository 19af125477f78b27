# SPDX-License-Identifier: Apache-2.0
"""
What the first page says of commits: how many were decided how, in which hour, and why some were refused. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from ledger.format.events import CommitDecision, CommitOutcome
from projections.relational.metrics import CommitCount

HOURS: Final = 24
REASONS_MAX: Final = 10
BAR_WIDTH: Final = 22
CHART_HEIGHT: Final = 120
KINDS: Final = ("done", "rejected", "undecidable", "failed")
"""What becomes of a commit, as the page has it, from the bottom of a bar to its top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Commits by what became of them, and the most frequent reasons of refusals (`<id>/<version>`)."""

    by_kind: dict[str, int]
    reasons: list[tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One part of a bar: its place in the picture, and what it stands for."""

    kind: str
    x: int
    y: float
    height: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The bars of a picture, `width` by `height`, and the hours below it."""

    width: int
    height: int
    bars: list[Bar]
    labels: list[tuple[int, str]]
    most: int


def kind_of(count: CommitCount) -> str:
    """
    Return what became of commits: one of `KINDS`.
    """
    of = count.dimensions
    if of.decision == CommitDecision.REJECTED:
        return "rejected"
    if of.decision == CommitDecision.UNDECIDABLE:
        return "undecidable"
    return "done" if of.outcome == CommitOutcome.ACCEPTED else "failed"


def totals(counts: Iterable[CommitCount]) -> Totals:
    """
    Return the sums of `counts`.
    """
    by_kind: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for count in counts:
        kind = kind_of(count)
        by_kind[kind] += count.count
        if kind == "rejected":
            reasons[count.dimensions.reason or "no access rule permits it"] += count.count
    return Totals(by_kind={kind: by_kind[kind] for kind in KINDS}, reasons=reasons.most_common(REASONS_MAX))


def chart(counts: Iterable[CommitCount], *, until: datetime) -> Chart:
    """
    Return the picture of the last `HOURS` hours, that of `until` last.
    """
    last = until.replace(minute=0, second=0, microsecond=0)
    hours = [last - timedelta(hours=HOURS - 1 - number) for number in range(HOURS)]
    by_hour: dict[datetime, Counter[str]] = {hour: Counter() for hour in hours}
    for count in counts:
        if (of_hour := by_hour.get(count.dimensions.hour)) is not None:
            of_hour[kind_of(count)] += count.count
    most = max(of_hour.total() for of_hour in by_hour.values())
    bars = [
        bar
        for number, (hour, of_hour) in enumerate(by_hour.items())
        for bar in _bars(number * BAR_WIDTH, hour, of_hour, most)
    ]
    labels = [(number * BAR_WIDTH, f"{hour:%H}") for number, hour in enumerate(hours) if number % 4 == 3]
    return Chart(width=HOURS * BAR_WIDTH, height=CHART_HEIGHT, bars=bars, labels=labels, most=most)


def _bars(x: int, hour: datetime, of_hour: Counter[str], most: int) -> Iterator[Bar]:
    top = float(CHART_HEIGHT)
    for kind in KINDS:
        if count := of_hour[kind]:
            height = round(CHART_HEIGHT * count / most, 2)
            top = round(top - height, 2)
            yield Bar(kind=kind, x=x, y=top, height=height, words=f"{hour:%H}:00 UTC: {count:,} {kind}")
