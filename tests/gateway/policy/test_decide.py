"""From the verdicts of policies to a decision."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.decide import Decided, decide
from gateway.policy.engine import ACCESS_RULE, POLICY, Outcome, Verdict

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
        ([], Decided.APPROVED),
        ([ALLOW], Decided.APPROVED),
        ([ALLOW, ALLOW], Decided.APPROVED),
        ([DENY], Decided.REJECTED),
        ([ALLOW, DENY], Decided.REJECTED),
        ([ERROR], Decided.UNDECIDABLE),
        ([ALLOW, ERROR], Decided.UNDECIDABLE),
        ([ERROR, DENY], Decided.REJECTED),
        ([DENY, ERROR], Decided.REJECTED),
    ],
)
def test_the_lowest_of_no_unknown_and_yes_wins(outcomes: list[Outcome], decided: Decided) -> None:
    assert decide([verdict(outcome) for outcome in outcomes]).outcome is decided


@given(verdicts)
@settings(max_examples=100)
def test_only_a_yes_from_every_policy_approves(given_verdicts: list[Verdict]) -> None:
    decision = decide(given_verdicts)
    everyone_allows = all(one.outcome is ALLOW for one in given_verdicts)
    assert (decision.outcome is Decided.APPROVED) == everyone_allows


@given(verdicts, st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_the_order_of_policies_does_not_change_the_outcome(given_verdicts: list[Verdict], random: object) -> None:
    shuffled = list(given_verdicts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # Hypothesis gives a random.Random and says so nowhere
    assert decide(shuffled).outcome is decide(given_verdicts).outcome


@given(verdicts, verdicts)
@settings(max_examples=100)
def test_another_policy_never_makes_a_decision_milder(some: list[Verdict], more: list[Verdict]) -> None:
    severity = {Decided.APPROVED: 0, Decided.UNDECIDABLE: 1, Decided.REJECTED: 2}
    assert severity[decide(some + more).outcome] >= severity[decide(some).outcome]


@given(verdicts)
@settings(max_examples=100)
def test_the_reason_is_the_first_verdict_of_the_outcome(given_verdicts: list[Verdict]) -> None:
    decision = decide(given_verdicts)
    cause = {Decided.REJECTED: DENY, Decided.UNDECIDABLE: ERROR}.get(decision.outcome)
    first = next((one for one in given_verdicts if one.outcome is cause), None)
    assert decision.reason == (None if first is None else (first.id, first.version))
    assert bool(decision.message) == (first is not None)


def test_the_reason_names_the_policy_to_the_client() -> None:
    decision = decide([verdict(ALLOW, name="a"), verdict(DENY, name="tenant-id"), verdict(DENY, name="other")])
    assert decision.reason == ("tenant-id", 1)
    assert decision.message == "policy tenant-id (version 1) does not allow this commit"


def test_verdicts_of_access_rules_are_left_to_them() -> None:
    assert decide([verdict(DENY, kind=ACCESS_RULE), verdict(ALLOW)]).outcome is Decided.APPROVED


def test_a_verdict_of_an_unknown_kind_is_undecidable_even_if_it_allows() -> None:
    assert decide([verdict(ALLOW, kind="plugin")]).outcome is Decided.UNDECIDABLE
