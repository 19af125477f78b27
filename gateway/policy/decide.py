"""
From the verdicts of all policies to the decision on a commit.

Guarantee: approved only if every policy allows; and the same verdicts in the same order give the same decision.

Policies are joined by *and* in three values (Kleene's): no, unknown, yes, and the lowest wins. A policy that says no
settles the matter even where another could not be judged: the commit is refused whatever that one would have said, and
a client should not be told to try again what cannot succeed. Without a no, one policy that could not be judged makes
the whole undecidable: it might have said no.

No policies at all approve. They only ever restrict; what nobody has permitted is refused by the access rules before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gateway.policy.engine import ACCESS_RULE, POLICY, Outcome, Verdict


class Decided(StrEnum):
    """What policies can decide about a commit."""

    APPROVED = "approved"
    REJECTED = "rejected"
    UNDECIDABLE = "undecidable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome, and the policy (id, version) that is its reason; `message` is for the client, empty if approved."""

    outcome: Decided
    reason: tuple[str, int] | None = None
    message: str = ""


def decide(verdicts: Sequence[Verdict]) -> Decision:
    """
    Return the decision that follows from `verdicts`, whose order decides which of several refusals is the reason.

    Verdicts of access rules may stand among them and are left to `access.decide_access`; any other kind is undecidable.
    """
    judged = [verdict for verdict in verdicts if verdict.kind != ACCESS_RULE]
    for verdict in judged:
        if verdict.kind == POLICY and verdict.outcome is Outcome.DENY:
            message = f"policy {verdict.id} (version {verdict.version}) does not allow this commit"
            return Decision(outcome=Decided.REJECTED, reason=(verdict.id, verdict.version), message=message)
    for verdict in judged:
        if verdict.kind != POLICY or verdict.outcome is not Outcome.ALLOW:
            message = f"policy {verdict.id} (version {verdict.version}) could not be judged: {verdict.detail}"
            return Decision(outcome=Decided.UNDECIDABLE, reason=(verdict.id, verdict.version), message=message)
    return Decision(outcome=Decided.APPROVED)
