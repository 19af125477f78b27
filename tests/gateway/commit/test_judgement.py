# SPDX-License-Identifier: Apache-2.0
"""
The cache of judgements on reads.
"""

from __future__ import annotations

from gateway.commit.judgement import Judgement, Read, ReadJudgements
from gateway.identifiers import Target
from ledger.format.events import CommitDecision


def judgement(decision: CommitDecision) -> Judgement:
    return Judgement(decision=decision, reason=None, message="", verdicts={}, as_of=0, policy_set="0" * 64)


def read(name: str) -> Read:
    target = Target(alias="lake", namespace=("sales",), name=name)
    return Read(log_id=1, policy_set="0" * 64, actor="a" * 32, roles=(), target=target, operation="table.load")


def test_the_least_recently_used_judgement_is_forgotten() -> None:
    judgements = ReadJudgements(judgements_max=2)
    for name in ("a", "b"):
        judgements.put(read(name), judgement(CommitDecision.APPROVED))
    assert judgements.get(read("a")) is not None
    judgements.put(read("c"), judgement(CommitDecision.REJECTED))
    assert judgements.get(read("b")) is None
    assert judgements.get(read("a")) is not None
    judgements.put(read("d"), judgement(CommitDecision.UNDECIDABLE))
    assert judgements.get(read("d")) is None
