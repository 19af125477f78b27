# SPDX-License-Identifier: Apache-2.0
"""
What a proposal changes in one decision: the recorded verdicts of others stand, and what is not known is never a yes.
"""

from __future__ import annotations

import itertools

import pytest

from gateway.policy.engine import ACCESS_RULE, POLICY, Outcome, Verdict
from gateway.policy.judging import decide_policies
from gateway.replaying.comparing import (
    AMBIGUOUS,
    NO_ANSWER,
    NO_VERDICTS,
    Change,
    Compared,
    Evaluated,
    compare,
    needs_proposed,
)
from ledger.format.events import CommitDecision

YES, NO, FAILS = Evaluated(Outcome.ALLOW), Evaluated(Outcome.DENY), Evaluated(Outcome.ERROR, "fails")
LOST = Evaluated(None, why="erased")
APPROVED, REJECTED = CommitDecision.APPROVED, CommitDecision.REJECTED
UNDECIDABLE, CONFLICTED = CommitDecision.UNDECIDABLE, CommitDecision.CONFLICTED


def policy(policy_id: str, outcome: Outcome, version: int = 1) -> Verdict:
    return Verdict(kind=POLICY, id=policy_id, version=version, outcome=outcome)


def rule(rule_id: str, outcome: Outcome = Outcome.ALLOW, version: int = 1) -> Verdict:
    return Verdict(kind=ACCESS_RULE, id=rule_id, version=version, outcome=outcome)


def compared(
    decision: CommitDecision,
    reason: tuple[str, int] | None,
    verdicts: list[Verdict] | None,
    *,
    ids: str = "p",
    **proposed: Evaluated,
) -> Compared:
    return compare(decision, reason, verdicts, proposed, ids=frozenset(ids.split()))


@pytest.mark.parametrize(
    ("outcome", "change"),
    [(YES, Change.SAME), (NO, Change.NARROWED), (FAILS, Change.FAILED), (LOST, Change.UNKNOWN)],
)
def test_what_was_approved_stays_so_only_if_every_proposed_policy_allows_it(outcome: Evaluated, change: Change) -> None:
    assert compared(APPROVED, None, None, p=outcome).change is change


def test_a_no_among_unknown_outcomes_is_a_no() -> None:
    assert compared(APPROVED, None, None, ids="p q", p=LOST, q=NO) == Compared(Change.NARROWED, "q")
    assert compared(APPROVED, None, None, ids="p q", p=LOST, q=FAILS).change is Change.UNKNOWN


def test_what_the_old_version_refused_passes_if_the_new_one_allows_it() -> None:
    verdicts = [rule("all"), policy("p", Outcome.DENY), policy("q", Outcome.ALLOW)]
    assert compared(REJECTED, ("p", 1), verdicts, p=YES) == Compared(Change.WIDENED, "p")
    assert compared(REJECTED, ("p", 1), verdicts, p=NO).change is Change.SAME
    assert compared(REJECTED, ("p", 1), verdicts, p=FAILS) == Compared(Change.FAILED, "p")
    assert compared(REJECTED, ("p", 1), verdicts, p=LOST).change is Change.UNKNOWN


def test_what_another_policy_refused_stays_refused() -> None:
    verdicts = [policy("p", Outcome.DENY), policy("q", Outcome.DENY)]
    assert compared(REJECTED, ("p", 1), verdicts, p=YES).change is Change.SAME
    assert compared(REJECTED, ("p", 1), verdicts, p=LOST).change is Change.SAME


def test_what_another_policy_could_not_decide_is_no_approval() -> None:
    verdicts = [policy("p", Outcome.DENY), policy("q", Outcome.ERROR)]
    assert compared(REJECTED, ("p", 1), verdicts, p=YES) == Compared(Change.FAILED, "q")


def test_a_policy_that_no_longer_applies_counts_as_gone() -> None:
    verdicts = [policy("p", Outcome.DENY)]
    assert compared(REJECTED, ("p", 1), verdicts).change is Change.WIDENED


def test_what_access_rules_refused_no_policy_lets_pass() -> None:
    forbidden = [rule("closed"), policy("p", Outcome.DENY)]
    assert compared(REJECTED, ("closed", 1), forbidden, p=YES).change is Change.SAME
    assert compared(REJECTED, None, [rule("all", Outcome.DENY)], p=YES).change is Change.SAME


def test_a_rule_and_a_policy_of_one_id_are_not_told_apart_by_a_guess() -> None:
    verdicts = [rule("p"), policy("p", Outcome.DENY)]
    assert compared(REJECTED, ("p", 1), verdicts, p=YES) == Compared(Change.UNKNOWN, "p", AMBIGUOUS)


def test_without_the_verdicts_of_the_others_nothing_is_known() -> None:
    assert compared(REJECTED, ("p", 1), None, p=YES) == Compared(Change.UNKNOWN, "p", NO_VERDICTS)
    assert not needs_proposed(REJECTED, ("p", 1), None)


def test_what_could_not_be_decided_is_decided_or_stays_so() -> None:
    verdicts = [policy("p", Outcome.ERROR)]
    assert compared(UNDECIDABLE, ("p", 1), verdicts, p=YES) == Compared(Change.WIDENED, "p")
    assert compared(UNDECIDABLE, ("p", 1), verdicts, p=NO).change is Change.SAME
    assert compared(UNDECIDABLE, ("p", 1), verdicts, p=FAILS).change is Change.SAME
    assert compared(UNDECIDABLE, None, [], p=YES) == Compared(Change.UNKNOWN, "", NO_ANSWER)


def test_a_conflict_is_not_judged() -> None:
    assert compared(CONFLICTED, None, None, p=NO).change is Change.NOT_JUDGED
    assert not needs_proposed(CONFLICTED, None, None)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_change_holds_whatever_the_unknown_outcomes_are(count: int) -> None:
    """All outcomes of `count` proposed policies and one other, with each subset unknown."""
    known = (YES, NO, FAILS)
    for other, outcomes in itertools.product(Outcome, itertools.product(known, repeat=count)):
        before = [policy("old", Outcome.DENY), policy("other", other)]
        for hidden in itertools.product((False, True), repeat=count):
            named = [f"p{number}" for number in range(count)]
            proposed = {
                name: LOST if is_hidden else outcome
                for name, outcome, is_hidden in zip(named, outcomes, hidden, strict=True)
            }
            whole = dict(zip(named, outcomes, strict=True))
            ids = frozenset({"old", *named})
            for decision, reason, verdicts in (
                (APPROVED, None, None),
                (decide_policies(before).outcome, ("old", 1), before),
            ):
                seen = compare(decision, reason, verdicts, proposed, ids=ids)
                truth = compare(decision, reason, verdicts, whole, ids=ids)
                assert seen.change in {Change.UNKNOWN, truth.change}
