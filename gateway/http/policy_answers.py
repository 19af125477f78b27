# SPDX-License-Identifier: Apache-2.0
"""
What the routes on policies in files and on replays of policies answer, as `/openapi.json` describes it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gateway.http.answer_models import Answered, JobShown


class ExpressionRefused(Answered):
    """Where (line and column of the file, from 1) and why an expression does not compile; `shown` marks the place."""

    line: int
    column: int
    reason: str
    shown: str


class BranchMissing(Answered):
    """A branch at a place, what depends on it (`part`), and the value that it never took."""

    line: int
    column: int
    part: str
    text: str
    never: Literal["true", "false"]


class ExamplesCoverage(Answered):
    """How many of the two directions of each branch some example takes, and which none does."""

    directions: int
    taken: int
    missing: list[BranchMissing]


class MutantSurvived(Answered):
    """A change of an expression, at a place, that no example notices."""

    line: int
    column: int
    change: str
    expression: str


class ExamplesMutation(Answered):
    """How many changes of an expression some example notices; `unknown` were not tried in time."""

    mutants: int
    killed: int
    unknown: int
    percent: int
    survivors: list[MutantSurvived]


class PolicyTested(Answered):
    """How a policy does on its examples; `failing` has a sentence for each that does not hold."""

    file: str
    id: str
    examples: int
    refused: ExpressionRefused | None
    failing: list[str]
    coverage: ExamplesCoverage | None
    mutation: ExamplesMutation | None


class PoliciesTested(Answered):
    """Policies that were tested; they are `clean` if all compile and all examples hold."""

    clean: bool
    policies: list[PolicyTested]


class PolicyFinding(Answered):
    """Something that looks wrong at a place of a file; `rule` says of which kind it is."""

    policy: str
    file: str
    line: int
    column: int
    rule: str
    words: str


class PoliciesLinted(Answered):
    """How many policies were looked at, and what was found."""

    clean: bool
    policies: int
    findings: list[PolicyFinding]


class PolicyCompiled(Answered):
    """
    An expression with all brackets, what it reads and calls, and how its cost grows with the lists that it loops over.
    """

    file: str | None
    id: str | None
    refused: ExpressionRefused | None
    expression: str | None
    reads: list[str]
    functions: list[str]
    cost: str | None


class PoliciesCompiled(Answered):
    """Expressions that were looked at; they are `clean` if all compile."""

    clean: bool
    policies: list[PolicyCompiled]


class PolicyProposed(Answered):
    """What of a proposed policy can change a verdict."""

    id: str
    expression: str
    scope: dict[str, list[str]]


class PolicyReplayShown(JobShown):
    """A replay of proposed policies over the decisions recorded since a time (RFC 3339)."""

    since: str
    policies: list[PolicyProposed]
    coverage: bool


class PolicyReplaysShown(Answered):
    """The replays that are kept."""

    policy_replays: list[PolicyReplayShown] = Field(alias="policy-replays")


class DecisionCounts(Answered):
    """How many decisions change how; what is `unknown` depends on what was erased or not recorded."""

    same: int
    widened: int
    narrowed: int
    failed: int
    unknown: int
    not_judged: int


class ReplayDigests(Answered):
    """SHA-256 of the proposal, of what was judged, and of the verdicts."""

    proposal: str
    inputs: str
    verdicts: str


class ReplayChange(Answered):
    """
    Decisions that change alike: by which policy, of which target and caller (`principal` is null if erased), how many,
    and the index of the first.
    """

    change: str
    rule: str
    key: str
    actor: str
    principal: str | None
    why: str
    first: int
    decisions: int


class ChangeCounts(Answered):
    """How many decisions of one caller, table or policy change how."""

    widened: int
    narrowed: int
    failed: int
    unknown: int


class ReplaySum(Answered):
    """The changes of one table or policy; `first` is the index of one of its decisions."""

    of: str
    first: int
    counts: ChangeCounts


class PrincipalSum(ReplaySum):
    """The changes of one caller, whose name is null if it was erased."""

    principal: str | None


class BranchReached(Answered):
    """A branch of an expression, at line and column of its text, and how many decisions made it true, and false."""

    line: int
    column: int
    part: str
    text: str
    true: int
    false: int


class HistoryCoverage(Answered):
    """How many directions of a policy's branches decisions have taken, and which none has; `not_listed` are counted."""

    policy: str
    directions: int
    taken: int
    branches: list[BranchReached]
    missing: list[BranchMissing]
    not_listed: int


class PolicyReplayResult(Answered):
    """What a replay of entries `first` up to `end` has found; `coverage` is empty if it was not asked for."""

    first: int
    end: int
    decisions: int
    counts: DecisionCounts
    digests: ReplayDigests
    changes: list[ReplayChange]
    not_listed: int
    by_principal: list[PrincipalSum]
    by_table: list[ReplaySum]
    by_rule: list[ReplaySum]
    coverage: list[HistoryCoverage]


class PolicyReplayDone(PolicyReplayShown):
    """A replay, and what it found once it is done."""

    result: PolicyReplayResult | None


class PolicyReplayAttested(Answered):
    """The index of the entry that records what a replay found."""

    id: str
    index: int
