# SPDX-License-Identifier: Apache-2.0
"""From the verdicts of policies to a decision."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.engine import ACCESS_RULE, POLICY, Outcome, Verdict
from gateway.policy.judging import decide_policies
from ledger.format.events import CommitDecision

verdicts = st.lists(
    st.builds(
        Verdict,
        kind=st.just(POLICY),
        id=st.sampled_from("abcd"),
        version=st.integers(1, 3),
        outcome=st.sampled_from(Outcome),
        detail=st.just(""),
    ),
    max_size=6,
)


def verdict(outcome: Outcome, *, name: str = "p", kind: str = POLICY) -> Verdict:
    return Verdict(kind=kind, id=name, version=1, outcome=outcome)


ALLOW, DENY, ERROR = Outcome.ALLOW, Outcome.DENY, Outcome.ERROR


@pytest.mark.parametrize(
    ("outcomes", "decided"),
    [
        ([], CommitDecision.APPROVED),
        ([ALLOW], CommitDecision.APPROVED),
        ([ALLOW, ALLOW], CommitDecision.APPROVED),
        ([DENY], CommitDecision.REJECTED),
        ([ALLOW, DENY], CommitDecision.REJECTED),
        ([ERROR], CommitDecision.UNDECIDABLE),
        ([ALLOW, ERROR], CommitDecision.UNDECIDABLE),
        ([ERROR, DENY], CommitDecision.REJECTED),
        ([DENY, ERROR], CommitDecision.REJECTED),
    ],
)
def test_the_lowest_of_no_unknown_and_yes_wins(outcomes: list[Outcome], decided: CommitDecision) -> None:
    assert decide_policies([verdict(outcome) for outcome in outcomes]).outcome is decided


@given(verdicts)
@settings(max_examples=100)
def test_only_a_yes_from_every_policy_approves(given_verdicts: list[Verdict]) -> None:
    decision = decide_policies(given_verdicts)
    everyone_allows = all(one.outcome is ALLOW for one in given_verdicts)
    assert (decision.outcome is CommitDecision.APPROVED) == everyone_allows


@given(verdicts, st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_the_order_of_policies_does_not_change_the_outcome(given_verdicts: list[Verdict], random: object) -> None:
    shuffled = list(given_verdicts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # Hypothesis gives a random.Random and says so nowhere
    assert decide_policies(shuffled).outcome is decide_policies(given_verdicts).outcome


@given(verdicts, verdicts)
@settings(max_examples=100)
def test_another_policy_never_makes_a_decision_milder(some: list[Verdict], more: list[Verdict]) -> None:
    severity = {CommitDecision.APPROVED: 0, CommitDecision.UNDECIDABLE: 1, CommitDecision.REJECTED: 2}
    assert severity[decide_policies(some + more).outcome] >= severity[decide_policies(some).outcome]


@given(verdicts)
@settings(max_examples=100)
def test_the_reason_is_the_first_verdict_of_the_outcome(given_verdicts: list[Verdict]) -> None:
    decision = decide_policies(given_verdicts)
    cause = {CommitDecision.REJECTED: DENY, CommitDecision.UNDECIDABLE: ERROR}.get(decision.outcome)
    first = next((one for one in given_verdicts if one.outcome is cause), None)
    assert decision.reason == (None if first is None else (first.id, first.version))
    assert bool(decision.message) == (first is not None)


def test_the_reason_names_the_policy_to_the_client() -> None:
    decision = decide_policies([verdict(ALLOW, name="a"), verdict(DENY, name="tenant-id"), verdict(DENY, name="other")])
    assert decision.reason == ("tenant-id", 1)
    assert decision.message == "policy tenant-id (version 1) does not allow this commit"


def test_verdicts_of_access_rules_are_left_to_them() -> None:
    assert decide_policies([verdict(DENY, kind=ACCESS_RULE), verdict(ALLOW)]).outcome is CommitDecision.APPROVED


def test_a_verdict_of_an_unknown_kind_is_undecidable_even_if_it_allows() -> None:
    assert decide_policies([verdict(ALLOW, kind="plugin")]).outcome is CommitDecision.UNDECIDABLE
