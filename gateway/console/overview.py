# SPDX-License-Identifier: Apache-2.0
"""
What the first page says: what needs somebody now, how many commits were decided how in which hour, and why some were
refused. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from ledger.format.events import CommitDecision, CommitOutcome
from projections.relational.metrics import CommitCount

HOURS: Final = 24
NAMED_MAX: Final = 5
"""Drafts that a line names."""
REASONS_MAX: Final = 10
BAR_WIDTH: Final = 22
CHART_HEIGHT: Final = 120
BEHIND_S_MAX: Final = 60.0
"""What follows the log and misses an entry for longer needs somebody; it is usually less than a second behind."""
KINDS: Final = ("accepted", "rejected", "undecidable", "conflicted", "failed", "unknown")
"""
What becomes of a commit, as the page has it, from the bottom of a bar to its top. One that was approved is accepted by
the catalog, conflicted (another commit came first), failed (the catalog refused it, or could not), or its outcome is
unknown: it may come yet. One that conflicts with the table before it is forwarded is conflicted, too.
"""
_KIND_OF_DECISION: Final[Mapping[str, str]] = {
    CommitDecision.REJECTED: "rejected",
    CommitDecision.UNDECIDABLE: "undecidable",
    CommitDecision.CONFLICTED: "conflicted",
}
_KIND_OF_OUTCOME: Final[Mapping[str, str]] = {
    CommitOutcome.ACCEPTED: "accepted",
    CommitOutcome.CONFLICTED: "conflicted",
    CommitOutcome.REFUSED: "failed",
    CommitOutcome.FAILED: "failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Commits by what became of them, and the most frequent reasons of refusals (`<id>/<version>`)."""

    by_kind: dict[str, int]
    reasons: list[tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something that waits for a person: what it is, what to do, and the page to do it on. `is_urgent`: work stands."""

    what: str
    advice: str
    place: str
    is_urgent: bool = False


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
    """The bars of a picture, `width` by `height`, and the hours below some of them."""

    width: int
    height: int
    bars: list[Bar]
    labels: list[tuple[int, datetime]]
    most: int


def kind_of(count: CommitCount) -> str:
    """
    Return what became of commits: one of `KINDS`.
    """
    of = count.dimensions
    if of.decision in _KIND_OF_DECISION:
        return _KIND_OF_DECISION[of.decision]
    return _KIND_OF_OUTCOME.get(of.outcome or "", "unknown")


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


def needs(
    status: Mapping[str, Any],
    *,
    findings: Sequence[Mapping[str, Any]],
    more_findings: bool,
    drafts: Mapping[str, Sequence[str]],
) -> list[Need]:
    """
    Return what needs somebody now, what is most urgent first.

    `status` is what `/v1/status` answers, `findings` are open ones (with `more_findings` there are more), and `drafts`
    the ids of what has a draft that waits for a review: those of `policies` and of `restrictions`.
    """
    found = [*_standing(status)]
    if letters := status["dead_letters"]:
        what = f"{_number(letters, 'message')} could not be handled"
        found.append(Need(what=what, advice="mend what the reason says, then replay", place="/console/operate#letters"))
    if decisions := status["open_decisions"]:
        what = f"{_number(decisions, 'approved change')} of foreign catalogs without a known outcome"
        found.append(Need(what=what, advice="see what is known of them", place="/console/operate#decisions"))
    if findings:
        # A column that was scanned twice is to be reviewed once.
        columns = {(each["key"], each["column_path"], each["kind"]) for each in findings}
        kinds = ", ".join(sorted({str(each["kind"]) for each in findings}))
        more = "more than " if more_findings else ""
        what = f"{more}{_number(len(columns), 'finding')} that nobody has confirmed or dismissed ({kinds})"
        found.append(
            Need(what=what, advice="look at them, and say which are real", place="/console/findings?state=open")
        )
    for kind, ids in drafts.items():
        if ids:
            what = f"{_number(len(ids), 'draft')} of {kind} not reviewed yet ({', '.join(ids[:NAMED_MAX])})"
            found.append(Need(what=what, advice="approve or refuse", place=f"/console/{kind}"))
    return found


def _standing(status: Mapping[str, Any]) -> Iterator[Need]:
    """What stands still: nothing of it goes on by itself."""
    operate = "/console/operate"
    if not status["takes_entries"]:
        what = "The log takes no entries, so nothing can be committed: the signer has not confirmed its history"
        yield Need(what=what, advice="see whether the signer runs, and what it says", place=operate, is_urgent=True)
    if status["unsigned_entries"] and status["unsigned_s"] > BEHIND_S_MAX:
        what = f"{_number(status['unsigned_entries'], 'entry')} not signed for {status['unsigned_s']:,.0f} s"
        yield Need(what=what, advice="see whether the signer runs", place=operate, is_urgent=True)
    for each in (*status["projections"], *status["streams"]):
        if each["behind_s"] > BEHIND_S_MAX:
            what = f"{each['name']} is {_number(each['lag_entries'], 'entry')} and {each['behind_s']:,.0f} s behind"
            yield Need(what=what, advice="see whether it runs", place=f"{operate}#runners", is_urgent=True)
        elif each["trouble"] and not status["dead_letters"]:
            what = f"{each['name']}: {each['trouble']}"
            yield Need(what=what, advice="see what it says", place=f"{operate}#runners", is_urgent=True)
    if (witnesses := status["witnesses"]) is None:
        what = "How the witnesses are is not known: their policy cannot be read"
        yield Need(what=what, advice="see what the log has signed and anchored", place="/console/log", is_urgent=True)
    elif late := [each["name"] for each in witnesses if each["lags"]]:
        names = ", ".join(late[:NAMED_MAX])
        what = f"{_number(len(late), 'witness')} of {len(witnesses)} without a new cosignature ({names})"
        yield Need(what=what, advice="see what each says", place="/console#witnesses", is_urgent=True)
    if put_off := status["detection_put_off"]:
        what = f"{_number(put_off, 'range')} of entries not scanned: a storage does not answer"
        yield Need(what=what, advice="mend the storage", place=f"{operate}#runners", is_urgent=True)


def _number(count: int, of: str) -> str:
    many = f"{of[:-1]}ies" if of.endswith("y") else f"{of}es" if of.endswith("s") else f"{of}s"
    return f"{count:,} {of if count == 1 else many}"


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
    labels = [(number * BAR_WIDTH, hour) for number, hour in enumerate(hours) if number % 4 == 3]
    return Chart(width=HOURS * BAR_WIDTH, height=CHART_HEIGHT, bars=bars, labels=labels, most=most)


def _bars(x: int, hour: datetime, of_hour: Counter[str], most: int) -> Iterator[Bar]:
    top = float(CHART_HEIGHT)
    for kind in KINDS:
        if count := of_hour[kind]:
            height = round(CHART_HEIGHT * count / most, 2)
            top = round(top - height, 2)
            yield Bar(kind=kind, x=x, y=top, height=height, words=f"{hour:%H}:00 UTC: {count:,} {kind}")
