# SPDX-License-Identifier: Apache-2.0
"""
The mutation score of a policy's examples: how many small mistakes in its expression they would notice.

Each mutant (`cel/mutants.py`) is judged on the examples, like any program, until one of them gives another outcome than
it expects: that example kills it. A mutant that survives is a mistake that no example would show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.policy.engine import POLICY, Outcome, PolicyEngineError, Program, Verdict
from gateway.policy.examples import Example, variables_given
from gateway.policy.inspected import Mutant
from gateway.policy.judging import Evaluate, countdown


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationScore:
    """How many mutants were killed, which survived, and how many are unknown because the time was over."""

    killed: int
    survivors: tuple[Mutant, ...]
    unknown: int = 0

    @property
    def of(self) -> int:
        """All mutants."""
        return self.killed + len(self.survivors) + self.unknown

    @property
    def percent(self) -> int:
        """The share that is known to be killed, rounded down; 100 if there are no mutants."""
        return 100 * self.killed // self.of if self.of else 100


async def mutation_score(
    evaluate: Evaluate, mutants: Sequence[Mutant], examples: Sequence[Example], *, timeout_s: float
) -> MutationScore:
    """
    Return the score of `examples`, which must hold for the original; all together may take `timeout_s`.
    """
    remaining_s = countdown(timeout_s)
    living, killed = list(mutants), 0
    for example in examples:
        programs = [Program(kind=POLICY, id="mutant", version=1, expression=one.expression) for one in living]
        try:
            verdicts = await evaluate(programs, variables_given(example.given), timeout_s=remaining_s())
        except PolicyEngineError:
            return MutationScore(killed=killed, survivors=(), unknown=len(living))
        surviving = [
            mutant for mutant, verdict in zip(living, verdicts, strict=True) if not _is_noticed(verdict, example)
        ]
        killed += len(living) - len(surviving)
        living = surviving
    return MutationScore(killed=killed, survivors=tuple(living))


def _is_noticed(verdict: Verdict, example: Example) -> bool:
    """Return whether an example shows that a mutant is wrong; an expression too deep to compile is no mutant."""
    is_error = verdict.outcome is Outcome.ERROR
    return verdict.outcome is not example.expect and not (is_error and verdict.detail.startswith("does not compile"))
