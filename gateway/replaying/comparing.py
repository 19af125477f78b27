# SPDX-License-Identifier: Apache-2.0
"""
What a proposal changes in one recorded decision. Pure.

The recorded verdicts of all other policies and of access rules stand as they were; those of policies with an id of the
proposal are replaced. So a request that access rules refused stays refused, and one that another policy refused, too.

Guarantee: what is not known never counts as a yes. A change is `SAME`, `WIDENED`, `NARROWED` or `FAILED` only if it is
so whatever the unknown values are; otherwise it is `UNKNOWN`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.policy.engine import ACCESS_RULE, POLICY, Outcome, Verdict
from gateway.policy.judging import Decision as Ruled
from gateway.policy.judging import decide_policies
from ledger.format.events import CommitDecision

PROPOSED: Final = 0
"""The version of a proposed policy: it has none yet."""


class Change(StrEnum):
    """What a proposal makes of a recorded decision."""

    SAME = "same"
    """It lets through, or refuses, what was let through or refused."""
    WIDENED = "widened"
    """What was refused would pass."""
    NARROWED = "narrowed"
    """What passed would be refused."""
    FAILED = "failed"
    """It could not be decided any more: a proposed policy fails on these inputs."""
    UNKNOWN = "unknown"
    """What it depends on was erased, or not recorded."""
    NOT_JUDGED = "not_judged"
    """No policy was asked: the mutation could not be made, because of a conflict."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A change; `rule` is the policy that it is due to, empty for none; `why` says what is not known."""

    change: Change
    rule: str = ""
    why: str = ""


SAME: Final = Compared(Change.SAME)
NOT_JUDGED: Final = Compared(Change.NOT_JUDGED)
NO_VERDICTS: Final = "the verdicts of the other policies were erased"
NO_ANSWER: Final = "the policy engine gave no answer then"
AMBIGUOUS: Final = "an access rule has the same id and version as the policy"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """
    The outcome of a proposed policy; None if it is not known, and `why`. `detail` describes an error, and `taken` are
    the branches that it took, if they were asked for (`coverage.py`).
    """

    outcome: Outcome | None
    detail: str = ""
    why: str = ""
    taken: int = 0


def compare(
    decision: CommitDecision,
    reason: tuple[str, int] | None,
    verdicts: Sequence[Verdict] | None,
    proposed: Mapping[str, Evaluated],
    *,
    ids: frozenset[str],
) -> Compared:
    """
    Return what a proposal changes in a decision with these verdicts (None: erased).

    `proposed` has the outcomes of the proposed policies that apply to it; `ids` are those of all of them, whose
    recorded verdicts do not count any more. The verdicts of an approved decision are not needed: all were yes.
    """
    match decision:
        case CommitDecision.CONFLICTED:
            return NOT_JUDGED
        case CommitDecision.APPROVED:
            return _after_approval(proposed)
        case CommitDecision.REJECTED | CommitDecision.UNDECIDABLE:
            return _after_refusal(decision, reason, verdicts, proposed, ids)


def needs_proposed(
    decision: CommitDecision, reason: tuple[str, int] | None, verdicts: Sequence[Verdict] | None
) -> bool:
    """
    Return whether the proposed policies have to be evaluated to compare this decision.
    """
    if decision is CommitDecision.CONFLICTED:
        return False
    return decision is CommitDecision.APPROVED or (
        verdicts is not None and (_by_policies(decision, reason, verdicts) or reason is None)
    )


def _after_approval(proposed: Mapping[str, Evaluated]) -> Compared:
    ruled, unknown = _ruled((), proposed)
    match ruled.outcome:
        case CommitDecision.REJECTED:
            return Compared(Change.NARROWED, _rule(ruled))
        case _ if unknown is not None:
            return Compared(Change.UNKNOWN, unknown, proposed[unknown].why)
        case CommitDecision.UNDECIDABLE:
            return Compared(Change.FAILED, _rule(ruled))
        case _:
            return SAME


def _after_refusal(
    decision: CommitDecision,
    reason: tuple[str, int] | None,
    verdicts: Sequence[Verdict] | None,
    proposed: Mapping[str, Evaluated],
    ids: frozenset[str],
) -> Compared:
    rule = "" if reason is None else reason[0]
    if verdicts is None:
        return Compared(Change.UNKNOWN, rule, NO_VERDICTS)
    if not _by_policies(decision, reason, verdicts):
        if decision is CommitDecision.UNDECIDABLE and reason is None:
            return Compared(Change.UNKNOWN, rule, NO_ANSWER)
        return SAME  # access rules decided it
    if any((one.kind, one.id, one.version) == (ACCESS_RULE, *(reason or ("", 0))) for one in verdicts):
        return Compared(Change.UNKNOWN, rule, AMBIGUOUS)
    others = [one for one in verdicts if one.kind == POLICY and one.id not in ids]
    ruled, unknown = _ruled(others, proposed)
    match ruled.outcome:
        case CommitDecision.REJECTED:
            return SAME
        case _ if unknown is not None:
            return Compared(Change.UNKNOWN, unknown, proposed[unknown].why)
        case CommitDecision.UNDECIDABLE:
            return SAME if decision is CommitDecision.UNDECIDABLE else Compared(Change.FAILED, _rule(ruled))
        case _:
            return Compared(Change.WIDENED, rule)


def _by_policies(decision: CommitDecision, reason: tuple[str, int] | None, verdicts: Sequence[Verdict]) -> bool:
    """Return whether policies decided it, not access rules, which come first."""
    ruled = decide_policies(verdicts)
    return (ruled.outcome, ruled.reason) == (decision, reason)


def _ruled(others: Sequence[Verdict], proposed: Mapping[str, Evaluated]) -> tuple[Ruled, str | None]:
    """Return the decision by all that is known, and the first proposed policy whose outcome is not known."""
    known = [
        Verdict(kind=POLICY, id=policy, version=PROPOSED, outcome=one.outcome, detail=one.detail)
        for policy, one in proposed.items()
        if one.outcome is not None
    ]
    return decide_policies([*others, *known]), next(
        (name for name, one in proposed.items() if one.outcome is None), None
    )


def _rule(ruled: Ruled) -> str:
    return "" if ruled.reason is None else ruled.reason[0]
