# SPDX-License-Identifier: Apache-2.0
"""
What an edited policy says of its examples and of some recorded decisions, beside what the policy in force says, each
with the values of the parts of its expression. Nothing is saved.

Guarantee: what is not known never counts as a yes, as in a replay (`comparing.py`). All that is tried in one call has
`TRYING_TIMEOUT_S`; what is left then is shown without verdict, and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import UUID

from gateway.commit.gateway import Gateway
from gateway.control.aggregates import Policy
from gateway.errors import UnavailableError
from gateway.policy.engine import POLICY, Outcome, PolicyEngineError, Program, Traced, Verdict
from gateway.policy.examples import Example, variables_given
from gateway.policy.scopes import Scope, covers, without_metadata
from gateway.policy.vocabulary import variables_of
from gateway.policy.words import reads
from gateway.replaying.comparing import PROPOSED, Compared, Evaluated, compare
from gateway.replaying.explaining import activation_of
from gateway.replaying.findings import RecordedFindings
from gateway.replaying.past_metadata import past_metadata
from gateway.replaying.reading import DecisionReader
from gateway.replaying.recorded import PRINCIPAL, VERDICTS, Decision, Lend
from gateway.replaying.replay import SCOPE_UNKNOWN, Proposed, covers_table, known_outcome, needs_of, verdicts_in
from gateway.replaying.variables import Known, Needs, Rebuilder, Unknown, merged, parts_of, view_of
from ledger.format.entry import parse_entry
from ledger.store.read import read_entry

DECISIONS_MAX: Final = 50
TRYING_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """
    What one text of a policy says: `traced` is None if it could not be judged, and `trouble` says why.

    `unknown` says which variables it reads are not known, and why; `unsure`, why it may not apply at all.
    """

    traced: Traced | None
    trouble: str = ""
    unknown: Mapping[str, str] = field(default_factory=dict)
    unsure: str = ""

    @property
    def outcome(self) -> Outcome | None:
        """What it says for certain; None if that is not known."""
        return self.evaluated().outcome

    @property
    def why(self) -> str:
        """Why its outcome is not known, or how it failed."""
        found = self.evaluated()
        return found.why or found.detail

    def evaluated(self) -> Evaluated:
        """Return it as a replay has it."""
        if self.traced is None:
            return Evaluated(None, why=self.trouble)
        verdict = self.traced.verdict
        why = "; ".join(f"{name}: {reason}" for name, reason in self.unknown.items())
        return known_outcome(Evaluated(verdict.outcome, verdict.detail), why, self.unsure)


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedExample:
    """An example, what the policy in force says of it (None: there is none), and what the edited one does."""

    example: Example
    before: Judged | None
    after: Judged

    @property
    def holds(self) -> bool:
        """Whether the edited policy says what the example expects."""
        return self.after.outcome is self.example.expect


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedDecision:
    """
    A recorded decision. `recorded` is what the policy said of it then, None if it was not asked.

    `before` is what version `version` says of it now: the one that was asked then, or else the one in force; None where
    there is none, or it does not apply. `after` is what the edited policy says, None where it does not apply.
    `compared` says what the edit makes of the whole decision.
    """

    decision: Decision
    recorded: Verdict | None
    version: int | None
    before: Judged | None
    after: Judged | None
    compared: Compared


async def try_on_examples(
    gateway: Gateway, log_id: int, expression: str, in_force: str | None, examples: Sequence[Example]
) -> list[TriedExample]:
    """
    Return what an edited expression says of each example, beside that which is `in_force`.
    """
    trial = _Trial(gateway, log_id)
    return [
        TriedExample(
            example=example,
            before=None if in_force is None else await trial.judge(in_force, variables_given(example.given)),
            after=await trial.judge(expression, variables_given(example.given)),
        )
        for example in examples
    ]


async def try_on_decisions(
    gateway: Gateway,
    tenant: UUID,
    log_id: int,
    proposed: Proposed,
    versions: Mapping[int, Policy],
    *,
    in_force: int | None,
    indices: Sequence[int],
) -> list[TriedDecision]:
    """
    Return what an edited policy makes of the decisions at `indices`, at most `DECISIONS_MAX`, in that order.

    `versions` are those that the policy has had, `in_force` is the number of the one in force (None: there is none).

    Raises:
        BrokenError: if an entry or a payload part is corrupt.
        UnavailableError: if the log or a metadata file cannot be reached.
    """
    texts = [proposed.expression, *(policy.expression for policy in versions.values())]
    scopes = [proposed.scope, *(policy.scope for policy in versions.values())]
    needed: list[Needs] = [reads(text, variables_of(POLICY)) for text in texts]
    needed += [needs_of(scope) for scope in scopes]
    lend: Lend = partial(gateway.database.as_role, gateway.roles.tenant(tenant))
    past = await past_metadata(gateway, tenant, log_id)
    rebuilder = Rebuilder(past, RecordedFindings(lend, log_id), merged(needed))
    trial = _Trial(gateway, log_id)
    tried: list[TriedDecision] = []
    for index in indices[:DECISIONS_MAX]:
        decision = await _decision_at(gateway, lend, log_id, index, rebuilder)
        await rebuilder.prepare([decision])
        variables = rebuilder.variables(decision)
        verdicts = verdicts_in(decision.parts.get(VERDICTS))
        of_policy = [one for one in verdicts or () if (one.kind, one.id) == (POLICY, proposed.id)]
        recorded = of_policy[0] if of_policy else None
        version = in_force if recorded is None or recorded.version not in versions else recorded.version
        before = None if version is None else versions[version]
        after = await trial.apply(proposed.expression, proposed.scope, decision, variables)
        outcomes = {} if after is None else {proposed.id: after.evaluated()}
        tried.append(
            TriedDecision(
                decision=decision,
                recorded=recorded,
                version=version,
                before=None
                if before is None
                else await trial.apply(before.expression, before.scope, decision, variables),
                after=after,
                compared=compare(decision.decision, decision.reason, verdicts, outcomes, ids=frozenset({proposed.id})),
            )
        )
    return tried


async def _decision_at(gateway: Gateway, lend: Lend, log_id: int, index: int, rebuilder: Rebuilder) -> Decision:
    async with lend() as connection:
        entry = parse_entry(await read_entry(connection, log_id, index))
    first = index - entry.position
    parts = {VERDICTS, PRINCIPAL, *parts_of(rebuilder.needs)}
    reader = DecisionReader(
        lend, log_id, opener=gateway.opener, parts=parts, with_files=rebuilder.reads_files, first=first
    )
    decisions = [one async for page, _ in reader.pages(first, first + entry.of) for one in page]
    return next(one for one in decisions if one.index == index)


class _Trial:
    """Judges texts until its time is over."""

    def __init__(self, gateway: Gateway, log_id: int) -> None:
        self._gateway = gateway
        self._log_id = log_id
        self._clock = asyncio.get_running_loop().time
        self._ends_s = self._clock() + TRYING_TIMEOUT_S

    async def apply(
        self, expression: str, scope: Scope, decision: Decision, variables: Mapping[str, Known | Unknown]
    ) -> Judged | None:
        """Return what a policy says of a decision; None if it does not apply to it."""
        applies = covers(without_metadata(scope), view_of(decision)) and covers_table(scope, variables)
        if applies is False:
            return None
        activation, unknown = activation_of(_program(expression), variables)
        unsure = SCOPE_UNKNOWN if applies is None else ""
        return await self.judge(expression, activation, unknown=unknown, unsure=unsure)

    async def judge(
        self,
        expression: str,
        activation: Mapping[str, Any],
        *,
        unknown: Mapping[str, str] | None = None,
        unsure: str = "",
    ) -> Judged:
        """Return what an expression says of some variables."""
        unknown = unknown or {}
        left_s = self._ends_s - self._clock()
        if left_s <= 0:
            return Judged(traced=None, trouble=f"what was tried before it took {TRYING_TIMEOUT_S:g} s", unknown=unknown)
        timeout_s = min(self._gateway.judge.timeout_s, left_s)
        try:
            traced = await self._gateway.tracer.trace(
                _program(expression), activation, log_id=self._log_id, timeout_s=timeout_s
            )
        except (PolicyEngineError, UnavailableError) as error:
            return Judged(traced=None, trouble=str(error), unknown=unknown)
        return Judged(traced=traced, unknown=unknown, unsure=unsure)


def _program(expression: str) -> Program:
    return Program(kind=POLICY, id="tried", version=PROPOSED, expression=expression)
