# SPDX-License-Identifier: Apache-2.0
"""
The rules of the metrics: which commits are counted, when, and under which dimensions. Pure.

A commit is counted once, when it is final: at its decision, unless that approves it; otherwise at the first outcome
that is not `unknown`. Until then it is open. So counts only grow, and no commit is counted twice.

Events of lineage, triggers and detection are counted as they occur, by dimensions of few values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from ledger.format.entry import Entry
from ledger.format.events import (
    AccessRefused,
    AlertDelivered,
    AlertRaised,
    CallerRefused,
    CommitDecided,
    CommitDecision,
    CommitObserved,
    CommitOutcome,
    CommitSettled,
    DetectionFound,
    LineageCycleFound,
    LineageReceived,
    Reason,
    ScanCompleted,
    ScanCompletedV1,
    ScanFailed,
    TableIdentified,
    TriggerReceived,
)
from projections.entries import LogEntry, decision_of, storable

NO_OUTCOME = ""
"""The outcome of a commit that was not approved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCommit:
    """An approved commit without a final outcome; `is_unknown` after an outcome `unknown`."""

    index: int
    group_id: UUID
    key: str
    recorded_at: datetime
    actor: str
    operation: str
    reason: str
    is_unknown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """The dimensions of a count; `hour` (UTC) is that of the decision, `reason` is `<id>/<version>` or empty."""

    hour: datetime
    key: str
    actor: str
    operation: str
    decision: str
    outcome: str
    reason: str


class EventKind(NamedTuple):
    """An event type with the dimensions of its count: source, kind, fault or sink; and confidence."""

    event: str
    kind: str = ""
    degree: str = ""


@dataclass(slots=True, kw_only=True)
class CountChanges:
    """
    What a batch changes: counts, refusals by (operation, reason), other events by `kind_of_event`, and the commits that
    were opened, changed or closed: closed are those that were open before.
    """

    counts: Counter[Dimensions] = field(default_factory=Counter)
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)
    events: Counter[EventKind] = field(default_factory=Counter)
    opened: dict[int, OpenCommit] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)


def groups_settled(entries: Sequence[LogEntry]) -> list[UUID]:
    """
    Return the decisions whose open commits `count_entries` must be given: not those that `entries` have from their
    beginning on.
    """
    first = entries[0].entry.index if entries else 0
    found: dict[int, UUID] = {}
    whole: set[int] = set()
    for item in entries:
        if isinstance(item.event, CommitSettled):
            decision = decision_of(item.entry, item.event)
            found[decision.int] = decision
        elif isinstance(item.event, CommitDecided) and item.entry.index - item.entry.position >= first:
            whole.add(item.entry.group_id.int)
    return [found[number] for number in sorted(found.keys() - whole)]


def count_entries(entries: Sequence[LogEntry], stored: Iterable[OpenCommit]) -> CountChanges:
    """
    Return what `entries` add, given the open commits `stored` of the decisions that they settle.
    """
    result = CountChanges()
    open_commits: dict[tuple[int, str], list[OpenCommit]] = {}  # of no UUID, whose hash is a call of Python
    were_open: set[int] = set()
    for commit in stored:
        were_open.add(commit.index)
        open_commits.setdefault((commit.group_id.int, commit.key), []).append(commit)
    for item in entries:
        entry = item.entry
        match item.event:
            case CommitDecided(decision=CommitDecision.APPROVED) as decided:
                commit = _opened(entry, decided)
                open_commits.setdefault((commit.group_id.int, commit.key), []).append(commit)
                result.opened[commit.index] = commit
            case CommitDecided() as decided:
                result.counts[_dimensions(_opened(entry, decided), decided.decision, NO_OUTCOME)] += 1
            case CommitSettled(outcome=CommitOutcome.UNKNOWN) as settled:
                place = decision_of(entry, settled).int, entry.key
                open_commits[place] = [replace(commit, is_unknown=True) for commit in open_commits.get(place, [])]
                result.opened.update({commit.index: commit for commit in open_commits[place]})
            case CommitSettled() as settled:
                for commit in open_commits.pop((decision_of(entry, settled).int, entry.key), []):
                    result.counts[_dimensions(commit, CommitDecision.APPROVED, settled.outcome.value)] += 1
                    result.opened.pop(commit.index, None)
                    if commit.index in were_open:
                        result.closed.add(commit.index)
            case AccessRefused() | CallerRefused() as refused:
                result.refusals[storable(refused.operation), _reason(refused.reason)] += refused.count
            case event:
                kind = kind_of_event(event)
                if kind is not None:
                    result.events[kind] += 1
    return result


def kind_of_event(event: object) -> EventKind | None:
    """
    Return the dimensions of an event of lineage, triggers or detection; None for events that are not counted.
    """
    match event:
        case LineageReceived():
            return EventKind(event.TYPE, event.kind.value)
        case TriggerReceived() | TableIdentified():
            return EventKind(event.TYPE, event.source.value)
        case DetectionFound():
            return EventKind(event.TYPE, event.kind.value, str(event.confidence_percent))
        case ScanFailed():
            return EventKind(event.TYPE, event.fault.value)
        case AlertRaised():
            return EventKind(event.TYPE, event.kind.value)
        case AlertDelivered():
            return EventKind(event.TYPE, storable(event.sink))
        case LineageCycleFound() | CommitObserved() | ScanCompleted() | ScanCompletedV1():
            return EventKind(event.TYPE)
        case _:
            return None


def _opened(entry: Entry, decided: CommitDecided) -> OpenCommit:
    return OpenCommit(
        index=entry.index,
        group_id=entry.group_id,
        key=entry.key,
        recorded_at=entry.recorded_at,
        actor=entry.actor,
        operation=storable(decided.operation),
        reason=_reason(decided.reason),
        is_unknown=False,
    )


def _dimensions(commit: OpenCommit, decision: CommitDecision, outcome: str) -> Dimensions:
    return Dimensions(
        hour=commit.recorded_at.replace(minute=0, second=0, microsecond=0),
        key=commit.key,
        actor=commit.actor,
        operation=commit.operation,
        decision=decision.value,
        outcome=outcome,
        reason=commit.reason,
    )


def _reason(reason: Reason | None) -> str:
    return "" if reason is None else storable(f"{reason.id}/{reason.version}")
