# SPDX-License-Identifier: Apache-2.0
"""
The mutation score of examples: which mistakes they notice, and what is unknown when the time is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.policy.cel.programs import Programs
from gateway.policy.engine import POLICY, DeadlineExceededError, Program, Verdict
from gateway.policy.examples import EMPTY, Example, parse_examples
from gateway.policy.inspected import Mutant
from gateway.policy.mutation_score import MutationScore, mutation_score

PROGRAMS = Programs()

EXPRESSION = "commit.purge && table.format_version < 2"
BOTH = {"commit": {"purge": True}, "table": {"format_version": 1}}
LATER = {"commit": {"purge": True}, "table": {"format_version": 2}}
PLAIN = {"table": {"format_version": 1}}


async def evaluate(
    programs: Sequence[Program], activation: Mapping[str, Any], *, timeout_s: float
) -> tuple[Verdict, ...]:
    """Judge in this process, as the worker does."""
    results = PROGRAMS.judge([(one.kind, one.expression) for one in programs], activation, log_id=0)
    return tuple(
        Verdict(kind=one.kind, id=one.id, version=1, outcome=result.outcome, detail=result.detail)
        for one, result in zip(programs, results, strict=True)
    )


def examples(*some: tuple[str, dict[str, Any]]) -> tuple[Example, ...]:
    return parse_examples([{"expect": expect, "given": given} for expect, given in some])


async def score(expression: str, *some: tuple[str, dict[str, Any]]) -> MutationScore:
    mutants = PROGRAMS.inspect(expression, kind=POLICY, zero=EMPTY).mutants
    return await mutation_score(evaluate, mutants, examples(*some), timeout_s=60)


async def test_examples_on_both_sides_of_every_boundary_kill_every_mutant() -> None:
    found = await score(EXPRESSION, ("allow", BOTH), ("deny", LATER), ("deny", PLAIN))

    assert (found.percent, found.survivors, found.unknown) == (100, (), 0)
    assert found.killed == found.of > 5


async def test_what_the_examples_do_not_notice_survives() -> None:
    found = await score(EXPRESSION, ("allow", BOTH), ("deny", PLAIN))

    assert [one.words for one in found.survivors] == [
        "the operand (table.format_version < 2) of && dropped",
        "< changed to <=",
        "2 changed to 3",
    ]
    assert found.percent == 100 * found.killed // found.of < 100


async def test_without_examples_everything_survives() -> None:
    found = await score(EXPRESSION)

    assert (found.killed, found.percent) == (0, 0)
    assert len(found.survivors) == found.of


async def test_an_expression_that_has_no_mutants_needs_no_examples() -> None:
    assert (await mutation_score(evaluate, (), (), timeout_s=1)).percent == 100


async def test_a_mutant_that_fails_where_the_original_gave_an_answer_is_noticed_and_one_that_compiles_not_is_none() -> (
    None
):
    fails = Mutant(expression="table.properties['x'] == 'y'", line=1, column=1, words="fails")
    is_none = Mutant(expression="no such", line=1, column=1, words="is no expression")

    found = await mutation_score(evaluate, (fails, is_none), examples(("allow", BOTH)), timeout_s=60)

    assert (found.killed, found.survivors) == (1, (is_none,))


async def test_what_was_not_judged_in_time_is_unknown_and_not_killed() -> None:
    calls = 0

    async def slow(
        programs: Sequence[Program], activation: Mapping[str, Any], *, timeout_s: float
    ) -> tuple[Verdict, ...]:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise DeadlineExceededError("the time is over")
        return await evaluate(programs, activation, timeout_s=timeout_s)

    mutants = PROGRAMS.inspect(EXPRESSION, kind=POLICY, zero=EMPTY).mutants
    found = await mutation_score(slow, mutants, examples(("allow", BOTH), ("deny", LATER)), timeout_s=1)

    assert found.unknown > 0
    assert found.killed + found.unknown == found.of == len(mutants)
    assert found.percent < 100
